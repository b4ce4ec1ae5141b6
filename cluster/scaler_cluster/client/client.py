"""The client: submits single tasks and maps to a running cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from scaler_cluster.client.map import map_calls
from scaler_cluster.client.serializer import Serialization
from scaler_cluster.core.placement import to_capabilities
from scaler_cluster.errors import ConfigError
from scaler_cluster.runtime import inside
from scaler_cluster.runtime.session import CONNECT_TIMEOUT_S, Session
from scaler_cluster.wire.messages import TaskOptions, intern_options

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.serializer import Serializer
    from scaler_cluster.payload import ObjectReference

T = TypeVar("T")
_NAME_OF_DASK = re.compile(r".+-[0-9a-f]{32}")
"""What Dask calls its nodes: old versions pass such keys with a plain dictionary."""


class Client:
    """A connection to a scheduler; usable from several threads, and as a context manager.

    It may be an argument of tasks, which submit tasks through it.

    Args:
        address: Address of the scheduler, as :meth:`SchedulerClusterCombo.get_address` gives it;
            not needed inside of tasks.
        timeout_seconds: How long to wait for it.
        serializer: How functions, arguments and results become bytes; default: pickle, and
            cloudpickle where that is not enough.
        stream_output: Whether what tasks print is printed here.

    Raises:
        ClusterUnreachable: Nobody answers at ``address`` in time.
        ConfigError: There is no address, outside of tasks.

    """

    asynchronous = False
    """For Dask, which asks every client."""

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout_seconds: float = CONNECT_TIMEOUT_S,
        serializer: type[Serializer] | Serializer | None = None,
        stream_output: bool = False,
    ) -> None:
        self._serialization = Serialization(serializer) if serializer is not None else None
        self._options = intern_options(TaskOptions(stream_output=stream_output))
        self._session = _open(address, "", timeout_seconds)
        self._address = self._session.address
        self._cluster = self._session.core.welcome.homes[0].disk
        self._persisted: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
        """Values of Dask's collections that are on the cluster, as long as somebody has them."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> ScalerFuture[T]:
        """Schedule ``fn(*args, **kwargs)`` and return its future.

        Raises SessionClosed after :meth:`disconnect`. What cannot be pickled fails its own future.
        """
        return self.submit_verbose(fn, args, kwargs)

    def submit_verbose(
        self,
        fn: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        capabilities: Mapping[str, float] | None = None,
        reserialize: bool = False,
    ) -> ScalerFuture[T]:
        """Schedule ``fn(*args, **kwargs)`` as :meth:`submit` does, with options.

        Args:
            fn: What to call.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            capabilities: What the worker that runs it must have, as ``{"gpu": 1}``; -1: it only
                has to be there. While no worker has it, the task waits, and the log says so.
            reserialize: Look at large arguments anew, which may have been changed since they
                were first passed.

        """
        function: Callable[..., Any] = fn
        serialization = self._serialization
        if serialization is not None:
            function = serialization.function(fn)
            args = tuple(map(serialization.value, args))
            kwargs = {name: serialization.value(value) for name, value in kwargs.items()}
        options = self._with(capabilities)
        return self._session.submit(function, args, kwargs, options, again=reserialize)

    def map(
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        capabilities: Mapping[str, float] | None = None,
        reserialize: bool = False,
    ) -> list[T]:
        """Return ``fn`` over ``iterables`` as the builtin ``map`` would, as a list.

        The first exception, in order, is raised; the rest of this map is then cancelled, and the
        client goes on. ``capabilities`` and ``reserialize`` as in :meth:`submit_verbose`.
        """
        if not iterables:
            raise TypeError("map() must have at least one iterable")
        items = zip(*iterables, strict=False)
        return self.starmap(fn, items, capabilities=capabilities, reserialize=reserialize)

    def starmap(
        self,
        fn: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        /,
        capabilities: Mapping[str, float] | None = None,
        reserialize: bool = False,
    ) -> list[T]:
        """Return ``[fn(*args) for args in iterable]``; otherwise as :meth:`map`."""
        function: Callable[..., Any] = fn
        items: Iterator[Iterable[Any]] = iter(iterable)
        serialization = self._serialization
        if serialization is not None:
            function = serialization.function(fn)
            items = (tuple(map(serialization.value, args)) for args in iterable)
        options = self._with(capabilities)
        return list(map_calls(self._session, function, items, options=options, again=reserialize))

    def get(
        self,
        graph: Mapping[Any, Any],
        keys: Iterable[Any],
        block: bool = True,
        capabilities: Mapping[str, float] | None = None,
        reserialize: bool = False,
        **named: Any,
    ) -> Any:
        """Run a graph, and return what ``keys`` of it are, in their order.

        A value of the graph is data or ``(function, *arguments)``. An argument that is a key of
        the graph stands for what that is, also within a list; a string must be one.

        Args:
            graph: Values by key.
            keys: What is wanted; only what that needs is run.
            block: Whether to wait; else the futures are returned.
            capabilities: What each node demands, as in :meth:`submit_verbose`.
            reserialize: As there.
            **named: With a graph of Dask, as ``dask.compute(x, scheduler=client)`` passes it, what
                :meth:`dask_get` takes.

        Raises:
            KeyError: A key is missing, wanted twice, or named and not in the graph.
            CycleError: Of ``graphlib``; nodes depend on each other.
            PayloadError: A node cannot be pickled; it says which, and nothing was run.

        """
        if _is_of_dask(graph, keys):
            return self.dask_get(graph, keys, **named)
        if named:
            raise TypeError(f"get() got an unexpected keyword argument {next(iter(named))!r}")
        wanted, options = list(keys), self._with(capabilities)
        if not block:
            return self._start_graph(graph, wanted, options, again=reserialize)
        return self._get_graph(graph, wanted, options, again=reserialize)

    def dask_get(self, dsk: Any, keys: Any, **named: Any) -> Any:
        """Run a graph of Dask on this cluster: a scheduler, as :func:`scaler_get` is one."""
        from scaler_cluster.client import dask_graph

        return dask_graph.get(self, dsk, keys, self._options, **named)

    def persist(self, collections: Any, **named: Any) -> Any:
        """Compute collections of Dask and keep the values on the cluster; called by Dask."""
        from scaler_cluster.client import dask_graph

        return dask_graph.persist(self, collections, self._options, **named)

    def _with(self, capabilities: Mapping[str, float] | None) -> TaskOptions:
        if not capabilities:
            return self._options
        return replace(self._options, capabilities=to_capabilities(capabilities))

    def _start_graph(
        self,
        graph: Mapping[Any, Any],
        keys: list[Any],
        options: TaskOptions,
        own_options: Mapping[Any, TaskOptions] | None = None,
        *,
        again: bool = False,
    ) -> dict[Any, ScalerFuture[Any]]:
        return self._session.graphs.get(
            graph, keys, options, self._serialization, own_options=own_options, again=again
        )

    def _get_graph(
        self,
        graph: Mapping[Any, Any],
        keys: list[Any],
        options: TaskOptions,
        own_options: Mapping[Any, TaskOptions] | None = None,
        *,
        again: bool = False,
    ) -> dict[Any, Any]:
        futures = self._start_graph(graph, keys, options, own_options, again=again)
        try:
            return {key: future.result() for key, future in futures.items()}
        except BaseException:
            self._cancel([one for key, one in futures.items() if graph[key] is not one])
            raise

    def _cancel(self, futures: Iterable[ScalerFuture[Any]]) -> None:
        self._session.cancel(list(futures))

    def send_object(self, obj: Any, name: str | None = None) -> ObjectReference:
        """Store a value now, and return what may be passed to tasks in its place.

        As a positional argument of its own, as often as wanted, until :meth:`clear`. Raises
        PayloadError if it cannot be pickled, StorageFull if there is no room for it.
        """
        value = obj if self._serialization is None else self._serialization.value(obj)
        return self._session.send_object(value, name or f"<obj {type(obj).__qualname__}>")

    def clear(self) -> None:
        """Cancel everything that has not come back and drop all objects; the client can go on."""
        self._session.give_up()
        self._session.clear_objects()

    def disconnect(self) -> None:
        """Cancel everything that has not come back and leave the cluster; idempotent."""
        self._session.close("the client was disconnected", abandon=True)

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect."""
        self.disconnect()

    def __reduce__(self) -> Any:
        """Become a client of the same cluster, where it is unpickled."""
        serializer = self._serialization.serializer if self._serialization is not None else None
        state = self._address, self._cluster, serializer, self._options.stream_output
        return _revive, state

    def __getattr__(self, name: str) -> Any:
        """Connect when a client that was unpickled is first used."""
        if name != "_session" or "_address" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._session = _open(self._address, self._cluster, CONNECT_TIMEOUT_S)
        return self._session

    def __del__(self) -> None:
        """Disconnect, without waiting for it."""
        if "_session" in self.__dict__:
            self._session.close("the client was deleted", abandon=True, wait=False)


def _is_of_dask(graph: Any, keys: Any) -> bool:
    """Return True for what only Dask passes: a graph of its own, keys in lists, its names."""
    if hasattr(graph, "__dask_graph__") or hasattr(graph, "layers"):
        return True
    if type(keys) is not list or not keys:
        return False
    first = keys[0][0] if type(keys[0]) is tuple and keys[0] else keys[0]
    return any(type(key) is list for key in keys) or (
        type(first) is str and _NAME_OF_DASK.fullmatch(first) is not None
    )


def _revive(
    address: str,
    cluster: str,
    serializer: type[Serializer] | Serializer | None,
    stream_output: bool,
) -> Client:
    client = object.__new__(Client)
    client._serialization = Serialization(serializer) if serializer is not None else None
    client._options = intern_options(TaskOptions(stream_output=stream_output))
    client._address = address
    client._cluster = cluster
    return client


def _open(address: str | None, cluster: str, timeout: float) -> Session:
    """Return the session of this worker's tasks where that leads to the cluster, else a new one."""
    nested = inside.nested_session(address, cluster)
    if nested is not None:
        nested.scope()
        return nested
    if address is None:
        raise ConfigError("a Client needs the address of a scheduler, except inside of a task")
    return Session(address, timeout=timeout)

"""The client: submits single tasks and maps to a running cluster."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from scaler_cluster import arguments
from scaler_cluster.client.calls import rows_of, takes
from scaler_cluster.client.graph_runner import GraphRunner
from scaler_cluster.client.map import STEADY, map_calls, zipped
from scaler_cluster.client.serializer import DefaultSerializer, Serialization
from scaler_cluster.config.values import STORAGES, read_given_address
from scaler_cluster.errors import ConfigError, PayloadError
from scaler_cluster.runtime import inside
from scaler_cluster.runtime.records import level_of
from scaler_cluster.runtime.session import Session
from scaler_cluster.texts import shown
from scaler_cluster.wire.messages import TaskOptions, intern_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from os import PathLike
    from types import TracebackType

    from typing_extensions import Self

    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.progress import Bar
    from scaler_cluster.client.serializer import Serializer
    from scaler_cluster.config.values import HasAddress
    from scaler_cluster.payload import ObjectReference
    from scaler_cluster.runtime.dashboard_link import DashboardLink

T = TypeVar("T")
_NAME_OF_DASK = re.compile(r".+-[0-9a-f]{32}")
"""What Dask calls its nodes: old versions pass such keys with a plain dictionary."""


@dataclass(frozen=True)
class _Settings:
    """What a client was given, but for its address: it takes that along where it is pickled."""

    profiling: bool
    timeout_s: float
    heartbeat_s: float
    serializer: type[Serializer] | Serializer | None
    stream_output: bool
    log_level: int
    storages: tuple[str, ...]


class Client:
    """A connection to a scheduler; usable from several threads, and as a context manager.

    It may be an argument of tasks, which submit tasks through it, and be pickled otherwise: it
    becomes another client of the same cluster, with the same settings.

    Args:
        address: Address of the scheduler, as ``tcp://10.0.0.1:8516``, or the
            :class:`SchedulerClusterCombo` itself; not needed inside of tasks.
        profiling: Whether what each submitted task takes is measured, for
            :meth:`ScalerFuture.profiling_info`.
        timeout_seconds: How long to wait for the scheduler, and how long it may be silent later.
        heartbeat_interval_seconds: How often it is asked whether it is there.
        serializer: How functions, arguments and results become bytes; default: pickle, and
            cloudpickle where that is not enough.
        stream_output: Whether what tasks print is printed here.
        forward_logs: Whether what tasks log goes to the loggers of the same names here. True: from
            the level that the root logger has now; or a level, as ``logging.INFO``.
        object_storage_address: Where the cluster's object storage is reached from here, if that
            is not where it says; several in the cluster's order, if it has several.
        security_config: Must be None: there is no encryption yet.

    Raises:
        TypeError: An argument has the wrong type.
        ClusterUnreachable: Nobody answers at ``address`` in time.
        ConfigError: There is no address, outside of tasks; or a setting cannot work.

    """

    asynchronous = False
    """For Dask, which asks every client."""

    def __init__(
        self,
        address: str | HasAddress | None = None,
        profiling: bool = False,
        timeout_seconds: float = 60.0,
        heartbeat_interval_seconds: float = 2.0,
        serializer: type[Serializer] | Serializer | None = None,
        stream_output: bool = False,
        object_storage_address: str | Sequence[str] | None = None,
        security_config: None = None,
        *,
        forward_logs: bool | int | str = False,
    ) -> None:
        if security_config is not None:
            raise ConfigError("security_config must be None: there is no encryption yet")
        if serializer is not None:
            wants = "a class or an object with serialize() and deserialize()"
            arguments.having("serializer", serializer, ("serialize", "deserialize"), wants)
        storages: tuple[str, ...] = ()
        if object_storage_address is not None:
            storages = STORAGES.argument("object_storage_address", object_storage_address)
        self._prepare(
            _Settings(
                arguments.flag("profiling", profiling),
                arguments.seconds("timeout_seconds", timeout_seconds),
                arguments.seconds("heartbeat_interval_seconds", heartbeat_interval_seconds),
                serializer,
                arguments.flag("stream_output", stream_output),
                level_of(forward_logs),
                storages,
            )
        )
        address = read_given_address(address)
        self._session = self._open(address, "")
        self._address = self._session.address
        self._cluster = self._session.core.welcome.homes[0].disk

    def _prepare(self, settings: _Settings) -> None:
        self._settings = settings
        serializer = settings.serializer
        is_ours = serializer is DefaultSerializer or type(serializer) is DefaultSerializer
        self._serialization = None if serializer is None or is_ours else Serialization(serializer)
        options = TaskOptions(stream_output=settings.stream_output, log_level=settings.log_level)
        self._options = intern_options(options)
        """Of tasks that have no futures: what those took, nobody could ask for."""
        self._task_options = intern_options(replace(options, profiling=settings.profiling))

    def _open(self, address: str | None, cluster: str) -> Session:
        """Return the session of this worker's tasks if it leads to the cluster, else a new one."""
        session: Session | None = inside.nested_session(address, cluster)
        if session is not None:
            session.scope()  # type: ignore[attr-defined]
        elif address is None:
            raise ConfigError(
                "No scheduler address provided, and not running inside a worker context: "
                "Client(address=...) needs one, except inside of a task"
            )
        else:
            settings = self._settings
            session = Session(
                address,
                timeout=settings.timeout_s,
                silence_s=settings.timeout_s,
                heartbeat_s=min(settings.heartbeat_s, settings.timeout_s / 2),
                storages=settings.storages,
            )
        self._identity = session.new_identity()
        return session

    @property
    def identity(self) -> bytes:
        """What names this client, and no other."""
        return self._identity

    @property
    def monitor_address(self) -> str:
        """Where the scheduler is watched, as with ``scaler_top``."""
        return self._session.monitor_address

    @property
    def dashboard_link(self) -> DashboardLink | None:
        """Link of the cluster's dashboard, with what it takes to open it; None: there is none."""
        return self._session.dashboard_link

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> ScalerFuture[T]:
        """Schedule ``fn(*args, **kwargs)`` and return its future.

        ``profiling=True`` (or False) is no argument of the function, unless that takes it: it
        says whether this task is measured, see :meth:`ScalerFuture.profiling_info`.

        Raises SessionClosed after :meth:`disconnect`, TypeError if ``fn`` cannot be called. What
        cannot be pickled fails its own future.
        """
        if not callable(fn):
            arguments.function(fn, "submit")
        return self._submit(fn, args, kwargs, self._task_options, again=False)

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
            kwargs: Its keyword arguments; ``profiling`` among them as in :meth:`submit`.
            capabilities: What the worker that runs it must have, as ``{"gpu": 1}``; -1: it only
                has to be there. While no worker has it, the task waits, and the log says so.
            reserialize: Look also at the content of large arguments that are read-only, which
                otherwise are taken to be what they were when they were first passed.

        """
        arguments.function(fn, "submit")
        args = tuple(arguments.instance("args", args, (tuple, list), "a tuple"))
        arguments.instance("kwargs", kwargs, dict, "a dict")
        options = _demanding(capabilities, self._task_options)
        again = arguments.flag("reserialize", reserialize)
        return self._submit(fn, args, kwargs, options, again=again)

    def _submit(
        self,
        fn: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: TaskOptions,
        *,
        again: bool,
    ) -> ScalerFuture[T]:
        function: Callable[..., Any] = fn
        if kwargs and "profiling" in kwargs and not takes(fn, "profiling"):
            kwargs = dict(kwargs)
            is_profiled = arguments.flag("profiling", kwargs.pop("profiling"))
            options = intern_options(replace(options, profiling=is_profiled))
        serialization = self._serialization
        if serialization is not None:
            try:
                function = serialization.function(fn)
                args = tuple(map(serialization.value, args))
                kwargs = {name: serialization.value(value) for name, value in kwargs.items()}
            except PayloadError as error:
                return self._session.failed(error)
        return self._session.submit(function, args, kwargs, options, again=again)

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

        What was written for Scaler before 2.0 works, with a DeprecationWarning: there, a single
        iterable held the arguments of each call as a tuple. It is taken for that if it holds
        nothing but tuples, and either ``fn`` cannot be called with one argument, or all of them
        have one item. New code says :meth:`starmap`.
        """
        arguments.function(fn, "map")
        if not iterables:
            raise TypeError("map() must have at least one iterable")
        if len(iterables) == 1:
            rows, is_old = rows_of(fn, iterables[0])
            if is_old:
                warnings.warn(
                    "map() with the arguments of each call in a tuple is deprecated: use starmap()",
                    DeprecationWarning,
                    stacklevel=2,
                )
                return self.starmap(fn, rows, capabilities=capabilities, reserialize=reserialize)
            iterables = (rows,)
        items, steady = zipped(iterables)
        return self._map(fn, items, capabilities, again=reserialize, steady=steady)

    def starmap(
        self,
        fn: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        capabilities: Mapping[str, float] | None = None,
        reserialize: bool = False,
    ) -> list[T]:
        """Return ``[fn(*args) for args in iterable]``; otherwise as :meth:`map`."""
        arguments.function(fn, "starmap")
        items = iter(iterable)
        steady = type(items) in STEADY
        return self._map(fn, items, capabilities, again=reserialize, steady=steady)

    def _map(
        self,
        fn: Callable[..., T],
        items: Iterator[Iterable[Any]],
        capabilities: Mapping[str, float] | None,
        *,
        again: bool,
        steady: bool,
    ) -> list[T]:
        arguments.flag("reserialize", again)
        function: Callable[..., Any] = fn
        serialization = self._serialization
        if serialization is not None:
            function = serialization.function(fn)
            value = serialization.value
            items = (tuple(map(value, args)) for args in items)
        options = _demanding(capabilities, self._options)
        results = map_calls(
            self._session, function, items, options=options, again=again, steady=steady
        )
        return list(results)

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
            TypeError: An argument has the wrong type.
            KeyError: A key is missing, wanted twice, or named and not in the graph.
            CycleError: Of ``graphlib``; nodes depend on each other.
            PayloadError: A node cannot be pickled; it says which, and nothing was run.

        """
        if _is_of_dask(graph, keys):
            return self.dask_get(graph, keys, **named)
        if named:
            raise TypeError(f"get() got an unexpected keyword argument {next(iter(named))!r}")
        arguments.instance("graph", graph, Mapping, "a dict of nodes")
        if isinstance(keys, str) or not isinstance(keys, Iterable):
            raise TypeError(f"keys must be a list of keys of the graph, not {shown(keys)}")
        arguments.flag("reserialize", reserialize)
        wanted = list(keys)
        if not arguments.flag("block", block):
            options = _demanding(capabilities, self._task_options)
            return self._graphs.start(graph, wanted, options, again=reserialize)
        options = _demanding(capabilities, self._options)
        return self._graphs.run(graph, wanted, options, again=reserialize)

    def dask_get(self, dsk: Any, keys: Any, **named: Any) -> Any:
        """Run a graph of Dask on this cluster: a scheduler, as :func:`scaler_get` is one."""
        from scaler_cluster.client import dask_graph

        return dask_graph.get(self._graphs, dsk, keys, self._options, **named)

    def persist(self, collections: Any, **named: Any) -> Any:
        """Compute collections of Dask and keep the values on the cluster; called by Dask."""
        from scaler_cluster.client import dask_graph

        return dask_graph.persist(self._graphs, collections, self._options, **named)

    @property
    def _graphs(self) -> GraphRunner:
        return GraphRunner(self._session, self._serialization)

    def progress(
        self,
        futures: Iterable[ScalerFuture[Any]] | Mapping[Any, ScalerFuture[Any]],
        bar: Bar | None = None,
    ) -> None:
        """Show a bar of how many of these have come back, until all have.

        Results and exceptions are left for who asks for them. It is a bar of tqdm, in a terminal
        or a notebook, or the one that is given, of tqdm or with its methods.

        Raises:
            ConfigError: tqdm is not installed.
            TypeError: One of them is no future of :meth:`submit` or :meth:`get`.

        """
        from scaler_cluster.client.progress import watch

        watch(futures, bar)

    def performance_report(self, path: str | PathLike[str]) -> AbstractContextManager[None]:
        """Write a page of what the cluster does in the body of ``with``, for any browser.

        It says what each worker ran when, what each function took, where time was lost, what failed
        and why. A process of its own listens meanwhile; the page is there when the body is over,
        also if that raises.

        Raises:
            ConfigError: Before the body: Bokeh is not installed, nothing can be written at
                ``path``, or the scheduler's monitor address cannot be reached from here. After it:
                the page could not be written.

        """
        from scaler_cluster.client.performance import reporting

        return reporting(self.monitor_address, path)

    def send_object(self, obj: Any, name: str | None = None) -> ObjectReference:
        """Store a value now, and return a reference that may be passed to tasks in its place.

        Each use costs next to nothing: what the value becomes later makes no difference. The
        reference must be a positional argument of its own. The value stays on the cluster as long
        as the reference lives, or until :meth:`clear`.

        Raises:
            PayloadError: The value cannot be pickled.
            StorageFull: There is no room for it.

        """
        if name is not None:
            arguments.instance("name", name, str, "a text")
        value = obj if self._serialization is None else self._serialization.value(obj)
        return self._session.send_object(value, name or f"<obj {type(obj).__qualname__}>")

    def clear(self) -> None:
        """Cancel everything that has not come back and drop all objects; the client can go on."""
        self._session.give_up()
        self._session.clear_objects()

    def disconnect(self) -> None:
        """Cancel everything that has not come back and leave the cluster; idempotent."""
        self._session.close("the client was disconnected", abandon=True)

    def shutdown(self) -> None:
        """Cancel everything that has not come back, and end the cluster; idempotent.

        That is its scheduler, all its workers, and its object storages. Raises ConfigError if the
        scheduler is protected from that; the client is disconnected all the same.
        """
        session = self._session
        try:
            if session.is_open:
                session.give_up()
                session.shut_down()
        finally:
            self.disconnect()

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

    def __repr__(self) -> str:
        """Show whether it takes tasks, and of which scheduler; one that was unpickled may wait."""
        session = self.__dict__.get("_session")
        state = "not connected yet" if session is None else session.state
        return f"<{type(self).__name__} {state}, address={self.__dict__.get('_address')}>"

    def __reduce__(self) -> Any:
        """Become a client of the same cluster, where it is unpickled."""
        return _revive, (self._address, self._cluster, self._settings)

    def __getattr__(self, name: str) -> Any:
        """Connect when a client that was unpickled is first used."""
        if name not in {"_session", "_identity"} or "_address" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._session = self._open(self._address, self._cluster)
        return self.__dict__[name]

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


def _demanding(capabilities: Mapping[str, float] | None, options: TaskOptions) -> TaskOptions:
    if capabilities is None:
        return options
    return replace(options, capabilities=arguments.capabilities("capabilities", capabilities))


def _revive(address: str, cluster: str, settings: _Settings) -> Client:
    client = object.__new__(Client)
    client._prepare(settings)
    client._address = address
    client._cluster = cluster
    return client

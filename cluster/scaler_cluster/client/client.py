"""The client: submits single tasks and maps to a running cluster."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from scaler_cluster import arguments
from scaler_cluster.client.call_options import CallOptions, check_options
from scaler_cluster.client.calls import MARK, rows_of, takes
from scaler_cluster.client.client_settings import ClientSettings
from scaler_cluster.client.connected import ConnectedClient
from scaler_cluster.client.dask_names import is_of_dask
from scaler_cluster.client.items import STEADY, zipped
from scaler_cluster.client.kept_calls import refuse_graphs, submit_kept
from scaler_cluster.config.values import STORAGES, read_given_address
from scaler_cluster.core.client.liveness import RECONNECT_TIMEOUT_S
from scaler_cluster.errors import PayloadError
from scaler_cluster.pickling.named_function import NamedFunction
from scaler_cluster.texts import shown
from scaler_cluster.wire.options import TaskOptions, intern_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from os import PathLike

    from typing_extensions import Unpack

    from scaler_cluster.client.cache import ResultCache
    from scaler_cluster.client.call_options import TaskKeywords
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.graph_runner import GraphRunner
    from scaler_cluster.client.progress import Bar
    from scaler_cluster.client.serializer import Serializer
    from scaler_cluster.config.values import HasAddress
    from scaler_cluster.pickling.payload import ObjectReference

T = TypeVar("T")


class Client(ConnectedClient):
    """A connection to a scheduler; usable from several threads, and as a context manager.

    A client can be pickled. The copy is another client of the same cluster, with the same
    settings. So a client may be an argument of a task, which then submits tasks through it.

    Args:
        address: The address of the scheduler, such as ``tcp://10.0.0.1:8516``, or the
            :class:`SchedulerClusterCombo` itself. Inside a task it is not needed.
        profiling: Measure each submitted task, for :meth:`ScalerFuture.profiling_info`.
        timeout_seconds: How long to wait for the scheduler at first.
        heartbeat_interval_seconds: How often the client asks the scheduler for a sign of life.
        serializer: Turns functions, arguments and results into bytes; default: (cloud)pickle.
        stream_output: Print here what tasks print.
        forward_logs: Pass the log records of tasks to the loggers of the same names here. True:
            from the level that the root logger has now; or a level, such as ``logging.INFO``.
        object_storage_address: By which address this process reaches the cluster's object
            storage, if by another one; for several storages their addresses, in its order.
        security_config: The same as ``keys``; configurations of TLS are refused.
        keys: A file or directory that ``scaler_keys`` made, or "insecure" for a cluster that goes
            without. Default: the environment's (``SCALER_KEYS``). A loopback address needs none.
            A pickled client takes the path along, not the keys.
        reconnect_timeout_seconds: How long to wait later, if the scheduler falls silent.
        cache: A directory, or a :class:`ResultCache`, where the results of tasks are kept: what is
            there is not run again.

    Raises:
        TypeError: An argument has the wrong type.
        ClusterUnreachableError: No scheduler answers at ``address`` in time.
        ConfigError: A setting cannot work, or there is no address outside of tasks.

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
        security_config: str | PathLike[str] | None = None,
        *,
        keys: str | PathLike[str] | None = None,
        forward_logs: bool | int | str = False,
        reconnect_timeout_seconds: float = RECONNECT_TIMEOUT_S,
        cache: str | PathLike[str] | ResultCache | None = None,
    ) -> None:
        given = arguments.keys_path(keys, security_config)
        if serializer is not None:
            wants = "a class or an object with serialize() and deserialize()"
            arguments.having("serializer", serializer, ("serialize", "deserialize"), wants)
        storages: tuple[str, ...] = ()
        if object_storage_address is not None:
            storages = STORAGES.argument("object_storage_address", object_storage_address)
        own = TaskOptions(
            profiling=arguments.flag("profiling", profiling),
            stream_output=arguments.flag("stream_output", stream_output),
            log_level=arguments.log_level(forward_logs),
        )
        settings = ClientSettings(
            arguments.seconds("timeout_seconds", timeout_seconds),
            arguments.seconds("heartbeat_interval_seconds", heartbeat_interval_seconds),
            serializer,
            storages,
            arguments.seconds("reconnect_timeout_seconds", reconnect_timeout_seconds),
            given,
        )
        asked = CallOptions(own, kept=check_options({"cache": cache})["cache"])
        self._connect(settings, asked, read_given_address(address))

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> ScalerFuture[T]:
        """Submit ``fn(*args, **kwargs)`` as a task and return its future.

        ``profiling=True`` (or False) says whether this task is measured, see
        :meth:`ScalerFuture.profiling_info`. It is passed to ``fn`` only if ``fn`` has a parameter
        of this name.

        Raises SessionClosedError after :meth:`disconnect`, TypeError if ``fn`` cannot be called.
        If the function or an argument cannot be pickled, the future raises PayloadError.
        """
        if not callable(fn):
            arguments.function(fn, "submit")
        return self._submit(fn, args, kwargs, self._asked)

    def submit_verbose(
        self,
        fn: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        capabilities: Mapping[str, float] | None = None,
        reserialize: bool = False,
        cores: int = 1,
        **named: Unpack[TaskKeywords],
    ) -> ScalerFuture[T]:
        """Submit ``fn(*args, **kwargs)`` as :meth:`submit` does, with options.

        Args:
            fn: The function to call.
            args: Its positional arguments.
            kwargs: Its keyword arguments; ``profiling`` is treated as in :meth:`submit`.
            capabilities: What a worker must offer to run the task, such as ``{"gpu": 1}``; -1: in
                any amount. While no worker offers it, the task waits, and the log says so.
            reserialize: Compare the content of large read-only arguments as well. Otherwise they
                are taken to be the same as when they were first passed.
            cores: How many workers of one machine run nothing else meanwhile; -1: all of them.
            **named: ``priority``, ``timeout``, ``retries`` and ``at_most_once``, see
                :meth:`options`.

        """
        arguments.function(fn, "submit")
        args = tuple(arguments.instance("args", args, (tuple, list), "a tuple"))
        arguments.instance("kwargs", kwargs, dict, "a dict")
        asked = self._asking(capabilities, cores, reserialize, named)
        return self._submit(fn, args, kwargs, asked)

    def _submit(
        self,
        fn: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        asked: CallOptions,
    ) -> ScalerFuture[T]:
        function: Callable[..., Any] = fn
        if getattr(fn, MARK, None) is not None:
            asked = asked.of(fn)
        if asked.cache is not None:
            plain = asked.including({"cache": None})
            submit = partial(self._submit, fn, args, kwargs, plain)
            return submit_kept(self._session, asked.cache, fn, args, kwargs, submit)
        options = asked.task
        if kwargs and "profiling" in kwargs and not takes(fn, "profiling"):
            kwargs = dict(kwargs)
            is_profiled = arguments.flag("profiling", kwargs.pop("profiling"))
            options = intern_options(replace(options, profiling=is_profiled))
        serialization = self._serialization
        if serialization is not None and type(fn) is not NamedFunction:
            try:
                function = serialization.function(fn)
                args = tuple(map(serialization.value, args))
                kwargs = {name: serialization.value(value) for name, value in kwargs.items()}
            except PayloadError as error:
                return self._session.failed(error)
        return self._session.submit(function, args, kwargs, options, again=asked.reserialize)

    def map(
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        capabilities: Mapping[str, float] | None = None,
        reserialize: bool = False,
        cores: int = 1,
        **named: Unpack[TaskKeywords],
    ) -> list[T]:
        """Return the list of what the builtin ``map(fn, *iterables)`` would yield.

        If calls raise, the exception of the first of them is raised here. The rest of this map is
        then cancelled; the client can go on. For the other arguments see :meth:`submit_verbose`.

        The old form of Scaler before 2.0 works with a DeprecationWarning: a single iterable of
        tuples, each with the arguments of one call. An iterable is taken for this form if it
        holds only tuples, and ``fn`` cannot be called with one argument or each tuple has one
        item. New code uses :meth:`starmap`.
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
                return self.starmap(fn, rows, capabilities, reserialize, cores, **named)
            iterables = (rows,)
        items, steady = zipped(iterables)
        asked = self._asking(capabilities, cores, reserialize, named)
        return self._map(fn, items, asked, steady=steady)

    def starmap(
        self,
        fn: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        capabilities: Mapping[str, float] | None = None,
        reserialize: bool = False,
        cores: int = 1,
        **named: Unpack[TaskKeywords],
    ) -> list[T]:
        """Return ``[fn(*args) for args in iterable]``; in all else as :meth:`map`."""
        arguments.function(fn, "starmap")
        items = iter(iterable)
        steady = type(items) in STEADY
        asked = self._asking(capabilities, cores, reserialize, named)
        return self._map(fn, items, asked, steady=steady)

    def _map(
        self,
        fn: Callable[..., T],
        items: Iterator[Iterable[Any]],
        asked: CallOptions,
        *,
        steady: bool,
    ) -> list[T]:
        from scaler_cluster.client.map import map_calls  # as late as the session's modules

        asked = asked.of(fn)
        if asked.cache is not None or type(fn) is NamedFunction:
            futures = [self._submit(fn, tuple(args), {}, asked) for args in items]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self._session.cancel(futures)
                raise
        function: Callable[..., Any] = fn
        serialization = self._serialization
        if serialization is not None:
            function, value = serialization.function(fn), serialization.value
            items = (tuple(map(value, args)) for args in items)
        options, again = asked.unmeasured, asked.reserialize
        return list(
            map_calls(self._session, function, items, options=options, again=again, steady=steady)
        )

    def get(
        self,
        graph: Mapping[Any, Any],
        keys: Iterable[Any],
        block: bool = True,
        capabilities: Mapping[str, float] | None = None,
        reserialize: bool = False,
        share: bool = False,
        cores: int = 1,
        **named: Any,
    ) -> Any:
        """Run a graph and return a dict of the values of ``keys``, in their order.

        Each value of the graph is data, or a call: ``(function, *arguments)``. An argument that
        is a key of the graph stands for the value of that key, also inside a list. A string
        argument must be a key.

        Args:
            graph: Data and calls by key.
            keys: The keys whose values are wanted. Only the nodes that these need are run.
            block: Wait for the values; otherwise return a dict of futures.
            capabilities: What each node demands of its worker, see :meth:`submit_verbose`.
            reserialize: See :meth:`submit_verbose`.
            cores: How many cores each node needs, see there.
            share: Let nodes that run on the same worker take the very object that another node
                returned, so they must not change it. By default each node takes its own copy,
                except of what nobody can change.
            **named: The options of :meth:`submit_verbose`, for each node. With a graph of Dask,
                which ``dask.compute(x, scheduler=client)`` passes: the keywords of
                :meth:`dask_get`.

        Raises:
            TypeError: An argument has the wrong type.
            KeyError: A key is wanted twice, or a key that is named is not in the graph.
            CycleError: Nodes depend on each other (the class is of ``graphlib``).
            PayloadError: A node cannot be pickled. The message names it, and nothing was run.

        """
        if is_of_dask(graph, keys):
            return self.dask_get(graph, keys, **named)
        arguments.instance("graph", graph, Mapping, "a dict of nodes")
        if isinstance(keys, str) or not isinstance(keys, Iterable):
            raise TypeError(f"keys must be a list of keys of the graph, not {shown(keys)}")
        arguments.flag("share", share)
        asked = self._asking(capabilities, cores, reserialize, named)
        refuse_graphs(asked)
        how: dict[str, Any] = {"again": asked.reserialize, "share": share}
        wanted = list(keys)
        if not arguments.flag("block", block):
            own = {key: one.task for key, one in asked.of_nodes(graph).items()}
            return self._graphs.start(graph, wanted, asked.task, own, **how)
        own = {key: one.unmeasured for key, one in asked.of_nodes(graph).items()}
        return self._graphs.run(graph, wanted, asked.unmeasured, own, **how)

    def dask_get(self, dsk: Any, keys: Any, **named: Any) -> Any:
        """Run a graph of Dask on this cluster; a scheduler for Dask, as :func:`scaler_get` is."""
        from scaler_cluster.client import dask_graph

        refuse_graphs(self._asked)
        options = self._asked.unmeasured
        return dask_graph.get(self._graphs, dsk, keys, options, **named)

    def persist(self, collections: Any, **named: Any) -> Any:
        """Compute collections of Dask and keep their values on the cluster; Dask calls this."""
        from scaler_cluster.client import dask_graph

        refuse_graphs(self._asked)
        options = self._asked.unmeasured
        return dask_graph.persist(self._graphs, collections, options, **named)

    @property
    def _graphs(self) -> GraphRunner:
        from scaler_cluster.client.graph_runner import GraphRunner  # likewise

        return GraphRunner(self._session, self._serialization)

    def progress(
        self,
        futures: Iterable[ScalerFuture[Any]] | Mapping[Any, ScalerFuture[Any]],
        bar: Bar | None = None,
    ) -> None:
        """Show a bar of how many of these futures are done, until all of them are.

        It raises no exception of a task. By default it makes a bar of tqdm, for a terminal or a
        notebook; pass a ``bar`` to use that one, which must have the methods of tqdm's.

        Raises:
            ConfigError: tqdm is not installed.
            TypeError: One of them is no future of :meth:`submit` or :meth:`get`.

        """
        from scaler_cluster.client.progress import watch

        watch(futures, bar)

    def performance_report(
        self, path: str | PathLike[str], *, profile: bool = False
    ) -> AbstractContextManager[None]:
        """Write a page, for any browser, about what the cluster does in the body of ``with``.

        The page shows what each worker ran and when, how long each function took, where time was
        lost, and what failed and why. Another process listens to the scheduler meanwhile. The page
        is written when the body ends, also if the body raises. With ``profile=True`` tasks are
        sampled meanwhile, as by :meth:`profile`, and the page has a flame graph.

        Raises:
            ConfigError: Before the body: Bokeh is not installed, ``path`` cannot be written, or
                the scheduler's monitor address cannot be reached from here. After the body: the
                page could not be written.

        """
        from scaler_cluster.client.performance import reporting

        arguments.flag("profile", profile)
        credentials = self._session.connection.credentials
        return reporting(self.monitor_address, credentials, path, has_profile=profile)

    def send_object(self, obj: Any, name: str | None = None) -> ObjectReference:
        """Store a value now, and return a reference that may be passed to tasks in its place.

        Tasks get the value as it is now, even if you change it later, so each use of the reference
        costs next to nothing. The reference must be a positional argument itself, not part of
        one. The value stays on the cluster as long as the reference lives, or until :meth:`clear`.

        Raises:
            PayloadError: The value cannot be pickled.
            StorageFullError: There is no room for it.

        """
        if name is not None:
            arguments.instance("name", name, str, "a text")
        value = obj if self._serialization is None else self._serialization.value(obj)
        return self._session.send_object(value, name or f"<obj {type(obj).__qualname__}>")

    def _asking(
        self,
        capabilities: Mapping[str, float] | None,
        cores: int,
        reserialize: bool,
        named: Mapping[str, Any],
    ) -> CallOptions:
        """Return what is asked of one call; a default of its own arguments asks for nothing."""
        here: dict[str, Any] = dict(named)
        if capabilities is not None:
            here["capabilities"] = capabilities
        if cores != 1:
            here["cores"] = cores
        if reserialize is not False:
            here["reserialize"] = reserialize
        return self._asked.including(here)

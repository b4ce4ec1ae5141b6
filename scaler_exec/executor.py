"""The executor: :class:`concurrent.futures.Executor` on many cores and many machines."""

from __future__ import annotations

import itertools
import signal
import weakref
from collections import deque
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from scaler_cluster import arguments
from scaler_cluster.client import worker_context
from scaler_cluster.client.call_options import CallOptions, check_options
from scaler_cluster.client.calls import MARK
from scaler_cluster.client.items import zipped
from scaler_cluster.client.kept_calls import submit_kept
from scaler_cluster.client.views import Viewed
from scaler_cluster.config.values import read_given_address
from scaler_cluster.core.client.liveness import CONNECT_TIMEOUT_S, RECONNECT_TIMEOUT_S
from scaler_cluster.errors import ClusterBrokenError, ConfigError
from scaler_cluster.pickling.named_function import NamedFunction
from scaler_cluster.process.dashboard_link import widget
from scaler_cluster.texts import shown
from scaler_cluster.wire.options import TaskOptions

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    from scaler_cluster.client.cache import ResultCache
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.progress import Bar
    from scaler_cluster.config.values import HasAddress
    from scaler_cluster.pickling.payload import ObjectReference
    from scaler_cluster.process.dashboard_link import DashboardLink
    from scaler_cluster.process.embedded_cluster import EmbeddedCluster

T = TypeVar("T")
CLOSED = "cannot schedule new futures after shutdown"
START_METHODS = ("fork", "spawn", "forkserver")


class ScalerExecutor(Viewed, Executor):
    """Runs calls in worker processes, as PEP 3148 says, on this machine or on a cluster.

    Inside of a task it uses the cluster that runs the task.

    Args:
        max_workers: Number of workers of the embedded cluster; default: the CPUs that this
            process may use. Inside of a task it makes no difference.
        address: Address of a running scheduler to join instead, as ``tcp://10.0.0.1:8516``, or a
            :class:`SchedulerClusterCombo`.
        initializer: Called in each worker of the embedded cluster before its first task. If it
            raises, the executor is broken, with the traceback.
        initargs: Its arguments, a tuple or list.
        max_tasks_per_child: Tasks after which a worker is replaced by a new process.
        threads_per_worker: How many threads numeric libraries (BLAS, OpenMP, numexpr, numba,
            polars) start in each worker; default: 1. A variable that is set when the executor is
            made, as ``OMP_NUM_THREADS``, wins.
        machine_capabilities: What all workers offer together: with ``{"gpu": 4}``, four tasks run
            at once that demand one.
        mp_context: A context of ``multiprocessing``, or the name of a start method. Accepted,
            without effect: workers are forked from a server of the engine.
        memory_limit: Resident memory beyond which a worker is killed, in bytes or as text such as
            "2GB" or "512 MiB"; 32 MiB or more. Default: none.
        object_memory_limit: Memory that large arguments and results may take together before
            further ones go to disk: shared memory, and what workers keep of the results of
            graphs. Given in the same way; default: 80 % of the machine's shared memory.
        stream_output: Whether what tasks print is printed here, wherever they ran.
        forward_logs: Whether what tasks log goes to the loggers of the same names here, wherever
            they ran. True: from the level that the root logger has now; or a level, as
            ``logging.INFO``.
        timeout: Seconds to wait for the scheduler at ``address``; default: 10.
        dashboard: Whether the embedded cluster has one, see :attr:`dashboard_link`.
        reconnect_timeout: Seconds to wait for a scheduler that has fallen silent, before all that
            is pending fails.
        keys: A file or directory that ``scaler_keys`` made, for ``address``, or "insecure" for a
            cluster that goes without. Default: the environment's (``SCALER_KEYS``). A loopback
            address and an embedded cluster need none.
        cache: A directory, or a :class:`ResultCache`, where the results of tasks are kept: what is
            there is not run again.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: A number is out of its bounds, an address or a size is none, an option needs an
            embedded cluster, or what the dashboard needs is not installed.
        ClusterUnreachableError: Nobody answers at ``address``.

    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: object = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        threads_per_worker: int | None = None,
        machine_capabilities: Mapping[str, float] | None = None,
        address: str | HasAddress | None = None,
        memory_limit: int | str | None = None,
        object_memory_limit: int | str | None = None,
        stream_output: bool = False,
        forward_logs: bool | int | str = False,
        timeout: float = CONNECT_TIMEOUT_S,
        dashboard: bool = False,
        reconnect_timeout: float = RECONNECT_TIMEOUT_S,
        keys: str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | ResultCache | None = None,
    ) -> None:
        from scaler_exec import opening  # its docstring says why here

        if max_workers is not None:
            max_workers = arguments.whole("max_workers", max_workers, 1, bound="greater than 0")
        _check_context(mp_context)
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be a callable, not {shown(initializer)}")
        initargs = tuple(arguments.instance("initargs", initargs, (tuple, list), "a tuple"))
        limits = max_tasks_per_child, threads_per_worker, memory_limit, object_memory_limit
        supervising = opening.supervising(max_tasks_per_child, threads_per_worker, memory_limit)
        if machine_capabilities is not None:
            supervising = supervising.sharing(machine_capabilities)
        memory_bytes = None
        if object_memory_limit is not None:
            memory_bytes = arguments.size("object_memory_limit", object_memory_limit)
        timeout = arguments.seconds("timeout", timeout)
        waits_s = arguments.seconds("reconnect_timeout", reconnect_timeout)
        arguments.flag("dashboard", dashboard)
        address = read_given_address(address)
        own = TaskOptions(
            stream_output=arguments.flag("stream_output", stream_output),
            log_level=arguments.log_level(forward_logs),
        )
        self._take_options(CallOptions(own, kept=check_options({"cache": cache})["cache"]))
        nested = worker_context.nested_session(address)
        if address is not None or nested is not None:
            # Inside of a task the cluster is the task's, however many workers the code asks for.
            sizes = initializer, machine_capabilities, *limits
            is_sized = any(one is not None for one in sizes)
            is_sized |= bool(address and max_workers)
            opening.check_joining(is_sized=is_sized, dashboard=dashboard)
            credentials = opening.keys_of(keys)
            self._session = nested or opening.join(address or "", timeout, waits_s, credentials)
            self._max_workers = max_workers or max(self._session.connection.welcome.workers, 1)
        else:
            cluster = opening.start(
                max_workers,
                initializer=initializer,
                initargs=initargs,
                object_memory_bytes=memory_bytes,
                supervising=supervising,
                dashboard=dashboard,
            )
            self._max_workers = cluster.workers
            self._session = opening.session_of(cluster, waits_s)
        self._owner = weakref.finalize(self, self._session.close, CLOSED, wait=False)
        # At exit the session itself sees to it that submitted work finishes.
        self._owner.atexit = False

    @property
    def address(self) -> str:
        """Address of the scheduler; other processes may join it."""
        return self._session.address

    @property
    def monitor_address(self) -> str:
        """Where the scheduler is watched, as with ``scaler_top``."""
        return self._session.monitor_address

    @property
    def dashboard_link(self) -> DashboardLink | None:
        """Link of the cluster's dashboard, with what it takes to open it; None: there is none."""
        return self._session.dashboard_link

    def _take_options(self, asked: CallOptions) -> None:
        super()._take_options(asked)
        # For each submit, without a look at what is seldom asked for.
        self._options, self._reserialize = asked.task, asked.reserialize
        self._is_keeping = asked.cache is not None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> ScalerFuture[T]:
        """Schedule ``fn(*args, **kwargs)`` and return its future.

        Raises RuntimeError after :meth:`shutdown`, BrokenExecutor if no task can run any more,
        TypeError if ``fn`` cannot be called. What cannot be pickled fails its own future.
        """
        if not callable(fn):
            arguments.function(fn, "submit")
        if self._is_keeping or getattr(fn, MARK, None) is not None:
            return self._submit_as(self._asked.of(fn), fn, args, kwargs)
        return self._session.submit(fn, args, kwargs, self._options, again=self._reserialize)

    def _submit_as(
        self, asked: CallOptions, fn: Callable[..., T], args: Any, kwargs: Any
    ) -> ScalerFuture[T]:
        submit = partial(
            self._session.submit, fn, args, kwargs, asked.task, again=asked.reserialize
        )
        if asked.cache is None:
            return submit()
        return submit_kept(self._session, asked.cache, fn, args, kwargs, submit)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        progress: bool | Bar = False,
    ) -> Iterator[T]:
        """Return the results of ``fn`` over ``iterables``, in order, as they come.

        Args:
            fn: Called with one item of each iterable.
            *iterables: The shortest one ends it.
            timeout: Seconds from now after which the iterator raises TimeoutError.
            chunksize: Calls that make one task.
            buffersize: Calls submitted ahead of the results taken; None: all of them at once.
            progress: Whether a bar shows how many results have come back, in their turn or not;
                or a bar for that, of tqdm or with its methods.

        Once the first result was asked for, dropping the iterator cancels what has not run. An
        exception ends it.
        """
        arguments.function(fn, "map")
        if timeout is not None:
            timeout = arguments.seconds("timeout", timeout, any_sign=True)
        chunksize = arguments.whole("chunksize", chunksize, 1, bound=">= 1")
        if buffersize is not None:
            buffersize = arguments.whole(
                "buffersize", buffersize, 1, wants="an integer or None", bound="None or > 0"
            )
        asked = self._asked.of(fn)
        is_watched = type(self).submit is not ScalerExecutor.submit or "submit" in self.__dict__
        if is_watched or asked.cache is not None or type(fn) is NamedFunction:
            # Somebody watches or changes each submission, the cache looks at each, or each is
            # packed by itself.
            results = _map_by_submit(self, fn, iterables, timeout, buffersize)
            if progress is False:
                return results
            from scaler_cluster.client.progress import bar_of, shown_results

            return shown_results(results, *bar_of(progress, iterables))
        items, steady = zipped(iterables)
        named: dict[str, Any] = {
            "steady": steady,
            "timeout": timeout,
            "chunksize": chunksize,
            "buffersize": buffersize,
            "options": asked.task,
            "again": asked.reserialize,
        }
        if progress is False:
            from scaler_cluster.client.map import map_calls  # as late as the session's modules

            return map_calls(self._session, fn, items, **named)
        from scaler_cluster.client.progress import bar_of, map_shown

        return map_shown(self._session, fn, items, *bar_of(progress, iterables), **named)

    def send_object(self, value: object, name: str | None = None) -> ObjectReference:
        """Store a value now, and return a reference that may be passed to tasks in its place.

        Each use costs next to nothing: what the value becomes later makes no difference. The
        reference must be a positional argument of its own. The value stays on the cluster as long
        as the reference lives.

        Args:
            value: What tasks get; of any size.
            name: What the reference is called, for people; default: the value's type.

        Raises:
            PayloadError: The value cannot be pickled.
            StorageFullError: There is no room for it.
            RuntimeError: The executor was shut down.

        """
        if name is not None:
            arguments.instance("name", name, str, "a text")
        return self._session.send_object(value, name or f"<obj {type(value).__qualname__}>")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work, and end the embedded cluster once what was submitted is done.

        Args:
            wait: Return only then.
            cancel_futures: Cancel what no worker has been given yet.

        """
        self._session.close(CLOSED, wait=wait, cancel_queued=cancel_futures)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down and wait for what was submitted, but for nothing after Ctrl-C."""
        if kind is KeyboardInterrupt:
            self._session.give_up()
        self.shutdown()

    def scale(self, workers: int) -> None:
        """Have so many workers from now on; those that are too many finish what they run.

        With 0, tasks wait until there are workers again, and so does :meth:`shutdown`. Raises
        TypeError, ConfigError, or RuntimeError if the cluster is not this executor's own.
        """
        self._own_cluster.scale(workers)

    def adapt(self, minimum: int = 0, maximum: int | None = None) -> None:
        """Have as many workers as there is work for, from ``minimum`` to ``maximum``.

        ``maximum`` is one for each CPU by default. Workers come at once when tasks wait, and go
        when fewer have been enough for 5 seconds. Raises as :meth:`scale` does.
        """
        self._own_cluster.adapt(minimum, maximum)

    @property
    def _own_cluster(self) -> EmbeddedCluster:
        cluster = self._session.cluster
        if cluster is None:
            raise RuntimeError("the workers of a running cluster are not this executor's own")
        return cluster

    def terminate_workers(self) -> None:
        """Stop everything now: SIGTERM for the workers, BrokenExecutor for what is pending."""
        self._end_workers(signal.SIGTERM)

    def kill_workers(self) -> None:
        """Stop everything now: SIGKILL for the workers, BrokenExecutor for what is pending."""
        self._end_workers(getattr(signal, "SIGKILL", signal.SIGTERM))

    def _end_workers(self, number: int) -> None:
        cluster = self._own_cluster
        self._session.break_now(ClusterBrokenError("the workers were ended by the program itself"))
        cluster.signal_workers(number)
        self.shutdown()

    def __repr__(self) -> str:
        """Show whether it takes tasks, how many workers it has, and where."""
        name, session = type(self).__name__, self.__dict__.get("_session")
        if session is None:
            return f"<{name} not made>"
        workers = session.cluster.workers if session.cluster is not None else self._max_workers
        return f"<{name} {session.state}, workers={workers}, address={session.address}>"

    def _repr_html_(self) -> str:
        """Show the same in a notebook, and the dashboard of its own cluster, if it has one."""
        session = self.__dict__.get("_session")
        # Notebooks are passed on: the link of a cluster that others run is not to be in them.
        if session is None or session.cluster is None or session.state != "open":
            return widget(self, None)
        return widget(self, session.dashboard_link)

    def __reduce__(self) -> Any:
        """Refuse to be pickled."""
        raise TypeError(
            "a ScalerExecutor holds sockets and processes and cannot be pickled; join the same "
            "cluster with ScalerExecutor(address=...) instead"
        )


def _check_context(mp_context: object) -> None:
    if isinstance(mp_context, str):
        if mp_context not in START_METHODS:
            names = ", ".join(START_METHODS)
            raise ConfigError(f"mp_context must be one of {names}, not {mp_context!r}")
    elif mp_context is not None and not hasattr(mp_context, "get_start_method"):
        wants = "a context of multiprocessing, the name of a start method or None"
        raise TypeError(f"mp_context must be {wants}, not {shown(mp_context)}")


def _map_by_submit(
    executor: ScalerExecutor,
    fn: Callable[..., Any],
    iterables: tuple[Iterable[Any], ...],
    timeout: float | None,
    buffersize: int | None,
) -> Iterator[Any]:
    from time import monotonic

    end = None if timeout is None else monotonic() + timeout
    items = zip(*iterables, strict=False)
    futures = deque(executor.submit(fn, *args) for args in itertools.islice(items, buffersize))

    def results() -> Iterator[Any]:
        try:
            while futures:
                if buffersize is not None:
                    futures.extend(
                        executor.submit(fn, *args) for args in itertools.islice(items, 1)
                    )
                left = None if end is None else end - monotonic()
                yield futures.popleft().result(left)
        finally:
            for future in futures:
                future.cancel()

    return results()

"""A backend for joblib: ``parallel_config(backend="scaler")`` once this module was imported."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections import deque
from contextlib import contextmanager
from itertools import chain, starmap
from time import perf_counter as clock
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from scaler_cluster.client import worker_context
from scaler_cluster.client.client import Client
from scaler_cluster.errors import ConfigError
from scaler_cluster.objects.sent import SMALL
from scaler_cluster.pickling.constant import Constant
from scaler_cluster.pickling.payload import function_name
from scaler_cluster.process.process import usable_cpus
from scaler_cluster.texts import shown
from scaler_exec.executor import ScalerExecutor

try:
    from joblib.parallel import (
        AutoBatchingMixin,
        FallbackToBackend,
        ParallelBackendBase,
        parallel_config,
        register_parallel_backend,
    )
except ImportError as missing:
    raise ImportError(
        "joblib is not installed, or older than 1.4: pip install 'scaler-exec[joblib]'"
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from scaler_cluster.client.future import ScalerFuture

__all__ = ["ScalerBackend", "register"]

_FOR_OTHERS = frozenset(("context", "max_nbytes", "mmap_mode", "temp_folder", "verbose"))
"""What ``Parallel`` passes to every backend, and has no meaning here: large arrays are shared
anyway, and workers are forked from a server of the engine."""
_PLAIN = (FunctionType, BuiltinFunctionType, type)
"""Functions that are unpickled once in a worker. Other callables may have a state, so each batch
gets them anew."""


GROWTH = 4
"""By how much batches grow at most from one to the next; joblib doubles them."""
DEFAULT_PRE_DISPATCH = "2 * n_jobs"
AHEAD_S = 0.005
AHEAD_MAX = 1000
"""How much work is handed out ahead of the results, in seconds and in batches."""


class ScalerBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs the calls of ``joblib.Parallel`` on a cluster; made by ``parallel_config``.

    Without ``address`` and ``executor``, ``n_jobs`` workers of its own run them. They start with
    the first ``Parallel`` and stay until the ``with parallel_config(...)`` is left. Inside of a
    task, its own cluster runs them.

    Args:
        address: Address of a running scheduler, or a :class:`SchedulerClusterCombo`.
        executor: A :class:`ScalerExecutor`, also with options, or a :class:`Client`.
        nesting_level: How deep in other ``Parallel`` this is; joblib passes it.
        inner_max_num_threads: Threads that numeric libraries start in each worker of its own;
            default: the CPUs / ``n_jobs``, or what a variable as ``OMP_NUM_THREADS`` says.
        **options: What else :class:`ScalerExecutor` takes, as ``keys`` or ``memory_limit``.

    Raises:
        TypeError: ``executor`` is none of these.
        ConfigError: It is given beside an address or options.

    """

    _effective_batch_size: int
    _smoothed_batch_duration: float
    MIN_IDEAL_BATCH_DURATION = 0.02
    MAX_IDEAL_BATCH_DURATION = 0.2
    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    default_n_jobs = -1

    def __init__(
        self,
        address: Any = None,
        executor: ScalerExecutor | Client | None = None,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        if executor is not None:
            if not isinstance(executor, (ScalerExecutor, Client)):
                wants = "a ScalerExecutor or a Client"
                raise TypeError(f"executor must be {wants}, not {shown(executor)}")
            if address is not None or options:
                raise ConfigError("executor has its cluster: give it no address and no options")
        if address is not None:
            options["address"] = address
        self._cluster = _Cluster(executor, options)
        self._workers: ScalerExecutor | Client | None = None
        self._forget_calls()
        self.parallel: Any = None

    # -- how many --------------------------------------------------------------------------------

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls run at once; a negative number counts from all workers down."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            n_jobs = self.default_n_jobs
        return n_jobs if n_jobs > 0 else max(self._cluster.size + 1 + n_jobs, 1)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        **options: Any,
    ) -> int:
        """Have that many workers ready for a ``Parallel``, which gets a backend of its own."""
        if self.parallel is None:
            own = object.__new__(type(self))
            own.__dict__.update(self.__dict__)
            # Weak: the Parallel has this backend, and a cycle would keep the cluster.
            own.parallel = weakref.proxy(parallel)
            own._forget_calls()
            own.reset_batch_stats()
            raise FallbackToBackend(own)
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs > 1:
            options = {name: options[name] for name in options.keys() - _FOR_OTHERS}
            self._workers = self._cluster.open(n_jobs, self.inner_max_num_threads, options)
        return n_jobs

    def terminate(self) -> None:
        """Let go of the workers, which stay for the next ``Parallel``."""
        if self._workers is not None:
            self._workers = None
            self._cluster.leave()
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[ScalerBackend, int]:
        """Return what calls use that call ``Parallel`` themselves: the cluster that runs them.

        Unless they say ``n_jobs``, they run everything in their own worker, as the calls around
        them keep all workers busy.
        """
        return _nested((self.nesting_level or 0) + 1), 1

    def __reduce__(self) -> Any:
        """Become a backend of the same cluster, or of the task's own where it is unpickled."""
        return _revive, (self.nesting_level, self._cluster.options)

    def compute_batch_size(self) -> int:
        """Return how many calls the next batch has; it grows in fewer steps than joblib's.

        A batch takes less than a millisecond at first: to double it each time would take a tenth of
        the time of ten thousand tiny calls.
        """
        before, took_s = self._effective_batch_size, self._smoothed_batch_duration
        size: int = super().compute_batch_size()
        if size == 2 * before and GROWTH * took_s < self.MIN_IDEAL_BATCH_DURATION:
            size = self._effective_batch_size = GROWTH * before
        return size

    # -- calls -----------------------------------------------------------------------------------

    def _forget_calls(self) -> None:
        self._pending: dict[ScalerFuture[Any], Callable[[Any], object]] = {}
        """Batches that have not come back, and what joblib does when they do."""
        self._arrivals = _Arrivals()
        self._came_at = 0.0
        self._runners: dict[int, _Runner] = {}
        """By the function: pickled once for all batches of a call, as joblib does."""

    def start_call(self) -> None:
        """A ``Parallel`` is called."""
        self._forget_calls()

    def stop_call(self) -> None:
        """Its call has ended."""
        self._forget_calls()

    @property
    def _is_driven(self) -> bool:
        """Whether the thread that calls does all itself, and looks at no clock."""
        return not self.parallel.return_generator and self.parallel.timeout is None

    def submit(
        self, func: Any, callback: Callable[[Any], object] | None = None
    ) -> ScalerFuture[Any]:
        """Ask for a batch of calls; joblib's ``callback`` gets the future when it is done."""
        assert self._workers is not None
        runner, calls, values = self._pack(func.items)
        future = self._workers.submit(runner, calls, *values)
        if callback is None:
            return future
        self._pending[future] = callback
        if self._is_driven:
            self._arrivals.watch(future)
        else:
            future.add_done_callback(self._complete)
        return future

    apply_async = submit
    """What joblib before 1.5 calls it."""

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of a batch, or raise what one of its calls raised."""
        return out.result()

    def _complete(self, future: Any) -> None:
        callback = self._pending.pop(future, None)
        if callback is not None:
            callback(future)

    @contextmanager
    def retrieval_context(self) -> Iterator[None]:
        """Wait for all batches of a list, and hand out the next ones meanwhile.

        Joblib itself looks every 10 ms. A task that waits here runs on its own stack what no
        worker has time for, so nested calls need no more processes.
        """
        if self._is_driven and self._workers is not None:
            session, arrivals = self._workers._session, self._arrivals
            self._came_at = clock()
            with session.leading():
                # Private, so it may be gone one day: then an error is noticed a little later.
                while self._pending and not getattr(self.parallel, "_aborting", False):
                    session.wait(arrivals.has_come, task=arrivals.tasks)
                    came = len(arrivals.come)
                    while arrivals.come:
                        self._complete(arrivals.come.popleft())
                    self._dispatch_ahead(came)
        yield

    def _dispatch_ahead(self, came: int) -> None:
        """Hand out more tiny batches than joblib would, if both sizes are left to defaults.

        It has two for each worker underway, which are back before the next ones are there: as many
        are added as end in ``AHEAD_S``.
        """
        parallel, now = self.parallel, clock()
        interval_s = max(now - self._came_at, 1e-6) / came
        self._came_at = now
        if parallel.pre_dispatch != DEFAULT_PRE_DISPATCH or parallel.batch_size == "auto":
            return
        wanted = min(AHEAD_S / interval_s, AHEAD_MAX)
        # Private again: where joblib takes its batches from, None at the end of them.
        while (
            len(self._pending) < wanted
            and getattr(parallel, "_original_iterator", None) is not None
        ):
            parallel.dispatch_next()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all batches of the call, queued or running."""
        pending, self._pending = self._pending, {}
        if pending and self._workers is not None:
            self._workers._session.cancel(list(pending))

    def _pack(self, items: Any) -> tuple[_Runner, list[Any] | tuple[Any, ...], list[Any]]:
        """Return what runs a batch, its calls, and the values that these name by their place.

        Each value is an argument of the task, once: so the engine stores a large one by itself.
        Calls of one function with numbers alone are a tuple of their arguments.
        """
        functions, rows, named = zip(*items, strict=True)
        shared = functions[0]
        if type(shared) not in _PLAIN or len(set(map(id, functions))) > 1:
            shared = None
        runner = self._runners.get(id(shared))
        if runner is None:
            runner = self._runners[id(shared)] = _Runner(shared, (self.nesting_level or 0) + 1)
        are_small = SMALL.issuperset(map(type, chain.from_iterable(rows)))
        if shared is not None and are_small and not any(named):
            return runner, rows, []
        values: list[Any] = []
        places: dict[int, int] = {}

        def place(value: Any) -> int:
            found = places.setdefault(id(value), len(values))
            if found == len(values):
                values.append(value)
            return found

        calls: list[Any] = []
        for function, args, kwargs in items:
            called = (function, *args) if shared is None else args
            calls.append((list(map(place, called)), {n: place(kwargs[n]) for n in kwargs}))
        return runner, calls, values


class _Runner(Constant):
    """Runs a batch of calls in a worker: of one function, or of one each."""

    __slots__ = ("_function", "_level")

    def __init__(self, function: Callable[..., Any] | None, level: int) -> None:
        self._function = function
        self._level = level

    @property
    def label(self) -> str:
        """The name of the function."""
        return "joblib batch" if self._function is None else function_name(self._function)

    def __call__(self, calls: Any, *values: Any) -> list[Any]:
        """Return the results of calls, within which ``Parallel`` uses this cluster as well."""
        with parallel_config(backend=_nested(self._level), n_jobs=1):
            if self._function is not None and type(calls) is tuple:
                return list(starmap(self._function, calls))
            return [self._run(places, named, values) for places, named in calls]

    def _run(self, places: list[int], named: dict[str, int], values: tuple[Any, ...]) -> Any:
        args = [values[place] for place in places]
        function = args.pop(0) if self._function is None else self._function
        return function(*args, **{name: values[place] for name, place in named.items()})

    def __reduce__(self) -> Any:
        return _Runner, (self._function, self._level)


class _Arrivals:
    """Batches that have come back, in that order: their futures tell it, as they tell ``wait``."""

    def __init__(self) -> None:
        self.come: deque[Any] = deque()
        self.tasks: deque[int] = deque()
        """Numbers of the tasks that are waited for, or were."""
        self.event = threading.Event()
        """What those who watch futures must have; nobody waits for it here."""

    def watch(self, future: ScalerFuture[Any]) -> None:
        """Hear of a future, which may be done already."""
        self.tasks.append(future.task_id)
        with future._condition:
            if future.done():
                self.come.append(future)
            else:
                future._waiters.append(self)  # type: ignore[arg-type]

    def has_come(self) -> bool:
        """Return True if something has come."""
        return bool(self.come)

    def add_result(self, future: Any) -> None:
        """A future has its result, or its exception, or was cancelled."""
        self.come.append(future)

    add_exception = add_cancelled = add_result


class _Cluster:
    """The workers that the backends of one ``parallel_config`` share; started when needed."""

    def __init__(
        self, executor: ScalerExecutor | Client | None, options: Mapping[str, Any]
    ) -> None:
        self.options = dict(options)
        self._given = executor
        self._made: ScalerExecutor | None = None
        self._made_with: dict[str, Any] = {}
        self._pid = os.getpid()
        self._calls = 0
        """How many ``Parallel`` use it."""
        self._lock = threading.Lock()

    @property
    def _is_own(self) -> bool:
        """Whether its workers are its own."""
        is_elsewhere = self._given is not None or "address" in self.options
        return not is_elsewhere and not worker_context.is_worker()

    @property
    def size(self) -> int:
        """How many workers there are, or could be on this machine.

        At least two of a running cluster, which may get more: joblib would run all calls in this
        process if it heard of one.
        """
        if self._is_own:
            return usable_cpus()
        session = self.open(0, None, {}, is_call=False)._session
        if session.cluster is not None:
            return session.cluster.workers
        return max(session.connection.welcome.workers, 2)

    def open(
        self, n_jobs: int, threads: int | None, more: dict[str, Any], *, is_call: bool = True
    ) -> ScalerExecutor | Client:
        """Return what submits to it, with ``n_jobs`` workers if they are its own."""
        with self._lock:
            workers = self._opened(n_jobs, threads, more)
            self._calls += is_call
            return workers

    def _opened(
        self, n_jobs: int, threads: int | None, more: dict[str, Any]
    ) -> ScalerExecutor | Client:
        if self._given is not None:
            if more or threads is not None:
                raise ConfigError("options of workers belong to a cluster that is started here")
            return self._given
        options = self.options | more
        if self._is_own:
            threads = threads or max(usable_cpus() // n_jobs, 1)
            options = {"threads_per_worker": threads, **options}
        elif threads is not None:
            options["threads_per_worker"] = threads
        return self._executor(n_jobs, options)

    def _executor(self, n_jobs: int, options: dict[str, Any]) -> ScalerExecutor:
        made = self._made if self._pid == os.getpid() else None
        if made is None or not made._session.is_open or options != self._made_with:
            made = ScalerExecutor(n_jobs if self._is_own else None, **options)
            self._made, self._made_with, self._pid = made, options, os.getpid()
        elif self._is_own:
            cluster = made._session.cluster
            # Fewer only if no other Parallel would miss them.
            if cluster is not None and (n_jobs > cluster.workers or not self._calls):
                made.scale(n_jobs)
        return made

    def leave(self) -> None:
        """A ``Parallel`` has ended."""
        with self._lock:
            self._calls -= 1


@functools.cache
def _nested(nesting_level: int) -> ScalerBackend:
    return ScalerBackend(nesting_level=nesting_level)


def _revive(nesting_level: int | None, options: dict[str, Any]) -> ScalerBackend:
    return ScalerBackend(nesting_level=nesting_level, **options)


def register() -> None:
    """Let joblib know this backend as "scaler"; to import this module does it."""
    register_parallel_backend("scaler", ScalerBackend)


register()

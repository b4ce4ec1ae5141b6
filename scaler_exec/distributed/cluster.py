"""A cluster on this machine, as ``distributed`` makes it."""

from __future__ import annotations

import math
import threading
import warnings
import weakref
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import dask
import psutil

from scaler_cluster import arguments
from scaler_cluster.errors import ConfigError
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.process.process import usable_cpus
from scaler_cluster.process.process_config import SupervisorOptions
from scaler_exec.distributed.awaiting import Opened, awaited
from scaler_exec.distributed.refused import refused_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

IGNORED = frozenset(
    ("local_directory", "loop", "processes", "scheduler_sync_interval", "silence_logs",
     "worker_dashboard_address")
)  # fmt: skip
"""Keywords that make no difference here."""


class LocalCluster(Opened):
    """Workers on this machine, which end with this process or with :meth:`close`.

    A worker of this engine is a process that runs one task at a time. So ``n_workers`` of
    ``threads_per_worker`` threads are their product of processes.

    Args:
        name: For people.
        n_workers: Number of workers; default: as many as this process may use CPUs, with all
            their threads.
        threads_per_worker: Tasks that each of them runs at a time; default: the CPUs for each.
        host: Address to listen at; default: a private socket, which other processes of this user
            can reach by :attr:`scheduler_address`.
        scheduler_port: Port to listen at; 0: any. Without a host, at loopback.
        dashboard_address: Anything but None or False: with a dashboard, see
            :attr:`dashboard_link`. It chooses its own port. Without Bokeh there is a warning
            in its place.
        memory_limit: Resident memory beyond which a worker's process is killed: bytes, text as
            "4GB", or a share of the machine's as 0.25; None, 0 and "auto": no limit.
        resources: What the tasks of each worker may use, as ``{"GPU": 1}``; default: Dask's
            setting ``distributed.worker.resources``.
        asynchronous: For programs of asyncio: it is started by ``await`` or ``async with``, and in
            the event loop calls that wait return what is to be awaited.
        **ignored: Keywords in :data:`IGNORED`, which make no difference.

    Raises:
        TypeError: An argument has the wrong type, or is none of these.
        ConfigError: A setting cannot work.

    """

    client_class: ClassVar[Callable[..., Any]]
    """What :meth:`get_client` makes; the module of the client sets it."""

    def __init__(
        self,
        name: str | None = None,
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
        *,
        host: str | None = None,
        scheduler_port: int = 0,
        dashboard_address: str | int | bool | None = None,
        memory_limit: float | str | None = None,
        resources: Mapping[str, float] | None = None,
        asynchronous: bool = False,
        **ignored: Any,
    ) -> None:
        unknown = set(ignored) - IGNORED
        if unknown:
            raise TypeError(f"LocalCluster() does not know the argument {min(unknown)!r} here")
        workers, threads = _numbers(n_workers, threads_per_worker)
        self._threads = threads
        supervising = SupervisorOptions(
            memory_limit_bytes=_memory_limit(memory_limit),
            worker_names=tuple(f"worker-{number}" for number in range(workers * threads)),
        )
        if resources is None:
            resources = dask.config.get("distributed.worker.resources", None)
        if resources:
            shared = {one: amount * workers for one, amount in resources.items()}
            supervising = supervising.sharing(shared)
        address = None
        if host is not None or scheduler_port:
            bare = (host or "127.0.0.1").removeprefix("tcp://")
            address = f"tcp://{bare}:{scheduler_port}"
        self.asynchronous = asynchronous
        self._lock = threading.Lock()
        self._made: EmbeddedCluster | None = None
        self.name = name or f"{type(self).__name__}-{uuid4().hex[:8]}"
        self.has_started = False
        """Whether a client has seen all workers there."""
        self._starting = partial(
            EmbeddedCluster,
            workers * threads,
            address,
            supervising=supervising,
            dashboard=dashboard_address not in (None, False) and _has_bokeh(),
        )
        if not asynchronous:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._made is None:
                self._made = made = self._starting()
                self._stop = weakref.finalize(self, made.stop)

    @property
    def _cluster(self) -> EmbeddedCluster:
        if self._made is None:
            raise ConfigError("this cluster has not started: await it, or use it by `async with`")
        return self._made

    @property
    def scheduler_address(self) -> str:
        """Where clients reach the scheduler."""
        return self._cluster.address

    def get_address(self) -> str:
        """Return the same: for the clients of this engine."""
        return self._cluster.address

    @property
    def dashboard_link(self) -> str:
        """The link that opens the dashboard; empty: there is none."""
        return str(self._cluster.dashboard_link or "")

    @property
    def status(self) -> str:
        """Whether it is "created", "running" or "closed"."""
        if self._made is None:
            return "created"
        return "running" if self._stop.alive else "closed"

    def scale(self, n: int | None = None, *, cores: int | None = None) -> None:
        """Have so many workers from now on, or workers of so many cores together.

        Those that are too many finish what they run.
        """
        if n is None:
            n = math.ceil(arguments.whole("cores", cores, 0) / self._threads)
        self._cluster.scale(arguments.whole("n", n, 0) * self._threads)

    def adapt(self, minimum: int = 0, maximum: int | None = None) -> None:
        """Have as many workers as there is work for, from now on."""
        most = None if maximum is None else arguments.whole("maximum", maximum, 1) * self._threads
        self._cluster.adapt(arguments.whole("minimum", minimum, 0) * self._threads, most)

    def get_client(self) -> Any:
        """Return a new client of this cluster, which is the default one."""
        return self.client_class(self)

    @awaited
    def wait_for_workers(self, n_workers: int, timeout: float | str | None = None) -> None:
        """Wait until there are so many workers; raises TimeoutError."""
        with self.client_class(self, set_as_default=False) as client:
            client.wait_for_workers(arguments.whole("n_workers", n_workers, 0), timeout)

    @property
    def processes(self) -> int:
        """How many processes of workers there are to be."""
        return self._cluster.workers

    def resize(self, processes: int) -> int:
        """Have so many processes; return how many there were to be."""
        before = self._cluster.workers
        self._cluster.scale(processes)
        return before

    @awaited
    def close(self, timeout: float | str | None = None) -> None:
        """End the scheduler and the workers, even if tasks are running; idempotent."""
        if self._made is not None:
            self._stop()

    def __repr__(self) -> str:
        """Show its name, address, state and size."""
        if self._made is None:
            return f"{type(self).__name__}({self.name!r}, {self.status})"
        size = self._cluster.workers // self._threads
        text = f"{self.name!r}, {self.scheduler_address!r}, workers={size}"
        return f"{type(self).__name__}({text}, threads={self._cluster.workers}, {self.status})"

    def __getattr__(self, name: str) -> Any:
        return refused_of(self, "LocalCluster", name)


def _numbers(n_workers: int | None, threads: int | None) -> tuple[int, int]:
    """Return how many workers of how many threads these arguments mean."""
    cpus = usable_cpus()
    if threads is not None:
        threads = arguments.whole("threads_per_worker", threads, 1)
    if n_workers is None:
        return (cpus, 1) if threads is None else (max(cpus // threads, 1), threads)
    workers = arguments.whole("n_workers", n_workers, 0)
    return workers, threads or max(cpus // max(workers, 1), 1)


def _has_bokeh() -> bool:
    """Return whether a dashboard can be drawn; warn if not: it is asked for where nobody looks."""
    is_there = find_spec("bokeh") is not None
    if not is_there:
        warnings.warn(
            "there is no dashboard, as it needs bokeh: pip install 'scaler-exec[monitor]'",
            stacklevel=3,
        )
    return is_there


def _memory_limit(given: float | str | None) -> int:
    if given in {None, "auto", 0}:
        return 0
    if isinstance(given, float) and given <= 1:
        given = int(given * psutil.virtual_memory().total)
    return arguments.size("memory_limit", given)

"""The processes in which stand-ins live, as the measuring process commands them."""

from __future__ import annotations

import multiprocessing
from contextlib import contextmanager, suppress
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from benchmarks.processes import cpu_s
from benchmarks.scale.machines import run_machines
from benchmarks.scale.sessions import run_clients
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.process.process_config import SchedulerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

PATIENCE_S = 300.0
HOSTS = 2
PER_MACHINE = 16


class Stand:
    """One process of stand-ins."""

    def __init__(self, run: Callable[..., None], address: str, *arguments: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._ours: Connection = ours
        self.process: SpawnProcess = context.Process(target=run, args=(address, theirs, *arguments))
        self.process.start()
        theirs.close()

    def tell(self, name: str, *arguments: float) -> None:
        """Give a command."""
        self._ours.send((name, arguments))

    def hear(self) -> Any:
        """Return the next answer; raises TimeoutError or EOFError."""
        if not self._ours.poll(PATIENCE_S):
            raise TimeoutError("the stand-ins do not answer")
        return self._ours.recv()

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self.tell("end")
        self.process.join(PATIENCE_S)
        self._ours.close()


class Crowd:
    """A scheduler, and processes of stand-ins around it."""

    address: str | None = None
    """Where schedulers listen; None: at a Unix socket, which needs no keys."""

    def __init__(self, hosts: int = HOSTS, *, has_dashboard: bool = False) -> None:
        self.cluster = EmbeddedCluster(
            0, self.address, scheduling=SchedulerOptions(), dashboard=has_dashboard
        )
        self.scheduler = self.cluster._children["scheduler"].process.pid
        self.hosts: list[Stand] = []
        self.clients: Stand | None = None
        for number in range(hosts):
            self.hosts.append(Stand(run_machines, self.cluster.address, number))

    def join(self, machines: int, workers: int) -> float:
        """Let machines join with so many workers each; return how long that took.

        The machines are shared evenly among the processes, which may round their number up.
        """
        start = clock()
        each = -(-machines // len(self.hosts))
        for host in self.hosts:
            host.tell("join", each, workers)
        return max(host.hear() for host in self.hosts) - start

    def manage(self) -> None:
        """Let a manager come, whose units all machines are."""
        self.hosts[0].tell("manage")

    def drain(self) -> float:
        """Let the manager drain all its units; return how long it took until all had left."""
        start = clock()
        for host in self.hosts:
            host.tell("go")
        self.hosts[0].tell("drain")
        return max(host.hear() for host in self.hosts) - start

    def add_clients(self, count: int) -> float:
        """Let clients join, all in one process; return how long that took."""
        self.clients = Stand(run_clients, self.cluster.address)
        self.clients.tell("join", 1)
        self.clients.hear()
        start = clock()
        if count > 1:
            self.clients.tell("join", count - 1)
            return float(self.clients.hear()) - start
        return 0.0

    def run(
        self, rate: float, window: int, duration_s: float, each_s: float = 0.0
    ) -> tuple[float, list[float]]:
        """Let the clients submit lone tasks; return the seconds until all results, and how long
        each task took."""
        assert self.clients is not None
        self.clients.tell("run", rate, window, duration_s, each_s)
        took_s, latencies = self.clients.hear()
        return float(took_s), list(latencies)

    @property
    def dashboard(self) -> int:
        """The process of the dashboard."""
        return self.cluster._children["dashboard"].process.pid

    @property
    def stands_cpu_s(self) -> float:
        """CPU time of the stand-ins so far."""
        stands = [*self.hosts, *([self.clients] if self.clients else [])]
        return sum(cpu_s(one.process.pid or 0) for one in stands)

    def close(self) -> None:
        """End everything."""
        for stand in [*self.hosts, *([self.clients] if self.clients else [])]:
            stand.close()
        self.cluster.stop()


@contextmanager
def crowd(hosts: int = HOSTS, *, has_dashboard: bool = False) -> Iterator[Crowd]:
    """Make a crowd, and end it."""
    one = Crowd(hosts, has_dashboard=has_dashboard)
    try:
        yield one
    finally:
        one.close()

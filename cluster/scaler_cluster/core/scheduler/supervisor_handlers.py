"""What supervisors tell the scheduler, and what it does when machines come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.core.records.amounts import Amounts
from scaler_cluster.core.records.supervisors import SupervisorRecord
from scaler_cluster.core.scheduler.manager_handlers import tell_broken
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.texts import last_line
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.scheduler.client_handlers import ClientHandlers
    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.feed import Feed
    from scaler_cluster.core.scheduler.graph_moves import Graphs
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.stopping import Stopping
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.core.scheduler.worker_handlers import WorkerHandlers

LOST_MAX = 1024
"""Dead workers remembered per supervisor: far more than may die while a Hello is under way. If more
do, a living one whose Hello was so slow is sent away, and another one comes in its place."""


class SupervisorHandlers:
    """Handles the messages of supervisors."""

    def __init__(
        self,
        table: Table,
        config: SchedulerConfig,
        stopping: Stopping,
        graphs: Graphs,
        clients: ClientHandlers,
        workers: WorkerHandlers,
        feed: Feed,
        pools: WorkerPools,
    ) -> None:
        self._table = table
        self._config = config
        self._stopping = stopping
        self._graphs = graphs
        self._clients = clients
        self._workers = workers
        self._feed = feed
        self._pools = pools
        self.handlers: dict[type[m.Message], Callable[[bytes, Any, float], None]] = {
            m.WorkerLost: self._on_worker_lost,
            m.Overdue: self._on_overdue,
            m.Stuck: self._on_stuck,
            m.InitializerFailed: self._on_initializer_failed,
            m.Vitals: self._on_vitals,
        }

    # -- supervisors come and go ---------------------------------------------------------------

    def welcome(self, peer: bytes, hello: m.Hello, now: float) -> None:
        """A supervisor came, or says anew how many workers it is to have."""
        table = self._table
        supervisor = table.supervisors.get(peer)
        gpus = dict(hello.capabilities).get(m.GPU, 0)
        if gpus > m.DEVICES_MAX or gpus != int(gpus):
            raise RemoteProtocolError("the GPUs of a machine are counted by the piece")
        table.broken = ""
        table.workers_expected = 0
        if supervisor is None:
            supervisor = SupervisorRecord(peer, hello.host, hello.pid, hello.workers, now)
            supervisor.manager, supervisor.unit = hello.manager, hello.unit
            supervisor.name = hello.name
            supervisor.amounts = Amounts(hello.capabilities)
            table.supervisors[peer] = supervisor
            table.is_roster_new = True
            table.journal.cluster_came(supervisor, now)
            if hello.pid_space and hello.pid_space == self._config.pid_space:
                table.to_watch.append((peer, hello.pid))
        supervisor.workers_wanted = hello.workers
        supervisor.last_seen = now
        self._pools.changes += 1
        table.send(peer, self._config.welcome(0, hello.workers))
        table.observer.machine_joined(supervisor)

    def lose(self, supervisor: SupervisorRecord, reason: str, now: float) -> None:
        """Give a supervisor up with its workers and storage; without a reason it has left."""
        table, peer = self._table, supervisor.peer
        del table.supervisors[peer]
        table.has_lost_machines = table.is_roster_new = True
        table.journal.cluster_ended(supervisor, reason, now)
        for worker in list(supervisor.workers.values()):
            self._workers.lose(worker, None, now, has_left=not reason)
        store = table.objects.stores.get(peer)
        if store is not None and store.peer is not None:
            table.send(store.peer, m.Goodbye("its supervisor is gone"))
            table.outbox.part_with(store.peer)
        table.objects.drop_store(peer)
        self._graphs.machine_lost()
        self._feed.examined(peer, now)
        table.observer.machine_left(supervisor)
        self._check_broken(now)

    def _supervisor(self, peer: bytes) -> SupervisorRecord:
        supervisor = self._table.supervisors.get(peer)
        if supervisor is None:
            raise RemoteProtocolError("only a supervisor says this")
        return supervisor

    # -- what they say of their workers --------------------------------------------------------

    def _on_worker_lost(self, peer: bytes, message: m.WorkerLost, now: float) -> None:
        supervisor = self._supervisor(peer)
        supervisor.bury(message.worker, LOST_MAX)
        self._table.returning.pop(message.worker, None)
        supervisor.is_whole = False
        roll = supervisor.roll or {}
        was_awaited = message.worker in roll
        roll.pop(message.worker, None)
        worker = supervisor.workers.get(message.worker)
        if worker is not None:
            self._workers.lose(worker, message, now)
        elif was_awaited and not self._table.knows(message.worker):
            # What it stored for the scheduler before this one was kept until it would come.
            objects = self._table.objects
            for key in (peer, *objects.homes):
                objects.purge(message.worker, key)

    def _on_overdue(self, peer: bytes, message: m.Overdue, now: float) -> None:
        worker = self._supervisor(peer).workers.get(message.worker)
        if worker is not None:
            self._stopping.overdue(worker, message, now)

    def _on_stuck(self, peer: bytes, message: m.Stuck, now: float) -> None:
        supervisor = self._supervisor(peer)
        worker = supervisor.workers.get(message.worker)
        if worker is None:
            return
        if message.how != m.STOPPED:
            if not self._stopping.hangs(worker, message):
                return
            self._pools.consider(worker)
        self._table.journal.stuck(supervisor, worker.count, message, now)

    def _on_vitals(self, peer: bytes, message: m.Vitals, now: float) -> None:
        supervisor = self._supervisor(peer)
        count = len(message.workers)
        if not count == len(message.worker_cpu_milli) == len(message.worker_rss_bytes):
            raise RemoteProtocolError("vitals of more workers or fewer than it names")
        supervisor.last_seen = now
        supervisor.vitals = message
        supervisor.lag_s = max(now - message.sent_at - message.held_s, 0.0) / 2
        figures = zip(message.worker_cpu_milli, message.worker_rss_bytes, strict=True)
        for worker, (cpu_milli, rss_bytes) in zip(message.workers, figures, strict=True):
            if worker in supervisor.workers:
                vitals = (cpu_milli / 1000, rss_bytes) if rss_bytes else None
                supervisor.workers[worker].vitals = vitals
        self._feed.examined(peer, now)

    def _on_initializer_failed(self, peer: bytes, message: m.InitializerFailed, now: float) -> None:
        supervisor = self._supervisor(peer)
        supervisor.broken = f"The initializer of the workers failed:\n{message.text}"
        supervisor.workers_wanted = 0
        why = f"cannot start: {last_line(message.text) or 'no word was said'}"
        tell_broken(self._table, supervisor.manager, supervisor.unit, why)
        self._check_broken(now)

    def _check_broken(self, now: float) -> None:
        """Let all tasks fail if there are workers nowhere, and nowhere will be."""
        table = self._table
        broken = [one.broken for one in table.supervisors.values()]
        # A manager may have others started, elsewhere.
        others = any(not one.is_own for one in table.managers.values())
        table.broken = broken[-1] if broken and all(broken) and not others else ""
        if table.broken:
            self._clients.break_all(table.broken, now)

"""What workers report to the scheduler, and what it does when they come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.core.records.announced import Announced
from scaler_cluster.core.records.limits import TASKS_MAX
from scaler_cluster.core.records.objects import StoreRecord
from scaler_cluster.core.records.placement import uncounted
from scaler_cluster.core.records.returning import Returning
from scaler_cluster.core.records.workers import WorkerRecord
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import alias_of, is_segment_of, segment_number
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.scheduler.actors import Actors
    from scaler_cluster.core.scheduler.claims import Claims
    from scaler_cluster.core.scheduler.client_handlers import ClientHandlers
    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.deaths import Deaths
    from scaler_cluster.core.scheduler.feed import Feed
    from scaler_cluster.core.scheduler.graph_moves import Graphs
    from scaler_cluster.core.scheduler.outcomes import Outcomes
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.spares import Spares
    from scaler_cluster.core.scheduler.stopping import Stopping
    from scaler_cluster.core.scheduler.table import Table

WAIT_S = 30.0
"""A worker waits so long at most for its supervisor, and for the clients of what it holds."""


class WorkerHandlers:
    """Handles the messages of workers."""

    def __init__(
        self,
        table: Table,
        config: SchedulerConfig,
        pools: WorkerPools,
        outcomes: Outcomes,
        stopping: Stopping,
        deaths: Deaths,
        spares: Spares,
        clients: ClientHandlers,
        graphs: Graphs,
        claims: Claims,
        actors: Actors,
        feed: Feed,
    ) -> None:
        self._table = table
        self._config = config
        self._pools = pools
        self._outcomes = outcomes
        self._stopping = stopping
        self._deaths = deaths
        self._spares = spares
        self._clients = clients
        self._graphs = graphs
        self._claims = claims
        self._actors = actors
        self._feed = feed
        self.handlers: dict[type[m.Message], Callable[[bytes, Any, float], None]] = {
            m.Done: self._on_done,
            m.DoneNodes: self._on_done_nodes,
            m.Shared: self._on_shared,
            m.Stored: self._on_stored,
            m.Erred: self._on_erred,
            m.Skipped: self._on_skipped,
            m.Revoked: self._on_revoked,
            m.Aborted: self._on_aborted,
            m.Started: self._on_started,
            m.Printed: self._on_printed,
            m.Profile: self._on_profile,
            m.Sampled: self._on_sampled,
            m.LogLines: self._on_logged,
        }

    # -- workers come and go -------------------------------------------------------------------

    def welcome(self, peer: bytes, hello: m.Hello, now: float) -> None:
        """A worker came."""
        table = self._table
        supervisor = table.supervisors.get(hello.supervisor)
        if supervisor is not None and supervisor.may_have_died(peer):
            # The report of its death came by another connection, and was faster.
            table.send(peer, m.Goodbye("its supervisor said that it had died"))
            table.outbox.part_with(peer)
        elif supervisor is None or hello.resume:
            is_complete = not hello.resume
            table.returning[peer] = Returning(hello, now + WAIT_S, is_complete=is_complete)
        else:
            self.admit(peer, Returning(hello, now), now)

    def admit(self, peer: bytes, returning: Returning, now: float) -> None:
        """Take a worker in whose supervisor is here, with those tasks it holds that are wanted."""
        table, hello, hosts = self._table, returning.hello, returning.hosts
        supervisor = table.supervisors[hello.supervisor]
        worker = WorkerRecord(peer, hello.supervisor, hello.pid, hello.host, hello.task_limit)
        worker.joined_at = worker.progress_at = now
        worker.spare = hello.spare
        worker.name = hello.name
        worker.names = (hello.name, hello.host, alias_of(peer).hex())
        worker.retiring = supervisor.is_draining
        worker.paused = supervisor.is_paused
        worker.tasks_max = min(hello.queue or TASKS_MAX, self._config.tasks_max, TASKS_MAX)
        worker.announced = Announced(returning.first_segment)
        worker.devices = returning.devices
        worker.actor = hosts.actor if hosts is not None else ""
        worker.store = table.objects.key_of(hello)
        table.objects.stores.setdefault(worker.store, StoreRecord(hello.place))
        supervisor.workers[peer] = worker
        supervisor.has_come = True
        table.workers[peer] = worker
        table.refused = ""
        offered = hello.capabilities
        # The worker whose place a spare one takes has not let go of what it uses.
        own = uncounted(offered) if worker.spare else offered
        has_python = bool(hello.python)
        self._pools.admit(worker, own, supervisor.amounts.offered, has_python=has_python)
        table.observer.worker_joined(worker)
        for holding in returning.holdings:
            self._claims.settle(worker, holding, now)
        if hosts is not None:
            self._actors.returned(worker, hosts, now, is_whole=returning.is_whole)
            self._claims.judge_calls(hosts.actor)
        # Last: the worker then knows which of its tasks are wanted.
        table.send(peer, self._config.welcome())
        if worker.retiring:
            table.send(peer, m.Retire())
        self._spares.joined(worker, now)

    def retire(self, worker: WorkerRecord) -> None:
        """A worker leaves: it has run all it was given, or is about to be reported dead."""
        worker.retiring = True
        self._pools.consider(worker)

    def lose(
        self,
        worker: WorkerRecord,
        lost: m.WorkerLost | None,
        now: float,
        *,
        has_left: bool = False,
    ) -> None:
        """A worker is gone: it left in order, or died as its supervisor says, or is given up."""
        self._table.outbox.part_with(worker.peer)
        has_died = not (has_left or (lost is not None and lost.is_orderly))
        self._table.deaths += has_died
        if has_died:
            self._table.observer.worker_died(worker, lost)
        else:
            self._table.observer.worker_left(worker)
        self._table.drop_worker(worker)
        may_claim = has_died and self._graphs.has_given(worker)
        self._table.objects.purge(worker.peer, worker.store, may_claim=may_claim)
        self._pools.forget(worker)
        self._deaths.worker_lost(worker, lost, now)
        if worker.session in self._table.sessions:
            self._clients.end(self._table.sessions[worker.session], now)
            self._table.outbox.part_with(worker.session, with_its_worker=True)
        self._spares.left(worker, now)

    # -- reports on tasks ----------------------------------------------------------------------

    def _reporting(self, peer: bytes) -> WorkerRecord | None:
        """Return the worker that reports; None: it was given up, so its report is too late."""
        worker = self._table.workers.get(peer)
        if worker is None and not self._table.has_parted(peer):
            raise RemoteProtocolError("only a worker reports on tasks")
        return worker

    def _on_done(self, peer: bytes, message: m.Done, now: float) -> None:
        worker = self._reporting(peer)
        if worker is None:
            return
        self._pools.progressed(worker, now)
        self._outcomes.done(worker, message)
        self._pools.consider(worker)

    def _on_done_nodes(self, peer: bytes, message: m.DoneNodes, now: float) -> None:
        sizes = numbers(message.sizes, "Q")
        if len(sizes) != len(message.batch):
            raise RemoteProtocolError("results with more sizes or fewer")
        worker = self._reporting(peer)
        if worker is None:
            return
        self._pools.progressed(worker, now)
        self._outcomes.done(worker, message, sizes)
        self._pools.consider(worker)

    def _storing(self, peer: bytes, message: m.Stored | m.Shared) -> WorkerRecord | None:
        """Return the worker that stored a result; None: it was given up."""
        objects = self._table.objects
        if not all(is_segment_of(peer, segment) for segment in message.objects):
            raise RemoteProtocolError("a result in segments that somebody else wrote")
        if not objects.records.keys().isdisjoint(message.objects):
            raise RemoteProtocolError("a result in segments that hold another one")
        if len(message.sizes) != len(message.objects):
            raise RemoteProtocolError("a result with more segments or fewer than sizes")
        worker = self._reporting(peer)
        if worker is None:
            # The worker wrote it after it was given up. Which machine has it is not known any more.
            for key in objects.stores:
                objects.garbage.remove(key, message.objects)
            return None
        for segment in message.objects:
            worker.announced.add(segment_number(segment))
        return worker

    def _on_shared(self, peer: bytes, message: m.Shared, now: float) -> None:
        worker = self._storing(peer, message)
        if worker is not None:
            self._graphs.shared(worker, message)

    def _on_stored(self, peer: bytes, message: m.Stored, now: float) -> None:
        worker = self._storing(peer, message)
        if worker is None:
            return
        self._pools.progressed(worker, now)
        self._outcomes.stored(worker, message)
        self._pools.consider(worker)

    def _on_erred(self, peer: bytes, message: m.Erred, now: float) -> None:
        worker = self._reporting(peer)
        if worker is None:
            return
        self._pools.progressed(worker, now)
        self._outcomes.erred(worker, message)
        self._pools.consider(worker)

    def _on_skipped(self, peer: bytes, message: m.Skipped, now: float) -> None:
        worker = self._reporting(peer)
        if worker is None:
            return
        self._pools.progressed(worker, now)
        self._outcomes.skipped(worker, message)
        self._pools.consider(worker)

    def _on_revoked(self, peer: bytes, message: m.Revoked, now: float) -> None:
        worker = self._reporting(peer)
        if worker is None:
            return
        if not worker.revoking or message.kept > message.count:
            raise RemoteProtocolError("gives back what nobody asked for")
        worker.revoking -= 1
        self._outcomes.revoked(worker, message)
        self._pools.consider(worker)

    def _on_aborted(self, peer: bytes, message: m.Aborted, now: float) -> None:
        worker = self._reporting(peer)
        if worker is None:
            return
        busy_s = now - worker.progress_at
        self._pools.progressed(worker, now)
        self._outcomes.aborted(worker, message, busy_s)
        self._pools.consider(worker)

    def _on_started(self, peer: bytes, message: m.Started, now: float) -> None:
        worker = self._reporting(peer)
        if worker is not None:
            self._stopping.started(worker, message.session, message.task, now)

    def _on_printed(self, peer: bytes, message: m.Printed, now: float) -> None:
        worker = self._reporting(peer)
        session = self._table.session_by_number.get(message.session)
        if worker is None or session is None:
            return
        # Its own tasks print to its session, also those that nobody gave it. The first run is the
        # one whose task runs.
        if session.worker == peer or any(run.session == session.number for run in worker.runs):
            self._table.send(session.peer, m.Output(message.task, message.stream, message.text))

    def _on_profile(self, peer: bytes, message: m.Profile, now: float) -> None:
        session = self._table.session_by_number.get(message.session)
        if self._reporting(peer) is None or session is None:
            return
        if self._table.is_pending(session, message.task):
            self._table.send(session.peer, message)

    def _on_sampled(self, peer: bytes, message: m.Sampled, now: float) -> None:
        worker = self._reporting(peer)
        if worker is not None:
            self._feed.sampled(worker, message, now)

    def _on_logged(self, peer: bytes, message: m.LogLines, now: float) -> None:
        worker = self._reporting(peer)
        if worker is not None:
            self._feed.logged(worker, message, now)

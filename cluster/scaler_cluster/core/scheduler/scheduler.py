"""The doors of the scheduler: each message goes to the handlers of the role that sends it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.records.credit import STALL_S
from scaler_cluster.core.scheduler.actors import Actors
from scaler_cluster.core.scheduler.admission import AdmissionControl
from scaler_cluster.core.scheduler.adoption import Adoption
from scaler_cluster.core.scheduler.arrivals import Arrivals
from scaler_cluster.core.scheduler.assignment import Assigner
from scaler_cluster.core.scheduler.cancelling import Cancelling
from scaler_cluster.core.scheduler.claims import Claims
from scaler_cluster.core.scheduler.client_handlers import ClientHandlers
from scaler_cluster.core.scheduler.config import QuotaConfig, SchedulerConfig
from scaler_cluster.core.scheduler.coordination_handlers import CoordinationHandlers
from scaler_cluster.core.scheduler.deaths import Deaths
from scaler_cluster.core.scheduler.dispatch import Dispatch
from scaler_cluster.core.scheduler.draining import Draining
from scaler_cluster.core.scheduler.failures import Failures
from scaler_cluster.core.scheduler.feed import Feed
from scaler_cluster.core.scheduler.graph_moves import Graphs
from scaler_cluster.core.scheduler.inventories import Inventories
from scaler_cluster.core.scheduler.machines import Machines
from scaler_cluster.core.scheduler.manager_handlers import ManagerHandlers
from scaler_cluster.core.scheduler.operator_handlers import OperatorHandlers
from scaler_cluster.core.scheduler.outcomes import Outcomes
from scaler_cluster.core.scheduler.pools import WorkerPools
from scaler_cluster.core.scheduler.quotas import Quotas
from scaler_cluster.core.scheduler.rebalance import Rebalancer
from scaler_cluster.core.scheduler.resumption import Resumption
from scaler_cluster.core.scheduler.spares import Spares
from scaler_cluster.core.scheduler.stopping import Stopping
from scaler_cluster.core.scheduler.storage_handlers import StorageHandlers
from scaler_cluster.core.scheduler.supervisor_handlers import SupervisorHandlers
from scaler_cluster.core.scheduler.table import Table
from scaler_cluster.core.scheduler.unplaced import Unplaced
from scaler_cluster.core.scheduler.worker_control import WorkerControl
from scaler_cluster.core.scheduler.worker_handlers import WorkerHandlers
from scaler_cluster.core.scheduler.worker_runs import WorkerRuns
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from scaler_cluster.core.records.roster import Roster

SHUT_DOWN = "the cluster was shut down"
LAST_WORDS_S = 0.5
"""This long after a peer's process has ended, all that it sent must have arrived."""
LAG_S = 1.0
"""A turn this long after the last one means that the scheduler was slow, not its peers."""
LOOK_S = LAG_S / 2
"""How often it is looked who is silent, and what no worker can run."""


class SchedulerCore:
    """Decides; the shell in ``runtime/scheduler.py`` moves the bytes.

    ``user_of`` says whose key a peer has; empty: nobody needs one.
    """

    def __init__(
        self, config: SchedulerConfig, now: float, user_of: Callable[[bytes], str] = lambda _: ""
    ) -> None:
        self.config = config
        self.table = table = Table(
            config.homes,
            user_of,
            are_elsewhere=config.homes_are_elsewhere,
            retention_s=config.object_retention_s,
            workers_expected=config.workers_expected,
        )
        self.feed = Feed(table, config, now)
        self._last_tick, self._look_at = now, now + LOOK_S
        """When to look at all peers, and at all that waits for a worker that may never come."""
        self.is_over = False
        """True once a client has ended the cluster; the shell says Goodbye to clients."""
        self._pools = pools = WorkerPools(
            table.supervisors, table.send, max(STALL_S, config.idle_s)
        )
        self._machines = machines = Machines(table, pools)
        assigner = Assigner(table, pools, machines)
        self._rebalancer = Rebalancer(table, pools, config.idle_s)
        self._spares = spares = Spares(table, pools, self._rebalancer, machines)
        runs, failures = WorkerRuns(table, machines), Failures(table)
        self._actors = actors = Actors(table, pools, assigner, failures, spares, machines, now)
        self._dispatch = Dispatch(table, pools, assigner, self._rebalancer, machines, actors)
        self._stopping = stopping = Stopping(table, runs, failures, config.cancel_grace_s)
        self._admission, quotas = limits = _limits(table, config)
        self._graphs = graphs = Graphs(table, stopping.cancel, quotas)
        outcomes = Outcomes(table, runs, failures, graphs)
        deaths = Deaths(table, runs, failures, graphs)
        self._unplaced = Unplaced(table, pools, failures, config.unplaced_timeout_s)
        inventories = Inventories(table, config)
        self._adoption = adopting = Adoption(table, config, inventories, now)
        self._coordinating = CoordinationHandlers(table, config, now)
        also = adopting, limits, self._coordinating.coordination, actors
        self._clients = clients = ClientHandlers(
            table, config, stopping, graphs, self._dispatch, assigner, spares, *also
        )
        claims = Claims(table, runs, assigner, stopping, failures, pools, machines)
        these = spares, clients, graphs, claims, actors, self.feed
        self._workers = WorkerHandlers(table, config, pools, outcomes, stopping, deaths, *these)
        self._supervisors = SupervisorHandlers(
            table, config, stopping, graphs, clients, self._workers, self.feed, pools
        )
        draining = Draining(table, pools, self._rebalancer, graphs)
        self._managers = ManagerHandlers(table, config, pools, draining)
        control = WorkerControl(table, pools, self._rebalancer, draining)
        self._operators = OperatorHandlers(
            table, config, Cancelling(table, stopping, graphs), control
        )
        self._storages = StorageHandlers(table, config, graphs, self._adoption, inventories)
        self._resumption = Resumption(
            table, config, claims, self._workers, inventories, self._handle, self._drop, now
        )
        roles = clients, self._workers, self._supervisors, self._managers, self._storages
        self._arrivals = Arrivals(table, config, (*roles, self._operators), self.peer_lost)
        self.held_back = table.backlog.held_back
        """Numbers of sessions whose tasks wait because their clients do not read their results."""
        self.to_nudge = self._resumption.to_nudge
        """Workers that the shell is to tell that they are unknown; the shell empties the list."""
        self._handlers = self._all_handlers()

    def _all_handlers(self) -> dict[type[m.Message], Callable[[bytes, Any, float], None]]:
        """Return what takes each message in."""
        return {
            m.Hello: self._arrivals.on_hello,
            m.Heartbeat: self._on_heartbeat,
            m.Goodbye: self._on_goodbye,
            m.Shutdown: self._on_shutdown,
            **self._clients.handlers,
            **self._workers.handlers,
            **self._supervisors.handlers,
            **self._managers.handlers,
            **self._storages.handlers,
            **self._operators.handlers,
            **self._resumption.handlers,
            **self._coordinating.handlers,
        }

    # -- doors ---------------------------------------------------------------------------------

    def receive(self, peer: bytes, messages: Iterable[m.Message], now: float) -> None:
        """Take in what a peer sent.

        Raises RemoteProtocolError if the peer must not send this; the shell then calls
        :meth:`peer_lost` and says so in the log. Any other exception is a bug of the scheduler.
        """
        table, stopping = self.table, self._graphs.stopping
        received, parting, noticed = table.received, table.outbox.parting, table.answers.noticed
        deferred = table.deferred
        table.observer.now = now
        for message in messages:
            kind = type(message)
            handler = self._handlers.get(kind)
            if handler is None:
                raise RemoteProtocolError(f"{kind.__name__} is not for a scheduler")
            received[kind] += 1
            if parting and kind is not m.Hello and self._ended_with_its_worker(peer):
                continue
            if deferred and self._resumption.defer(peer, message, now):
                continue
            handler(peer, message, now)
            if noticed or stopping:
                self._graphs.settle(now)

    def _handle(self, peer: bytes, message: m.Message, now: float) -> None:
        """Take in what a peer sent before."""
        self._handlers[type(message)](peer, message, now)
        self._graphs.settle(now)

    def _drop(self, peer: bytes, now: float, reason: str) -> None:
        """Give a peer up that broke the protocol in what it sent before."""
        self.table.send(peer, m.Goodbye(f"the scheduler dropped this client: {reason}"))
        self.peer_lost(peer, now)

    def _ended_with_its_worker(self, peer: bytes) -> bool:
        """Return True for the session of a lost worker: it spoke before it heard of that."""
        return self.table.outbox.parting.get(peer, False) and not self.table.knows(peer)

    def failed(self) -> None:
        """Count a message or a turn that failed by a bug of the scheduler."""
        self.table.errors += 1

    def process_over(self, peer: bytes, now: float) -> None:
        """The process of a peer has ended. It is given up unless it has just said Goodbye."""
        ended = self.table.supervisors.get(peer) or self.table.sessions.get(peer)
        if ended is not None:
            ended.over_at = now + LAST_WORDS_S

    def peer_lost(
        self,
        peer: bytes,
        now: float,
        *,
        has_left: bool = False,
        reason: str = "it broke the protocol",
    ) -> None:
        """Give a peer up: a client with its tasks, a supervisor with its workers, a worker.

        If it ``has_left`` in order, so have its workers; else the ``reason`` is logged.
        """
        table = self.table
        table.observer.now = now
        if has_left:
            reason = ""
        if peer in table.sessions:
            table.journal.client_ended(table.sessions[peer], reason, now)
            self._clients.end(table.sessions[peer], now)
        elif peer in table.supervisors:
            self._supervisors.lose(table.supervisors[peer], reason, now)
            if peer in table.managers:
                self._managers.lose(table.managers[peer], reason, now)
        elif peer in table.managers:
            self._managers.lose(table.managers[peer], reason, now)
        elif peer in table.workers:
            # Its process lives, so its supervisor is to end it. Its task is lost with it.
            worker = table.workers[peer]
            table.send(worker.supervisor, m.Kill(peer, "it broke the protocol"))
            self._workers.lose(worker, None, now)
        elif peer in table.objects.storages:
            self._storages.lose(peer)
        elif peer in table.operators:
            self._operators.lose(peer)
        table.returning.pop(peer, None)
        self._graphs.settle(now)
        table.outbox.part_with(peer)

    def tick(self, now: float) -> None:
        """Act on what is due: expired peers, timeouts, stalled workers, kills."""
        table = self.table
        table.observer.now = now
        # What is due at once, as when a machine is to leave, is late since the last tick.
        self.feed.tick(now, now - max(self.deadline, self._last_tick))
        if now - self._last_tick > LAG_S:
            table.forgive_silence(now - self._last_tick)
        self._last_tick = now
        if now >= self._look_at:
            # At all peers: under load, ticks come every millisecond.
            self._look_at = now + LOOK_S
            self._give_up_silent_peers(now)
            self._unplaced.tick(now)
            self._actors.tick(now)
        for worker in self._stopping.tick(now):
            self._pools.consider(worker)
        self._rebalancer.tick(now)
        self._spares.tick(now)
        self._resumption.tick(now)
        self._graphs.settle(now)
        self._adoption.tick(now)
        self._managers.tick(now)
        table.objects.tick(now)

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        table, monitor = self.table, self.feed.monitor
        has_peers = table.sessions or table.supervisors or table.managers or table.operators
        return min(
            self._look_at if has_peers else math.inf,
            monitor.deadline if monitor is not None else math.inf,
            self._stopping.deadline,
            self._dispatch.deadline,
            self._resumption.deadline,
            self._coordinating.deadline,
            self._rebalancer.deadline,
            self._adoption.deadline,
            self._managers.deadline,
            table.objects.garbage.deadline,
        )

    @property
    def single_in_flight(self) -> bool:
        """Return True if the next message is likely to come within a moment.

        That is so while at most one task is under way: a client waits for each result before it
        submits the next task. With more tasks, other processes have a better use for this CPU.
        """
        return self.table.in_flight <= 1

    def take_actions(self, now: float) -> dict[bytes, list[m.Message]]:
        """Give work out, and return what is to be sent, by peer."""
        table = self.table
        table.observer.now = now
        if table.deferred or table.returning or now >= self._resumption.until:
            self._resumption.act(now)
        if now >= self._coordinating.deadline:
            self._coordinating.act(now)
        if table.answers.noticed:
            # Graphs may wait for what is lost.
            self._graphs.settle(now)
        self._dispatch.give_out(now)
        if table.actors.changed:
            self._actors.give_out(now)
        if self._admission is not None:
            self._admission.give(now)
        if now >= table.objects.garbage.deadline:
            table.objects.garbage.tell(now)
        return table.outbox.take()

    def hold_back(self, peers: Collection[bytes], now: float) -> None:
        """Give no tasks out of clients that do not read their results; these are all of them."""
        table, held_back = self.table, self.table.backlog.held_back
        for number in list(held_back):
            if table.session_by_number[number].peer not in peers:
                table.backlog.let_go(number)
                table.journal.client_reads(table.session_by_number[number], now, does_read=True)
        for session in (table.sessions[peer] for peer in peers if peer in table.sessions):
            if session.number not in held_back:
                table.backlog.hold_back(session.number)
                table.journal.client_reads(session, now, does_read=False)

    def expect_storage(self, peer: bytes) -> None:
        """Take no other storage for the scheduler's own from now on."""
        self._storages.own = peer

    def let_in(self, users: Mapping[str, str]) -> None:
        """Have the storages let these users in, by their public keys."""
        self._storages.let_in(users)

    def expel(self, peers: Iterable[bytes], now: float) -> None:
        """Give up peers whose keys were removed."""
        for peer in peers:
            if self.table.knows(peer):
                self.table.send(peer, m.Goodbye("its key was removed"))
                self.peer_lost(peer, now, reason="its key was removed")

    @property
    def roster(self) -> Roster:
        """What the next scheduler is to know if this one is killed now."""
        return self._resumption.roster

    def take_gone(self) -> list[bytes]:
        """Return the peers to forget, once what :meth:`take_actions` returned has been sent.

        A peer of these that speaks again is told that it is unknown, unless it says Hello.
        """
        return self.table.outbox.take_parting(self.table.knows)

    # -- what peers of all roles say -----------------------------------------------------------

    def _on_heartbeat(self, peer: bytes, message: m.Heartbeat, now: float) -> None:
        session = self.table.sessions.get(peer)
        if session is not None:
            session.last_seen = now
            self.table.send(peer, m.Heartbeat())
        elif peer in self.table.supervisors:
            self.table.supervisors[peer].last_seen = now
        elif peer in self.table.operators:
            self.table.operators[peer] = now
        else:
            self._storages.heard(peer, now)

    def _on_goodbye(self, peer: bytes, message: m.Goodbye, now: float) -> None:
        worker = self.table.workers.get(peer)
        if worker is not None:
            self._workers.retire(worker)
        else:
            self.peer_lost(peer, now, has_left=True)

    def _on_shutdown(self, peer: bytes, message: m.Shutdown, now: float) -> None:
        if peer not in self.table.sessions:
            raise RemoteProtocolError("only a client ends a cluster")
        if self.config.protected:
            reason = "the scheduler is in protected mode: only who started it can shut it down"
            self.table.send(peer, m.Refused(reason))
            return
        self.is_over = True
        for started in (*self.table.managers, *self.table.supervisors):
            self.table.send(started, m.Goodbye(SHUT_DOWN))

    # -- silence -------------------------------------------------------------------------------

    def _give_up_silent_peers(self, now: float) -> None:
        table, config = self.table, self.config
        for session in list(table.sessions.values()):
            if now >= session.over_at:
                table.journal.client_ended(session, "its process has ended", now)
                self._clients.end(session, now)
            # A task may keep its process from speaking; its session ends with its worker.
            elif not session.worker and now - session.last_seen >= config.client_timeout_s:
                silence = f"it was silent for {config.client_timeout_s:g} s"
                table.journal.client_ended(session, silence, now)
                self._clients.end(session, now)
        for supervisor in list(table.supervisors.values()):
            if now >= supervisor.over_at:
                self.peer_lost(supervisor.peer, now, reason="its process has ended")
            elif now - supervisor.last_seen >= config.supervisor_timeout_s:
                silence = f"it was silent for {config.supervisor_timeout_s:g} s"
                self.peer_lost(supervisor.peer, now, reason=silence)
        for manager in list(table.managers.values()):
            if not manager.is_own and now - manager.last_seen >= config.supervisor_timeout_s:
                silence = f"it was silent for {config.supervisor_timeout_s:g} s"
                self.peer_lost(manager.peer, now, reason=silence)
        for peer, last_seen in list(table.operators.items()):
            if now - last_seen >= config.client_timeout_s:
                self.peer_lost(peer, now)
        for peer, key in list(table.objects.storages.items()):
            if now - table.objects.stores[key].last_seen >= config.storage_timeout_s:
                self.peer_lost(peer, now)


def _limits(table: Table, config: SchedulerConfig) -> tuple[AdmissionControl | None, Quotas | None]:
    """Return what limits the tasks of all clients, and of each; None: nothing does."""
    most, quotas = config.tasks_waiting_max, config.quotas
    return (
        AdmissionControl(table, most) if most >= 0 else None,
        Quotas(table, quotas) if quotas != QuotaConfig() else None,
    )

"""The scheduler: who runs what, when, and what becomes of it when something dies.

Kept in three files: this one holds the doors and the peers, ``dispatch.py`` gives work out and
asks it back, ``outcomes.py`` settles what became of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.admission import AdmissionControl
from scaler_cluster.core.credit import TASKS_MAX
from scaler_cluster.core.dispatch import Dispatch
from scaler_cluster.core.lifecycle import State
from scaler_cluster.core.objects import HOME
from scaler_cluster.core.outcomes import Outcomes
from scaler_cluster.core.placement import uncounted
from scaler_cluster.core.records import (
    FunctionRecord,
    SessionRecord,
    StoreRecord,
    SupervisorRecord,
    WorkerRecord,
)
from scaler_cluster.core.spares import Spares
from scaler_cluster.core.table import Table
from scaler_cluster.core.tasks import Run
from scaler_cluster.core.unplaced import Unplaced
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import FUNCTION_NAME_CHARS_MAX, TASK_ID_MAX, is_segment_of
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from scaler_cluster.core.monitor import Monitor
    from scaler_cluster.wire import feed

SESSION_FUNCTIONS_MAX = 4096
"""A client forgets functions well before; beyond this it is misbehaving."""
LOST_MAX = 1024
"""Dead workers remembered per supervisor: far more than may die while a Hello is under way."""
SHUT_DOWN = "the cluster was shut down"
LAST_WORDS_S = 0.5
"""So long after a supervisor's process has ended, what it said before must have arrived."""
LAG_S = 1.0
"""A turn so long after the deadline that called for it means that WE were slow, not the peers."""


@dataclass(frozen=True)
class SchedulerConfig:
    """Settings of a scheduler, in seconds."""

    python: str
    """Version of Python that its peers must share, as "3.11"."""
    pid_space: str = ""
    """Where the pids are that the scheduler can watch; empty: nowhere."""
    client_timeout_s: float = 600.0
    """A silent client is given up after this: long enough for a debugger or a long C call."""
    supervisor_timeout_s: float = 15.0
    """A silent supervisor is given up, with its workers, after this."""
    cancel_grace_s: float = 0.5
    """A task that does not stop when interrupted is killed after this."""
    workers_expected: int = 0
    """Workers that come with the scheduler, and are on their way before they say so."""
    homes: tuple[m.StorageEndpoint, ...] = (m.NOWHERE,)
    """Where clients store objects: beside this scheduler, or in storages that run by themselves."""
    homes_are_elsewhere: bool = False
    tasks_max: int = TASKS_MAX
    """How many tasks a worker is given at most."""
    tasks_waiting_max: int = -1
    """How many tasks wait, before further ones wait at their clients; -1: no limit."""
    protected: bool = True
    """No client may end the cluster."""
    unplaced_timeout_s: float = math.inf
    """Tasks that demand what no worker has fail after this."""
    idle_s: float = 0.0
    """How long a worker has nothing to do, before it gets what others have queued; inf: it never
    does."""
    object_retention_s: float = math.inf
    """Copies of objects that no task on their machine has used for so long go."""
    storage_timeout_s: float = 15.0
    """A silent storage that runs by itself is given up, with what it holds, after this."""
    feed_interval_s: float = 1.0
    """Who watches gets a snapshot so often."""
    feed_objects: int = 50
    """How many of the largest objects it lists."""
    monitor: str = ""
    """Where that is to be had; empty: nowhere."""
    dashboard: str = ""
    """Link of who shows it in a browser; empty: nobody does."""


class SchedulerCore:
    """Decides; the shell in ``runtime/scheduler.py`` moves the bytes."""

    def __init__(self, config: SchedulerConfig, now: float) -> None:
        self.config = config
        self.table = Table(
            config.homes,
            are_elsewhere=config.homes_are_elsewhere,
            retention_s=config.object_retention_s,
        )
        self._began_at = now
        self._monitor: Monitor | None = None
        """Made for the first who watches."""
        self._outcomes = Outcomes(self.table, config.cancel_grace_s)
        self._dispatch = Dispatch(self.table, config.idle_s)
        self._spares = Spares(self.table, self._dispatch)
        self._unplaced = Unplaced(
            self.table, self._dispatch, self._outcomes, config.unplaced_timeout_s
        )
        limit = config.tasks_waiting_max
        self._admission = AdmissionControl(self.table, limit) if limit >= 0 else None
        self._last_tick = now
        self._sessions_made = 0
        self._broken = ""
        self._expected = config.workers_expected
        """Workers of a supervisor that has not come yet."""
        self.to_watch: list[tuple[bytes, int]] = []
        """Supervisors whose process the shell is to watch, with its pid; the shell empties it, and
        calls :meth:`process_over`."""
        self.is_over = False
        """True once a client has ended the cluster; the shell says Goodbye to clients."""
        self._gone: dict[bytes, bool | None] = {}
        """Peers to forget; True: a session that ended with its worker."""
        self._handlers: dict[type[m.Message], Callable[[bytes, Any, float], None]] = {
            m.Hello: self._on_hello,
            m.Heartbeat: self._on_heartbeat,
            m.Goodbye: self._on_goodbye,
            m.Shutdown: self._on_shutdown,
            m.Function: self._on_function,
            m.Forget: self._on_forget,
            m.Submit: self._on_submit,
            m.RequestCredit: self._on_request_credit,
            m.Cancel: self._on_cancel,
            m.Graph: self._on_graph,
            m.ProvideInputs: self._on_provide_inputs,
            m.Blocked: self._on_blocked,
            m.Object: self._on_object,
            m.Release: self._on_release,
            m.Inventory: self._on_inventory,
            m.Transferred: self._on_transferred,
            m.Done: self._on_done,
            m.Stored: self._on_stored,
            m.Erred: self._on_erred,
            m.Skipped: self._on_skipped,
            m.Revoked: self._on_revoked,
            m.Aborted: self._on_aborted,
            m.Started: self._on_started,
            m.Printed: self._on_printed,
            m.Profile: self._on_profile,
            m.WorkerLost: self._on_worker_lost,
            m.Overdue: self._on_overdue,
            m.InitializerFailed: self._on_initializer_failed,
            m.Vitals: self._on_vitals,
        }

    # -- doors -------------------------------------------------------------------------------

    def receive(self, peer: bytes, messages: Iterable[m.Message], now: float) -> None:
        """Take in what a peer sent.

        Raises RemoteProtocolError if it must not send this; the shell then calls
        :meth:`peer_lost` and says so in the log. Anything else that is raised is a bug of ours.
        """
        received = self.table.received
        if self.table.monitor is not None:
            self.table.monitor.now = now
        for message in messages:
            kind = type(message)
            handler = self._handlers.get(kind)
            if handler is None:
                raise RemoteProtocolError(f"{kind.__name__} is not for a scheduler")
            received[kind] += 1
            if self._gone and kind is not m.Hello and self._ended_with_its_worker(peer):
                continue
            handler(peer, message, now)
            if self.table.noticed or self.table.stopping:
                self._outcomes.graphs.settle(now)

    def _ended_with_its_worker(self, peer: bytes) -> bool:
        """Return True for the session of a lost worker, which spoke before it heard of that."""
        return bool(self._gone.get(peer)) and not self.table.knows(peer)

    def failed(self) -> None:
        """Count a message or a turn that failed by a bug of ours."""
        self.table.errors += 1

    def process_over(self, peer: bytes, now: float) -> None:
        """The process of a supervisor has ended; it is given up unless it has just said Goodbye."""
        if peer in self.table.supervisors:
            self.table.supervisors[peer].over_at = now + LAST_WORDS_S

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
        if table.monitor is not None:
            table.monitor.now = now
        if has_left:
            reason = ""
        if peer in table.sessions:
            table.journal.client_ended(table.sessions[peer], reason, now)
            self._end_session(table.sessions[peer], now)
        elif peer in table.supervisors:
            supervisor = table.supervisors.pop(peer)
            table.journal.cluster_ended(supervisor, reason, now)
            for worker in list(supervisor.workers.values()):
                self._lose_worker(worker, None, now, has_left=has_left)
            store = table.objects.stores.get(peer)
            if store is not None and store.peer is not None:
                table.send(store.peer, m.Goodbye("its supervisor is gone"))
                self._gone[store.peer] = None
            table.objects.drop_store(peer)
            self._outcomes.graphs.machine_lost()
            if table.monitor is not None:
                table.monitor.machine_left(supervisor)
            self._check_broken(now)
        elif peer in table.workers:
            # Its process lives, so its supervisor is to end it; what it ran is lost with it.
            worker = table.workers[peer]
            table.send(worker.supervisor, m.Kill(peer, "it broke the protocol"))
            self._lose_worker(worker, None, now)
        elif peer in table.objects.storages:
            table.objects.drop_storage(peer)
            self._outcomes.graphs.machine_lost()
        self._outcomes.graphs.settle(now)
        self._gone[peer] = None

    def tick(self, now: float) -> None:
        """Act on what is due: expired peers, timeouts, stalled workers, kills."""
        table = self.table
        if table.monitor is not None:
            table.monitor.now = now
            table.monitor.late(now - self.deadline)
            table.monitor.tick(now)
        if now - self._last_tick > LAG_S:
            lag = now - self._last_tick
            for session in table.sessions.values():
                session.last_seen += lag
            for supervisor in table.supervisors.values():
                supervisor.last_seen += lag
            for store in table.objects.stores.values():
                store.last_seen += lag
        self._last_tick = now
        for session in list(table.sessions.values()):
            if now - session.last_seen >= self.config.client_timeout_s:
                silence = f"it was silent for {self.config.client_timeout_s:g} s"
                table.journal.client_ended(session, silence, now)
                self._end_session(session, now)
        for supervisor in list(table.supervisors.values()):
            if now >= supervisor.over_at:
                self.peer_lost(supervisor.peer, now, reason="its process has ended")
            elif now - supervisor.last_seen >= self.config.supervisor_timeout_s:
                silence = f"it was silent for {self.config.supervisor_timeout_s:g} s"
                self.peer_lost(supervisor.peer, now, reason=silence)
        for peer, key in list(table.objects.storages.items()):
            if now - table.objects.stores[key].last_seen >= self.config.storage_timeout_s:
                self.peer_lost(peer, now)
        for worker in self._outcomes.tick(now):
            self._dispatch.consider(worker)
        self._dispatch.tick(now)
        self._spares.tick(now)
        self._unplaced.tick(now, to_come=self._workers_to_come())
        self._outcomes.graphs.settle(now)
        table.objects.tick(now)

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        table = self.table
        due = self._last_tick + LAG_S / 2 if table.sessions or table.supervisors else math.inf
        if table.monitor is not None:
            due = min(due, table.monitor.deadline)
        return min(due, self._outcomes.deadline, self._dispatch.deadline)

    @property
    def single_in_flight(self) -> bool:
        """Return True if the next message is likely to come within a moment.

        So it is where one task at most is under way: a client that waits for each result before
        it submits the next. With more, somebody else has a better use for this CPU.
        """
        return self.table.in_flight <= 1

    def take_actions(self, now: float) -> dict[bytes, list[m.Message]]:
        """Give work out, and return what is to be sent, by peer."""
        if self.table.monitor is not None:
            self.table.monitor.now = now
        self._dispatch.give_out(now)
        if self._admission is not None:
            self._admission.give(now)
        outbox = self.table.outbox
        self.table.outbox = {}
        return outbox

    def asks_first(self, session: SessionRecord) -> bool:
        """Return True if a client must ask before it submits tasks."""
        return self._admission is not None and not session.worker

    def take_gone(self) -> list[bytes]:
        """Return the peers to forget, once what :meth:`take_actions` returned has been sent.

        Whoever of them speaks again is told that it is unknown, unless it says Hello.
        """
        if not self._gone:
            return []
        gone = [peer for peer in self._gone if not self.table.knows(peer)]
        self._gone.clear()
        return gone

    # -- for whoever watches -----------------------------------------------------------------

    def watch(self, topics: Collection[bytes], now: float) -> None:
        """Take note that these topics of the feed are listened to from now on.

        To be called whenever a listener has come, also for topics that others listen to already,
        and when the last one of a topic has left.
        """
        if self._monitor is None:
            # Most schedulers are never watched, and to import this takes a tenth of their start.
            from scaler_cluster.core.monitor import Monitor

            config = self.config
            self._monitor = Monitor(
                self.table, config.feed_interval_s, config.feed_objects, self._began_at
            )
        self._monitor.watch(topics, now)

    @property
    def feed_deadline(self) -> float:
        """When :meth:`take_feed` is next due."""
        return self.table.monitor.due if self.table.monitor is not None else math.inf

    def take_feed(self, now: float) -> list[feed.Snapshot | feed.Events]:
        """Return what is to be published now; say :meth:`feed_took` what that has cost."""
        return self._monitor.take(now) if self._monitor is not None else []

    def feed_took(self, cost_s: float, now: float) -> None:
        """Take note of how long it took to make and to publish what was due."""
        if self._monitor is not None:
            self._monitor.took(cost_s, now)

    # -- peers -------------------------------------------------------------------------------

    def _client(self, peer: bytes) -> SessionRecord:
        session = self.table.sessions.get(peer)
        if session is None:
            raise RemoteProtocolError("only a client says this")
        return session

    def _worker_of(self, peer: bytes) -> WorkerRecord:
        """Return the worker that runs the task whose session this is."""
        worker = self.table.workers.get(self._client(peer).worker)
        if worker is None:
            raise RemoteProtocolError("only a client inside of a task says this")
        return worker

    def _supervisor(self, peer: bytes) -> SupervisorRecord:
        supervisor = self.table.supervisors.get(peer)
        if supervisor is None:
            raise RemoteProtocolError("only a supervisor says this")
        return supervisor

    def _storage(self, peer: bytes) -> bytes:
        """Return the key of a storage's store."""
        key = self.table.objects.storages.get(peer)
        if key is None:
            raise RemoteProtocolError("only a storage says this")
        return key

    def _on_hello(self, peer: bytes, hello: m.Hello, now: float) -> None:
        if hello.role != m.SUPERVISOR or peer not in self.table.supervisors:
            self.peer_lost(peer, now, reason="it began anew")
        reason = ""
        who = "cluster" if hello.role == m.SUPERVISOR else hello.role
        if hello.protocol != m.PROTOCOL_VERSION:
            reason = (
                f"The {who} speaks protocol {hello.protocol}, this scheduler "
                f"{m.PROTOCOL_VERSION}: install the same version of scaler-exec on both sides."
            )
        elif hello.role != m.STORAGE and hello.python != self.config.python:
            reason = (
                f"The {who} runs Python {hello.python}, this scheduler "
                f"{self.config.python}: tasks are pickled code, use the same Python on both sides."
            )
        if reason:
            self.table.send(peer, m.Refused(reason))
            self._gone[peer] = None
            self.table.journal.refused(hello, reason, now)
            if hello.role == m.SUPERVISOR:
                self.table.refused = f"A cluster on {hello.host:.80} was refused: {reason}"
        elif hello.role == m.CLIENT:
            self._welcome_client(peer, hello, now)
        elif hello.role == m.WORKER:
            self._welcome_worker(peer, hello, now)
        elif hello.role == m.SUPERVISOR:
            supervisor = self.table.supervisors.setdefault(
                peer, SupervisorRecord(peer, hello.host, 0, now)
            )
            supervisor.workers_wanted = hello.workers
            self._broken = ""
            self._expected = 0
            if not supervisor.pid:
                supervisor.pid = hello.pid
                self.table.journal.cluster_came(supervisor, now)
                if hello.pid_space and hello.pid_space == self.config.pid_space:
                    self.to_watch.append((peer, hello.pid))
            supervisor.last_seen = now
            self._welcome(peer, 0, hello.workers)
            if self.table.monitor is not None:
                self.table.monitor.machine_joined(supervisor)
        elif hello.role == m.STORAGE:
            self._welcome_storage(peer, hello, now)
        else:
            raise RemoteProtocolError(f"nobody has the role {hello.role!r:.40}")

    def _welcome(
        self, peer: bytes, session: int = 0, workers: int = 0, *, asks_first: bool = False
    ) -> None:
        config = self.config
        watched_at = config.monitor, config.dashboard
        self.table.send(peer, m.Welcome(session, workers, config.homes, asks_first, *watched_at))

    def _welcome_client(self, peer: bytes, hello: m.Hello, now: float) -> None:
        table = self.table
        worker = table.workers.get(hello.worker)
        if hello.worker and worker is None:
            # Who runs the tasks that would speak through it is dead.
            table.send(peer, m.Refused("the worker that ran this task is gone"))
            self._gone[peer] = None
            return
        self._sessions_made += 1
        number = self._sessions_made
        session = SessionRecord(number, peer, hello.host, hello.pid, now, worker=hello.worker)
        table.add_session(session)
        table.journal.client_came(session, now)
        if table.monitor is not None:
            table.monitor.client_joined(session)
        if worker is not None:
            if worker.session:
                # It gave a first one up before that was welcome.
                self.peer_lost(worker.session, now)
            worker.session = peer
        workers = sum(one.workers_wanted for one in table.supervisors.values())
        # What tasks submit they may wait for: it must never wait for room that they take.
        asks_first = self._admission is not None and worker is None
        self._welcome(peer, number, workers, asks_first=asks_first)
        if self._broken:
            table.send(peer, m.Broken(self._broken))

    def _welcome_worker(self, peer: bytes, hello: m.Hello, now: float) -> None:
        table = self.table
        supervisor = table.supervisors.get(hello.supervisor)
        if supervisor is None:
            if hello.supervisor in (peer, HOME) or table.knows(hello.supervisor):
                raise RemoteProtocolError("a worker whose supervisor is none")
            # A worker may be faster than its supervisor, whose Hello is still under way.
            supervisor = SupervisorRecord(hello.supervisor, hello.host, 0, now)
            table.supervisors[hello.supervisor] = supervisor
        elif peer in supervisor.lost:
            # The report of its death came by another connection, and was faster.
            table.send(peer, m.Goodbye("its supervisor said that it had died"))
            return
        worker = WorkerRecord(peer, hello.supervisor, hello.pid, hello.host, hello.task_limit)
        worker.joined_at = worker.progress_at = now
        worker.spare = hello.spare
        worker.name = hello.name
        worker.tasks_max = min(hello.queue or TASKS_MAX, self.config.tasks_max, TASKS_MAX)
        home = table.objects.home_with(hello.place.disk)
        worker.store = hello.supervisor if home is None else home
        if home is None:
            table.objects.stores.setdefault(worker.store, StoreRecord(hello.place))
        supervisor.workers[peer] = worker
        table.workers[peer] = worker
        table.refused = ""
        self._welcome(peer)
        offered = hello.capabilities
        # Whose place it takes has not let go of what it uses.
        self._dispatch.admit(worker, uncounted(offered) if worker.spare else offered)
        if table.monitor is not None:
            table.monitor.worker_joined(worker)
        if worker.spare:
            self._spares.joined(worker, now)

    def _welcome_storage(self, peer: bytes, hello: m.Hello, now: float) -> None:
        table = self.table
        key = hello.supervisor
        if peer in table.objects.homes:
            key = peer
            table.objects.stores[peer].last_seen = now
        if hello.supervisor and hello.supervisor not in table.supervisors:
            table.send(peer, m.Goodbye("its supervisor is not here"))
            self._gone[peer] = None
            return
        self._welcome(peer)
        before = table.objects.add_storage(peer, key, hello.place)
        if before is not None:
            self._gone[before] = None

    def _on_heartbeat(self, peer: bytes, message: m.Message, now: float) -> None:
        session = self.table.sessions.get(peer)
        if session is not None:
            session.last_seen = now
            self.table.send(peer, m.Heartbeat())
        elif peer in self.table.supervisors:
            self.table.supervisors[peer].last_seen = now
        else:
            self.table.objects.stores[self._storage(peer)].last_seen = now

    def _on_goodbye(self, peer: bytes, message: m.Message, now: float) -> None:
        worker = self.table.workers.get(peer)
        if worker is not None:
            # A worker that leaves has run all it was given, or is about to be reported dead.
            worker.retiring = True
            self._dispatch.consider(worker)
        else:
            self.peer_lost(peer, now, has_left=True)

    def _on_shutdown(self, peer: bytes, message: m.Message, now: float) -> None:
        if peer not in self.table.sessions:
            raise RemoteProtocolError("only a client ends a cluster")
        if self.config.protected:
            reason = "the scheduler is in protected mode: only who started it can shut it down"
            self.table.send(peer, m.Refused(reason))
            return
        self.is_over = True
        for supervisor in self.table.supervisors:
            self.table.send(supervisor, m.Goodbye(SHUT_DOWN))

    def _end_session(self, session: SessionRecord, now: float) -> None:
        for run in list(session.runs.values()):
            self._outcomes.cancel(run, run.first, run.stop, now)
        self._outcomes.graphs.drop(session)
        for function, is_whole in session.functions.items():
            if is_whole:
                self.table.release_function(function)
        self.table.objects.release(session.objects)
        if self._admission is not None:
            self._admission.forget(session)
        self.table.drop_session(session)
        if self.table.monitor is not None:
            self.table.monitor.client_left(session)
        worker = self.table.workers.get(session.worker)
        if worker is not None:
            worker.session = b""
            self._spares.set_blocked(worker, now, is_blocked=False)
        for key in self.table.objects.homes:
            self.table.objects.purge(session.peer, key)
        self._gone[session.peer] = None

    def _lose_worker(
        self,
        worker: WorkerRecord,
        lost: m.WorkerLost | None,
        now: float,
        *,
        has_left: bool = False,
    ) -> None:
        self._gone[worker.peer] = None
        has_died = not (has_left or (lost is not None and lost.is_orderly))
        self.table.deaths += has_died
        if self.table.monitor is not None:
            if has_died:
                self.table.monitor.worker_died(worker, lost)
            else:
                self.table.monitor.worker_left(worker)
        self.table.drop_worker(worker)
        self.table.objects.purge(worker.peer, worker.store)
        self._dispatch.forget(worker)
        self._outcomes.worker_lost(worker, lost, now)
        if worker.session in self.table.sessions:
            self._end_session(self.table.sessions[worker.session], now)
            self._gone[worker.session] = True
        self._spares.left(worker, now)

    # -- clients -----------------------------------------------------------------------------

    def _on_function(self, peer: bytes, message: m.Function, now: float) -> None:
        session = self._client(peer)
        if message.function in session.functions:
            return
        if len(session.functions) >= SESSION_FUNCTIONS_MAX:
            raise RemoteProtocolError("a client that never forgets a function")
        if message.objects and not session.objects.keys() >= set(message.objects):
            # They were released: tasks that name it fail.
            session.functions[message.function] = False
            return
        session.functions[message.function] = True
        record = self.table.functions.get(message.function)
        if record is None:
            record = FunctionRecord(message.payload, message.objects)
            record.name = message.name[:FUNCTION_NAME_CHARS_MAX]
            record.totals = self.table.names.enter(record.name)
            self.table.objects.hold(message.objects)
            self.table.functions[message.function] = record
        record.users += 1

    def _on_forget(self, peer: bytes, message: m.Forget, now: float) -> None:
        functions = self._client(peer).functions
        if message.function not in functions:
            raise RemoteProtocolError("a function that it has not sent")
        if functions.pop(message.function):
            self.table.release_function(message.function)

    def _on_object(self, peer: bytes, message: m.Object, now: float) -> None:
        session = self._client(peer)
        session.last_seen = now
        self.table.objects.announce(session, message)

    def _on_release(self, peer: bytes, message: m.Release, now: float) -> None:
        session = self._client(peer)
        for one in message.objects:
            if one not in session.objects:
                raise RemoteProtocolError("an object that it does not hold")
            del session.objects[one]
            self.table.objects.release((one,))

    def _on_inventory(self, peer: bytes, message: m.Inventory, now: float) -> None:
        self.table.objects.take_inventory(self._storage(peer), message.objects)

    def _on_transferred(self, peer: bytes, message: m.Transferred, now: float) -> None:
        self.table.objects.transferred(self._storage(peer), message.segment, message.error)

    def _on_submit(self, peer: bytes, message: m.Submit, now: float) -> None:
        table = self.table
        session = self._client(peer)
        session.last_seen = now
        if message.function not in session.functions:
            raise RemoteProtocolError("a task whose function was not sent")
        if message.first + len(message.batch) > TASK_ID_MAX:
            raise RemoteProtocolError("a task beyond the last id")
        if self._admission is not None and not session.worker:
            self._admission.submitted(session, len(message.batch))
        is_whole = session.functions[message.function]
        if not is_whole or (message.objects and not session.objects.keys() >= set(message.objects)):
            self._fail_short(session, message)
            return
        run = Run(
            session.number,
            message.first,
            message.function,
            message.call,
            message.options,
            message.batch,
            message.objects,
        )
        table.add_run(run)
        table.queue(run.options).push(run)

    def _on_request_credit(self, peer: bytes, message: m.RequestCredit, now: float) -> None:
        session = self._client(peer)
        if self._admission is None or session.worker:
            raise RemoteProtocolError("asks for what it may do")
        self._admission.wants(session, message.more - message.fewer)

    def _fail_short(self, session: SessionRecord, message: m.Submit) -> None:
        """Let tasks fail whose objects, or those of their function, were released."""
        count = len(message.batch)
        counted = [session.totals]
        if message.function in self.table.functions:
            counted.append(self.table.functions[message.function].totals)
        for one in counted:
            one.submitted += count
            one.failed += count
        for task in range(message.first, message.first + count):
            self.table.send(session.peer, m.Failed(task, m.FAILED_MISSING))

    def _on_graph(self, peer: bytes, message: m.Graph, now: float) -> None:
        session = self._client(peer)
        session.last_seen = now
        self._outcomes.graphs.submit(session, message)

    def _on_provide_inputs(self, peer: bytes, message: m.ProvideInputs, now: float) -> None:
        self._outcomes.graphs.supply(self._client(peer), message)

    def _on_cancel(self, peer: bytes, message: m.Cancel, now: float) -> None:
        session = self._client(peer)
        session.last_seen = now
        stop = message.first + message.count
        if message.queued_only:
            self._dispatch.give_out(now)
            if session.worker:
                self._recall(session, message.first, stop, now)
            else:
                self._take_back(session, message.first, stop, now)
            return
        for run in self.table.overlapping(session, message.first, stop):
            if run.graph is None:
                self._outcomes.cancel(run, max(run.first, message.first), min(run.stop, stop), now)
        if session.graphs or session.watched:
            self._outcomes.graphs.cancel(session, message.first, stop)

    def _take_back(self, session: SessionRecord, first: int, stop: int, now: float) -> None:
        """Cancel what only waits, but not what workers would run by now if they were up."""
        spared = self._workers_to_come()
        runs = [
            run for run in self.table.overlapping(session, first, stop) if run.state is State.READY
        ]
        for run in sorted(runs, key=lambda run: -run.options.priority):
            low, high = max(run.first, first), min(run.stop, stop)
            kept = min(spared, high - low)
            spared -= kept
            low += kept
            if low < high:
                self.table.answer(session.number, m.Cancelled(low, high - low))
                self._outcomes.cancel(run, low, high, now)
        self._outcomes.graphs.take_back(session, first, stop)

    def _recall(self, session: SessionRecord, first: int, stop: int, now: float) -> None:
        """Let a task have what it submitted and waits for, as far as nobody runs it, to run it."""
        for run in self.table.overlapping(session, first, stop):
            if run.state is not State.READY:
                continue
            low, high = max(run.first, first), min(run.stop, stop)
            for task in range(low, high) if session.watched else ():
                # The client supplies what becomes of it.
                session.watched.pop(task, None)
            self.table.send(session.peer, m.Cancelled(low, high - low))
            self._outcomes.recall(run, low, high, now)
        self._dispatch.hand_over(session, first, stop)

    def _workers_to_come(self) -> int:
        supervisors = self.table.supervisors.values()
        if not supervisors and not self._broken:
            return self._expected
        up = (len(one.workers) - len(one.spares) for one in supervisors)
        return sum(max(one.workers_wanted - n, 0) for one, n in zip(supervisors, up, strict=True))

    def _on_blocked(self, peer: bytes, message: m.Blocked, now: float) -> None:
        worker = self._worker_of(peer)
        self._spares.set_blocked(worker, now, is_blocked=message.is_blocked)

    # -- workers -----------------------------------------------------------------------------

    def _reporting(self, peer: bytes) -> WorkerRecord | None:
        """Return the worker that reports, or None if it is given up: what it says is too late."""
        worker = self.table.workers.get(peer)
        if worker is None and (peer not in self._gone or self.table.knows(peer)):
            raise RemoteProtocolError("only a worker reports on tasks")
        return worker

    def _on_done(self, peer: bytes, message: m.Done, now: float) -> None:
        worker = self._reporting(peer)
        if worker is None:
            return
        self._progress(worker, now)
        self._outcomes.done(worker, message)
        self._dispatch.consider(worker)

    def _on_stored(self, peer: bytes, message: m.Stored, now: float) -> None:
        if not all(is_segment_of(peer, segment) for segment in message.objects):
            raise RemoteProtocolError("a result in segments that somebody else wrote")
        worker = self._reporting(peer)
        if worker is None:
            # Written after it was given up; where, nobody knows any more.
            for key in self.table.objects.stores:
                self.table.objects.remove_segments(key, message.objects)
            return
        self._progress(worker, now)
        self._outcomes.stored(worker, message)
        self._dispatch.consider(worker)

    def _on_erred(self, peer: bytes, message: m.Erred, now: float) -> None:
        worker = self._reporting(peer)
        if worker is None:
            return
        self._progress(worker, now)
        self._outcomes.erred(worker, message)
        self._dispatch.consider(worker)

    def _on_skipped(self, peer: bytes, message: m.Skipped, now: float) -> None:
        worker = self._reporting(peer)
        if worker is None:
            return
        self._progress(worker, now)
        self._outcomes.skipped(worker, message)
        self._dispatch.consider(worker)

    def _on_revoked(self, peer: bytes, message: m.Revoked, now: float) -> None:
        worker = self._reporting(peer)
        if worker is None:
            return
        if not worker.revoking or message.kept > message.count:
            raise RemoteProtocolError("gives back what nobody asked for")
        worker.revoking -= 1
        self._outcomes.revoked(worker, message)
        self._dispatch.consider(worker)

    def _on_aborted(self, peer: bytes, message: m.Aborted, now: float) -> None:
        worker = self._reporting(peer)
        if worker is None:
            return
        self._progress(worker, now)
        self._outcomes.aborted(worker, message)
        self._dispatch.consider(worker)

    def _progress(self, worker: WorkerRecord, now: float) -> None:
        worker.progress_at = now
        worker.stalled = False
        self._dispatch.arm_stall_timer(worker, now)

    def _on_started(self, peer: bytes, message: m.Started, now: float) -> None:
        worker = self._reporting(peer)
        if worker is not None:
            self._outcomes.started(worker, message.session, message.task, now)

    def _on_printed(self, peer: bytes, message: m.Printed, now: float) -> None:
        session = self.table.session_by_number.get(message.session)
        if session is not None:
            self.table.send(session.peer, m.Output(message.task, message.stream, message.text))

    def _on_profile(self, peer: bytes, message: m.Profile, now: float) -> None:
        session = self.table.session_by_number.get(message.session)
        if self._reporting(peer) is None or session is None:
            return
        if self.table.is_pending(session, message.task):
            self.table.send(session.peer, message)

    # -- supervisors -------------------------------------------------------------------------

    def _on_worker_lost(self, peer: bytes, message: m.WorkerLost, now: float) -> None:
        supervisor = self._supervisor(peer)
        supervisor.lost[message.worker] = None
        if len(supervisor.lost) > LOST_MAX:
            supervisor.lost.popitem(last=False)
        worker = supervisor.workers.get(message.worker)
        if worker is not None:
            self._lose_worker(worker, message, now)

    def _on_overdue(self, peer: bytes, message: m.Overdue, now: float) -> None:
        worker = self._supervisor(peer).workers.get(message.worker)
        if worker is not None:
            self._outcomes.overdue(worker, message, now)

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
        if self.table.monitor is not None:
            self.table.monitor.examined(peer)

    def _on_initializer_failed(self, peer: bytes, message: m.InitializerFailed, now: float) -> None:
        supervisor = self._supervisor(peer)
        supervisor.broken = f"The initializer of the workers failed:\n{message.text}"
        supervisor.workers_wanted = 0
        self._check_broken(now)

    def _check_broken(self, now: float) -> None:
        """Let all tasks fail if there are workers nowhere, and nowhere will be."""
        broken = [one.broken for one in self.table.supervisors.values()]
        self._broken = broken[-1] if broken and all(broken) else ""
        if not self._broken:
            return
        for session in self.table.sessions.values():
            for run in list(session.runs.values()):
                self._outcomes.cancel(run, run.first, run.stop, now)
            self._outcomes.graphs.drop(session)
            self.table.send(session.peer, m.Broken(self._broken))

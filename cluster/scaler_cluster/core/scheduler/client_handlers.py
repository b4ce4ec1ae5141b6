"""What clients ask of the scheduler, and what it does when they come and go.

A task that submits tasks is a client as well: its session belongs to the worker that runs it.
"""

from __future__ import annotations

from functools import partial
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.functions import FunctionRecord
from scaler_cluster.core.records.lifecycle import State
from scaler_cluster.core.records.returning import Deferred
from scaler_cluster.core.records.workers import Run
from scaler_cluster.core.scheduler.session import SessionRecord
from scaler_cluster.core.scheduler.worker_list import list_workers
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import (
    FUNCTION_NAME_CHARS_MAX,
    SESSION_BITS,
    TASK_ID_MAX,
    function_id,
    session_proof,
)
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.scheduler.actors import Actors
    from scaler_cluster.core.scheduler.admission import AdmissionControl
    from scaler_cluster.core.scheduler.adoption import Adoption
    from scaler_cluster.core.scheduler.assignment import Assigner
    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.coordination import Coordination
    from scaler_cluster.core.scheduler.dispatch import Dispatch
    from scaler_cluster.core.scheduler.graph_moves import Graphs
    from scaler_cluster.core.scheduler.quotas import Quotas
    from scaler_cluster.core.scheduler.spares import Spares
    from scaler_cluster.core.scheduler.stopping import Stopping
    from scaler_cluster.core.scheduler.table import Table

SESSION_FUNCTIONS_MAX = 4096
"""A client forgets functions well before; beyond this it is misbehaving."""
SUBMIT_TASKS_MAX = 65_536
"""Tasks of one message: clients send 4,096. A million at once would keep all others waiting."""


class ClientHandlers:
    """Handles the messages of clients."""

    def __init__(
        self,
        table: Table,
        config: SchedulerConfig,
        stopping: Stopping,
        graphs: Graphs,
        dispatch: Dispatch,
        assigner: Assigner,
        spares: Spares,
        adoption: Adoption,
        limits: tuple[AdmissionControl | None, Quotas | None],
        coordination: Coordination,
        actors: Actors,
    ) -> None:
        self._table = table
        self._config = config
        self._stopping = stopping
        self._graphs = graphs
        self._dispatch = dispatch
        self._assigner = assigner
        self._spares = spares
        self._admission, self._quotas = limits
        self._adoption = adoption
        self._coordination = coordination
        self._actors = actors
        self._sessions_made = config.epoch << SESSION_BITS
        self._resumed: set[int] = set()
        """Numbers of other schedulers that clients have here."""
        self.handlers: dict[type[m.Message], Callable[[bytes, Any, float], None]] = {
            m.Function: self._on_function,
            m.Forget: self._on_forget,
            m.Object: self._on_object,
            m.Keep: self._on_keep,
            m.Release: self._on_release,
            m.Submit: self._on_submit,
            m.RequestCredit: self._on_request_credit,
            m.Graph: self._on_graph,
            m.ProvideInputs: self._on_provide_inputs,
            m.Cancel: self._on_cancel,
            m.Blocked: self._on_blocked,
            m.Inlined: stopping.inlined.on_inlined,
            m.EndActor: actors.on_end,
            m.ListWorkers: partial(list_workers, table),
        }

    # -- clients come and go -------------------------------------------------------------------

    def asks_first(self, session: SessionRecord) -> bool:
        """Return True if a client must ask before it submits tasks.

        A task need not: it may wait for what it submits, which must never wait for room that the
        task takes.
        """
        return self._admission is not None and not session.worker

    def welcome(self, peer: bytes, hello: m.Hello, now: float) -> None:
        """A client came, or a task begins to submit tasks through its worker."""
        table = self._table
        worker = table.workers.get(hello.worker)
        if hello.worker and worker is None:
            table.send(peer, m.Refused("the worker that ran this task is gone"))
            table.outbox.part_with(peer)
            return
        if worker is not None and (worker.pid, worker.host) != (hello.pid, hello.host):
            raise RemoteProtocolError("the session of a worker's tasks is in another process")
        user = table.user_of(peer)
        is_back = self._is_own(hello.resume) or hello.resume in self._resumed
        number = self._number_of(hello, user)
        account = table.open_account(user)
        session = SessionRecord(
            number, peer, hello.host, hello.pid, now, account, worker=hello.worker
        )
        session.is_back = is_back
        session.is_resumed = number == hello.resume
        near = self._config.pid_space
        session.is_near = bool(near) and hello.pid_space == near and worker is None
        table.add_session(session)
        table.journal.client_came(session, now)
        table.observer.client_joined(session)
        if worker is not None:
            if worker.session:
                # The task gave a first session up before that was welcome.
                self.end(table.sessions[worker.session], now)
            worker.session = peer
        workers = sum(one.workers_wanted for one in table.supervisors.values())
        asks_first = self.asks_first(session)
        if hello.resume and not asks_first:
            table.deferred[peer] = Deferred()
        adopts = table.objects.adopts
        welcome = self._config.welcome(
            number,
            workers,
            asks_first=asks_first,
            adopts=adopts,
            is_program=worker is None,
            proof=session_proof(self._config.secret, number, user),
        )
        table.send(peer, welcome)
        if table.broken:
            table.send(peer, m.Broken(table.broken))

    def _number_of(self, hello: m.Hello, user: str) -> int:
        """Return the number for a new session: that which it had with another scheduler, if any.

        Once only: workers here may still have tasks of those that had it before. A client without
        proof gets another one: what it asks for again is run again, or has failed as lost if it may
        be started only once.
        """
        is_own = self._is_own(hello.resume)
        proof = session_proof(self._config.secret, hello.resume, user)
        is_proven = compare_digest(hello.proof, proof)
        if hello.resume and not is_own and is_proven and hello.resume not in self._resumed:
            self._resumed.add(hello.resume)
            return hello.resume
        self._sessions_made += 1
        return self._sessions_made

    def _is_own(self, number: int) -> bool:
        """Return True for the number of a session that this scheduler has given."""
        return self._config.epoch << SESSION_BITS < number <= self._sessions_made

    def end(self, session: SessionRecord, now: float) -> None:
        """A client left or is given up, and its tasks with it."""
        self._stop_all(session, now)
        self._stopping.inlined.end(session)
        self._coordination.end(session.number)
        for function, is_whole in session.functions.items():
            if is_whole:
                self._table.release_function(function)
        self._table.objects.release(session.objects)
        if self._admission is not None:
            self._admission.forget(session)
        if self._quotas is not None:
            self._quotas.forget(session)
        if session.number in self._table.backlog.held_back:
            self._table.backlog.let_go(session.number)
        self._table.drop_session(session)
        self._table.observer.client_left(session)
        if (worker := self._table.workers.get(session.worker)) is not None:
            worker.session = b""
            self._spares.set_blocked(worker, now, is_blocked=False)
        for key in self._table.objects.homes:
            self._table.objects.purge(session.peer, key)
        self._table.outbox.part_with(session.peer)

    def break_all(self, reason: str, now: float) -> None:
        """Let all tasks of all clients fail: there are workers nowhere, and nowhere will be."""
        for session in self._table.sessions.values():
            self._stop_all(session, now)
            self._table.send(session.peer, m.Broken(reason))

    def _stop_all(self, session: SessionRecord, now: float) -> None:
        for run in list(session.runs.values()):
            self._stopping.cancel(run, run.first, run.stop, now)
        self._graphs.drop(session)

    def _client(self, peer: bytes) -> SessionRecord:
        session = self._table.sessions.get(peer)
        if session is None:
            raise RemoteProtocolError("only a client says this")
        return session

    # -- functions and objects -----------------------------------------------------------------

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
        if message.function != function_id(message.payload, message.objects):
            # Others would run it in place of their own.
            raise RemoteProtocolError("a function under the name of another one")
        session.functions[message.function] = True
        record = self._table.functions.get(message.function)
        if record is None:
            record = FunctionRecord(message.payload, message.objects)
            record.name = message.name[:FUNCTION_NAME_CHARS_MAX]
            record.totals = self._table.names.enter(record.name)
            self._table.objects.hold(message.objects)
            self._table.functions[message.function] = record
        record.users += 1

    def _on_forget(self, peer: bytes, message: m.Forget, now: float) -> None:
        functions = self._client(peer).functions
        if message.function not in functions:
            raise RemoteProtocolError("a function that it has not sent")
        if functions.pop(message.function):
            self._table.release_function(message.function)

    def _on_object(self, peer: bytes, message: m.Object, now: float) -> None:
        session = self._client(peer)
        session.last_seen = now
        self._table.objects.announce(session, message)
        if self._quotas is not None:
            self._quotas.stored(session, message.nbytes)

    def _on_keep(self, peer: bytes, message: m.Keep, now: float) -> None:
        session = self._client(peer)
        session.last_seen = now
        self._adoption.keep(session, message)

    def _on_release(self, peer: bytes, message: m.Release, now: float) -> None:
        session = self._client(peer)
        for one in message.objects:
            if one not in session.objects:
                raise RemoteProtocolError("an object that it does not hold")
            del session.objects[one]
            self._table.objects.release((one,), by_client=True)

    # -- tasks ---------------------------------------------------------------------------------

    def _on_submit(self, peer: bytes, message: m.Submit, now: float) -> None:
        table = self._table
        session = self._client(peer)
        session.last_seen = now
        if message.function not in session.functions:
            raise RemoteProtocolError("a task whose function was not sent")
        count = len(message.batch)
        if count > SUBMIT_TASKS_MAX:
            raise RemoteProtocolError(f"more than {SUBMIT_TASKS_MAX} tasks in one message")
        if message.first + count > TASK_ID_MAX:
            raise RemoteProtocolError("a task beyond the last id")
        if message.options.creates and count > 1:
            raise RemoteProtocolError("several tasks that make one actor")
        if self._admission is not None and not session.worker:
            self._admission.submitted(session, count)
        is_whole = session.functions[message.function]
        if not is_whole or (message.objects and not session.objects.keys() >= set(message.objects)):
            self._fail_from(session, message, 0, m.FAILED_MISSING, {})
            return
        batch = message.batch
        if self._quotas is not None:
            kept, reason = self._quotas.admit(session, batch)
            if kept < count:
                self._fail_from(session, message, kept, m.FAILED_QUOTA, {"message": reason})
                if not kept:
                    return
                batch = batch.cut(0, kept)
        run = Run(
            session.number,
            message.first,
            message.function,
            message.call,
            message.options,
            batch,
            message.objects,
            account=table.account_of(session),
        )
        table.add_run(run)
        table.backlog.queue(run).push(run)
        if run.options is not m.DEFAULT_OPTIONS:
            self._actors.submitted(run)

    def _on_request_credit(self, peer: bytes, message: m.RequestCredit, now: float) -> None:
        session = self._client(peer)
        if self._admission is None or session.worker:
            raise RemoteProtocolError("asks for what it may do")
        self._admission.wants(session, message.more - message.fewer)

    def _fail_from(
        self,
        session: SessionRecord,
        message: m.Submit,
        start: int,
        kind: str,
        detail: dict[str, Any],
    ) -> None:
        """Let the tasks of a message fail that are not taken in: those from ``start`` on."""
        count = len(message.batch) - start
        counted = [session.totals]
        if message.function in self._table.functions:
            counted.append(self._table.functions[message.function].totals)
        for one in counted:
            one.submitted += count
            one.failed += count
        failed = m.FailedRange(message.first + start, count, kind, detail)
        self._table.send(session.peer, failed)

    def _on_graph(self, peer: bytes, message: m.Graph, now: float) -> None:
        session = self._client(peer)
        session.last_seen = now
        self._graphs.submit(session, message)

    def _on_provide_inputs(self, peer: bytes, message: m.ProvideInputs, now: float) -> None:
        self._graphs.supply(self._client(peer), message)

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
        for run in session.runs.overlapping(message.first, stop):
            if not isinstance(run, NodeRun):
                self._stopping.cancel(run, max(run.first, message.first), min(run.stop, stop), now)
        if session.graphs or session.watched:
            self._graphs.cancel(session, message.first, stop)

    def _take_back(self, session: SessionRecord, first: int, stop: int, now: float) -> None:
        """Cancel tasks that wait, except those that workers which are starting would run by now."""
        spared = self._table.workers_to_come
        runs = [run for run in session.runs.overlapping(first, stop) if run.state is State.READY]
        for run in sorted(runs, key=lambda run: -run.options.priority):
            low, high = max(run.first, first), min(run.stop, stop)
            kept = min(spared, high - low)
            spared -= kept
            low += kept
            if low < high:
                self._table.answers.answer(session.number, m.Cancelled(low, high - low))
                self._stopping.cancel(run, low, high, now)
        self._graphs.take_back(session, first, stop)

    def _recall(self, session: SessionRecord, first: int, stop: int, now: float) -> None:
        """Give tasks that no worker runs back to the task that submitted them and waits for them.

        That task runs them itself.
        """
        for run in session.runs.overlapping(first, stop):
            if run.state is not State.READY:
                continue
            worker = self._table.workers[session.worker]
            if not (run.options.is_for_any or self._assigner.may_run_inside(worker, run.options)):
                continue
            low, high = max(run.first, first), min(run.stop, stop)
            for task in range(low, high) if session.watched else ():
                # The client says what becomes of it, with ProvideInputs.
                session.watched.pop(task, None)
            self._table.send(session.peer, m.Cancelled(low, high - low))
            self._stopping.recall(run, low, high, now)
        self._assigner.hand_over(session, first, stop)

    def _on_blocked(self, peer: bytes, message: m.Blocked, now: float) -> None:
        worker = self._table.workers.get(self._client(peer).worker)
        if worker is None:
            raise RemoteProtocolError("only a client inside of a task says this")
        self._spares.set_blocked(worker, now, is_blocked=message.is_blocked)

"""How tasks are stopped: cancelled by a client, out of time, or recalled by a task that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.functions import FunctionRecord
from scaler_cluster.core.records.lifecycle import Event, State
from scaler_cluster.core.records.workers import Run
from scaler_cluster.core.scheduler.deadlines import Deadlines
from scaler_cluster.core.scheduler.inlined import Inlined
from scaler_cluster.ids import ranges_of
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.failures import Failures
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.core.scheduler.worker_runs import WorkerRuns

NOBODYS = b""
"""What stands for the function of a task that nobody asks for."""


class _Watch:
    """A run to be looked at later, as long as it is the same attempt on the same worker."""

    __slots__ = ("_tries", "reason", "run", "worker")

    def __init__(self, run: Run, reason: str) -> None:
        self.run = run
        self.reason = reason
        self.worker = run.worker
        self._tries = run.tries

    @property
    def is_moot(self) -> bool:
        """True once the run ended, or was given out again."""
        return self.run.worker is not self.worker or self.run.tries != self._tries


class Stopping:
    """Stops tasks, at once or when their time is over, and kills workers that do not stop."""

    def __init__(
        self, table: Table, runs: WorkerRuns, failures: Failures, cancel_grace_s: float
    ) -> None:
        self._table = table
        self._runs = runs
        self._failures = failures
        self._cancel_grace_s = cancel_grace_s
        self.inlined = Inlined(table)
        self._deadlines: Deadlines[_Watch] = Deadlines(lambda watch: watch.is_moot)

    def recall(self, run: Run, first: int, stop: int, now: float) -> None:
        """Give queued tasks ``first <= id < stop`` back to the task that waits for them."""
        self.inlined.recalled(run, stop - first)
        self._drop(run, first, stop, now)

    def cancel(self, run: Run, first: int, stop: int, now: float) -> None:
        """Stop the tasks ``first <= id < stop`` of a run."""
        if run.state is State.CANCELLING:
            return
        parts = [(first, stop)]
        if isinstance(run, NodeRun):
            # What fails with a node that it needs has failed: no event says that it was cancelled.
            ends = run.graph.nodes.states
            tasks = range(first, stop)
            parts = ranges_of(one for one in tasks if ends[one - run.graph.first] != State.FAILED)
        else:
            for one in self._table.totals(run):
                one.cancelled += stop - first
        for low, high in parts:
            self._table.observer.cancelled(run, low, high - low)
        self._drop(run, first, stop, now)

    def _drop(self, run: Run, first: int, stop: int, now: float) -> None:
        if run.state is State.READY:
            queue = self._table.backlog.queue(run)
            before, middle, after = self._runs.cut_range(run, first, stop)
            if before is not None:
                # ``run`` itself is the last part. Cancelled tasks need no place in the queue.
                queue.replace(run, [before] if after is None else [before, run])
            self._table.backlog.discard(middle)
            self._table.end(middle, Event.CANCEL)
        else:
            run = self._runs.isolate(run, first, stop)
            self._stop(run, Event.CANCEL, "its task was cancelled", now)

    def started(self, worker: WorkerRecord, session: int, task: int, now: float) -> None:
        """A task with a timeout starts."""
        for run in self._runs.held(worker, session, task, task + 1):
            timeout_s = run.options.timeout_s
            if timeout_s is not None and run.state is not State.CANCELLING:
                single = self._runs.isolate(run, task, task + 1)
                self._deadlines.add(now + timeout_s, _Watch(single, "timeout"))

    def disown(self, worker: WorkerRecord, task: int, now: float) -> Run:
        """A worker runs a task that nobody asks for: have the worker killed unless it stops.

        It was told to stop. When the task has ended, it says so of this task of session 0, which
        is returned.
        """
        table = self._table
        record = table.functions.get(NOBODYS)
        if record is None:
            record = table.functions[NOBODYS] = FunctionRecord(b"")
            record.totals = table.names.enter("")
        run = Run(0, task, NOBODYS, m.CALL_ARGS, m.DEFAULT_OPTIONS, Batch.single(b""))
        run.state, run.worker = State.CANCELLING, worker
        table.use(run)
        worker.runs.append(run)
        worker.count += 1
        table.in_flight += 1
        watch = _Watch(run, "nobody asks for its task any more")
        self._deadlines.add(now + self._cancel_grace_s, watch)
        return run

    def overdue(self, worker: WorkerRecord, message: m.Overdue, now: float) -> None:
        """A worker runs a task for longer than its supervisor lets any that has no timeout.

        A call of an actor runs as long as it takes.
        """
        task = message.task
        if worker.actor:
            return
        for run in self._runs.held(worker, message.session, task, task + 1):
            if run.options.timeout_s is None and run.state is not State.CANCELLING:
                self._expire(self._runs.isolate(run, task, task + 1), message.timeout_s, now)

    def hangs(self, worker: WorkerRecord, message: m.Stuck) -> bool:
        """Have a worker killed whose task does nothing, unless that is over or waits for others.

        Return True if it is: it is to get nothing more.
        """
        task = message.task
        runs = self._runs.held(worker, message.session, task, task + 1)
        if worker.killed or worker.blocked or not runs or runs[0].state is State.CANCELLING:
            return False
        worker.hung = message.session, task
        worker.killed = f"its task used no CPU time for {message.for_s:.1f} s"
        self._table.send(worker.supervisor, m.Kill(worker.peer, worker.killed))
        return True

    def _expire(self, run: Run, timeout_s: float | None, now: float) -> None:
        """Let the one task of a run fail, and stop it."""
        self._failures.fail_all(run, m.FAILED_TIMEOUT, {"timeout_s": timeout_s}, timeout_s or 0.0)
        self._stop(run, Event.EXPIRE, "its task ran out of time", now)

    def _stop(self, run: Run, event: Event, reason: str, now: float) -> None:
        run.move(event)
        worker = run.worker
        if worker is None:
            raise AssertionError(f"stopped on no worker: {run}")
        self._table.send(worker.peer, m.Abort(run.session, run.first, run.count))
        self._deadlines.add(now + self._cancel_grace_s, _Watch(run, reason))

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is due."""
        return self._deadlines.next

    def tick(self, now: float) -> list[WorkerRecord]:
        """Stop tasks that are out of time, and have workers killed if their task did not stop.

        Return the workers that are being killed: they are to get nothing more.
        """
        doomed = []
        for watch in self._deadlines.due(now):
            run, reason, worker = watch.run, watch.reason, watch.worker
            if worker is None or watch.is_moot or worker.actor:
                # What an actor runs is not stopped: its state would be lost, or half of a change.
                continue
            if run.state is State.CANCELLING:
                # Only the task at the head can be running; other tasks were dropped or will be.
                if worker.runs and worker.runs[0] is run and not worker.killed:
                    worker.killed = reason
                    doomed.append(worker)
                    self._table.send(worker.supervisor, m.Kill(worker.peer, reason))
                elif not worker.killed:
                    self._deadlines.add(now + self._cancel_grace_s, watch)
            elif reason == "timeout":
                self._expire(run, run.options.timeout_s, now)
        return doomed

"""What becomes of assigned tasks: results, failures, retries, cancellations, deaths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.core.credit import measure
from scaler_cluster.core.deadlines import Deadlines
from scaler_cluster.core.graphs import Graphs
from scaler_cluster.core.lifecycle import Event, State, move
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records import WorkerRecord
    from scaler_cluster.core.table import Table
    from scaler_cluster.core.tasks import Run

LOSSES_MAX = 3
"""How often a task may be lost with its machine: one that brings machines down must end."""


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


class Outcomes:
    """Settles what workers and supervisors report, and what clients cancel."""

    def __init__(self, table: Table, cancel_grace_s: float) -> None:
        self._table = table
        self.graphs = Graphs(table, self.cancel)
        self._cancel_grace_s = cancel_grace_s
        self._deadlines: Deadlines[_Watch] = Deadlines(lambda watch: watch.is_moot)

    # -- results -----------------------------------------------------------------------------

    def done(self, worker: WorkerRecord, message: m.Done) -> None:
        """Contiguous tasks returned. They are the next ones of this worker, in order."""
        table = self._table
        batch, monitor = message.batch, table.monitor
        total = len(batch.ends)
        index = 0
        while index < total:
            run = self._next_run(worker, message.session, message.first + index)
            count = min(run.count, total - index)
            function = table.functions[run.function]
            if run.state is not State.CANCELLING:
                part = batch if count == total else batch.cut(index, index + count)
                if run.graph is None:
                    table.answer(run.session, m.Results(message.first + index, part))
                    function.totals.done += count
                    table.session_by_number[run.session].totals.done += count
                else:
                    self.graphs.returned(run, message.first + index, part)
                if monitor is not None:
                    monitor.done(
                        worker, run, message.first + index, count, message.busy_s * count / total
                    )
            measure(function, count, message.busy_s * count / total)
            self._finish(worker, run, count, Event.RETURNED)
            index += count

    def stored(self, worker: WorkerRecord, message: m.Stored) -> None:
        """One task returned a value whose large buffers are in segments, which are its client's."""
        table = self._table
        run = self._single(worker, message.session, message.task)
        measure(table.functions[run.function], 1, message.busy_s)
        if not table.objects.records.keys().isdisjoint(message.objects):
            raise RemoteProtocolError("a result in segments that hold another one")
        if len(message.sizes) != len(message.objects):
            raise RemoteProtocolError("a result with more segments or fewer than sizes")
        session = table.session_by_number.get(run.session)
        if session is None or run.state is State.CANCELLING:
            table.objects.remove_segments(worker.store, message.objects)
        else:
            if run.graph is not None:
                self.graphs.stored(session, worker, run, message)
            else:
                address = table.objects.take_result(session, worker, message)
                returned = m.Returned(message.task, message.payload, message.objects, address)
                table.answer(session.number, returned)
                for one in table.totals(run):
                    one.done += 1
            if table.monitor is not None:
                table.monitor.done(worker, run, message.task, 1, message.busy_s)
        self._finish(worker, run, 1, Event.RETURNED)

    def erred(self, worker: WorkerRecord, message: m.Erred) -> None:
        """One task raised: it fails, or is run again if it may."""
        run = self._single(worker, message.session, message.task)
        measure(self._table.functions[run.function], 1, message.busy_s)
        if run.state is not State.CANCELLING:
            if (
                message.kind == m.FAILED_MISSING
                and run.graph is not None
                and run.graph.has_lost_input(run)
            ):
                self._requeue(worker, run, Event.SKIPPED)
                return
            if message.kind == m.FAILED_EXCEPTION and run.may_retry:
                self._retried(run, message.kind, message.detail, message.busy_s)
                run.tries += 1
                self._requeue(worker, run, Event.RETRY)
                return
            if self._table.monitor is not None:
                self._table.monitor.failed(run, message.kind, message.detail, message.busy_s)
            self._failed(run, m.Failed(message.task, message.kind, message.payload, message.detail))
        self._finish(worker, run, 1, Event.RAISED)

    def skipped(self, worker: WorkerRecord, message: m.Skipped) -> None:
        """A worker could not run a node, as one that it needs did not return there."""
        run = self._single(worker, message.session, message.task)
        if run.graph is None:
            raise RemoteProtocolError(f"skipped without a reason: {run}")
        if run.state is State.CANCELLING:
            self._finish(worker, run, 1, Event.SKIPPED)
        else:
            self._requeue(worker, run, Event.SKIPPED)

    def revoked(self, worker: WorkerRecord, message: m.Revoked) -> None:
        """A worker answers a Revoke: the first ``kept`` tasks stay, the others are free again."""
        border = message.first + message.kept
        stop = message.first + message.count
        # The last one first: each goes to the front of the queue.
        for run in reversed(self._held(worker, message.session, message.first, stop)):
            if run.state is State.ASSIGNED:
                raise RemoteProtocolError(f"gives back what it was to run: {run}")
            if run.first < border:
                if run.stop > border and run.state is State.CANCELLING:
                    self._finish_tail(worker, run, run.stop - border)
                    continue
                if run.stop > border:
                    head = self._table.split(run, border - run.first)
                    worker.runs.insert(worker.runs.index(run), head)
                    move(head, Event.KEPT)
                else:
                    move(run, Event.KEPT)
                    continue
            if run.state is State.CANCELLING:
                self._finish(worker, run, run.count, Event.GIVEN_BACK)
            else:
                self._table.functions[run.function].totals.moved += run.count
                if self._table.monitor is not None:
                    self._table.monitor.moved(worker, run)
                self._requeue(worker, run, Event.GIVEN_BACK)

    def aborted(self, worker: WorkerRecord, message: m.Aborted) -> None:
        """A worker dropped or interrupted tasks, as it was told to."""
        stop = message.first + message.count
        for run in self._held(worker, message.session, message.first, stop):
            if run.state is not State.CANCELLING:
                raise RemoteProtocolError(f"aborted unasked: {run}")
            if run.first < message.first:
                # The task before those runs on, and is still to be stopped.
                if run.stop > stop:
                    raise RemoteProtocolError(f"aborted the middle of what it was to: {run}")
                self._finish_tail(worker, run, run.stop - message.first)
            else:
                self._finish(worker, run, min(run.stop, stop) - run.first, Event.STOPPED)

    # -- stopping ----------------------------------------------------------------------------

    def recall(self, run: Run, first: int, stop: int, now: float) -> None:
        """Give queued tasks ``first <= id < stop`` back to the task that waits for them."""
        for one in self._table.totals(run):
            one.recalled += stop - first
        self._drop(run, first, stop, now)

    def cancel(self, run: Run, first: int, stop: int, now: float) -> None:
        """Stop the tasks ``first <= id < stop`` of a run."""
        if run.state is State.CANCELLING:
            return
        if run.graph is None:
            for one in self._table.totals(run):
                one.cancelled += stop - first
        if self._table.monitor is not None:
            self._table.monitor.cancelled(run, first, stop - first)
        self._drop(run, first, stop, now)

    def _drop(self, run: Run, first: int, stop: int, now: float) -> None:
        if run.state is State.READY:
            queue = self._table.queue(run.options)
            before, middle, after = self._cut_range(run, first, stop)
            if before is not None:
                # ``run`` itself is the last part. What is cancelled needs no place in the queue.
                queue.replace(run, [before] if after is None else [before, run])
            queue.discard(middle)
            self._table.end(middle, Event.CANCEL)
        else:
            run = self._isolate(run, first, stop)
            self._stop(run, Event.CANCEL, "its task was cancelled", now)

    def fail_queued(self, run: Run, kind: str, detail: dict[str, Any]) -> None:
        """Let the tasks of a run fail that no worker has."""
        self._fail_all(run, kind, detail)
        self._table.queue(run.options).discard(run)
        self._table.end(run, Event.UNPLACED)

    def started(self, worker: WorkerRecord, session: int, task: int, now: float) -> None:
        """A task with a timeout starts."""
        for run in self._held(worker, session, task, task + 1):
            timeout_s = run.options.timeout_s
            if timeout_s is not None and run.state is not State.CANCELLING:
                single = self._isolate(run, task, task + 1)
                self._deadlines.add(now + timeout_s, _Watch(single, "timeout"))

    def overdue(self, worker: WorkerRecord, message: m.Overdue, now: float) -> None:
        """A worker runs a task for longer than its supervisor lets any that has no timeout."""
        task = message.task
        for run in self._held(worker, message.session, task, task + 1):
            if run.options.timeout_s is None and run.state is not State.CANCELLING:
                self._expire(self._isolate(run, task, task + 1), message.timeout_s, now)

    def _expire(self, run: Run, timeout_s: float | None, now: float) -> None:
        """Let the one task of a run fail, and stop it."""
        self._fail_all(run, m.FAILED_TIMEOUT, {"timeout_s": timeout_s}, timeout_s or 0.0)
        self._stop(run, Event.EXPIRE, "its task ran out of time", now)

    def _stop(self, run: Run, event: Event, reason: str, now: float) -> None:
        move(run, event)
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
        """Stop tasks whose time is over, and have workers killed whose task did not stop.

        Returns those workers: they are to get nothing more.
        """
        doomed = []
        for watch in self._deadlines.due(now):
            run, reason, worker = watch.run, watch.reason, watch.worker
            if worker is None or watch.is_moot:
                continue
            if run.state is State.CANCELLING:
                # Only the task at the head can be running; others were dropped or will be.
                if worker.runs and worker.runs[0] is run and not worker.killed:
                    worker.killed = reason
                    doomed.append(worker)
                    self._table.send(worker.supervisor, m.Kill(worker.peer, reason))
                elif not worker.killed:
                    self._deadlines.add(now + self._cancel_grace_s, watch)
            elif reason == "timeout":
                self._expire(run, run.options.timeout_s, now)
        return doomed

    # -- deaths ------------------------------------------------------------------------------

    def worker_lost(self, worker: WorkerRecord, lost: m.WorkerLost | None, now: float) -> None:
        """Settle what a worker had when it died, or when its machine was lost (None).

        The task that a dead process ran is charged with the death; what it had finished without
        having reported it is run again, as is what it had not started.
        """
        runs = list(worker.runs)
        self._table.in_flight -= worker.count
        worker.runs.clear()
        worker.count = 0
        parts: list[Run] = []
        suspect = -1
        for run in runs:
            task = self._suspect_in(run, lost, is_first=not parts)
            if task is None:
                parts.append(run)
                continue
            before, middle, after = self._cut_range(run, task, task + 1)
            if before is not None:
                parts.append(before)
            suspect = len(parts)
            parts.append(middle)
            if after is not None:
                parts.append(after)
        for index, run in enumerate(parts):
            if run.state is State.CANCELLING:
                continue
            if index == suspect:
                self._charge(run, lost, now - worker.progress_at)
            elif run.options.at_most_once and (lost is None or index < suspect):
                self._fail(run, m.FAILED_LOST, {"losses": 1})
        for run in reversed(parts):
            self._put_back(run)

    def _suspect_in(self, run: Run, lost: m.WorkerLost | None, *, is_first: bool) -> int | None:
        """Return the task of this run that is charged: the one the process ran, if known."""
        if lost is None:
            return run.first if is_first else None
        if run.session == lost.session and run.first <= lost.task < run.stop:
            return lost.task
        return None

    def _charge(self, run: Run, lost: m.WorkerLost | None, busy_s: float) -> None:
        """Let the one task that may have caused a death fail, or mark it to be run again."""
        if lost is None:
            if run.losses == LOSSES_MAX or run.options.at_most_once:
                self._fail(run, m.FAILED_LOST, {"losses": run.losses + 1}, busy_s)
            else:
                self._retried(run, m.FAILED_LOST, {}, busy_s)
                run.losses += 1
        elif run.may_retry:
            self._retried(run, m.FAILED_WORKER_DIED, lost.death, busy_s)
            run.tries += 1
        else:
            self._fail(run, m.FAILED_WORKER_DIED, lost.death, busy_s)

    def _put_back(self, run: Run) -> None:
        """Queue a run whose worker is gone again; cancelled and failed ones end."""
        if run.state is State.CANCELLING:
            self._table.end(run, Event.LOST)
        elif run.worker is not None:
            move(run, Event.LOST)
            self._table.put_back(run)

    def _retried(self, run: Run, kind: str, detail: dict[str, Any], busy_s: float) -> None:
        """Note that a single task is about to be begun again."""
        self._table.functions[run.function].totals.retried += 1
        if self._table.monitor is not None:
            self._table.monitor.retried(run, kind, detail, busy_s)

    def _fail(self, run: Run, kind: str, detail: dict[str, Any], busy_s: float = 0.0) -> None:
        self._fail_all(run, kind, detail, busy_s)
        self._table.end(run, Event.WORKER_DIED)

    def _fail_all(self, run: Run, kind: str, detail: dict[str, Any], busy_s: float = 0.0) -> None:
        if self._table.monitor is not None:
            self._table.monitor.failed(run, kind, detail, busy_s)
        for task in range(run.first, run.stop):
            self._failed(run, m.Failed(task, kind, b"", detail))

    def _failed(self, run: Run, failed: m.Failed) -> None:
        """Tell the client, or the graph whose node it is."""
        if run.graph is None:
            self._table.answer(run.session, failed)
            for one in self._table.totals(run):
                one.failed += 1
        else:
            self._table.noticed.append((run.graph, failed.task - run.graph.first, failed))

    # -- runs on a worker --------------------------------------------------------------------

    def _next_run(self, worker: WorkerRecord, session: int, task: int) -> Run:
        """Return the worker's run that begins with this task: nearly always its first."""
        if worker.runs:
            run = worker.runs[0]
            if run.first == task and run.session == session:
                return run
        for run in worker.runs:
            if run.first == task and run.session == session:
                return run
        raise RemoteProtocolError(f"task {task} of session {session} is not next on this worker")

    def _single(self, worker: WorkerRecord, session: int, task: int) -> Run:
        run = self._next_run(worker, session, task)
        return self._isolate(run, task, task + 1)

    def _held(self, worker: WorkerRecord, session: int, first: int, stop: int) -> list[Run]:
        """Return the worker's runs that hold tasks of a range."""
        record = self._table.session_by_number.get(session)
        if record is not None:
            # Not among the worker's: it may have thousands, and be asked for each of them.
            runs = self._table.overlapping(record, first, stop)
            return [run for run in runs if run.worker is worker]
        return [
            run
            for run in worker.runs
            if run.session == session and run.first < stop and run.stop > first
        ]

    def _isolate(self, run: Run, first: int, stop: int) -> Run:
        """Split a worker's run so that one of its own holds exactly ``first <= id < stop``."""
        before, middle, after = self._cut_range(run, first, stop)
        parts = [part for part in (before, middle, after) if part is not None]
        if len(parts) > 1:
            # The last part is ``run`` itself: the others are put before it.
            runs = run.worker.runs  # type: ignore[union-attr]
            index = runs.index(run)
            for part in reversed(parts[:-1]):
                runs.insert(index, part)
        return middle

    def _cut_range(self, run: Run, first: int, stop: int) -> tuple[Run | None, Run, Run | None]:
        before = self._table.split(run, first - run.first) if first > run.first else None
        if stop < run.stop:
            return before, self._table.split(run, stop - run.first), run
        return before, run, None

    def _finish(self, worker: WorkerRecord, run: Run, count: int, event: Event) -> None:
        """Let the first ``count`` tasks of a worker's run end."""
        self._unload(worker, run, count)
        if count < run.count:
            self._table.drop_head(run, count)
            return
        self._remove(worker, run)
        self._table.end(run, event)

    def _finish_tail(self, worker: WorkerRecord, run: Run, count: int) -> None:
        """Let the last ``count`` tasks of a worker's run end; the first ones stay what they are.

        It stays the same run: that is what its deadline looks at.
        """
        self._unload(worker, run, count)
        run.drop_tail(count)

    def _requeue(self, worker: WorkerRecord, run: Run, event: Event) -> None:
        """Put a worker's run back into the ready queue, before its session's others."""
        # First of all: a move that is illegal must leave the run where it is.
        move(run, event)
        self._unload(worker, run, run.count)
        if event is Event.GIVEN_BACK:
            worker.given -= run.count
        self._remove(worker, run)
        self._table.put_back(run)

    def _unload(self, worker: WorkerRecord, run: Run, count: int) -> None:
        worker.count -= count
        self._table.in_flight -= count
        worker.backlog_s = worker.backlog_s - count * run.unit_s if worker.count else 0.0

    def _remove(self, worker: WorkerRecord, run: Run) -> None:
        if worker.runs[0] is run:
            worker.runs.popleft()
        else:
            worker.runs.remove(run)

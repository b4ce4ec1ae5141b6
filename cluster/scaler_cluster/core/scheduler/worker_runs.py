"""The runs that workers have: finding them, cutting them, and taking them off their worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.lifecycle import Event
from scaler_cluster.errors import RemoteProtocolError

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.machines import Machines
    from scaler_cluster.core.scheduler.table import Table


class WorkerRuns:
    """Keeps the runs of workers in step with what is counted of them."""

    def __init__(self, table: Table, machines: Machines) -> None:
        self._table = table
        self._machines = machines

    def next_run(self, worker: WorkerRecord, session: int, task: int) -> Run:
        """Return the worker's run that begins with this task: nearly always its first run."""
        if worker.runs:
            run = worker.runs[0]
            if run.first == task and run.session == session:
                return run
        for run in worker.runs:
            if run.first == task and run.session == session:
                return run
        raise RemoteProtocolError(f"task {task} of session {session} is not next on this worker")

    def single(self, worker: WorkerRecord, session: int, task: int) -> Run:
        """Return the worker's next run that begins with this task, cut to this task alone."""
        run = self.next_run(worker, session, task)
        return self.isolate(run, task, task + 1)

    def held(self, worker: WorkerRecord, session: int, first: int, stop: int) -> list[Run]:
        """Return the worker's runs that hold tasks of a range."""
        record = self._table.session_by_number.get(session)
        if record is not None:
            # The worker is not searched: it may have thousands of runs, and report each of them.
            runs = record.runs.overlapping(first, stop)
            return [run for run in runs if run.worker is worker]
        return [
            run
            for run in worker.runs
            if run.session == session and run.first < stop and run.stop > first
        ]

    def isolate(self, run: Run, first: int, stop: int) -> Run:
        """Split a worker's run so that one of its own holds exactly ``first <= id < stop``."""
        before, middle, after = self.cut_range(run, first, stop)
        parts = [part for part in (before, middle, after) if part is not None]
        if len(parts) > 1:
            # The last part is ``run`` itself: the others are put before it.
            if run.worker is None:
                raise AssertionError(f"on no worker: {run}")
            runs = run.worker.runs
            index = runs.index(run)
            for part in reversed(parts[:-1]):
                runs.insert(index, part)
        return middle

    def cut_range(self, run: Run, first: int, stop: int) -> tuple[Run | None, Run, Run | None]:
        """Split a run into what comes before a range, the range, and what comes after it.

        The last part is ``run`` itself.
        """
        before = self._table.split(run, first - run.first) if first > run.first else None
        if stop < run.stop:
            return before, self._table.split(run, stop - run.first), run
        return before, run, None

    def take_queued(self, run: Run, first: int, stop: int) -> Run:
        """Take tasks of a queued run out of its queue, as a run of their own."""
        queue = self._table.backlog.queue(run)
        if first <= run.first and run.stop <= stop:
            queue.remove(run)
            return run
        before, middle, after = self.cut_range(run, first, stop)
        if before is not None:
            # ``run`` itself is the last part.
            queue.replace(run, [before] if after is None else [before, run])
        queue.discard(middle)
        return middle

    def finish(
        self, worker: WorkerRecord, run: Run, count: int, event: Event, busy_s: float
    ) -> None:
        """Let the first ``count`` tasks of a worker's run end, which took so long together."""
        self._unload(worker, run, count, busy_s)
        if count < run.count:
            self._table.drop_head(run, count)
            return
        self._remove(worker, run)
        self._table.end(run, event)

    def finish_tail(self, worker: WorkerRecord, run: Run, count: int) -> None:
        """Let the last ``count`` tasks of a worker's run end; the first tasks stay what they are.

        The rest stays the same run, which its deadline refers to.
        """
        self._unload(worker, run, count, 0.0)
        if isinstance(run, NodeRun):
            self._table.backlog.off_worker(run, run.stop - count, run.stop)
        run.drop_tail(count)

    def requeue(self, worker: WorkerRecord, run: Run, event: Event, busy_s: float = 0.0) -> None:
        """Put a worker's run, which took so long, back before its session's others."""
        # First of all: a move that is illegal must leave the run where it is.
        run.move(event)
        self._unload(worker, run, run.count, busy_s)
        if event is Event.GIVEN_BACK:
            worker.given -= run.count
        self._remove(worker, run)
        self._table.put_back(run)

    def _unload(self, worker: WorkerRecord, run: Run, count: int, busy_s: float) -> None:
        worker.count -= count
        self._table.in_flight -= count
        if worker.waited_s and busy_s:
            busy_s = max(busy_s - worker.waited_s, 0.0)
            worker.waited_s = 0.0
        expected_s = count * run.unit_s
        worker.backlog_s = worker.backlog_s - expected_s if worker.count else 0.0
        more_s = busy_s - expected_s
        run.account.correct(more_s if run.portion is None else more_s * run.cores)

    def release(self, worker: WorkerRecord, run: Run) -> None:
        """Give back what a run has of its machine, if it has any."""
        if run.portion is not None:
            self._machines.release(worker, run)

    def give_back(self, worker: WorkerRecord) -> None:
        """Give back what the actor of a worker has of its machine."""
        self._machines.give_back(worker)

    def _remove(self, worker: WorkerRecord, run: Run) -> None:
        if run.portion is not None:
            self._machines.release(worker, run)
        if worker.runs[0] is run:
            worker.runs.popleft()
        else:
            worker.runs.remove(run)

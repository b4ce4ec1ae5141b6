"""What becomes of the tasks of a worker that died, or whose machine was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.records.lifecycle import Event, State
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.failures import Failures
    from scaler_cluster.core.scheduler.graph_moves import Graphs
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.core.scheduler.worker_runs import WorkerRuns

LOSSES_MAX = 3
"""How often a task may be lost with its machine: one that brings machines down must end."""


class Deaths:
    """Settles what workers had when they died."""

    def __init__(self, table: Table, runs: WorkerRuns, failures: Failures, graphs: Graphs) -> None:
        self._table = table
        self._runs = runs
        self._failures = failures
        self._graphs = graphs

    def worker_lost(self, worker: WorkerRecord, lost: m.WorkerLost | None, now: float) -> None:
        """Settle what a worker had when it died, or when its machine was lost (None).

        The task that a dead process ran is charged with the death. Tasks that the process had
        finished but not reported are run again, as are tasks that it had not started, and nodes
        whose results only this worker had.
        """
        self._graphs.worker_lost(worker)
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
            before, middle, after = self._runs.cut_range(run, task, task + 1)
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
                self._failures.die(run, m.FAILED_LOST, {"losses": 1})
        for run in reversed(parts):
            self._put_back(run)

    def _suspect_in(self, run: Run, lost: m.WorkerLost | None, *, is_first: bool) -> int | None:
        """Return the task of this run that is charged: the task that the process ran, if known."""
        if lost is None:
            return run.first if is_first else None
        if run.session == lost.session and run.first <= lost.task < run.stop:
            return lost.task
        return None

    def _charge(self, run: Run, lost: m.WorkerLost | None, busy_s: float) -> None:
        """Let the one task that may have caused a death fail, or mark it to be run again."""
        if lost is None:
            if run.losses == LOSSES_MAX or run.options.at_most_once:
                self._failures.die(run, m.FAILED_LOST, {"losses": run.losses + 1}, busy_s)
            else:
                self._failures.retried(run, m.FAILED_LOST, {}, busy_s)
                run.losses += 1
        elif run.may_retry:
            self._failures.retried(run, m.FAILED_WORKER_DIED, lost.death, busy_s)
            run.tries += 1
        else:
            self._failures.die(run, m.FAILED_WORKER_DIED, lost.death, busy_s)

    def _put_back(self, run: Run) -> None:
        """Queue a run again, as its worker is gone; a run that is being stopped ends."""
        if run.state is State.CANCELLING:
            self._table.end(run, Event.LOST)
        elif run.worker is not None:
            run.move(Event.LOST)
            self._table.put_back(run)

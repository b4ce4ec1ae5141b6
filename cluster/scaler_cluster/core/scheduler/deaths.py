"""What becomes of the tasks of a worker that died, or whose machine was lost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.records.lifecycle import Event, State
from scaler_cluster.core.scheduler.naming import name_of
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.failures import Failures
    from scaler_cluster.core.scheduler.graph_moves import Graphs
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.core.scheduler.worker_runs import WorkerRuns

LOSSES_MAX = 3
"""How often a task may be lost with its machine: one that brings machines down must end."""
POISON_DEATHS = 3
"""A task that has killed so many workers is named in the log: nobody else's task would do so."""
REST_S, REST_MAX_S = 0.5, 30.0
"""How long a task waits that has killed a second worker, then twice as long each time, at most. It
may have met a machine that is out of memory, and each of its tries costs what was queued there, and
the start of a worker."""


class Deaths:
    """Settles what workers had when they died."""

    def __init__(self, table: Table, runs: WorkerRuns, failures: Failures, graphs: Graphs) -> None:
        self._table = table
        self._runs = runs
        self._failures = failures
        self._graphs = graphs

    def worker_lost(self, worker: WorkerRecord, lost: m.WorkerLost | None, now: float) -> None:
        """Settle what a worker had when it died, or when its machine was lost (None).

        The task that a dead process ran is charged with the death, unless the process was killed
        for another task. Tasks that the process had finished but not reported are run again, as are
        tasks that it had not started, and nodes whose results only this worker had.
        """
        self._graphs.worker_lost(worker)
        runs = list(worker.runs)
        for run in runs:
            run.account.correct(-run.count * run.unit_s * run.cores)
        if runs:
            runs[0].account.correct((now - worker.progress_at) * runs[0].cores)
        for run in runs:
            self._runs.release(worker, run)
        self._table.in_flight -= worker.count
        worker.runs.clear()
        worker.count = 0
        if worker.actor:
            self._end_actor(worker, runs, lost)
            return
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
        # A worker that is killed for another task may have gone on to this one, before the order
        # reached it or its own report came: as little its fault as a lost machine.
        is_guilty = lost is not None and worker.hung == (lost.session, lost.task)
        guilty = None if worker.killed and not is_guilty else lost
        for index, run in enumerate(parts):
            if run.state is State.CANCELLING:
                continue
            if index == suspect:
                self._charge(run, guilty, now, now - worker.progress_at)
            elif run.options.at_most_once and (lost is None or index < suspect):
                self._failures.die(run, m.FAILED_LOST, {"losses": 1})
        for index in reversed(range(len(parts))):
            run = parts[index]
            rests = index == suspect and guilty is not None and run.deaths > 1
            rest_s = min(REST_S * 2 ** min(run.deaths - 2, 10), REST_MAX_S)
            self._put_back(run, now + rest_s if rests else -math.inf)

    def _end_actor(self, worker: WorkerRecord, runs: list[Run], lost: m.WorkerLost | None) -> None:
        """Let all calls fail that a worker had: the actor is gone that lived there."""
        actors = self._table.actors
        if lost is None:
            why = worker.killed or "the machine was lost that it lived on"
            actors.end(worker.actor, {"message": why})
        elif lost.is_orderly:
            actors.end(worker.actor, {"message": "it was destroyed, or its machine drained"})
        else:
            actors.end(worker.actor, lost.death)
        self._runs.give_back(worker)
        for run in runs:
            if run.state is State.CANCELLING:
                self._table.end(run, Event.LOST)
            else:
                self._failures.die(run, m.FAILED_ACTOR, actors.how_ended(worker.actor))

    def _suspect_in(self, run: Run, lost: m.WorkerLost | None, *, is_first: bool) -> int | None:
        """Return the task of this run that is charged: the task that the process ran, if known."""
        if lost is None:
            return run.first if is_first else None
        if run.session == lost.session and run.first <= lost.task < run.stop:
            return lost.task
        return None

    def _charge(self, run: Run, lost: m.WorkerLost | None, now: float, busy_s: float) -> None:
        """Let the one task that may have caused a death fail, or mark it to be run again."""
        if lost is None:
            if run.losses == LOSSES_MAX or run.options.at_most_once:
                losses = {"losses": run.losses + 1}
                self._failures.die(run, m.FAILED_LOST, losses | _before(run), busy_s)
            else:
                self._failures.retried(run, m.FAILED_LOST, {}, busy_s)
                run.losses += 1
            return
        if run.deaths == POISON_DEATHS - 1:
            function = name_of(self._table.functions, run)
            session = self._table.session_by_number[run.session]
            self._table.journal.poison(session, run, function, lost.death, now)
        if run.may_retry:
            self._failures.retried(run, m.FAILED_WORKER_DIED, lost.death | _before(run), busy_s)
            run.tries += 1
            run.deaths += 1
        else:
            self._failures.die(run, m.FAILED_WORKER_DIED, lost.death | _before(run), busy_s)

    def _put_back(self, run: Run, rest_until: float) -> None:
        """Queue a run again, as its worker is gone; a run that is being stopped ends."""
        if run.state is State.CANCELLING:
            self._table.end(run, Event.LOST)
        elif run.worker is not None:
            run.move(Event.LOST)
            self._table.put_back(run, rest_until)


def _before(run: Run) -> dict[str, str]:
    """Return what the failure of a task says of the times that it was begun before."""
    return {"message": f"before that, {run.attempts}"} if run.attempts else {}

"""How tasks fail: what clients, graphs and watchers are told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.lifecycle import Event
from scaler_cluster.core.scheduler.naming import tally
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import Run
    from scaler_cluster.core.scheduler.table import Table


class Failures:
    """Tells clients, graphs and watchers that tasks failed, or are run again."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def retried(self, run: Run, kind: str, detail: dict[str, Any], busy_s: float) -> None:
        """Note that a single task is about to be begun again."""
        for totals, count in tally(self._table.functions, run):
            totals.retried += count
        self._table.observer.retried(run, kind, detail, busy_s)

    def die(self, run: Run, kind: str, detail: dict[str, Any], busy_s: float = 0.0) -> None:
        """Let the tasks of a run fail whose worker died, and end the run."""
        self.fail_all(run, kind, detail, busy_s)
        self._table.end(run, Event.WORKER_DIED)

    def fail_all(self, run: Run, kind: str, detail: dict[str, Any], busy_s: float = 0.0) -> None:
        """Tell that all tasks of a run failed, for the same reason; it is yet to end."""
        self._table.observer.failed(run, kind, detail, busy_s)
        for task in range(run.first, run.stop):
            self.fail_task(run, m.Failed(task, kind, b"", detail))

    def fail_task(self, run: Run, failed: m.Failed) -> None:
        """Tell the client that a task failed, or the graph if the task is a node."""
        if not isinstance(run, NodeRun):
            self._table.answers.answer(run.session, failed)
            if run.options.creates:
                self._table.actors.unmade(run, failed)
            for one in self._table.totals(run):
                one.failed += 1
        else:
            self._table.answers.noticed.append((run.graph, failed.task - run.graph.first, failed))

    def fail_queued(self, run: Run, kind: str, detail: dict[str, Any]) -> None:
        """Let the tasks of a run fail that no worker has."""
        self.fail_all(run, kind, detail)
        self._table.backlog.queue(run).discard(run)
        self._table.end(run, Event.UNPLACED)

"""What becomes of tasks that no worker can run: none offers what they demand, or none is there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.placement import describe
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.dispatch import Dispatch
    from scaler_cluster.core.outcomes import Outcomes
    from scaler_cluster.core.queue import ReadyQueue
    from scaler_cluster.core.table import Table

NO_WORKER_S = 5.0
"""A cluster that is started after its client is there by then."""
STARTING_S = 30.0
"""Workers that are on their way for longer are worth a word: they load much, or are stuck."""


class Unplaced:
    """Tells clients of them, and lets those that demand something fail after a time."""

    def __init__(
        self, table: Table, dispatch: Dispatch, outcomes: Outcomes, timeout_s: float
    ) -> None:
        self._table = table
        self._dispatch = dispatch
        self._outcomes = outcomes
        self._timeout_s = timeout_s

    def tick(self, now: float, *, to_come: int) -> None:
        """Look at what waits; so many workers are on their way."""
        for queue in [self._table.ready, *self._table.demanding.values()]:
            if not queue.count or self._dispatch.is_runnable(queue.options):
                queue.unmet_since = math.inf
                self._untell(queue)
                continue
            queue.unmet_since = min(queue.unmet_since, now)
            waited_s = now - queue.unmet_since
            is_any = queue is self._table.ready
            if not is_any and waited_s >= self._timeout_s:
                self._fail(queue)
            elif waited_s >= (STARTING_S if to_come else NO_WORKER_S if is_any else 0.0):
                self._tell(queue, to_come)

    def _tell(self, queue: ReadyQueue, to_come: int) -> None:
        """Tell each client once, and again if a cluster was refused since then."""
        table = self._table
        demand = describe(queue.options)
        reason = f"Tasks wait for a worker with {demand}: none has it."
        if not demand:
            reason = "Tasks wait for a worker: there is none."
        if to_come:
            reason += f" On their way: {to_come}."
        if table.refused:
            reason += f" {table.refused}"
        for session in queue.sessions():
            if queue.told.get(session) != table.refused:
                queue.told[session] = table.refused
                table.send_session(session, m.Unplaced(reason))

    def _untell(self, queue: ReadyQueue) -> None:
        """Tell those whose tasks waited that none does so any more."""
        if not queue.told:
            return
        told, queue.told = queue.told, {}
        others = (self._table.ready, *self._table.demanding.values())
        for session in told:
            if not any(session in other.told for other in others):
                self._table.send_session(session, m.Unplaced(""))

    def _fail(self, queue: ReadyQueue) -> None:
        detail = {
            "message": f"no worker with {describe(queue.options)} came within "
            f"{self._timeout_s:g} seconds"
        }
        for run in list(queue):
            self._outcomes.fail_queued(run, m.FAILED_UNPLACED, detail)
        for group in queue.ready_groups():
            failed = m.Failed(0, m.FAILED_UNPLACED, b"", detail)
            self._table.noticed.extend((group.graph, node, failed) for node in group.nodes())

"""What becomes of tasks that demand what no worker offers."""

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


class Unplaced:
    """Tells clients of them, and lets them fail once they have waited for long enough."""

    def __init__(
        self, table: Table, dispatch: Dispatch, outcomes: Outcomes, timeout_s: float
    ) -> None:
        self._table = table
        self._dispatch = dispatch
        self._outcomes = outcomes
        self._timeout_s = timeout_s

    def tick(self, now: float, *, are_all_there: bool) -> None:
        """Look at what is demanded; ``are_all_there``: no worker is on its way."""
        for queue in self._table.demanding.values():
            if not queue.count or self._dispatch.is_runnable(queue.options):
                queue.unmet_since = math.inf
                queue.told.clear()
                continue
            queue.unmet_since = min(queue.unmet_since, now)
            if now - queue.unmet_since >= self._timeout_s:
                self._fail(queue)
            elif are_all_there:
                self._tell(queue)

    def _tell(self, queue: ReadyQueue) -> None:
        reason = f"Tasks wait for a worker with {describe(queue.options)}: none has it."
        for session in queue.sessions():
            if session not in queue.told:
                queue.told[session] = None
                self._table.send_session(session, m.Unplaced(reason))

    def _fail(self, queue: ReadyQueue) -> None:
        detail = {
            "message": f"no worker with {describe(queue.options)} came within "
            f"{self._timeout_s:g} seconds"
        }
        for run in list(queue):
            self._outcomes.fail_queued(run, m.FAILED_UNPLACED, detail)
        for lane in queue.ready_lanes():
            failed = m.Failed(0, m.FAILED_UNPLACED, b"", detail)
            self._table.noticed.extend((lane.graph, node, failed) for node in lane.nodes())

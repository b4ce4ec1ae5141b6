"""Tasks that no worker can run: none offers what they demand, or there is no worker."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.records.placement import describe
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scaler_cluster.core.scheduler.failures import Failures
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.queue import ReadyQueue
    from scaler_cluster.core.scheduler.table import Table

NO_WORKER_S = 5.0
"""A cluster that is started after its client is there by then."""
STARTING_S = 30.0
"""If workers are on their way for longer than this, the client is told: they may be stuck."""


class Unplaced:
    """Tells clients of such tasks, and lets tasks that demand something fail after a time."""

    def __init__(
        self, table: Table, pools: WorkerPools, failures: Failures, timeout_s: float
    ) -> None:
        self._table = table
        self._pools = pools
        self._failures = failures
        self._timeout_s = timeout_s

    def tick(self, now: float) -> None:
        """Look at the tasks that wait."""
        to_come = self._table.workers_to_come
        queues = self._table.backlog.queues()
        untold: dict[int, None] = {}
        for queue in queues:
            options = queue.options
            # What becomes of calls of actors is decided elsewhere.
            if not queue.count or options.actor or self._pools.is_runnable(options):
                queue.unmet_since = math.inf
                untold |= dict.fromkeys(queue.told)
                queue.told = {}
                continue
            queue.unmet_since = min(queue.unmet_since, now)
            waited_s = now - queue.unmet_since
            is_any = queue.is_for_any
            if not is_any and waited_s >= self._timeout_s:
                self._fail(queue)
            elif waited_s >= (STARTING_S if to_come else NO_WORKER_S if is_any else 0.0):
                self._tell(queue, to_come)
        if untold:
            self._untell(untold, queues)
        for user in self._table.backlog.users.values():
            user.drop_empty(list(user.demanding.values()))

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
                table.answers.send(session, m.Unplaced(reason))

    def _untell(self, sessions: Iterable[int], queues: Sequence[ReadyQueue]) -> None:
        """Tell clients whose tasks waited for a worker that none does so any more."""
        still = set().union(*(queue.told for queue in queues))
        for session in sessions:
            if session not in still:
                self._table.answers.send(session, m.Unplaced(""))

    def _fail(self, queue: ReadyQueue) -> None:
        detail = {
            "message": f"no worker with {describe(queue.options)} came within "
            f"{self._timeout_s:g} seconds"
        }
        for run in list(queue):
            self._failures.fail_queued(run, m.FAILED_UNPLACED, detail)
        for group in queue.ready_groups():
            failed = m.Failed(0, m.FAILED_UNPLACED, b"", detail)
            graph = self._table.graph_of(group)
            self._table.answers.noticed.extend((graph, node, failed) for node in group.nodes())

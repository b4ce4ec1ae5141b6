"""What the scheduler asks back from workers, to run it elsewhere sooner."""

from __future__ import annotations

import math
from itertools import chain, islice
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.credit import STEAL_MIN_S
from scaler_cluster.core.records.lifecycle import Event, State
from scaler_cluster.core.records.placement import is_named
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.table import Table

STEAL_CANDIDATES = 16
"""Workers looked at to find one to take work from: enough to find a good one among thousands."""


HOME_PATIENCE = 10
"""Nodes that need results which only their worker has are asked back so many times later: to move
them costs more."""


class Rebalancer:
    """Moves queued tasks from busy workers to idle ones, and away from what turns out long."""

    def __init__(self, table: Table, pools: WorkerPools, idle_s: float) -> None:
        self._table = table
        self._pools = pools
        self._idle_s = idle_s
        """How long a worker has nothing to do, before it gets what others have queued."""
        self._steal_at = math.inf
        """When the workers that are idle now will have had nothing to do for so long."""

    @property
    def deadline(self) -> float:
        """When to look at a loaded worker, or to take from it for workers that idle."""
        return min(self._pools.stall_timers.next, self._steal_at)

    def tick(self, now: float) -> None:
        """Ask back what waits behind tasks that turned out long."""
        timers = self._pools.stall_timers
        while (worker := timers.take(now)) is not None:
            patience = self._pools.patience_s(worker)
            if _is_at_home(worker.runs[-1]):
                patience *= HOME_PATIENCE
            if now < worker.progress_at + patience or worker.revoking:
                # A part that it keeps of what was asked back for another reason may be stuck too.
                self._pools.arm_stall_timer(worker, now)
            else:
                worker.stalled = True
                self._revoke(worker, worker.count - 1)

    def clear(self, worker: WorkerRecord) -> None:
        """Ask back all that a worker has not started."""
        self._revoke(worker, worker.count - 1)

    def even_out(self, now: float) -> None:
        """Move queued work to workers that have had nothing to do for long enough."""
        if not self._pools.loaded or not self._pools.is_any_idle:
            self._steal_at = math.inf
            return
        if self._steal_at == math.inf:
            self._steal_at = now + self._idle_s
        if now >= self._steal_at:
            self._steal_at = math.inf
            self._steal()

    def _steal(self) -> None:
        """Ask one loaded worker for half of what it has queued, for workers that idle."""
        best: WorkerRecord | None = None
        most = STEAL_MIN_S
        loaded = self._pools.loaded
        for peer in list(islice(loaded, STEAL_CANDIDATES)):
            worker = loaded[peer]
            loaded.move_to_end(peer)
            if worker.revoking or worker.actor:
                continue
            queued_s = worker.backlog_s * (worker.count - 1) / worker.count
            if queued_s > most:
                best, most = worker, queued_s
        if best is not None and self._has_ready_tail(best):
            self._revoke(best, self._movable(best))

    def _movable(self, worker: WorkerRecord) -> int:
        """Return how many of a worker's last tasks, half at most, idle workers may run."""
        most = -(-(worker.count - 1) // 2)
        count = 0
        for run in reversed(worker.runs):
            options = run.options
            idle = chain.from_iterable(pool.idle.values() for pool in self._pools.able(options))
            if not any(is_named(options, one.names) for one in idle):
                break
            count += run.count
            if count >= most:
                break
        return min(count, most)

    def _has_ready_tail(self, worker: WorkerRecord) -> bool:
        """Return False if the nodes that would be asked back mostly depend on nodes that stay."""
        run = worker.runs[-1]
        if not isinstance(run, NodeRun):
            return True
        if _is_at_home(run):
            return False
        graph = run.graph
        start = max(run.first, run.stop - worker.count // 2) - graph.first
        return graph.is_apart(start, run.stop - graph.first)

    def _revoke(self, worker: WorkerRecord, count: int) -> None:
        """Ask a worker for the last ``count`` tasks that it has; it keeps at least one.

        The calls of an actor stay where it lives.
        """
        if worker.actor:
            return
        position = len(worker.runs)
        while count > 0 and position:
            position -= 1
            run = worker.runs[position]
            if run.state is not State.ASSIGNED:
                count -= run.count
                continue
            if run.count > count:
                head = self._table.split(run, run.count - count)
                worker.runs.insert(position, head)
                count = run.count
            count -= run.count
            run.move(Event.REVOKE)
            worker.revoking += 1
            self._table.send(worker.peer, m.Revoke(run.session, run.first, run.count))
        self._pools.consider(worker)


def _is_at_home(run: Run) -> bool:
    """Return True if the last task of a run needs what only its worker has."""
    if not isinstance(run, NodeRun) or run.worker is None:
        return False
    below = run.graph.topology.dependencies(run.stop - 1 - run.graph.first)
    return any(run.graph.placer.has_kept(one, run.worker) for one in below)

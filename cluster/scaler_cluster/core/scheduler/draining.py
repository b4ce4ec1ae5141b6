"""Workers and whole units on their way out: they finish what they run, and get nothing more.

A worker that drains is marked as ``retiring``, gives back what it has not started, and is told to
leave once it has nothing left that anybody needs. So nothing is lost, and nothing runs twice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.graph_moves import Graphs
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.rebalance import Rebalancer
    from scaler_cluster.core.scheduler.table import Table

LOOK_S = 0.1
"""How often it is looked whether they have."""
DRAINED = "its manager ends it, and nobody needs what it has"


class Draining:
    """Lets workers and units leave in order."""

    def __init__(
        self, table: Table, pools: WorkerPools, rebalancer: Rebalancer, graphs: Graphs
    ) -> None:
        self._table = table
        self._pools = pools
        self._rebalancer = rebalancer
        self._graphs = graphs
        self._workers: dict[bytes, WorkerRecord] = {}
        """Those that have not been told to leave yet."""
        self._for_good: dict[bytes, None] = {}
        """Those of them that are not to stay after all: somebody said so, and no policy."""
        self._units: dict[bytes, SupervisorRecord] = {}
        """Supervisors that have not been told to leave yet."""
        self._looked_at = -math.inf

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        return self._looked_at + LOOK_S if self._workers or self._units else math.inf

    def start(self, worker: WorkerRecord, *, is_for_good: bool = False) -> None:
        """Let a worker leave once it has nothing that is needed; ``for good``: come what may."""
        if worker.killed:
            return
        if not worker.retiring:
            worker.retiring = True
            self._workers[worker.peer] = worker
            self._pools.consider(worker)
            self._rebalancer.clear(worker)
        if is_for_good and worker.peer in self._workers:
            self._for_good[worker.peer] = None

    def keep(self, worker: WorkerRecord) -> bool:
        """Let a worker stay after all; False: it is to leave, or does not drain."""
        if worker.peer in self._for_good or self._workers.pop(worker.peer, None) is None:
            return False
        worker.retiring = False
        self._pools.consider(worker)
        return True

    def start_unit(self, supervisor: SupervisorRecord) -> None:
        """Let all workers of a supervisor leave, and then the supervisor."""
        if supervisor.is_draining:
            return
        supervisor.is_draining = True
        supervisor.workers_wanted = 0
        self._units[supervisor.peer] = supervisor
        self._table.send(supervisor.peer, m.Wanted(0))
        for worker in list(supervisor.workers.values()):
            self.start(worker)
        self._looked_at = -math.inf

    def tick(self, now: float) -> None:
        """Tell those to leave that have nothing any more."""
        if now < self.deadline:
            return
        self._looked_at = now
        for peer, worker in list(self._workers.items()):
            if self._table.workers.get(peer) is not worker:
                self._forget(peer)
            elif not worker.count and not self._graphs.has_given(worker):
                self._forget(peer)
                self._table.send(peer, m.Retire())
        for peer, supervisor in list(self._units.items()):
            if self._table.supervisors.get(peer) is not supervisor:
                del self._units[peer]
            elif not supervisor.workers and not self._has_more(supervisor):
                del self._units[peer]
                self._table.send(peer, m.Goodbye(DRAINED))

    def _forget(self, worker: bytes) -> None:
        del self._workers[worker]
        self._for_good.pop(worker, None)

    def _has_more(self, supervisor: SupervisorRecord) -> bool:
        """Return True if somebody still needs what lies on a supervisor's machine alone."""
        objects = self._table.objects
        store = objects.stores.get(supervisor.peer)
        if store is None:
            return False
        fetched = sum(len(objects.records[one].stores) > 1 for one in store.copies)
        return store.objects > fetched

"""Spare workers: they take the place of workers whose task only waits for other tasks.

A machine has as many spare workers as it has blocked workers, up to a bound. As many spare workers
get work as ordinary workers are blocked, and the others sleep. Workers in which actors live count
as blocked, and have a bound of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.supervisor.headcount import spares_max
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.machines import Machines
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.rebalance import Rebalancer
    from scaler_cluster.core.scheduler.table import Table

SLEEP_MAX_S = 10.0
"""A spare worker that was not needed for this long ends. To start one takes some 20 ms of a CPU,
and tasks that wait for others now often do so again soon."""


class Spares:
    """Keeps the spare workers of all machines in step with the blocked ones."""

    def __init__(
        self, table: Table, pools: WorkerPools, rebalancer: Rebalancer, machines: Machines
    ) -> None:
        self._table = table
        self._pools = pools
        self._rebalancer = rebalancer
        self._machines = machines
        self._sleeping: dict[bytes, WorkerRecord] = {}
        self._waits: dict[bytes, float] = {}
        """Since when the task of each blocked worker waits."""

    def set_blocked(self, worker: WorkerRecord, now: float, *, is_blocked: bool) -> None:
        """A worker only waits for others, or does no more. That of an actor stays blocked."""
        if worker.blocked is is_blocked or (worker.actor and worker.blocked):
            return
        worker.blocked = is_blocked
        blocked = self._table.supervisors[worker.supervisor].blocked
        if is_blocked:
            blocked[worker.peer] = worker
            self._rebalancer.clear(worker)
            self._waits[worker.peer] = now
        else:
            blocked.pop(worker.peer, None)
            worker.waited_s += now - self._waits.pop(worker.peer)
        self._pools.consider(worker)
        self._balance(worker, now)

    def joined(self, worker: WorkerRecord, now: float) -> None:
        """A worker is there."""
        supervisor = self._table.supervisors[worker.supervisor]
        if worker.spare:
            supervisor.spares[worker.peer] = worker
            self._balance(worker, now)
        else:
            self._machines.balance(supervisor)

    def left(self, worker: WorkerRecord, now: float) -> None:
        """A worker is gone."""
        self._sleeping.pop(worker.peer, None)
        self._waits.pop(worker.peer, None)
        supervisor = self._table.supervisors.get(worker.supervisor)
        if worker.spare or worker.blocked:
            self._balance(worker, now)
        elif supervisor is not None:
            self._machines.balance(supervisor)

    def tick(self, now: float) -> None:
        """Let spare workers end that were not needed for long."""
        for worker in list(self._sleeping.values()):
            if worker.count or now - worker.asleep_at < SLEEP_MAX_S:
                continue
            del self._sleeping[worker.peer]
            worker.retiring = True
            self._table.send(worker.peer, m.Retire())
            supervisor = self._table.supervisors[worker.supervisor]
            # One that ends may be made up for before its supervisor hears that it need not be.
            if supervisor.spares_wanted:
                self._want(supervisor, supervisor.spares_wanted - 1)

    def _balance(self, worker: WorkerRecord, now: float) -> None:
        """Wake as many spare workers of a machine as it needs.

        Cost: O(its spare workers and blocked ones).
        """
        supervisor = self._table.supervisors.get(worker.supervisor)
        if supervisor is None:
            return
        blocked = supervisor.blocked
        places = sum(not one.spare for one in blocked.values())
        for spare in supervisor.spares.values():
            if spare.blocked or spare.retiring:
                continue
            if places > 0:
                places -= 1
                spare.asleep_at = math.inf
                self._sleeping.pop(spare.peer, None)
            elif spare.asleep_at == math.inf:
                spare.asleep_at = now
                self._sleeping[spare.peer] = spare
            self._pools.consider(spare)
        self._machines.balance(supervisor)
        actors = sum(bool(one.actor) for one in blocked.values())
        wanted = actors + min(len(blocked) - actors, spares_max(supervisor.workers_wanted))
        if wanted > supervisor.spares_wanted:
            self._want(supervisor, wanted)

    def _want(self, supervisor: SupervisorRecord, count: int) -> None:
        supervisor.spares_wanted = count
        self._table.send(supervisor.peer, m.Spares(count))

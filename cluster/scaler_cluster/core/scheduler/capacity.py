"""Tells whoever has workers started how many there are to be, by what is outstanding."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.outstanding import Pace, demands_of
from scaler_cluster.core.scheduler.scaling import Load, Source, wanted
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.config.scaling_policy import ScalingPolicy
    from scaler_cluster.core.records.managers import ManagerRecord
    from scaler_cluster.core.records.workers import WorkerPool, WorkerRecord
    from scaler_cluster.core.scheduler.draining import Draining
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.table import Table

LOOK_S = 0.2
"""How often it is decided anew. A task of a cluster without workers waits so long at most before
some are asked for."""


class Capacity:
    """Keeps the managers in step with what is outstanding."""

    def __init__(
        self, table: Table, pools: WorkerPools, policy: ScalingPolicy, draining: Draining
    ) -> None:
        self._table = table
        self._pools = pools
        self._policy = policy
        self._draining = draining
        self._pace = Pace()
        self._looked_at = -math.inf

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        return self._looked_at + LOOK_S if self._table.managers else math.inf

    def tick(self, now: float) -> None:
        """Decide how many workers each manager is to have, and tell those that do not know."""
        table = self._table
        if not table.managers or now < self._looked_at + LOOK_S:
            return
        passed_s = min(now - self._looked_at, 1.0)
        self._looked_at = now
        staying = self._staying()
        offers = [
            one
            for one in table.managers.values()
            if one.offer is not None
            and not (one.is_own and table.supervisors[one.peer].is_draining)
        ]
        for manager in offers:
            workers = staying.get(manager.peer, [])
            manager.here = len(workers)
            manager.idle_s += passed_s * sum(not one.count for one in workers)
        sources = [_source_of(one) for one in offers]
        found = wanted(self._policy, self._load(sources, staying.get(b"", []), now))
        for manager, source in zip(offers, sources, strict=True):
            self._settle(manager, found.get(source), now)
            if manager.is_own:
                self._resize(manager, staying.get(manager.peer, []))

    def welcome(self, manager: ManagerRecord, offer: m.Offer, now: float) -> None:
        """A manager says how many workers it could have."""
        if manager.offer is None:
            manager.cooldown.count = offer.wanted
            if self._policy.passes_over(manager.name):
                self._table.journal.manager_has_no_rule(manager, now)
        if manager.is_own:
            # So many it has, whatever was said of it before.
            manager.wanted = offer.wanted
            supervisor = self._table.supervisors[manager.peer]
            supervisor.workers_wanted, supervisor.most = offer.wanted, offer.most
            self._pools.changes += 1
        manager.offer = offer
        self._looked_at = min(self._looked_at, now - LOOK_S)

    def tell(self, manager: ManagerRecord) -> None:
        """Tell a manager how many workers it is to have, and how its units are."""
        supervisors = self._table.supervisors
        if manager.is_own:
            supervisors[manager.peer].workers_wanted = manager.wanted
            self._table.send(manager.peer, m.Wanted(manager.wanted))
            return
        units: dict[str, int] = {}
        for one in supervisors.values():
            # Until then its workers may be such as can never start.
            has_come = one.has_come or one.roll or one.is_draining
            if one.manager == manager.name and has_come:
                tasks = sum(worker.count for worker in one.workers.values())
                units[one.unit] = units.get(one.unit, 0) + tasks
        self._table.send(
            manager.peer, m.Wanted(manager.wanted, tuple(units), tuple(units.values()))
        )

    def _settle(self, manager: ManagerRecord, count: int | None, now: float) -> None:
        offer = manager.offer
        assert offer is not None
        if count is None:
            count = manager.cooldown.count
        settled = manager.cooldown.settle(count, offer.cooldown_s, now)
        bounded = min(max(settled, offer.least), offer.most)
        if bounded != manager.wanted:
            manager.wanted = bounded
            self.tell(manager)

    def _staying(self) -> dict[bytes, list[WorkerRecord]]:
        """Return the workers that are here to stay, by the peer id of whoever started them."""
        table = self._table
        by_name = {one.name: one.peer for one in table.managers.values() if not one.is_own}
        found: dict[bytes, list[WorkerRecord]] = {}
        for supervisor in table.supervisors.values():
            owner = supervisor.peer
            if owner not in table.managers:
                owner = by_name.get(supervisor.manager, b"") if supervisor.manager else b""
            workers = found.setdefault(owner, [])
            workers += [
                one for one in supervisor.workers.values() if not one.retiring and not one.spare
            ]
        return found

    def _load(self, sources: list[Source], others: list[WorkerRecord], now: float) -> Load:
        pools: dict[WorkerPool, int] = {}
        for worker in others:
            pools[worker.pool] = pools.get(worker.pool, 0) + 1
        return Load(
            demands_of(self._table),
            self._pace.mean_s(self._table, now),
            sources,
            # Those without Python are of no use to most of what waits.
            [(pool.offered, count) for pool, count in pools.items() if pool.has_python],
        )

    def _resize(self, manager: ManagerRecord, staying: list[WorkerRecord]) -> None:
        """Let workers of a supervisor drain that are too many, those with the least to do first."""
        missing = manager.wanted - len(staying)
        if missing < 0:
            for worker in sorted(staying, key=lambda one: one.count)[:-missing]:
                self._draining.start(worker)
        for worker in list(self._table.supervisors[manager.peer].workers.values()):
            if missing > 0 and self._draining.keep(worker):
                missing -= 1


def _source_of(manager: ManagerRecord) -> Source:
    """Return what the policies know of a manager that has made an offer."""
    offer = manager.offer
    assert offer is not None
    return Source(
        manager.name,
        dict(offer.capabilities),
        offer.least,
        offer.most,
        manager.here,
        offer.per_unit,
        is_failing=bool(manager.units.reason),
        size=offer.most if manager.is_own else offer.per_unit,
        shared={} if manager.is_own else dict(offer.shared),
    )

"""What a manager has done within a worker of Dask: start units, say which there are, end them.

A worker of Dask tells its scheduler with each heartbeat which units it has, as one of its metrics:
so nobody has to ask it, and one that is busy holds up nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from scaler_cluster.provision.guest_unit import KEPT_S, GuestUnit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.provision.guest_unit import Order

METRIC = "scaler_units"


class GuestUnits:
    """The units of a worker of Dask, whose extension this is."""

    def __init__(self) -> None:
        self._units: dict[str, GuestUnit] = {}
        self._ended_at: dict[str, float] = {}

    def start(self, orders: Mapping[str, Order]) -> None:
        """Start units; one that is there already is not started again."""
        for name, order in orders.items():
            if name not in self._units:
                self._units[name] = GuestUnit(order)

    async def end(self, names: Sequence[str]) -> None:
        """End units; whoever has ended already is no error."""
        units = [self._units[name] for name in names if name in self._units]
        await asyncio.gather(*(asyncio.to_thread(one.end) for one in units))

    def listed(self, _: object = None) -> dict[str, list[Any]]:
        """Return of each unit its manager, its workers, and the status with which it has ended."""
        now = time.monotonic()
        found = {}
        for name, unit in list(self._units.items()):
            status = unit.status()
            if status is not None and now - self._ended_at.setdefault(name, now) > KEPT_S:
                del self._units[name], self._ended_at[name]
                continue
            found[name] = [unit.order.manager_id, unit.order.workers, status]
        return found

    def close(self) -> None:
        """Let all units end: the worker of Dask does."""
        for unit in self._units.values():
            unit.let_go()


async def start_units(orders: Mapping[str, Order], dask_worker: Any) -> None:
    """Start units in a worker of Dask."""
    units = dask_worker.extensions.get(METRIC)
    if units is None:
        units = dask_worker.extensions[METRIC] = GuestUnits()
        dask_worker.metrics[METRIC] = units.listed
    units.start(orders)


async def end_units(names: Sequence[str], dask_worker: Any) -> None:
    """End units in a worker of Dask."""
    if METRIC in dask_worker.extensions:
        await dask_worker.extensions[METRIC].end(names)

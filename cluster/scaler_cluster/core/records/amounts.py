"""What the workers of a machine share: how much there is of it, and how much their tasks use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.wire.messages import DEVICES_MAX, GPU

if TYPE_CHECKING:
    from scaler_cluster.wire.messages import Capabilities, Portion, TaskOptions

MILLION = 1_000_000
"""Amounts are counted in millionths, as whole numbers: tenths of a float never add up."""


def _millionths(name: str, amount: float) -> int:
    return round((math.ceil(amount) if name == GPU else amount) * MILLION)


class Amounts:
    """Counts what is in use of what a machine offers to its workers together."""

    __slots__ = ("_reserved", "_used", "devices", "offered", "total")

    def __init__(self, offered: Capabilities = ()) -> None:
        self.offered = offered
        self.total = {name: _millionths(name, amount) for name, amount in offered if amount >= 0}
        self.devices = list(range(min(int(dict(offered).get(GPU, 0)), DEVICES_MAX)))
        """The GPUs that nobody has, in order."""
        self._used = dict.fromkeys(self.total, 0)
        self._reserved: dict[str, int] = {}

    def used_by(self, options: TaskOptions) -> Capabilities:
        """Return what tasks with these options use of it."""
        total = self.total
        return tuple(one for one in options.capabilities if one[0] in total and one[1] > 0)

    def are_free(self, uses: Capabilities) -> bool:
        """Return True if so much is neither used nor reserved."""
        used, reserved, total = self._used, self._reserved, self.total
        return all(
            used[name] + reserved.get(name, 0) + _millionths(name, amount) <= total[name]
            for name, amount in uses
        )

    def can_hold(self, portion: Portion) -> bool:
        """Return True if nobody has any of this."""
        used, total, devices = self._used, self.total, set(portion.devices)
        are_there = len(dict(portion.uses)) == len(portion.uses) and all(
            name in total and amount > 0 and used[name] + _millionths(name, amount) <= total[name]
            for name, amount in portion.uses
        )
        is_told = device_count(portion.uses) == len(devices) == len(portion.devices)
        return are_there and is_told and devices <= set(self.devices)

    def reserve(self, uses: Capabilities) -> None:
        """Let nobody else have so much of it, until :meth:`end_reserve`."""
        for name, amount in uses:
            self._reserved[name] = self._reserved.get(name, 0) + _millionths(name, amount)

    def end_reserve(self) -> None:
        """Let everybody have what is not used."""
        self._reserved.clear()

    def take(self, portion: Portion) -> None:
        """A task has this now."""
        assert self.can_hold(portion), f"taken twice: {portion}"
        for name, amount in portion.uses:
            self._used[name] += _millionths(name, amount)
        self.devices = [one for one in self.devices if one not in portion.devices]

    def give_back(self, portion: Portion) -> None:
        """A task has this no more."""
        for name, amount in portion.uses:
            self._used[name] -= _millionths(name, amount)
        self.devices = sorted([*self.devices, *portion.devices])

    def is_right(self, portions: list[Portion]) -> bool:
        """Return True if it is these that are counted, and they are no more than there is."""
        fresh = Amounts(self.offered)
        for portion in portions:
            if not fresh.can_hold(portion):
                return False
            fresh.take(portion)
        return fresh._used == self._used and fresh.devices == self.devices


def device_count(uses: Capabilities) -> int:
    """Return how many GPUs a task has to itself that uses this: part of one is a whole one."""
    return math.ceil(dict(uses).get(GPU, 0))

"""What the core of a manager is told."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ManagerConfig:
    """Settings of a manager, in seconds."""

    name: str
    """Its id, with which the names of its units begin."""
    address: str
    """Of the scheduler, for texts that people read."""
    least: int = 0
    most: int
    """Of workers."""
    per_unit: int = 1
    heartbeat_s: float = 2.0
    look_s: float = 2.0
    """How often the backend is asked which units there are."""
    drain_timeout_s: float = 300.0
    start_timeout_s: float = 300.0
    death_timeout_s: float = math.inf
    lifetime_s: float = math.inf
    """How long the system lets a unit live."""
    keeps_units: bool = False
    """Whether the units stay when the manager ends."""

    @property
    def units_max(self) -> int:
        """How many units there may be at once, those on their way out among them."""
        return self.most // self.per_unit

    @property
    def lived_s(self) -> float:
        """How long a unit gets tasks: what it has then is to end before the system ends it."""
        return self.lifetime_s - min(self.drain_timeout_s, self.lifetime_s / 2)

"""What the scheduler remembers of whoever has workers started for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.core.records.cooldown import Cooldown
from scaler_cluster.wire.messages import Units

if TYPE_CHECKING:
    from scaler_cluster.wire.messages import Offer


@dataclass(slots=True, eq=False)
class ManagerRecord:
    """A manager, or a supervisor that starts and ends workers of its own."""

    peer: bytes
    name: str
    """Its id."""
    host: str
    pid: int
    last_seen: float
    offer: Offer | None = None
    """None: it has made none yet."""
    is_own: bool = False
    """True for a supervisor: it has no units, and is told about its workers."""
    units: Units = field(default_factory=lambda: Units(0, 0, 0, "", 0.0))
    """What it has said of its units last."""
    wanted: int = 0
    """How many workers it was told to have."""
    cooldown: Cooldown = field(default_factory=Cooldown)
    here: int = 0
    """How many of its workers were here when that was last counted."""
    idle_s: float = 0.0
    """How long its workers had nothing to do, together."""

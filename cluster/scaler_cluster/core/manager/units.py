"""What a manager knows of one unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """How far a unit is."""

    ASKED = "asked"
    """The backend was told to start it, and has not answered."""
    COMING = "coming"
    """The system has accepted it; its workers are not here."""
    HERE = "here"
    DRAINING = "draining"
    """Its workers finish what they run."""
    ENDING = "ending"
    """The backend was told to end it."""


STAYING = (Phase.ASKED, Phase.COMING, Phase.HERE)
"""Phases of units that are there, or on their way, to stay."""


@dataclass(frozen=True)
class Listed:
    """What the backend says of a unit that its system lists."""

    reason: str = ""
    """Why it does not run, in the system's words."""
    is_over: bool = False


@dataclass(slots=True, eq=False)
class Unit:
    """A unit, from the moment in which it is asked for to its end."""

    name: str
    asked_at: float
    phase: Phase = Phase.ASKED
    came_at: float = math.inf
    """When its workers were first here; inf: they never were."""
    until: float = math.inf
    """When it is ended if it has not come, or has not finished, by then."""
    tasks: int = 0
    """How many tasks it has, as the scheduler said last."""
    is_listed: bool = False
    """Whether the system had it when that was last asked."""
    is_connected: bool = False
    """Whether the scheduler has named it among those that are here, the last time."""
    is_refused: bool = False
    """Whether the system has refused some of those that it was asked for with: maybe this one."""
    reason: str = ""
    """Why it does not run yet, as the system said last."""

    @property
    def stays(self) -> bool:
        """Return True if it is there, or on its way, to stay."""
        return self.phase in STAYING

    @property
    def has_come(self) -> bool:
        """Return True if its workers were ever here."""
        return self.came_at < math.inf

    def came(self, now: float) -> None:
        """Its workers are here."""
        self.phase, self.until = Phase.HERE, math.inf
        if not self.has_come:
            self.came_at = now

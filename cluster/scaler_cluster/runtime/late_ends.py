"""The ends of workers by SIGTERM: their fault, or that of whoever ends the whole machine's.

A batch system sends SIGTERM to all processes of a job at once. A worker then ends as fast as its
supervisor hears of it, and its task would be taken for the cause. So such an end is told a moment
later, unless the supervisor leaves until then.
"""

from __future__ import annotations

import math
import signal
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler_cluster.runtime.forkserver import WorkerEnded

HOLD_S = 0.5


class LateEnds:
    """Holds such ends back."""

    def __init__(self) -> None:
        self._held: deque[tuple[float, WorkerEnded]] = deque()

    def hold(self, report: WorkerEnded, now: float) -> bool:
        """Return True if an end is held back for now."""
        if report.signal != signal.SIGTERM:
            return False
        self._held.append((now + HOLD_S, report))
        return True

    @property
    def deadline(self) -> float:
        """When one is next due."""
        return self._held[0][0] if self._held else math.inf

    def take(self, now: float) -> list[WorkerEnded]:
        """Return those that are due."""
        due = []
        while self._held and self._held[0][0] <= now:
            due.append(self._held.popleft()[1])
        return due

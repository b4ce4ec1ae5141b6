"""How many tasks of each function ended and failed in the last minutes. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.wire import feed

LATELY_S, STEP_S = 300.0, 10.0
"""How far back it is looked, and how finely: so thirty counts of each function are kept."""


@dataclass(slots=True)
class Outcomes:
    """Counts by function, from time to time."""

    _taken: deque[tuple[float, dict[str, tuple[int, int]]]] = field(default_factory=deque)
    _last: tuple[float, dict[str, tuple[int, int]]] = (0.0, {})

    def apply(self, snapshot: feed.Snapshot) -> None:
        """Take in the next snapshot."""
        counts = {row.name: (row.done + row.failed, row.failed) for row in snapshot.functions}
        self._last = snapshot.clock, counts
        taken = self._taken
        if not taken or snapshot.clock - taken[-1][0] >= STEP_S:
            taken.append(self._last)
        while len(taken) > 1 and taken[1][0] <= snapshot.clock - LATELY_S:
            taken.popleft()

    @property
    def span_s(self) -> float:
        """How far back :meth:`lately` looks."""
        return self._last[0] - self._taken[0][0] if self._taken else 0.0

    def lately(self) -> Iterator[tuple[str, int, int]]:
        """Yield functions of which tasks failed: how many ended in this time, how many failed."""
        before = self._taken[0][1] if self._taken else {}
        for name, (ended, failed) in self._last[1].items():
            ended_before, failed_before = before.get(name, (0, 0))
            if failed > failed_before:
                yield name, ended - ended_before, failed - failed_before

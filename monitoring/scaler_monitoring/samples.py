"""How many things of one kind were at one moment after the other, in little memory."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

POINTS_MAX = 200_000
"""Kept of one kind, with 24 bytes each: of 100 workers one each second for half an hour."""


@dataclass(slots=True)
class Sample:
    """How all of them were at one moment."""

    clock: float
    keys: tuple[bytes, ...]
    columns: tuple[array[float], ...]
    """One figure of each key; nan: not known."""


@dataclass
class Samples:
    """The figures of all workers, or machines, or stores, as far back as there is room.

    With more of them than POINTS_MAX allows, samples are farther apart: a thousand workers have one
    each nine seconds of half an hour.
    """

    columns: int
    """How many figures there are of each."""
    window_s: float
    """What is older is forgotten."""
    taken: deque[Sample] = field(default_factory=deque, init=False)
    points: int = field(default=0, init=False)
    """How many there are in all samples."""

    def add(
        self, clock: float, keys: Sequence[bytes], rows: Iterable[Sequence[float | None]]
    ) -> None:
        """Take a sample, a row for each key, unless the last one is too close; forget old ones."""
        taken = self.taken
        self.forget(clock - self.window_s)
        if taken and clock - taken[-1].clock < self.window_s * len(keys) / POINTS_MAX:
            return
        known = tuple(keys)
        if taken and taken[-1].keys == known:
            # Nearly always: so the ids are kept once.
            known = taken[-1].keys
        columns = zip(*rows, strict=True) if known else [()] * self.columns
        taken.append(
            Sample(
                clock,
                known,
                tuple(
                    array("d", [nan if one is None else one for one in column])
                    for column in columns
                ),
            )
        )
        self.points += len(known)
        while self.points > POINTS_MAX and len(taken) > 1:
            self._drop()

    def forget(self, clock: float) -> None:
        """Forget what was before."""
        while self.taken and self.taken[0].clock < clock:
            self._drop()

    def clear(self) -> None:
        """Forget everything."""
        self.taken.clear()
        self.points = 0

    def _drop(self) -> None:
        self.points -= len(self.taken.popleft().keys)

"""Seconds in buckets of time, at several widths: the finer, the less far back. Pure."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Seconds: TypeAlias = "NDArray[np.float32]"

LEVELS_S = (0.02, 0.1, 0.5, 2.0)
"""Widths of buckets: a pixel of ten seconds, of a minute, of five, and of half an hour."""
BUCKETS = 1280
"""Of each width: 25 seconds, two minutes, ten, and 42."""
WINDOW_S = 1800.0
"""What is older may be gone."""


class Track:
    """How many seconds fell into which time; 20 KB."""

    __slots__ = ("_newest", "_sums", "end")

    def __init__(self) -> None:
        self._sums = np.zeros((len(LEVELS_S), BUCKETS), np.float32)
        self._newest = [-BUCKETS] * len(LEVELS_S)
        """The number of the last bucket of each level: its beginning, counted in widths."""
        self.end = -1e18
        """When the last of it was."""

    def add(self, start: float, end: float, seconds: float) -> None:
        """Spread so many seconds evenly over a time, as far as that is not too long ago."""
        self.end = max(self.end, end)
        for level, width_s in enumerate(LEVELS_S):
            first, last = int(start // width_s), int(end // width_s)
            row = self._sums[level]
            if last > self._newest[level]:
                self._advance(level, last)
            oldest = self._newest[level] - BUCKETS + 1
            if last < oldest:
                continue
            if first == last:
                row[last % BUCKETS] += seconds
                continue
            rate = seconds / (end - start)
            row[last % BUCKETS] += rate * (end - last * width_s)
            if first >= oldest:
                row[first % BUCKETS] += rate * ((first + 1) * width_s - start)
            for part in _places(max(first + 1, oldest), last):
                row[part] += rate * width_s

    def read(self, level: int, first: int, count: int) -> Seconds:
        """Return what is in so many buckets of a level, from this number on."""
        found = np.zeros(count, np.float32)
        newest = self._newest[level]
        begin, stop = max(first, newest - BUCKETS + 1), min(first + count, newest + 1)
        at = begin - first
        for part in _places(begin, stop):
            size = part.stop - part.start
            found[at : at + size] = self._sums[level][part]
            at += size
        return found

    def _advance(self, level: int, last: int) -> None:
        """Make room for later buckets in place of the oldest."""
        begin = max(self._newest[level] + 1, last - BUCKETS + 1)
        for part in _places(begin, last + 1):
            self._sums[level][part] = 0.0
        self._newest[level] = last


def _places(begin: int, stop: int) -> list[slice]:
    """Return where buckets are, at most BUCKETS of them: in one part, or in two."""
    if stop <= begin:
        return []
    size, at = stop - begin, begin % BUCKETS
    if at + size <= BUCKETS:
        return [slice(at, at + size)]
    return [slice(at, BUCKETS), slice(0, at + size - BUCKETS)]


class Grid:
    """Cells of equal width, as wide as a figure can show: each is some buckets of one level.

    ``first`` is the number of the first cell: its beginning, counted in widths. So cells of one
    width are the same, wherever a grid begins.
    """

    def __init__(self, start: float, end: float, columns: int, now: float) -> None:
        """Cover a time with about so many cells; the buckets must reach back to ``start``."""
        wanted_s = (end - start) / columns
        self.level = 0
        for level, width_s in enumerate(LEVELS_S):
            is_short = now - start > (BUCKETS - 2) * LEVELS_S[self.level]
            if is_short or width_s <= wanted_s:
                self.level = level
        self.factor = max(round(wanted_s / LEVELS_S[self.level]), 1)
        self.width_s = LEVELS_S[self.level] * self.factor
        self.first = int(start // self.width_s)
        self.last = ceil(end / self.width_s)
        """After the last cell."""

    def cell_of(self, at: float) -> int:
        """Return the number of the cell in which a moment is."""
        return int(at // self.width_s)

    def read(self, track: Track, first: int, last: int) -> Seconds:
        """Return the seconds in the cells from ``first`` to before ``last``."""
        count = max(last - first, 0)
        buckets = track.read(self.level, first * self.factor, count * self.factor)
        if self.factor == 1:
            return buckets
        summed: Seconds = buckets.reshape(count, self.factor).sum(axis=1)
        return summed

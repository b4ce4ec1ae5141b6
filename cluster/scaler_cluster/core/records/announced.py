"""Which of its segments a peer has announced, so that it announces them no more."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

RANGES_MAX = 1000
"""Ranges of numbers that are remembered; what is below them is forgotten."""


class Announced:
    """Numbers of segments, in ranges: there is a gap where a write failed, or goes on."""

    __slots__ = ("_bounds",)

    def __init__(self, stop: int = 0) -> None:
        """All below ``stop`` are in it."""
        self._bounds = [0, stop] if stop > 0 else []
        """Where the first range begins, the number after its last, and so on."""

    def __contains__(self, number: int) -> bool:
        return bisect_right(self._bounds, number) % 2 == 1

    def add(self, number: int) -> None:
        """Put a number in."""
        if number < 0 or number in self:
            return
        bounds = self._bounds
        begin, end = bisect_left(bounds, number), bisect_right(bounds, number + 1)
        # A bound that is at either side of it is one no more: two ranges meet there.
        bounds[begin:end] = [one for one in (number, number + 1) if one not in bounds[begin:end]]
        if len(bounds) > 2 * RANGES_MAX:
            del bounds[:2]

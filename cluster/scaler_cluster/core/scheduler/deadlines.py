"""What is to be looked at when, soonest first."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Item = TypeVar("Item")
CLEAN_AT_MIN = 1024


class Deadlines(Generic[Item]):
    """A heap of items by time; ties in the order of their arrival.

    Items that have become moot are dropped when they would make up half of the heap. Others of
    them still come out when they are due: the caller checks.
    """

    def __init__(self, is_moot: Callable[[Item], bool]) -> None:
        self._is_moot = is_moot
        self._clean_at = CLEAN_AT_MIN
        self._heap: list[tuple[float, int, Item]] = []
        self._added = 0

    def add(self, when: float, item: Item) -> None:
        """Look at ``item`` at ``when``, in monotonic seconds."""
        self._added += 1
        heappush(self._heap, (when, self._added, item))
        if len(self._heap) >= self._clean_at:
            self._heap = [entry for entry in self._heap if not self._is_moot(entry[2])]
            heapify(self._heap)
            self._clean_at = max(2 * len(self._heap), CLEAN_AT_MIN)

    @property
    def next(self) -> float:
        """When the first item is due; inf if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def due(self, now: float) -> Iterator[Item]:
        """Take out what is due, soonest first; what is added meanwhile counts as well."""
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)[2]

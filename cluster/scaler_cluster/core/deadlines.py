"""What is to be looked at when, soonest first."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

Item = TypeVar("Item")


class Deadlines(Generic[Item]):
    """A heap of items by time; ties in the order of their arrival.

    Items are not removed when they become moot: who takes them out checks.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        self._added = 0

    def add(self, when: float, item: Item) -> None:
        """Look at ``item`` at ``when``, in monotonic seconds."""
        self._added += 1
        heappush(self._heap, (when, self._added, item))

    @property
    def next(self) -> float:
        """When the first item is due; inf if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def due(self, now: float) -> Iterator[Item]:
        """Take out what is due, soonest first; what is added meanwhile counts as well."""
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)[2]

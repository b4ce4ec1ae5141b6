"""A curve that goes on and on, in little memory."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Curve(Generic[T]):
    """Points from its beginning on: when there are too many, each second one is left out."""

    def __init__(self, points_max: int) -> None:
        self.points: list[T] = []
        self.stride = 1
        """Every n-th point is kept."""
        self._points_max = points_max
        self._seen = 0

    def add(self, point: T) -> None:
        """Let a point enter, if it is its turn."""
        is_kept = self._seen % self.stride == 0
        self._seen += 1
        if is_kept:
            self.end(point)

    def end(self, point: T) -> None:
        """Let a point enter in any case, as the last one."""
        self.points.append(point)
        if len(self.points) > self._points_max:
            del self.points[1::2]
            self.stride *= 2

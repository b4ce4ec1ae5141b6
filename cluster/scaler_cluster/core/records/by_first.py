"""What a client has asked for, by the first task of each part, in order."""

from __future__ import annotations

from typing import Protocol, TypeVar

from sortedcontainers import SortedList


class Tasks(Protocol):
    """Contiguous tasks."""

    @property
    def stop(self) -> int:
        """Id after the last task."""


T = TypeVar("T", bound=Tasks)
_set, _delete = dict.__setitem__, dict.__delitem__


class ByFirst(dict[int, T]):
    """A dict in which a range of keys is found in O(log n). Items are set and deleted, no more.

    One part alone is not sorted: that would take 0.7 us of the round trip of a lone task.
    """

    __slots__ = ("_order",)

    def __init__(self) -> None:
        super().__init__()
        self._order: SortedList[int] | None = None
        """All keys; None: there is one at most."""

    def __setitem__(self, first: int, tasks: T) -> None:
        """Put tasks in, or in the place of those that begin there."""
        if first not in self:
            if self._order is not None:
                self._order.add(first)
            elif self:
                self._order = SortedList((*self, first))
        _set(self, first, tasks)

    def __delitem__(self, first: int) -> None:
        """Take tasks out."""
        _delete(self, first)
        if self._order is not None:
            self._order.remove(first)
            if not self:
                self._order = None

    @property
    def last(self) -> T:
        """The last of the tasks; there are some."""
        return self[self._order[-1] if self._order is not None else next(iter(self))]

    def overlapping(self, first: int, stop: int) -> list[T]:
        """Return what has tasks of ``first <= id < stop``, in order."""
        order = self._order
        if order is None:
            firsts = [one for one in self if one < stop]
        else:
            # The one before may reach into the range.
            begin = max(order.bisect_right(first) - 1, 0)
            firsts = order[begin : order.bisect_left(stop)]
        return [self[one] for one in firsts if self[one].stop > first]

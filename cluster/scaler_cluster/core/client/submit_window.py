"""A client whose scheduler has room for so many waiting tasks only: it asks before it sends them.

What has no room waits here, in order, with all that comes after it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_ONCE = (m.Heartbeat, m.Shutdown, m.Coordinate, m.Withdraw)
"""What has nothing to do with any task, or is what tasks wait for that are to make room."""


class SubmitWindow:
    """Holds messages back that the scheduler has not allowed yet."""

    def __init__(self) -> None:
        self.cancelled: list[m.Cancelled] = []
        """Tasks that were taken back before they were sent; who takes them empties it."""
        self._held: deque[m.Message] = deque()
        self._waiting = 0
        """Number of tasks that are held."""
        self._room = 0
        """Number of tasks that may be sent."""

    @property
    def is_open(self) -> bool:
        """Return True if :meth:`pass_on` has something that was held."""
        return bool(self._held) and self._room > 0

    def allow(self, count: int) -> None:
        """The scheduler has room for so many more."""
        self._room += count

    def give_back(self) -> list[m.Message]:
        """Return what is held, and hold it no more."""
        held, self._held = list(self._held), deque()
        return held

    def pass_on(self, messages: Sequence[m.Message]) -> list[m.Message]:
        """Return what may be sent by now, of these and of what is held."""
        sent: list[m.Message] = []
        held = self._held
        before = self._waiting
        for message in messages:
            kind = type(message)
            if isinstance(message, m.Submit):
                self._waiting += len(message.batch)
                held.append(message)
            elif isinstance(message, m.Cancel):
                self._take_back(message)
                sent.append(message)
                if any(type(one) is m.Graph for one in held):
                    # Its nodes may be among those; what is running does not wait for that.
                    held.append(message)
            elif kind is m.Goodbye:
                held.clear()
                return [*sent, message]
            elif held and kind not in AT_ONCE:
                held.append(message)
            else:
                sent.append(message)
        more = self._waiting - before
        if more:
            sent.append(m.RequestCredit(max(more, 0), max(-more, 0)))
        while held:
            head = held[0]
            if type(head) is m.Submit:
                count = min(len(head.batch), self._room)
                if count < len(head.batch):
                    if count:
                        sent.append(part_of(head, 0, count))
                        held[0] = part_of(head, count, len(head.batch))
                        self._let(count)
                    break
                self._let(count)
            sent.append(held.popleft())
        return sent

    def _let(self, count: int) -> None:
        self._room -= count
        self._waiting -= count

    def _take_back(self, cancel: m.Cancel) -> None:
        """Forget the tasks of a range; the scheduler will never hear of them."""
        kept: list[m.Message] = []
        stop = cancel.first + cancel.count
        for message in self._held:
            if type(message) is not m.Submit:
                kept.append(message)
                continue
            count = len(message.batch)
            low = min(max(cancel.first - message.first, 0), count)
            high = min(max(stop - message.first, low), count)
            if low:
                kept.append(part_of(message, 0, low))
            if high < count:
                kept.append(part_of(message, high, count))
            if low < high:
                self._waiting -= high - low
                if cancel.queued_only:
                    self.cancelled.append(m.Cancelled(message.first + low, high - low))
        # The same deque: who takes something back goes on to hold what follows.
        self._held.clear()
        self._held.extend(kept)


def part_of(message: m.Submit, start: int, stop: int) -> m.Submit:
    """Return the tasks of a Submit from ``start`` to ``stop``, counted from its first one."""
    if stop - start == len(message.batch):
        return message
    return replace(message, first=message.first + start, batch=message.batch.cut(start, stop))

"""What a foreman tells the centre of the tasks that it was given: results travel together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FLUSH_S = 0.005
"""How long results of a machine that has enough to do wait for others, at most."""
STARVING_FLUSH_S = 0.001
"""How long they wait while a worker of the machine has nothing to do."""


@dataclass(slots=True, eq=False)
class Entrusted:
    """A task that the machine's scheduler was asked for."""

    session: int
    task: int
    function: bytes
    is_timed: bool
    local: int = -1
    """Its number there."""
    busy_s: float = 0.0
    has_started: bool = False


Returned: TypeAlias = tuple[Entrusted, bytes]
"""A task, and its result."""


class ForemanReports:
    """Collects results for some milliseconds; says all else at once, after what came before."""

    def __init__(self) -> None:
        self.is_withheld = False
        """True: the centre has not said yet what it wants to hear of."""
        self._outbox: list[m.Message] = []
        self._done: list[Returned] = []
        """What returned and is in no message yet."""
        self._flushed_at = -math.inf

    def __bool__(self) -> bool:
        """Return True if there is something to say."""
        return bool(self._done or self._outbox)

    def say(self, message: m.Message) -> None:
        """Say something, after what returned before it."""
        self._pack()
        self._outbox.append(message)

    def returned(self, one: Entrusted, payload: bytes) -> None:
        """A task returned."""
        self._done.append((one, payload))

    def due(self, *, is_starving: bool, is_last: bool) -> float:
        """Return when to :meth:`take` what returned; the last result need not wait for others."""
        if self.is_withheld or not self._done:
            return math.inf
        if is_last:
            return -math.inf
        return self._flushed_at + (STARVING_FLUSH_S if is_starving else FLUSH_S)

    def take(self, now: float, due: float) -> list[m.Message]:
        """Return what is to be sent."""
        if self.is_withheld:
            return []
        if self._done and now >= due:
            self._pack()
            self._flushed_at = now
        said, self._outbox = self._outbox, []
        return said

    def _pack(self) -> None:
        """Make messages of what returned: one for contiguous tasks of one function."""
        done = sorted(self._done, key=lambda one: (one[0].session, one[0].task))
        self._done = []
        start = 0
        for at in range(1, len(done) + 1):
            if at < len(done) and _follows(done[at], done[at - 1]):
                continue
            part = done[start:at]
            busy_s = sum(one.busy_s for one, _ in part)
            batch = Batch.of([payload for _, payload in part])
            self._outbox.append(m.Done(part[0][0].session, part[0][0].task, busy_s, batch))
            start = at

    # -- a centre that does not know the foreman ---------------------------------------------

    def withhold(self, undelivered: Sequence[m.Message]) -> Iterator[m.Message]:
        """Send nothing for now; yield what is withheld, as what is held.

        Of what was said before and may not have arrived, that is the outcomes.
        """
        self._pack()
        said = self._outbox if self.is_withheld else [*undelivered, *self._outbox]
        self._outbox = [one for one in said if isinstance(one, m.Done | m.Erred)]
        self.is_withheld = True
        for one in self._outbox:
            if isinstance(one, m.Done):
                count = len(one.batch)
                yield m.Holding(one.session, one.first, count, count, 0.0)
            elif isinstance(one, m.Erred):
                yield m.Holding(one.session, one.task, 1, 1, 0.0)

    def discard(self, session: int, first: int, stop: int) -> None:
        """Drop what is withheld of tasks that nobody asks for."""
        self._pack()
        left: list[m.Message] = []
        for one in self._outbox:
            if isinstance(one, m.Done) and one.session == session:
                left += _outside(one, first, stop)
            elif (
                not isinstance(one, m.Erred)
                or one.session != session
                or not first <= one.task < stop
            ):
                left.append(one)
        self._outbox = left

    def clear(self) -> None:
        """Nobody wants to hear any of it."""
        self.is_withheld = False
        self._outbox, self._done = [], []


def _follows(one: Returned, before: Returned) -> bool:
    """Return True if two tasks that returned are neighbours, and of the same function."""
    (after, _), (task, _) = one, before
    here = task.session, task.task + 1, task.function
    return (after.session, after.task, after.function) == here


def _outside(done: m.Done, first: int, stop: int) -> Iterator[m.Done]:
    """Yield what a report says of tasks outside of a range."""
    count = len(done.batch)
    share_s = done.busy_s / count
    low = min(max(first - done.first, 0), count)
    high = min(max(stop - done.first, 0), count)
    for start, end in ((0, low), (max(low, high), count)):
        if start < end:
            batch = done.batch.cut(start, end)
            yield m.Done(done.session, done.first + start, share_s * (end - start), batch)

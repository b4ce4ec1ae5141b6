"""What single tasks and functions came to, as events told of it. Pure, and bounded."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from itertools import chain
from typing import TYPE_CHECKING

from scaler_monitoring.durations import Durations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scaler_cluster.wire import feed
    from scaler_monitoring.work import Work

FAILED_MAX = 5000
"""Pieces of failed work, and of work that ran again, that are kept, however much else was done."""
ASSIGNED_MAX = 20_000
"""Assignments that are kept, so that it can be said how long a task waited on its worker."""
FUNCTIONS_MAX = 2048
"""Functions whose durations are kept: twice as many as a scheduler counts apart."""
SLOWEST = 20
"""Of each function."""


@dataclass(slots=True)
class FunctionTimes:
    """How long the tasks of a function took that events told of."""

    durations: Durations = field(default_factory=Durations)
    is_grouped: bool = False
    """Some ran one after the other as one piece, so each counts with the mean of its piece."""
    _slowest: list[tuple[float, int, Work]] = field(default_factory=list)
    _added: int = 0

    def add(self, work: Work) -> None:
        """Take in tasks that returned, or raised."""
        each_s = max(work.end - work.start, 0.0) / work.count
        self.durations.add(each_s, work.count)
        self.is_grouped = self.is_grouped or work.count > 1
        self._added += 1
        entry = each_s, self._added, work
        if len(self._slowest) < SLOWEST:
            heappush(self._slowest, entry)
        else:
            heappushpop(self._slowest, entry)

    @property
    def slowest(self) -> list[Work]:
        """Return those that took longest, the slowest first."""
        return [work for _, _, work in sorted(self._slowest, reverse=True)]


@dataclass(slots=True)
class Ledger:
    """What is kept of tasks and functions besides the stream, which the latest tasks fill."""

    failed: deque[Work] = field(default_factory=lambda: deque(maxlen=FAILED_MAX))
    """What failed or ran again, in the order in which it ended."""
    assigned: deque[feed.Assigned] = field(default_factory=lambda: deque(maxlen=ASSIGNED_MAX))
    functions: OrderedDict[str, FunctionTimes] = field(default_factory=OrderedDict)
    """The one that was called last comes last."""

    def add(self, work: Work) -> None:
        """Take in what became of tasks."""
        if work.is_bad:
            self.failed.append(work)
        if work.is_timed:
            times = self.functions.pop(work.function, None) or FunctionTimes()
            times.add(work)
            self.functions[work.function] = times
            if len(self.functions) > FUNCTIONS_MAX:
                self.functions.popitem(last=False)

    def forget(self, clock: float) -> None:
        """Let go of what was before; durations stay."""
        while self.failed and self.failed[0].end < clock:
            self.failed.popleft()
        while self.assigned and self.assigned[0].at < clock:
            self.assigned.popleft()

    def older_failures(self, stream: deque[Work]) -> Iterator[Work]:
        """Yield what failed of which the stream has nothing any more, as later tasks filled it."""
        oldest = stream[0].end if stream else float("inf")
        return (one for one in self.failed if one.end < oldest)

    def attempts(self, stream: deque[Work], session: int, task: int) -> list[Work]:
        """Return what became of a task, each time that it was begun; the last comes last."""
        works: Iterable[Work] = chain(self.older_failures(stream), stream)
        return [one for one in works if one.holds(session, task)]

    def assignments(self, session: int, task: int) -> list[feed.Assigned]:
        """Return when a task was assigned to which worker, as far as that was told."""
        return [
            one
            for one in self.assigned
            if one.session == session and one.first <= task < one.first + one.count
        ]

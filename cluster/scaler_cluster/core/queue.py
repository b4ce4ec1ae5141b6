"""The ready queue: by priority and depth, then in turn among sessions, then in order."""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from scaler_cluster.core.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.core.tasks import Run
    from scaler_cluster.wire.messages import TaskOptions


def _rank(options: TaskOptions) -> tuple[int, int]:
    """Return what sorts first what is to run first."""
    return -options.priority, -options.depth


class ReadyQueue:
    """Runs that wait for a worker.

    A run that is cancelled whole stays in its place, in another state, and is passed over later:
    so everything here costs O(log ranks), but for :meth:`replace`.
    """

    def __init__(self) -> None:
        self._levels: dict[tuple[int, int], OrderedDict[int, deque[Run]]] = {}
        """Runs by session, by rank; the last level stays when it becomes empty."""
        self._order: list[tuple[int, int]] = []
        """A heap of the keys of the levels."""
        self.count = 0
        """Number of tasks."""

    def push(self, run: Run, *, front: bool = False) -> None:
        """Queue a run behind its session's others, or before them."""
        rank = _rank(run.options)
        level = self._levels.get(rank)
        if level is None:
            level = self._levels[rank] = OrderedDict()
            heappush(self._order, rank)
        runs = level.get(run.session)
        if runs is None:
            runs = level[run.session] = deque()
        if front:
            runs.appendleft(run)
        else:
            runs.append(run)
        self.count += run.count

    def peek(self) -> Run | None:
        """Return the run that is next, or None if nothing is queued."""
        order = self._order
        while order:
            level = self._levels[order[0]]
            if not level:
                if len(order) == 1:
                    return None
                del self._levels[heappop(order)]
                continue
            session, runs = next(iter(level.items()))
            first: Run = runs[0]
            if first.state is State.READY:
                return first
            runs.popleft()
            if not runs:
                del level[session]
        return None

    def take(self, run: Run, limit: int) -> Run:
        """Take up to ``limit`` tasks off the run that :meth:`peek` returned.

        Its session goes last in turn. What is left of a run that was cut stays next in it.
        """
        level = self._levels[_rank(run.options)]
        session = run.session
        runs = level[session]
        count = run.count
        if count > limit:
            count = limit
            run = run.cut_head(limit)
        else:
            runs.popleft()
        if not runs:
            del level[session]
        elif len(level) > 1:
            level.move_to_end(session)
        self.count -= count
        return run

    def discard(self, run: Run) -> None:
        """Count a queued run out; its state is about to leave READY, so it will be passed over."""
        self.count -= run.count
        if not self.count:
            # Nobody may look for long: who only submits and cancels must not fill the memory.
            self._levels.clear()
            self._order.clear()

    def replace(self, run: Run, parts: list[Run]) -> None:
        """Put what a queued run was split into in its place; costs O(runs of its session)."""
        runs = self._levels[_rank(run.options)][run.session]
        index = runs.index(run)
        del runs[index]
        for part in reversed(parts):
            runs.insert(index, part)

    def __iter__(self) -> Iterator[Run]:
        """Yield every queued run, in no promised order."""
        for level in self._levels.values():
            for runs in level.values():
                yield from (run for run in runs if run.state is State.READY)

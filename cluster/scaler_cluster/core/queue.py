"""What is ready: by priority and depth, then in turn among sessions, then in order."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from scaler_cluster.core.lifecycle import State
from scaler_cluster.core.ready_nodes import ReadyNodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from scaler_cluster.core.records import WorkerRecord
    from scaler_cluster.core.tasks import Run

    Entry: TypeAlias = "Run | ReadyNodes"
    from scaler_cluster.wire.messages import TaskOptions


def _rank(options: TaskOptions) -> tuple[int, int]:
    """Return what sorts first what is to run first."""
    return -options.priority, -options.depth


class ReadyQueue:
    """Runs that wait for a worker, and groups of nodes that do.

    All of them demand the same of it: the ``options`` of one of them say what. A run that is
    cancelled whole stays in its place, in another state, and is passed over later: so everything
    here costs O(log ranks), but for :meth:`replace`.
    """

    def __init__(self, options: TaskOptions) -> None:
        self.options = options
        self.unmet_since = math.inf
        """Since when there is no worker that could run any of it."""
        self.told: dict[int, str] = {}
        """Numbers of the sessions that were told so, and which refusal of a cluster."""
        self._levels: dict[tuple[int, int], OrderedDict[int, deque[Entry]]] = {}
        """Runs by session, by rank; the last level stays when it becomes empty."""
        self._order: list[tuple[int, int]] = []
        """A heap of the keys of the levels."""
        self._groups: dict[ReadyNodes, int] = {}
        """How many tasks of ``count`` are nodes of each group that has a place here."""
        self.count = 0
        """Number of tasks."""

    def push(self, run: Run, *, front: bool = False) -> None:
        """Queue a run behind its session's others, or before them."""
        self._place(run, front=front)
        self.count += run.count

    def update(self, group: ReadyNodes) -> None:
        """See how many nodes of a group are ready by now.

        One that goes on is queued before its session's others: what was begun is finished first.
        """
        known = self._groups.get(group)
        if known is None:
            if not group.count:
                return
            self._place(group, front=group.graph.is_begun)
            known = 0
        self._groups[group] = group.count
        self.count += group.count - known

    def _place(self, run: Entry, *, front: bool) -> None:
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

    def peek(self) -> Entry | None:
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
            first: Entry = runs[0]
            if first.state is State.READY:
                return first
            runs.popleft()
            if self._groups:
                self._groups.pop(first, None)  # type: ignore[arg-type]
            if not runs:
                del level[session]
        return None

    @property
    def rank(self) -> tuple[int, int]:
        """What sorts first the queue whose next run is to run first; :meth:`peek` comes before."""
        return self._order[0]

    def sessions(self) -> list[int]:
        """Return the numbers of the sessions that have something here."""
        return list(dict.fromkeys(number for level in self._levels.values() for number in level))

    def is_alone(self, entry: Entry) -> bool:
        """Return True if nothing else is queued."""
        return self.count == entry.count

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

    def take_nodes(
        self, group: ReadyNodes, limit: int, worker: WorkerRecord, least: int
    ) -> Run | None:
        """Take up to ``limit`` nodes off the group that :meth:`peek` returned, for a worker.

        None if it has no ``least`` that go together; else its session goes last in turn.
        """
        run = group.graph.cut_head(group, limit, worker, least)
        if run is None:
            return None
        self.update(group)
        level = self._levels.get(_rank(group.options))
        if level is not None and len(level) > 1 and group.session in level:
            level.move_to_end(group.session)
        return run

    def discard(self, run: Run) -> None:
        """Count a queued run out; its state is about to leave READY, so it will be passed over."""
        self.count -= run.count
        if not self.count:
            # Nobody may look for long: who only submits and cancels must not fill the memory.
            self._levels.clear()
            self._order.clear()
            self._groups.clear()

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
                for run in runs:
                    if run.state is State.READY and type(run) is not ReadyNodes:
                        yield run  # type: ignore[misc]

    def ready_groups(self) -> dict[ReadyNodes, int]:
        """Return how many nodes of each group are queued."""
        return {group: count for group, count in self._groups.items() if count}

"""Tasks that are ready: by priority and depth, then in turn among sessions, then in order."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from heapq import heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.ready_nodes import ReadyNodes
from scaler_cluster.core.records.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import TypeAlias

    from scaler_cluster.core.records.workers import Run, WorkerPool

    Entry: TypeAlias = "Run | ReadyNodes"
    from scaler_cluster.wire.messages import TaskOptions


def _rank(options: TaskOptions) -> tuple[int, int]:
    """Return a key that sorts tasks so that those to run first come first."""
    return -options.priority, -options.depth


class ReadyQueue:
    """Runs and groups of nodes that wait for a worker, and that all demand the same of it.

    The ``options`` are those of one of them. A run that is cancelled as a whole stays in its place,
    in another state, and is passed over later. So each call costs O(log ranks), except
    :meth:`replace`.
    """

    def __init__(self, options: TaskOptions, held_back: Collection[int] = ()) -> None:
        self.options = options
        self._held_back = held_back
        """Numbers of sessions whose tasks are not given out for now."""
        self._aside: dict[int, dict[tuple[int, int], deque[Entry]]] = {}
        """What waits of these sessions, by rank."""
        self.pools: Sequence[WorkerPool] = ()
        """Pools whose workers offer what these tasks demand, while some worker could run them."""
        self.unmet_since = math.inf
        """Since when there is no worker that could run any of these; inf: there is one."""
        self.told: dict[int, str] = {}
        """Sessions that were told so, by number, with the refusal of a cluster they were told."""
        self._levels: dict[tuple[int, int], OrderedDict[int, deque[Entry]]] = {}
        """Runs by session, by rank. The last level stays when it becomes empty."""
        self._order: list[tuple[int, int]] = []
        """A heap of the keys of the levels."""
        self._groups: dict[ReadyNodes, int] = {}
        """Groups that have a place here, each with the number of its nodes in ``count``."""
        self.count = 0
        """Number of tasks."""

    def push(self, run: Run, *, front: bool = False) -> None:
        """Queue a run behind its session's others, or before them."""
        self._place(run, front=front)
        self.count += run.count

    def update(self, group: ReadyNodes, *, front: bool) -> None:
        """See how many nodes of a group are ready by now.

        A group of a graph that has begun is queued in ``front`` of its session's others: what was
        begun is finished first.
        """
        known = self._groups.get(group)
        if known is None:
            if not group.count:
                return
            self._place(group, front=front)
            known = 0
        self._groups[group] = group.count
        self.count += group.count - known

    def _place(self, run: Entry, *, front: bool) -> None:
        rank = _rank(run.options)
        if run.session in self._held_back:
            runs = self._aside.setdefault(run.session, {}).setdefault(rank, deque())
        else:
            runs = self._level(rank).setdefault(run.session, deque())
        if front:
            runs.appendleft(run)
        else:
            runs.append(run)

    def _level(self, rank: tuple[int, int]) -> OrderedDict[int, deque[Entry]]:
        level = self._levels.get(rank)
        if level is None:
            level = self._levels[rank] = OrderedDict()
            heappush(self._order, rank)
        return level

    def hold_back(self, session: int) -> None:
        """Set what waits of a session aside, now that it is among those held back."""
        for rank, level in self._levels.items():
            if session in level:
                self._aside.setdefault(session, {})[rank] = level.pop(session)

    def let_go(self, session: int) -> None:
        """Offer again what waits of a session that is not held back any more."""
        for rank, runs in self._aside.pop(session, {}).items():
            self._level(rank)[session] = runs

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
            if isinstance(first, ReadyNodes):
                self._groups.pop(first, None)
            if not runs:
                del level[session]
        return None

    def entries(self, limit: int) -> Iterator[Entry]:
        """Yield what is next, and what would be if that was not there, ``limit`` at most.

        Sessions take turns: the first entries of all come before the second of one.
        """
        if self.peek() is None:
            return
        for rank in sorted(self._order):
            for turn in range(limit):
                all_runs = [runs for runs in self._levels[rank].values() if turn < len(runs)]
                if not all_runs or not limit:
                    break
                for runs in all_runs[:limit]:
                    if runs[turn].state is State.READY:
                        limit -= 1
                        yield runs[turn]

    @property
    def rank(self) -> tuple[int, int]:
        """The rank of the next run, by which queues are compared; call :meth:`peek` before."""
        return self._order[0]

    def sessions(self) -> list[int]:
        """Return the numbers of the sessions that have tasks here."""
        offered = (number for level in self._levels.values() for number in level)
        return list(dict.fromkeys(chain(offered, self._aside)))

    def is_alone(self, entry: Entry) -> bool:
        """Return True if nothing else is queued."""
        return self.count == entry.count

    def take(self, run: Run, limit: int) -> Run:
        """Take up to ``limit`` tasks off a run that :meth:`entries` yielded.

        Its session goes last in turn. The rest of a run that was cut stays next in its session.
        """
        level = self._levels[_rank(run.options)]
        session = run.session
        runs = level[session]
        count = run.count
        if count > limit:
            count = limit
            run = run.cut_head(limit)
        else:
            # Nearly always the first: before it are only nodes that are bound to busy workers.
            runs.remove(run)
        if not runs:
            del level[session]
        elif len(level) > 1:
            level.move_to_end(session)
        self.count -= count
        return run

    def took_nodes(self, group: ReadyNodes) -> None:
        """Nodes were taken off a group that :meth:`entries` yielded: its session goes last."""
        self.update(group, front=True)
        level = self._levels.get(_rank(group.options))
        if level is not None and len(level) > 1 and group.session in level:
            level.move_to_end(group.session)

    def discard(self, run: Run) -> None:
        """Count a queued run out. Its state is about to leave READY, so it will be passed over."""
        self.count -= run.count
        if not self.count:
            # It may be long until a run is looked for here. A client that only submits and cancels
            # must not fill the memory.
            self._levels.clear()
            self._order.clear()
            self._groups.clear()
            self._aside.clear()

    def remove(self, run: Run) -> None:
        """Take a queued run out; costs O(runs of its session)."""
        level = self._levels[_rank(run.options)]
        runs = level[run.session]
        runs.remove(run)
        if not runs:
            del level[run.session]
        self.count -= run.count

    def replace(self, run: Run, parts: list[Run]) -> None:
        """Put the parts of a queued run in its place; costs O(runs of its session)."""
        rank, session = _rank(run.options), run.session
        aside = self._aside.get(session)
        runs = self._levels[rank][session] if aside is None else aside[rank]
        index = runs.index(run)
        del runs[index]
        for part in reversed(parts):
            runs.insert(index, part)

    def __iter__(self) -> Iterator[Run]:
        """Yield every queued run, in no promised order."""
        offered = (level.values() for level in self._levels.values())
        aside = (level.values() for level in self._aside.values())
        for run in chain.from_iterable(chain.from_iterable(chain(offered, aside))):
            if run.state is State.READY and not isinstance(run, ReadyNodes):
                yield run

    def ready_groups(self) -> dict[ReadyNodes, int]:
        """Return how many nodes of each group are queued."""
        return {group: count for group, count in self._groups.items() if count}

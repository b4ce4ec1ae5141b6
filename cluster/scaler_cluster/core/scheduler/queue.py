"""Tasks of one user that are ready: by priority, by depth, in turn among sessions, and in order."""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush, heapreplace
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


class Level:
    """What waits at one rank, by session."""

    __slots__ = ("turns", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, deque[Entry]] = {}
        """By session, in order. What has become empty stays until its turn comes."""
        self.turns: list[tuple[float, int]] = []
        """A heap with one entry for each of these: the session, and the time of workers that it
        had had when it was looked at last. It may have had more since."""

    def of(self, session: int) -> deque[Entry]:
        """Return what waits of a session, to add to it."""
        entries = self.waiting.get(session)
        if entries is None:
            entries = self.waiting[session] = deque()
            # It had less than nothing: so what it has had is looked at first.
            heappush(self.turns, (-math.inf, session))
        return entries


class ReadyQueue:
    """Runs and groups of nodes that wait for a worker, and that all demand the same of it.

    Of the sessions, that one is next which has had the least of the workers' time.

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
        self.is_shared = False
        """True: its tasks use what workers of a machine share."""
        self.given = 0.0
        """When it was given out of among such queues, as their count; 0: never. What any worker may
        run comes last among equals."""
        self.kept_at = b""
        """The machine that kept something for its next task last."""
        self.pools: Sequence[WorkerPool] = ()
        """Pools whose workers offer what these tasks demand, while some worker could run them."""
        self.unmet_since = math.inf
        """Since when there is no worker that could run any of these; inf: there is one."""
        self.told: dict[int, str] = {}
        """Sessions that were told so, by number, with the refusal of a cluster they were told."""
        self._levels: dict[tuple[int, int], Level] = {}
        """What waits, by rank. The last level stays when it becomes empty."""
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
            runs = self._level(rank).of(run.session)
        if front:
            runs.appendleft(run)
        else:
            runs.append(run)

    def _level(self, rank: tuple[int, int]) -> Level:
        level = self._levels.get(rank)
        if level is None:
            level = self._levels[rank] = Level()
            heappush(self._order, rank)
        return level

    def hold_back(self, session: int) -> None:
        """Set what waits of a session aside, now that it is among those held back."""
        for rank, level in self._levels.items():
            if runs := level.waiting.get(session):
                self._aside.setdefault(session, {})[rank] = runs
                level.waiting[session] = deque()

    def let_go(self, session: int) -> None:
        """Offer again what waits of a session that is not held back any more."""
        for rank, runs in self._aside.pop(session, {}).items():
            self._level(rank).of(session).extend(runs)

    def peek(self) -> Entry | None:
        """Return the run that is next, or None if nothing is queued."""
        order = self._order
        while order:
            first = self._next_of(self._levels[order[0]])
            if first is not None:
                return first
            if len(order) == 1:
                return None
            del self._levels[heappop(order)]
        return None

    def _offered(self, level: Level, limit: int) -> list[deque[Entry]]:
        """Return what waits of the sessions that are next; cost: O(log sessions) for each."""
        turns = level.turns
        taken: list[tuple[float, int]] = []
        while len(taken) < limit and self._next_of(level) is not None:
            taken.append(heappop(turns))
        for entry in taken:
            heappush(turns, entry)
        return [level.waiting[session] for _, session in taken]

    def _next_of(self, level: Level) -> Entry | None:
        """Return what is next at a rank: its session is the first of the heap then."""
        turns, waiting = level.turns, level.waiting
        while turns:
            served_s, session = turns[0]
            first = self._first_of(waiting[session])
            if first is None:
                heappop(turns)
                del waiting[session]
            elif first.account.served_s > served_s:
                heapreplace(turns, (first.account.served_s, session))
            else:
                return first
        return None

    def _first_of(self, entries: deque[Entry]) -> Entry | None:
        """Return the first of these that is ready; those before it have no place here any more."""
        while entries:
            first = entries[0]
            if first.state is State.READY:
                return first
            entries.popleft()
            if isinstance(first, ReadyNodes):
                self._groups.pop(first, None)
        return None

    def entries(self, limit: int) -> Iterator[Entry]:
        """Yield what is next, and what would be if that was not there, ``limit`` at most.

        The first entries of all sessions come before the second of one.
        """
        if self.peek() is None:
            return
        for rank in sorted(self._order):
            level = self._levels[rank]
            offered = self._offered(level, limit)
            for turn in range(limit):
                all_runs = [runs for runs in offered if turn < len(runs)]
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

    @property
    def is_for_any(self) -> bool:
        """True if any worker may run these tasks."""
        return self.options.is_for_any

    def sessions(self) -> list[int]:
        """Return the numbers of the sessions that have tasks here."""
        levels = self._levels.values()
        offered = (one for level in levels for one, runs in level.waiting.items() if runs)
        return list(dict.fromkeys(chain(offered, self._aside)))

    def is_alone(self, entry: Entry) -> bool:
        """Return True if nothing else is queued."""
        return self.count == entry.count

    def take(self, run: Run, limit: int) -> Run:
        """Take up to ``limit`` tasks off a run that :meth:`entries` yielded.

        The rest of a run that was cut stays next in its session.
        """
        if run.count <= limit:
            # Nearly always the first: before it are only nodes that are bound to busy workers.
            self.remove(run)
            return run
        self.count -= limit
        return run.cut_head(limit)

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
        self._levels[_rank(run.options)].waiting[run.session].remove(run)
        self.count -= run.count

    def replace(self, run: Run, parts: list[Run]) -> None:
        """Put the parts of a queued run in its place; costs O(runs of its session)."""
        rank, session = _rank(run.options), run.session
        aside = self._aside.get(session)
        runs = self._levels[rank].waiting[session] if aside is None else aside[rank]
        index = runs.index(run)
        del runs[index]
        for part in reversed(parts):
            runs.insert(index, part)

    def __iter__(self) -> Iterator[Run]:
        """Yield every queued run, in no promised order."""
        offered = (level.waiting.values() for level in self._levels.values())
        aside = (level.values() for level in self._aside.values())
        for run in chain.from_iterable(chain.from_iterable(chain(offered, aside))):
            if run.state is State.READY and not isinstance(run, ReadyNodes):
                yield run

    def ready_groups(self) -> dict[ReadyNodes, int]:
        """Return how many nodes of each group are queued."""
        return {group: count for group, count in self._groups.items() if count}

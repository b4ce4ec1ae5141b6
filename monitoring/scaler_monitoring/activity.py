"""How busy each worker was, when and with which functions: whole, however much there was. Pure.

Single events may be too many to be told, or to be kept. So time is counted instead: of each worker
and function, the busy seconds in buckets of time, at several widths. What a figure draws is made
of these sums, whatever its window.

The seconds come from three sources, and none is counted twice:

1. The events of work that ended, each with its own time.
2. In each snapshot, the task that a worker runs, from its beginning: so long tasks count before
   they end.
3. What each worker was busy in all, by the snapshots: what events did not tell is the difference.
   Its functions are an estimate, made of those that were told.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.core.records.totals import OTHERS
from scaler_cluster.wire import feed
from scaler_monitoring.tracks import WINDOW_S, Track
from scaler_monitoring.view import cause
from scaler_monitoring.work import DONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_monitoring.work import Work

FUNCTIONS_MAX = 24
"""Of one worker that are counted apart, the first ones: the others are counted together."""
TRACKS_MAX = 8000
"""Kept in all, with 20 KB each: eight functions on each of a thousand workers. Beyond that, a
worker has one for what else it runs."""
LIVES_MAX = 10_000
"""Workers that are known, dead ones among them."""
LONG_S = 1.0
LONG_MAX = 50_000
"""Pieces of work that took at least LONG_S, kept as such as long as there is room."""
TROUBLES_MAX = 5000
"""Pieces of work that failed, were cancelled or are run again, kept likewise."""
NOISE_S = 0.002
"""Of a second, what is not told may be a difference of clocks."""
TIDY_S = 10.0
"""How often what is old is forgotten."""


@dataclass(slots=True)
class Running:
    """The task that a worker runs, by the last snapshot, as nothing has told of its end."""

    start: float
    """It began then, or later: its inputs may have been on their way."""
    session: int
    task: int
    function: str
    is_blocked: bool

    def is_among(self, work: Work) -> bool:
        """Return True if this is one of these tasks."""
        return self.session == work.session and 0 <= self.task - work.first < work.count


@dataclass(slots=True, eq=False)
class Life:
    """One worker, from its joining on."""

    worker: bytes
    machine: bytes
    order: tuple[int, int]
    """Where its row is: by machine, then by who joined first. It never changes."""
    joined_at: float
    ended_at: float | None = None
    ending: str = ""
    """Why it died; empty: it ended as it was to, or has not ended."""
    running: Running | None = None
    tracks: dict[str, Track] = field(default_factory=dict)
    """Busy seconds by function."""
    waits: Track | None = None
    """Seconds in which its task only waited for others; None: there were none."""
    covered: float = -1e18
    """What it ran until then is counted already."""
    busy_s: float | None = None
    """What the last snapshot said that its tasks took in all; None: there was none."""
    ahead_s: float = 0.0
    """How much of the task that ran at the last snapshot, and has not ended since, was counted."""
    told_s: float = 0.0
    """What the events since the last snapshot told, in all."""
    mix: dict[str, float] = field(default_factory=dict)
    """The same by function; as long as nothing is told, that of the time before."""


class Activity:
    """What a figure of workers' time is made of, as far back as ``window_s`` of the model."""

    def __init__(self) -> None:
        self.lives: dict[bytes, Life] = {}
        self.long: deque[Work] = deque(maxlen=LONG_MAX)
        """Work that took at least LONG_S and was done, in the order in which it ended."""
        self.troubles: deque[Work] = deque(maxlen=TROUBLES_MAX)
        """Work that came to another end, likewise."""
        self.estimated = Track()
        """The seconds of all workers that are known in sum only."""
        self.settled = -1e18
        """What was until then will not change any more, but for what took until now."""
        self.clock = -1e18
        """When the last message was sent."""
        self.turned_away = 0
        """Workers that there was no room for."""
        self.tracks = 0
        """How many there are."""
        self._machines: dict[bytes, int] = {}
        self._joined = 0
        self._pending: feed.Snapshot | None = None
        """The last one, as long as events from before it may still come."""
        self._since = -1e18
        """When the one before was taken."""
        self._tidied_at = -1e18

    # -- what is heard -------------------------------------------------------------------------

    def begin(self) -> None:
        """Another scheduler speaks, which counts from nothing."""
        self._pending = None
        for life in self.lives.values():
            life.busy_s, life.running, life.ahead_s, life.told_s = None, None, 0.0, 0.0

    def take(self, snapshot: feed.Snapshot) -> None:
        """Take in how all workers are."""
        if self._pending is not None:
            self._settle()
        self._pending = snapshot
        for row in snapshot.workers:
            self._life(row.worker, row.machine, snapshot.clock - row.up_s)
        there = {row.worker for row in snapshot.workers}
        if "workers" not in snapshot.left_out:
            for life in self.lives.values():
                if life.ended_at is None and life.worker not in there:
                    self._end(life, snapshot.clock, "")

    def tell(self, event: feed.Event, work: Work | None) -> None:
        """Take in what happened, and what it says of work."""
        if self._pending is not None and event.at > self._pending.clock:
            self._settle()
        if work is not None:
            self._count(work)
        elif isinstance(event, feed.WorkerJoined):
            self._life(event.worker, event.machine, event.at)
        elif isinstance(event, feed.WorkerLeft | feed.WorkerDied):
            life = self._life(event.worker, event.machine, event.at)
            if life is not None:
                self._end(
                    life, event.at, cause(event) if isinstance(event, feed.WorkerDied) else ""
                )

    def heard(self, clock: float, is_snapshot: bool) -> None:
        """All of a message from this moment was taken in."""
        self.clock = max(self.clock, clock)
        if not is_snapshot and self._pending is not None and clock >= self._pending.clock:
            self._settle()
        if clock - self._tidied_at >= TIDY_S:
            self._tidied_at = clock
            self._forget(clock - WINDOW_S)

    # -- counting ------------------------------------------------------------------------------

    def _life(self, worker: bytes, machine: bytes, at: float) -> Life | None:
        """Return what is known of a worker that is there, if there is room for it."""
        life = self.lives.get(worker)
        if life is None:
            if len(self.lives) >= LIVES_MAX:
                self.turned_away += 1
                return None
            self._joined += 1
            place = self._machines.setdefault(machine, self._joined)
            life = self.lives[worker] = Life(worker, machine, (place, self._joined), at)
        life.ended_at = None
        return life

    def _end(self, life: Life, at: float, ending: str) -> None:
        life.ended_at, life.ending = at, ending
        life.running, life.busy_s, life.ahead_s = None, None, 0.0

    def _count(self, work: Work) -> None:
        took_s = work.end - work.start
        if work.state != DONE:
            self.troubles.append(work)
        elif took_s >= LONG_S:
            self.long.append(work)
        life = self.lives.get(work.worker)
        if life is None or took_s <= 0:
            return
        if life.running is not None and life.running.is_among(work):
            life.running, life.ahead_s = None, 0.0
        if not life.told_s:
            life.mix.clear()
        life.told_s += took_s
        life.mix[work.function] = life.mix.get(work.function, 0.0) + took_s
        start = max(work.start, life.covered)
        if start < work.end:
            self._track(life, work.function).add(start, work.end, work.end - start)

    def _track(self, life: Life, function: str) -> Track:
        track = life.tracks.get(function)
        if track is None:
            is_full = len(life.tracks) >= FUNCTIONS_MAX or self.tracks >= TRACKS_MAX
            if is_full and life.tracks:
                function = OTHERS
                track = life.tracks.get(OTHERS)
            if track is None:
                track = life.tracks[function] = Track()
                self.tracks += 1
        return track

    def _settle(self) -> None:
        """All that happened before the last snapshot was told: count what was not."""
        snapshot, self._pending = self._pending, None
        assert snapshot is not None
        for row in snapshot.workers:
            life = self.lives.get(row.worker)
            if life is None or life.ended_at is not None:
                continue
            age_s = row.age_s if row.tasks else 0.0
            if life.busy_s is not None and row.busy_s > life.busy_s:
                untold_s = row.busy_s - life.busy_s - life.told_s - life.ahead_s
                self._estimate(life, untold_s, snapshot.clock - age_s)
            life.busy_s, life.told_s = row.busy_s, 0.0
            self._observe(life, row, snapshot.clock - age_s, snapshot.clock)
        self._since = self.settled = snapshot.clock

    def _estimate(self, life: Life, untold_s: float, end: float) -> None:
        """A worker was busy for so long, between the last two snapshots, of which nobody told."""
        start = self._since
        if untold_s < NOISE_S or end <= start:
            return
        # Beyond that it is a matter of clocks, or of a task that ran others while it waited.
        untold_s = min(untold_s, end - start)
        functions = life.mix or {life.running.function if life.running else OTHERS: 1.0}
        whole = sum(functions.values())
        for function, part in functions.items():
            self._track(life, function).add(start, end, untold_s * part / whole)
        self.estimated.add(start, end, untold_s)

    def _observe(self, life: Life, row: feed.Worker, start: float, clock: float) -> None:
        """Count what a worker runs, as far as that was not counted before."""
        if not row.tasks:
            life.running, life.ahead_s = None, 0.0
            return
        life.running = Running(start, row.session, row.task, row.function, row.is_blocked)
        life.ahead_s = clock - start
        start = max(start, life.covered)
        life.covered = clock
        if start >= clock:
            return
        if row.is_blocked:
            life.waits = life.waits or Track()
            life.waits.add(start, clock, clock - start)
        else:
            self._track(life, row.function).add(start, clock, clock - start)

    def _forget(self, clock: float) -> None:
        for told in (self.long, self.troubles):
            while told and told[0].end < clock:
                told.popleft()
        for worker, life in list(self.lives.items()):
            if life.ended_at is not None and life.ended_at < clock:
                self.tracks -= len(life.tracks)
                del self.lives[worker]
                continue
            old = [name for name, track in life.tracks.items() if track.end < clock]
            for name in old:
                del life.tracks[name]
            self.tracks -= len(old)
            if life.waits is not None and life.waits.end < clock:
                life.waits = None
        there = {life.machine for life in self.lives.values()}
        self._machines = {one: at for one, at in self._machines.items() if one in there}

    # -- what is asked -------------------------------------------------------------------------

    def rows(self, start: float, end: float) -> list[Life]:
        """Return the workers that were there in a time, in the order of their rows."""
        there = (
            life
            for life in self.lives.values()
            if life.joined_at <= end and (life.ended_at is None or life.ended_at >= start)
        )
        return sorted(there, key=lambda life: life.order)

    def kept(self, start: float, end: float) -> Iterable[Work]:
        """Yield the long work, and what did not go well, of a time; the last comes first."""
        for told in (self.long, self.troubles):
            for work in reversed(told):
                if work.end < start:
                    break
                if work.start <= end:
                    yield work

"""What is known of a cluster, made of what its scheduler published. Pure: no sockets, no clock.

Times are in seconds of the scheduler's clock; :meth:`Model.time_of` says when that was. Everything
is bounded, in time and in rows: who watches for days needs no more memory than after an hour.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from scaler_cluster.wire import feed

WINDOW_S = 1800.0
"""What is older is forgotten: half an hour."""
HISTORY_MAX = 3600
"""Snapshots of which figures are kept, if they come more often than each half second."""
STREAM_MAX = 50_000
"""Pieces of work that are kept: far more than a screen has pixels for."""
NEWS_MAX = 1000
FAILURES_MAX = 200
"""Kinds of failures that are kept apart."""
STALE_INTERVALS = 5
"""A scheduler that was silent for so many intervals is not there, or does not come to it."""

RATE_MIN_S = 0.2
"""Snapshots that are closer, as others have begun to watch, say little about what goes on."""
QUIET = (feed.Assigned, feed.Done, feed.Moved)
"""Events that are no news."""


@dataclass(slots=True)
class Work:
    """Contiguous tasks that a worker ran."""

    worker: bytes
    start: float
    end: float
    session: int
    first: int
    count: int
    function: str
    attempt: int = 1
    failure: str = ""
    """Why they failed; empty: they returned."""
    state: str = "done"
    """"done", "failed", "cancelled" or "retried"."""


@dataclass(slots=True)
class Failures:
    """Failures of one function, with one type of exception."""

    count: int
    """How many tasks, as far as events told."""
    last: feed.Failed


@dataclass(slots=True)
class Figures:
    """Some numbers of one snapshot, for curves."""

    clock: float
    tasks: feed.Tasks
    done_per_s: float
    failed_per_s: float
    lag_s: float
    scheduler_cpu: float | None
    workers_cpu: float
    workers_rss_bytes: int
    objects_bytes: int


@dataclass
class Rates:
    """What changed from one snapshot to the next, per second."""

    tasks: dict[str, float] = field(default_factory=dict)
    """Of the fields of Tasks that only grow."""
    functions: dict[str, float] = field(default_factory=dict)
    """Tasks done, by function."""
    sent: dict[str, float] = field(default_factory=dict)
    received: dict[str, float] = field(default_factory=dict)


GROWING = ("submitted", "done", "failed", "cancelled", "recalled", "retried", "moved")


class Model:
    """What one who watches knows.

    ``heard_at`` and the ``now`` that goes with it are by the clock of who watches.
    """

    def __init__(self) -> None:
        self.snapshot: feed.Snapshot | None = None
        """The last one; None: nothing was heard yet."""
        self.heard_at: float | None = None
        self.restarts = 0
        """How often another scheduler took the place of the one before."""
        self.missed = 0
        """Messages of this scheduler that did not arrive."""
        self.rates = Rates()
        self.history: deque[Figures] = deque(maxlen=HISTORY_MAX)
        self.stream: deque[Work] = deque(maxlen=STREAM_MAX)
        """In the order in which they ended."""
        self.news: deque[feed.Event] = deque(maxlen=NEWS_MAX)
        """Failures, deaths, who came and who left."""
        self.failures: OrderedDict[tuple[str, str], Failures] = OrderedDict()
        """By function and type of exception, or else reason; the latest last."""
        self._run = ""
        self._seq: dict[type, int] = {}
        self._reference: feed.Snapshot | None = None
        """The one that rates are counted from."""

    def apply(self, message: feed.Snapshot | feed.Events, now: float) -> None:
        """Take a message in that arrived just now; those out of turn are ignored."""
        if message.run != self._run:
            self._begin(message.run)
        last = self._seq.get(type(message))
        if last is not None and message.seq <= last:
            return
        if last is not None:
            self.missed += message.seq - last - 1
        self._seq[type(message)] = message.seq
        self.heard_at = now
        if isinstance(message, feed.Snapshot):
            self._apply_snapshot(message)
        else:
            for event in message.events:
                self._apply_event(event)
        self._forget(message.clock - WINDOW_S)

    def is_stale(self, now: float) -> bool:
        """Return True if the scheduler should have been heard by now."""
        if self.snapshot is None or self.heard_at is None:
            return True
        return now - self.heard_at > STALE_INTERVALS * max(self.snapshot.interval_s, 1.0)

    def time_of(self, at: float) -> float:
        """Return a moment of the scheduler's clock in seconds since 1970; 0: nobody knows yet."""
        return self.snapshot.time + at - self.snapshot.clock if self.snapshot is not None else 0.0

    def _begin(self, run: str) -> None:
        """Another scheduler speaks: what the one before said is of no use any more."""
        self.restarts += bool(self._run)
        self._run = run
        self.snapshot = self._reference = None
        self.missed = 0
        self.rates = Rates()
        for kept in (self.history, self.stream, self.news, self.failures, self._seq):
            kept.clear()

    def _apply_snapshot(self, snapshot: feed.Snapshot) -> None:
        self.snapshot = snapshot
        before = self._reference or snapshot
        if snapshot.clock - before.clock >= RATE_MIN_S:
            self.rates = _rates(before, snapshot)
            before = snapshot
        self._reference = before
        self.history.append(
            Figures(
                snapshot.clock,
                snapshot.tasks,
                self.rates.tasks.get("done", 0.0),
                self.rates.tasks.get("failed", 0.0),
                snapshot.scheduler.lag_s,
                snapshot.scheduler.cpu,
                sum(row.cpu or 0.0 for row in snapshot.workers),
                sum(row.rss_bytes or 0 for row in snapshot.workers),
                snapshot.objects_bytes,
            )
        )

    def _apply_event(self, event: feed.Event) -> None:
        if isinstance(event, feed.Done | feed.Failed) and event.worker:
            failure = event.reason if isinstance(event, feed.Failed) else ""
            self.stream.append(
                Work(
                    event.worker, event.at - event.busy_s, event.at, event.session, event.first,
                    event.count, event.function, event.attempt, failure,
                )
            )  # fmt: skip
        if isinstance(event, feed.Failed):
            key = event.function, event.error or event.reason
            known = self.failures.pop(key, None)
            self.failures[key] = Failures(event.count + (known.count if known else 0), event)
            if len(self.failures) > FAILURES_MAX:
                self.failures.popitem(last=False)
        if not isinstance(event, QUIET):
            self.news.append(event)

    def _forget(self, clock: float) -> None:
        while self.history and self.history[0].clock < clock:
            self.history.popleft()
        while self.stream and self.stream[0].end < clock:
            self.stream.popleft()
        while self.news and self.news[0].at < clock:
            self.news.popleft()
        for key, failures in list(self.failures.items()):
            if failures.last.at >= clock:
                break
            del self.failures[key]


def _rates(before: feed.Snapshot, after: feed.Snapshot) -> Rates:
    passed_s = after.clock - before.clock
    done = {row.name: row.done for row in before.functions}
    return Rates(
        {
            name: (getattr(after.tasks, name) - getattr(before.tasks, name)) / passed_s
            for name in GROWING
        },
        {row.name: (row.done - done.get(row.name, 0)) / passed_s for row in after.functions},
        _differences(before.sent, after.sent, passed_s),
        _differences(before.received, after.received, passed_s),
    )


def _differences(
    before: dict[str, int], after: dict[str, int], passed_s: float
) -> dict[str, float]:
    return {kind: (count - before.get(kind, 0)) / passed_s for kind, count in after.items()}

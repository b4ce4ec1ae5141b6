"""What is known of a cluster, made of what its scheduler published. Pure: no sockets, no clock.

Times are in seconds of the first scheduler's clock; :meth:`Model.time_of` says when that was.
Everything is bounded, in time and in rows: who watches for days needs no more memory than after an
hour.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, ClassVar, Protocol

from scaler_cluster.wire import feed
from scaler_monitoring.last_lines import LastLines
from scaler_monitoring.ledger import Ledger
from scaler_monitoring.outcomes import Outcomes
from scaler_monitoring.past import Past
from scaler_monitoring.samples import Samples
from scaler_monitoring.texts import worker_name
from scaler_monitoring.work import work_of

if TYPE_CHECKING:
    from scaler_cluster.wire.feed_codec import Message
    from scaler_monitoring.past import Earlier
    from scaler_monitoring.work import Work

WINDOW_S = 1800.0
"""What is older is forgotten: half an hour."""
HISTORY_MAX = 3600
"""Snapshots of which figures are kept, if they come more often than each half second."""
STREAM_MAX = 50_000
"""Pieces of work that are kept: far more than a screen has pixels for."""
DETAILS_MAX = 1000
"""Pieces of work whose messages and tracebacks are kept: the last ones, 5 KB each at most."""
LABELS_MAX = 20_000
"""Workers whose name is known, dead ones among them: as many as a snapshot has room for."""
DEATHS_MAX = 200
NEWS_MAX = 1000
FAILURES_MAX = 200
"""Kinds of failures that are kept apart."""
STALE_INTERVALS = 5
"""A scheduler that was silent for so many intervals is not there, or does not come to it."""

DRIFT = 1e-4
"""By so much at most two clocks go apart."""

RATE_MIN_S = 0.2
"""Snapshots that are closer, as others have begun to watch, say little about what goes on."""
QUIET = (feed.Assigned, feed.Done, feed.Moved)
"""Events that are no news."""


@dataclass(slots=True)
class SchedulerRestarted(feed.Event):
    """Another scheduler speaks. No scheduler says so: whoever watches notices it."""

    kind: ClassVar[str] = "scheduler_restarted"


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
    sent_per_s: float
    """Messages that the scheduler sent."""
    received_per_s: float
    lag_s: float
    scheduler_cpu: float | None
    scheduler_rss_bytes: int | None
    workers: int
    workers_cpu: float
    workers_rss_bytes: int
    machines: int
    """Computers, each counted once however many supervisors it has, and so in what follows."""
    machines_cpus: int
    machines_cpu: float | None
    """How many of their CPUs are busy; None: not known."""
    memory_bytes: int | None
    free_bytes: int | None
    objects: int
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


class Follower(Protocol):
    """Is told all that a model takes in, by the clock that goes on, and keeps more of it."""

    def begin(self) -> None:
        """Another scheduler speaks."""

    def take(self, snapshot: feed.Snapshot) -> None:
        """There is a snapshot."""

    def tell(self, event: feed.Event, work: Work | None) -> None:
        """Something happened, which says this of work."""

    def heard(self, clock: float, is_snapshot: bool) -> None:
        """All of a message was told, which was sent at this moment."""


GROWING = ("submitted", "done", "failed", "cancelled", "retried", "moved", "inlined")


class Model:
    """What one who watches knows of the last ``window_s``.

    If a scheduler takes the place of another one, all that was known stays, times go on, and what
    the new one counts is added to what the one before had counted.

    ``heard_at`` and the ``now`` that goes with it are by the clock of who watches.
    """

    def __init__(self, window_s: float = WINDOW_S, follower: Follower | None = None) -> None:
        self.window_s = window_s
        self._follower = follower
        self.run = ""
        """Of the scheduler that was heard last."""
        self.snapshot: feed.Snapshot | None = None
        """The last one, with what earlier schedulers had counted; None: none was heard yet."""
        self.heard_at: float | None = None
        self.restarts = 0
        """How often another scheduler took the place of the one before."""
        self.missed = 0
        """Messages that did not arrive, as far as the numbers of those that did tell."""
        self.delay_s = 0.0
        """By how much later the last message was read than the quickest one."""
        self._offset = inf
        """What makes a moment of the scheduler's clock one of who watches, at least."""
        self.rates = Rates()
        self.outcomes = Outcomes()
        self.history: deque[Figures] = deque(maxlen=HISTORY_MAX)
        self.stream: deque[Work] = deque(maxlen=STREAM_MAX)
        """In the order in which they ended."""
        self.streamed = 0
        """How many were ever added to it; see :meth:`streamed_since`."""
        self.labels: OrderedDict[bytes, str] = OrderedDict()
        """What workers are called, also those that are gone."""
        self.worker_samples = Samples(3, WINDOW_S)
        """CPUs that each keeps busy, resident set in bytes, tasks that it has."""
        self.machine_samples = Samples(3, WINDOW_S)
        """CPUs that are busy, free memory and all memory in bytes."""
        self.store_samples = Samples(2, WINDOW_S)
        """Bytes and objects, by ``machine`` of the stores."""
        self.deaths: deque[feed.WorkerDied] = deque(maxlen=DEATHS_MAX)
        self.news: deque[feed.Event] = deque(maxlen=NEWS_MAX)
        """Failures, deaths, who came and who left, and when another scheduler began to speak."""
        self.failures: OrderedDict[tuple[str, str], Failures] = OrderedDict()
        """By function and type of exception, or else reason; the latest last."""
        self.logs = LastLines()
        """What tasks printed and logged, as long as somebody wanted to know."""
        self.ledger = Ledger()
        """Failed work, which the stream may have no room for, and how long functions take."""
        self._detailed: deque[Work] = deque()
        """Those whose messages are kept."""
        self._seq: dict[type, int] = {}
        self._reference: feed.Snapshot | None = None
        """The one that rates are counted from."""
        self._past = Past()
        self._clock = 0.0
        """When the last message was sent, in the time that goes on."""

    def apply(self, message: Message, now: float) -> None:
        """Take a message in that arrived just now; those out of turn are ignored, and samples."""
        if isinstance(message, feed.Samples):
            return
        if message.run != self.run:
            self._begin(message, now)
        if isinstance(message, feed.Logs):
            self.heard_at = now
            self.logs.apply(message)
            return
        last = self._seq.get(type(message))
        if last is not None and message.seq <= last:
            return
        if last is not None:
            self.missed += message.seq - last - 1
        self._seq[type(message)] = message.seq
        if self.restarts:
            message = self._past.continued(message)
        self._compare(message.clock, now)
        self.heard_at = now
        self._clock = max(self._clock, message.clock)
        if isinstance(message, feed.Snapshot):
            self._apply_snapshot(message)
        elif isinstance(message, feed.Events):
            for event in message.events:
                self._apply_event(event)
        if self._follower is not None:
            self._follower.heard(message.clock, isinstance(message, feed.Snapshot))
        self._forget(message.clock - self.window_s)

    def earlier(self) -> Earlier | None:
        """Return what is to be known of schedulers before the one that speaks; None: of none.

        A model that is told it, by :meth:`begin_after`, can do without what this one heard of them.
        """
        return self._past.earlier(self.restarts, self.run) if self.restarts else None

    def begin_after(self, earlier: Earlier) -> None:
        """Go on after schedulers of which only that is known; nothing was taken in as yet."""
        self.run, self.restarts = earlier.counted.run, earlier.restarts
        self._past.close(earlier.counted, earlier.shift_s)

    def _compare(self, clock: float, now: float) -> None:
        """Note how long a message took, beside the quickest one."""
        passed_s = now - self.heard_at if self.heard_at is not None else 0.0
        offset = now - clock
        self._offset = min(self._offset + DRIFT * passed_s, offset)
        self.delay_s = offset - self._offset

    def is_stale(self, now: float) -> bool:
        """Return True if the scheduler should have been heard by now."""
        if self.snapshot is None or self.heard_at is None:
            return True
        return now - self.heard_at > STALE_INTERVALS * max(self.snapshot.interval_s, 1.0)

    def time_of(self, at: float) -> float:
        """Return a moment of the scheduler's clock in seconds since 1970; 0: nobody knows yet."""
        return self.snapshot.time + at - self.snapshot.clock if self.snapshot is not None else 0.0

    def label(self, worker: bytes) -> str:
        """Return what a worker is called: its name or its host, with its process id."""
        return self.labels.get(worker) or worker.hex()

    def streamed_since(self, streamed: int) -> list[Work]:
        """Return what was added to the stream since there were so many, as far as it is there."""
        count = min(self.streamed - streamed, len(self.stream))
        return list(islice(reversed(self.stream), count))[::-1]

    def _begin(self, message: Message, now: float) -> None:
        """Another scheduler speaks; so much time has passed as it did here."""
        if self.heard_at is not None:
            self.restarts += 1
            clock = self._clock + now - self.heard_at
            self._past.close(self.snapshot, clock - message.clock)
            self.news.append(SchedulerRestarted(clock))
            if self._follower is not None:
                self._follower.begin()
        self.run = message.run
        self._offset = inf
        self.rates, self._reference = Rates(), None
        self._seq.clear()

    def _apply_snapshot(self, snapshot: feed.Snapshot) -> None:
        self.snapshot = snapshot
        before = self._reference or snapshot
        if snapshot.clock - before.clock >= RATE_MIN_S:
            self.rates = _rates(before, snapshot)
            before = snapshot
        self._reference = before
        self.history.append(_figures(snapshot, self.rates))
        self._sample(snapshot)
        self.outcomes.apply(snapshot)
        for worker in snapshot.workers:
            self._learn(worker)
        if self._follower is not None:
            self._follower.take(snapshot)

    def _sample(self, snapshot: feed.Snapshot) -> None:
        clock = snapshot.clock
        workers, machines, stores = snapshot.workers, snapshot.machines, snapshot.stores
        self.worker_samples.add(
            clock,
            [one.worker for one in workers],
            ((one.cpu, one.rss_bytes, one.tasks) for one in workers),
        )
        self.machine_samples.add(
            clock,
            [one.machine for one in machines],
            ((one.cpu, one.free_bytes, one.memory_bytes) for one in machines),
        )
        self.store_samples.add(
            clock, [one.machine for one in stores], ((one.nbytes, one.objects) for one in stores)
        )

    def _learn(self, worker: feed.Worker | feed.WorkerJoined | feed.WorkerDied) -> None:
        """Remember what a worker is called."""
        if worker.worker not in self.labels:
            self.labels[worker.worker] = worker_name(worker)
            if len(self.labels) > LABELS_MAX:
                self.labels.popitem(last=False)

    def _apply_event(self, event: feed.Event) -> None:
        work = work_of(event)
        if self._follower is not None:
            self._follower.tell(event, work)
        if work is not None:
            self.stream.append(work)
            self.ledger.add(work)
            self.streamed += 1
            if work.message or work.traceback:
                self._detailed.append(work)
                if len(self._detailed) > DETAILS_MAX:
                    old = self._detailed.popleft()
                    old.message = old.traceback = old.arguments = ""
        if isinstance(event, feed.Failed):
            key = event.function, event.error or event.reason
            known = self.failures.pop(key, None)
            self.failures[key] = Failures(event.count + (known.count if known else 0), event)
            if len(self.failures) > FAILURES_MAX:
                self.failures.popitem(last=False)
        elif isinstance(event, feed.Assigned):
            self.ledger.assigned.append(event)
        elif isinstance(event, feed.WorkerJoined):
            self._learn(event)
        elif isinstance(event, feed.WorkerDied):
            self._learn(event)
            self.deaths.append(event)
        if not isinstance(event, QUIET) and not self._past.is_return(event):
            self.news.append(event)

    def _forget(self, clock: float) -> None:
        while self.history and self.history[0].clock < clock:
            self.history.popleft()
        while self.stream and self.stream[0].end < clock:
            self.stream.popleft()
        while self._detailed and self._detailed[0].end < clock:
            self._detailed.popleft()
        self.ledger.forget(clock)
        for told in (self.news, self.deaths):
            while told and told[0].at < clock:
                told.popleft()
        for key, failures in list(self.failures.items()):
            if failures.last.at >= clock:
                break
            del self.failures[key]


def _figures(snapshot: feed.Snapshot, rates: Rates) -> Figures:
    computers = list({row.host: row for row in snapshot.machines}.values())
    is_measured = any(row.cpu is not None for row in computers)
    has_memory = any(row.memory_bytes is not None for row in computers)
    return Figures(
        snapshot.clock,
        snapshot.tasks,
        rates.tasks.get("done", 0.0),
        rates.tasks.get("failed", 0.0),
        sum(rates.sent.values()),
        sum(rates.received.values()),
        snapshot.scheduler.lag_s,
        snapshot.scheduler.cpu,
        snapshot.scheduler.rss_bytes,
        len(snapshot.workers),
        sum(row.cpu or 0.0 for row in snapshot.workers),
        sum(row.rss_bytes or 0 for row in snapshot.workers),
        len(computers),
        sum(row.cpus for row in computers),
        sum(row.cpu or 0.0 for row in computers) if is_measured else None,
        sum(row.memory_bytes or 0 for row in computers) if has_memory else None,
        sum(row.free_bytes or 0 for row in computers) if has_memory else None,
        snapshot.objects,
        snapshot.objects_bytes,
    )


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

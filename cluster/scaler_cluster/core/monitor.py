"""What is told to whoever watches: when, how much of it, and nothing while nobody does.

The rest of the core asks ``table.monitor``, which is None then, once per message. Whoever begins
to watch is told everything by a snapshot; what happens after that, by events.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.snapshot import take_snapshot
from scaler_cluster.ids import EVENTS, SNAPSHOT
from scaler_cluster.wire import feed
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scaler_cluster.core.graph import GraphRecord
    from scaler_cluster.core.records import SessionRecord, SupervisorRecord, WorkerRecord
    from scaler_cluster.core.table import Table
    from scaler_cluster.core.tasks import Run
    from scaler_cluster.core.totals import Totals

BATCH_S = 0.1
"""Events wait so long for others: who looks at them sees no difference."""
SOON_S = 0.05
"""Two snapshots are at least so far apart, however many begin to watch."""
PATIENCE_S = 0.5
"""A snapshot waits no longer for machines to say how they are."""
SHARE = 40
"""Of so many seconds one at most is spent on the feed: 2.5 %. With thousands of workers snapshots
come less often then."""
BATCH_MAX = {
    feed.Assigned: 100,
    feed.Done: 100,
    feed.Moved: 50,
    feed.Cancelled: 50,
    feed.Failed: 20,
    feed.Retried: 20,
}
"""Events of a kind in one batch; of those that come more often, only every n-th is published. A
thousand a second fill any screen, and a failure may weigh 5 KB."""
BATCH_MAX_OTHERS = 100
TEXT_CHARS_MAX = 500
TAIL_CHARS_MAX = 4000
"""The end of a traceback, which says most."""


class Sampler:
    """Lets a limited number of events of one kind into each batch, evenly spread over it."""

    __slots__ = ("_every", "_kept", "_limit", "_seen", "skipped", "skipped_before")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._every = 1
        self._seen = self._kept = 0
        self.skipped = 0
        self.skipped_before = 0
        """Those of batches that are closed."""

    def take(self) -> bool:
        """Return True if the next event is to be told."""
        self._seen += 1
        if self._kept >= self._limit or self._seen % self._every:
            self.skipped += 1
            return False
        self._kept += 1
        return True

    def close(self) -> int:
        """End a batch, by which the next is judged; return how many were left out of it."""
        skipped = self.skipped - self.skipped_before
        self.skipped_before = self.skipped
        self._every = max(-(-self._seen // self._limit), 1)
        self._seen = self._kept = 0
        return skipped


class Monitor:
    """Collects what happens, and says when what is to be published."""

    def __init__(self, table: Table, interval_s: float, objects: int, began_at: float) -> None:
        self.now = 0.0
        """When what is told happens; the core's doors set it."""
        self._table = table
        self._interval_s = interval_s
        self._objects = objects
        self._began_at = began_at
        self._topics: Collection[bytes] = ()
        self._snapshots = 0
        self._batches = 0
        self._events: list[feed.Event] = []
        self._samplers = {
            kind: Sampler(BATCH_MAX.get(kind, BATCH_MAX_OTHERS))
            for kind in feed.EVENT_KINDS.values()
        }
        self._lag_s = 0.0
        self._unheard: dict[bytes, None] = {}
        """Supervisors that have not said yet how their machine is."""
        self._look_at = math.inf
        """When machines are to be asked for that."""
        self._snapshot_at = math.inf
        self._snapshot_before = -math.inf
        self._batch_at = math.inf

    # -- listeners ---------------------------------------------------------------------------

    def watch(self, topics: Collection[bytes], now: float) -> None:
        """These topics are listened to from now on, by somebody who has just come or left."""
        table = self._table
        self.now = now
        if not topics:
            table.monitor = None
            self._look_at = math.inf
        elif table.monitor is None:
            table.monitor = self
            # What they said when somebody watched before is old.
            for supervisor in table.supervisors.values():
                supervisor.vitals = None
            for worker in table.workers.values():
                worker.vitals = None
            self._look_at = now
        if EVENTS not in topics:
            self._events.clear()
            self._batch_at = math.inf
        if SNAPSHOT in topics:
            self._snapshot_at = max(now, self._snapshot_before + SOON_S)
        else:
            self._snapshot_at = math.inf
            self._unheard.clear()
            for session in table.sessions.values():
                for graph in session.graphs.values():
                    graph.chain = None
        self._topics = topics

    # -- time --------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When :meth:`tick` or :meth:`take` have something to do."""
        return min(self._look_at, self._snapshot_at, self._batch_at)

    @property
    def due(self) -> float:
        """When :meth:`take` returns something."""
        return min(self._snapshot_at, self._batch_at)

    def late(self, lag_s: float) -> None:
        """The core was so late with what was due."""
        self._lag_s = max(self._lag_s, lag_s)

    def tick(self, now: float) -> None:
        """Ask machines how they are; a snapshot follows as soon as they have answered."""
        if now < self._look_at:
            return
        self._look_at = now + self._interval_s
        if SNAPSHOT not in self._topics:
            return
        self._unheard = dict.fromkeys(self._table.supervisors)
        for peer in self._unheard:
            self._table.send(peer, m.Examine(now))
        self._snapshot_at = min(self._snapshot_at, now + PATIENCE_S if self._unheard else now)

    def examined(self, peer: bytes) -> None:
        """A machine has said how it is, or is gone."""
        if self._unheard.pop(peer, False) is None and not self._unheard:
            self._snapshot_at = min(self._snapshot_at, self.now)

    def take(self, now: float) -> list[feed.Snapshot | feed.Events]:
        """Return what is to be published now."""
        taken: list[feed.Snapshot | feed.Events] = []
        if now >= self._batch_at:
            self._batch_at = math.inf
            self._batches += 1
            events, self._events = self._events, []
            skipped = {kind.kind: one.close() for kind, one in self._samplers.items()}
            skipped = {kind: count for kind, count in skipped.items() if count}
            taken.append(feed.Events("", self._batches, now, skipped, events))
        if now >= self._snapshot_at:
            self._snapshot_at = math.inf
            self._snapshot_before = now
            self._snapshots += 1
            snapshot = take_snapshot(self._table, self._objects, now)
            snapshot.seq, snapshot.events = self._snapshots, self._batches
            snapshot.interval_s = self._interval_s
            snapshot.scheduler.up_s = now - self._began_at
            snapshot.scheduler.lag_s, self._lag_s = self._lag_s, 0.0
            skips = {kind.kind: one.skipped for kind, one in self._samplers.items()}
            snapshot.skipped = {kind: count for kind, count in skips.items() if count}
            taken.append(snapshot)
        return taken

    def took(self, cost_s: float, now: float) -> None:
        """Publishing took so long: the next snapshot is not to come too soon."""
        self._look_at = max(self._look_at, now + SHARE * cost_s)

    # -- tasks -------------------------------------------------------------------------------

    def _wants(self, kind: type[feed.Event]) -> bool:
        """Return True if an event of this kind is to be told."""
        if EVENTS not in self._topics:
            return False
        if self._batch_at == math.inf:
            # Also for what is only counted.
            self._batch_at = self.now + BATCH_S
        return self._samplers[kind].take()

    def _name(self, function: bytes) -> str:
        return self._table.functions[function].name

    def assigned(self, worker: WorkerRecord, run: Run) -> None:
        """A worker was given a run."""
        if self._wants(feed.Assigned):
            self._events.append(
                feed.Assigned(
                    self.now, worker.peer, run.session, run.first, run.count,
                    self._name(run.function),
                )
            )  # fmt: skip

    def done(self, worker: WorkerRecord, run: Run, first: int, count: int, busy_s: float) -> None:
        """Tasks of a run returned."""
        if self._wants(feed.Done):
            self._events.append(
                feed.Done(
                    self.now, worker.peer, run.session, first, count,
                    self._name(run.function), busy_s, _attempt(run),
                )
            )  # fmt: skip

    def failed(self, run: Run, kind: str, detail: Mapping[str, Any], busy_s: float) -> None:
        """All tasks of a run failed, for the same reason."""
        if self._wants(feed.Failed):
            self._events.append(
                feed.Failed(
                    self.now, _worker_of(run), run.session, run.first, run.count,
                    self._name(run.function), busy_s, _attempt(run), kind,
                    _text(detail, "type"), _text(detail, "message"),
                    _text(detail, "traceback", -TAIL_CHARS_MAX),
                )
            )  # fmt: skip

    def retried(self, run: Run, kind: str, detail: Mapping[str, Any], busy_s: float) -> None:
        """The task of a run is about to be begun again."""
        if self._wants(feed.Retried):
            self._events.append(
                feed.Retried(
                    self.now, _worker_of(run), run.session, run.first, self._name(run.function),
                    _attempt(run), kind, _text(detail, "type"), _text(detail, "message"), busy_s,
                )
            )  # fmt: skip

    def moved(self, worker: WorkerRecord, run: Run) -> None:
        """A worker gave a run back."""
        if self._wants(feed.Moved):
            self._events.append(
                feed.Moved(
                    self.now, worker.peer, run.session, run.first, run.count,
                    self._name(run.function),
                )
            )  # fmt: skip

    def cancelled(self, run: Run, first: int, count: int) -> None:
        """Tasks of a run were cancelled."""
        if self._wants(feed.Cancelled):
            worker, busy_s = run.worker, 0.0
            if worker is not None and worker.runs and worker.runs[0] is run and first == run.first:
                busy_s = self.now - worker.progress_at
            self._events.append(
                feed.Cancelled(
                    self.now, _worker_of(run), run.session, first, count,
                    self._name(run.function), _attempt(run), busy_s,
                )
            )  # fmt: skip

    # -- peers and graphs --------------------------------------------------------------------

    def worker_joined(self, worker: WorkerRecord) -> None:
        """A worker was welcomed."""
        if self._wants(feed.WorkerJoined):
            self._events.append(feed.WorkerJoined(self.now, *_identity(worker), worker.spare))

    def worker_left(self, worker: WorkerRecord) -> None:
        """A worker ended in order, alone or with its machine."""
        if self._wants(feed.WorkerLeft):
            self._events.append(feed.WorkerLeft(self.now, *_identity(worker)))

    def worker_died(self, worker: WorkerRecord, lost: m.WorkerLost | None) -> None:
        """A worker died, as its supervisor says; None: that is lost itself, or gives it up."""
        if not self._wants(feed.WorkerDied):
            return
        death = lost.death if lost is not None else {"reason": worker.killed or "given up"}
        died = feed.WorkerDied(self.now, *_identity(worker))
        for run in worker.runs:
            if lost is None or run.holds(lost.session, lost.task):
                died.session, died.task = run.session, run.first if lost is None else lost.task
                died.function = self._name(run.function)
                break
        died.exit_code, died.signal = _number(death, "exit_code"), _number(death, "signal")
        died.peak_rss_bytes = _number(death, "peak_rss_bytes")
        died.out_of_memory = death.get("out_of_memory") is True
        died.reason = _text(death, "reason")
        died.stderr_tail = _text(death, "stderr_tail", -TAIL_CHARS_MAX)
        self._events.append(died)

    def machine_joined(self, supervisor: SupervisorRecord) -> None:
        """A supervisor was welcomed."""
        if self._wants(feed.MachineJoined):
            self._events.append(
                feed.MachineJoined(
                    self.now, supervisor.peer, supervisor.host, supervisor.workers_wanted
                )
            )

    def machine_left(self, supervisor: SupervisorRecord) -> None:
        """A supervisor left or was given up."""
        self.examined(supervisor.peer)
        if self._wants(feed.MachineLeft):
            self._events.append(feed.MachineLeft(self.now, supervisor.peer, supervisor.host))

    def client_joined(self, session: SessionRecord) -> None:
        """A client was welcomed."""
        if self._wants(feed.ClientJoined):
            self._events.append(
                feed.ClientJoined(
                    self.now, session.number, session.host, session.pid, session.worker
                )
            )

    def client_left(self, session: SessionRecord) -> None:
        """A client left or was given up."""
        if self._wants(feed.ClientLeft):
            self._events.append(
                feed.ClientLeft(self.now, session.number, session.host, session.pid)
            )

    def graph_begun(self, graph: GraphRecord) -> None:
        """A graph came."""
        if self._wants(feed.GraphBegun):
            self._events.append(
                feed.GraphBegun(self.now, graph.session, graph.first, self._name(graph.function))
            )

    def graph_over(self, graph: GraphRecord, totals: Totals) -> None:
        """A graph ended; these became of its nodes."""
        if self._wants(feed.GraphOver):
            self._events.append(
                feed.GraphOver(
                    self.now, graph.session, graph.first, self._name(graph.function),
                    totals.submitted, totals.done, totals.failed, totals.cancelled,
                )
            )  # fmt: skip


def _attempt(run: Run) -> int:
    return 1 + run.tries + run.losses


def _worker_of(run: Run) -> bytes:
    return run.worker.peer if run.worker is not None else b""


def _identity(worker: WorkerRecord) -> tuple[bytes, bytes, str, int, str]:
    return worker.peer, worker.supervisor, worker.host, worker.pid, worker.name


def _text(detail: Mapping[str, Any], key: str, chars: int = TEXT_CHARS_MAX) -> str:
    """Return the beginning of a text, or its end (negative); it may be anything a peer sent."""
    text = detail.get(key)
    if not isinstance(text, str):
        return ""
    return text[:chars] if chars > 0 else text[chars:]


def _number(detail: Mapping[str, Any], key: str) -> int | None:
    number = detail.get(key)
    return number if type(number) is int else None

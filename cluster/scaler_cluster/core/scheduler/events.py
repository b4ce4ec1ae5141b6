"""Events: what happens in a scheduler, collected in batches of limited size for watchers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.scheduler.naming import name_of, parts
from scaler_cluster.core.scheduler.observer import Observer
from scaler_cluster.errors import Death
from scaler_cluster.ids import alias_of
from scaler_cluster.texts import how_it_died
from scaler_cluster.wire import feed
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_cluster.core.graph.graph import GraphRecord
    from scaler_cluster.core.records.functions import FunctionRecord
    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.totals import Totals
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.session import SessionRecord

BATCH_S = 0.1
"""How long events wait for others: too short for a watcher to see."""
BATCH_MAX = {
    feed.Assigned: 100,
    feed.Done: 100,
    feed.Moved: 50,
    feed.Cancelled: 50,
    feed.Failed: 20,
    feed.Retried: 20,
}
"""Events of a kind in one batch; if there are more, only every n-th event is published. A thousand
events a second fill any screen, and a failure may take 5 KB."""
BATCH_MAX_OTHERS = 100
TEXT_CHARS_MAX = 500
TAIL_CHARS_MAX = 4000
"""The end of a traceback, which says most."""
ARGUMENTS_CHARS_MAX = 200


class Sampler:
    """Lets a limited number of events of one kind into each batch, evenly spread over it."""

    __slots__ = ("_every", "_kept", "_limit", "_seen", "skipped", "skipped_before")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._every = 1
        self._seen = self._kept = 0
        self.skipped = 0
        self.skipped_before = 0
        """How many were skipped in batches that are closed."""

    def take(self) -> bool:
        """Return True if the next event is to be published."""
        self._seen += 1
        if self._kept >= self._limit or self._seen % self._every:
            self.skipped += 1
            return False
        self._kept += 1
        return True

    def close(self) -> int:
        """End a batch; return how many were left out of it. The next is sampled by its size."""
        skipped = self.skipped - self.skipped_before
        self.skipped_before = self.skipped
        self._every = max(-(-self._seen // self._limit), 1)
        self._seen = self._kept = 0
        return skipped


class EventRecorder(Observer):
    """Collects events, and says when a batch of them is to be published."""

    def __init__(self, functions: Mapping[bytes, FunctionRecord]) -> None:
        self.due = math.inf
        """When :meth:`take` returns a batch."""
        self.batches = 0
        """Number of batches so far."""
        self._functions = functions
        self._is_on = False
        self._events: list[feed.Event] = []
        self._samplers = {
            kind: Sampler(BATCH_MAX.get(kind, BATCH_MAX_OTHERS))
            for kind in feed.EVENT_KINDS.values()
        }

    def switch(self, *, is_on: bool) -> None:
        """Collect events from now on, or no more."""
        self._is_on = is_on
        if not is_on:
            self._events.clear()
            self.due = math.inf

    def take(self, now: float) -> feed.Events:
        """Return what has happened since the last batch."""
        self.due = math.inf
        self.batches += 1
        events, self._events = self._events, []
        skipped = {kind.kind: one.close() for kind, one in self._samplers.items()}
        skipped = {kind: count for kind, count in skipped.items() if count}
        return feed.Events("", self.batches, now, skipped, events)

    @property
    def skipped(self) -> dict[str, int]:
        """How many events of each kind were left out, ever."""
        skips = {kind.kind: one.skipped for kind, one in self._samplers.items()}
        return {kind: count for kind, count in skips.items() if count}

    def _wants(self, kind: type[feed.Event]) -> bool:
        """Return True if an event of this kind is to be published."""
        if not self._is_on:
            return False
        if self.due == math.inf:
            # Also for an event that is only counted.
            self.due = self.now + BATCH_S
        return self._samplers[kind].take()

    def assigned(self, worker: WorkerRecord, run: Run) -> None:
        for first, count, name in parts(self._functions, run, run.first, run.count):
            if self._wants(feed.Assigned):
                self._events.append(
                    feed.Assigned(self.now, alias_of(worker.peer), run.session, first, count, name)
                )

    def done(self, worker: WorkerRecord, run: Run, first: int, count: int, busy_s: float) -> None:
        worker.busy_s += busy_s
        each_s, stop = busy_s / count, first + count
        for low, many, name in parts(self._functions, run, first, count):
            if self._wants(feed.Done):
                # Those after it ran after it.
                at = self.now - (stop - low - many) * each_s
                self._events.append(
                    feed.Done(
                        at, alias_of(worker.peer), run.session, low, many, name, many * each_s,
                        _attempt(run),
                    )
                )  # fmt: skip

    def failed(self, run: Run, kind: str, detail: Mapping[str, Any], busy_s: float) -> None:
        if run.worker is not None:
            run.worker.busy_s += busy_s
        for first, count, name in parts(self._functions, run, run.first, run.count):
            if self._wants(feed.Failed):
                self._events.append(
                    feed.Failed(
                        self.now, _worker_of(run), run.session, first, count, name,
                        busy_s * count / run.count, _attempt(run), kind,
                        _text(detail, "type"), _message(kind, detail),
                        _text(detail, "traceback", -TAIL_CHARS_MAX),
                        _text(detail, "arguments", ARGUMENTS_CHARS_MAX),
                    )
                )  # fmt: skip

    def retried(self, run: Run, kind: str, detail: Mapping[str, Any], busy_s: float) -> None:
        if run.worker is not None:
            run.worker.busy_s += busy_s
        if self._wants(feed.Retried):
            name = name_of(self._functions, run)
            self._events.append(
                feed.Retried(
                    self.now, _worker_of(run), run.session, run.first, name,
                    _attempt(run), kind, _text(detail, "type"), _message(kind, detail), busy_s,
                )
            )  # fmt: skip

    def moved(self, worker: WorkerRecord, run: Run) -> None:
        for first, count, name in parts(self._functions, run, run.first, run.count):
            if self._wants(feed.Moved):
                self._events.append(
                    feed.Moved(self.now, alias_of(worker.peer), run.session, first, count, name)
                )

    def cancelled(self, run: Run, first: int, count: int) -> None:
        worker, busy_s = run.worker, 0.0
        if worker is not None and worker.runs and worker.runs[0] is run and first == run.first:
            busy_s = self.now - worker.progress_at
            worker.busy_s += busy_s
        for low, many, name in parts(self._functions, run, first, count):
            if self._wants(feed.Cancelled):
                self._events.append(
                    feed.Cancelled(
                        self.now, _worker_of(run), run.session, low, many, name, _attempt(run),
                        busy_s,
                    )
                )  # fmt: skip
            # The first of them ran.
            busy_s = 0.0

    # -- peers and graphs ----------------------------------------------------------------------

    def worker_joined(self, worker: WorkerRecord) -> None:
        if self._wants(feed.WorkerJoined):
            self._events.append(feed.WorkerJoined(self.now, *_identity(worker), worker.spare))

    def worker_left(self, worker: WorkerRecord) -> None:
        if self._wants(feed.WorkerLeft):
            self._events.append(feed.WorkerLeft(self.now, *_identity(worker)))

    def worker_died(self, worker: WorkerRecord, lost: m.WorkerLost | None) -> None:
        if not self._wants(feed.WorkerDied):
            return
        death = lost.death if lost is not None else {"reason": worker.killed or "given up"}
        died = feed.WorkerDied(self.now, *_identity(worker))
        for run in worker.runs:
            if lost is None or run.holds(lost.session, lost.task):
                died.session, died.task = run.session, run.first if lost is None else lost.task
                died.function = name_of(self._functions, run)
                break
        died.exit_code, died.signal = _number(death, "exit_code"), _number(death, "signal")
        died.peak_rss_bytes = _number(death, "peak_rss_bytes")
        died.out_of_memory = death.get("out_of_memory") is True
        died.reason = _text(death, "reason")
        died.stderr_tail = _text(death, "stderr_tail", -TAIL_CHARS_MAX)
        self._events.append(died)

    def machine_joined(self, supervisor: SupervisorRecord) -> None:
        if self._wants(feed.MachineJoined):
            self._events.append(
                feed.MachineJoined(
                    self.now, alias_of(supervisor.peer), supervisor.host, supervisor.workers_wanted
                )
            )

    def machine_left(self, supervisor: SupervisorRecord) -> None:
        if self._wants(feed.MachineLeft):
            self._events.append(
                feed.MachineLeft(self.now, alias_of(supervisor.peer), supervisor.host)
            )

    def client_joined(self, session: SessionRecord) -> None:
        if self._wants(feed.ClientJoined):
            self._events.append(
                feed.ClientJoined(
                    self.now, session.number, session.host, session.pid, alias_of(session.worker)
                )
            )

    def client_left(self, session: SessionRecord) -> None:
        if self._wants(feed.ClientLeft):
            self._events.append(
                feed.ClientLeft(self.now, session.number, session.host, session.pid)
            )

    def operated(self, user: str, action: str, what: str, count: int) -> None:
        if self._wants(feed.Operated):
            self._events.append(feed.Operated(self.now, user, action, what, count))

    def graph_begun(self, graph: GraphRecord) -> None:
        if self._wants(feed.GraphBegun):
            self._events.append(
                feed.GraphBegun(self.now, graph.session, graph.first, graph.layers.label)
            )

    def graph_over(self, graph: GraphRecord, totals: Totals) -> None:
        if self._wants(feed.GraphOver):
            self._events.append(
                feed.GraphOver(
                    self.now, graph.session, graph.first, graph.layers.label,
                    totals.submitted, totals.done, totals.failed, totals.cancelled,
                )
            )  # fmt: skip


def _attempt(run: Run) -> int:
    return 1 + run.tries + run.losses


def _worker_of(run: Run) -> bytes:
    return alias_of(run.worker.peer) if run.worker is not None else b""


def _identity(worker: WorkerRecord) -> tuple[bytes, bytes, str, int, str]:
    peers = alias_of(worker.peer), alias_of(worker.supervisor)
    return *peers, worker.host, worker.pid, worker.name


def _message(kind: str, detail: Mapping[str, Any]) -> str:
    """Return what a client reads of a failure."""
    said = _text(detail, "message")
    if kind != m.FAILED_WORKER_DIED:
        return said
    death = Death(
        _number(detail, "pid") or 0, _text(detail, "host"), _number(detail, "exit_code"),
        _number(detail, "signal"), _number(detail, "peak_rss_bytes") or 0,
        reason=_text(detail, "reason"),
    )  # fmt: skip
    return how_it_died(death, said)[:TEXT_CHARS_MAX]


def _text(detail: Mapping[str, Any], key: str, chars: int = TEXT_CHARS_MAX) -> str:
    """Return the beginning of a text, or its end (negative); it may be anything a peer sent."""
    text = detail.get(key)
    if not isinstance(text, str):
        return ""
    return text[:chars] if chars > 0 else text[chars:]


def _number(detail: Mapping[str, Any], key: str) -> int | None:
    number = detail.get(key)
    return number if type(number) is int else None

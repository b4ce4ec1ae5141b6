# PYTHON_ARGCOMPLETE_OK
"""``scaler_trace``: a recording as a trace, for https://ui.perfetto.dev and chrome://tracing.

The format is JSON, "Trace Event Format": slices of work on a track for each worker, marks for what
happened at a moment, and counters. Its times are microseconds.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from scaler_cluster.cli.shared import guard
from scaler_cluster.config.load import load
from scaler_cluster.config.sections import TraceSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.wire import feed
from scaler_cluster.wire.feed_codec import as_dict
from scaler_monitoring import recording
from scaler_monitoring.model import SchedulerRestarted
from scaler_monitoring.texts import worker_name
from scaler_monitoring.view import NO_NAME, death, operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scaler_cluster.wire.feed_codec import Message

PROGRAM = "scaler_trace"
ABOUT = (
    "Convert a recording to a trace, which https://ui.perfetto.dev or chrome://tracing can open."
)
CLUSTER, WORKERS = 1, 2
"""The processes that a trace has, as far as its reader knows: one for what is nobody's work."""
FAILED_COLOUR = "terrible"
"""One of the names that chrome://tracing has for colours."""
SAMPLED, SAMPLED_TRACK = "events that were left out", 1
SHOWN = {one.kind for one in (feed.Done, feed.Failed, feed.Cancelled, feed.Retried)}
"""Kinds of events that a trace has something for."""
BATCH_S_MAX = 1.0
"""What a batch left out happened so shortly before it."""
SLICES_MAX = 1000
"""Of a worker, so many slices back it is looked whether a new one contains them."""

TraceEvent: TypeAlias = "dict[str, Any]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert a recording; return the exit status."""
    return guard(PROGRAM, lambda: _run(load(TraceSettings, PROGRAM, ABOUT, arguments)))


def _run(settings: TraceSettings) -> None:
    messages = recording.read(settings.file)
    path = Path(settings.output or settings.file + ".json")
    trace = Trace()
    # So that a file is only begun if there is something to write.
    events = trace.convert(message for _, message in messages)
    first = next(events, None)
    if first is None:
        raise ConfigError(f"{settings.file} holds no snapshot, so there is nothing to convert")
    try:
        if path.exists() and path.samefile(settings.file):
            raise ConfigError(f"{path} is the recording itself: name another file")
        with path.open("w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit": "ms", "traceEvents": [\n' + json.dumps(first))
            for event in events:
                file.write(",\n" + json.dumps(event))
            file.write(f'\n], "otherData": {json.dumps(trace.about())}}}\n')
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    sys.stdout.write(f"{path}\n")


class _Track:
    """What a worker did."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = ""
        self._slices: deque[tuple[int, int]] = deque(maxlen=SLICES_MAX)
        """Where they begin and end; none within another."""

    def place(self, start: int, end: int) -> int:
        """Return where a slice may begin, so that it is within each other one, or beside it.

        Both are told by clocks of their own, and a reader can make nothing of those that overlap.
        One that contains others is of a task that ran these while it waited for them.
        """
        slices = self._slices
        while slices and slices[-1][0] >= start:
            slices.pop()
        if slices:
            start = min(max(start, slices[-1][1]), end)
        slices.append((start, end))
        return start


class Trace:
    """What is known while a recording is read."""

    def __init__(self) -> None:
        self._told = 0
        """Events about tasks that the recording has."""
        self._skipped: Counter[str] = Counter()
        """Those that the scheduler left out, as they were too many, by their kind."""
        self._run = ""
        self._begin: float | None = None
        """When the first scheduler began, in seconds since 1970."""
        self._offset = 0.0
        """What makes microseconds since then of seconds of the scheduler's clock, once added."""
        self._batch_at = 0.0
        """When the last batch of events was made."""
        self._tracks: dict[bytes, _Track] = {}

    def convert(self, messages: Iterable[Message]) -> Iterator[TraceEvent]:
        """Yield the events of a trace; none if there is no snapshot."""
        for message in messages:
            yield from self._apply(message)
        yield from self._names()

    def about(self) -> dict[str, str]:
        """Return what else is to be said of the trace, in words: readers show it as it is."""
        if not self._skipped:
            return {"complete": "yes: no event was left out"}
        skipped = self._skipped.total()
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._skipped.items()))
        return {
            "complete": f"no: {skipped} of {skipped + self._told} events were left out",
            "left out": kinds,
            "why": "The scheduler publishes some hundred events of a kind a second at most, evenly "
            f"spread. Each piece of work here is one of them; the track '{SAMPLED}' shows when.",
        }

    def _apply(self, message: Message) -> Iterator[TraceEvent]:
        """Yield what a message says; nothing of a scheduler of which there was no snapshot yet."""
        if isinstance(message, feed.Snapshot):
            if message.run != self._run:
                yield from self._enter(message)
            for worker in message.workers:
                self._track(worker.worker).name = worker_name(worker)
            yield from self._counters(message)
        elif isinstance(message, feed.Events) and message.run == self._run:
            yield from self._gap(message)
            for event in message.events:
                yield from self._convert(event)
            self._batch_at = message.clock

    def _gap(self, message: feed.Events) -> Iterator[TraceEvent]:
        """Yield what a batch left out of what there is a slice or a mark for."""
        skipped = {kind: count for kind, count in message.skipped.items() if kind in SHOWN}
        self._told += sum(one.kind in SHOWN for one in message.events)
        if not skipped:
            return
        self._skipped.update(skipped)
        end = self._at(message.clock)
        start = min(max(self._at(self._batch_at), self._at(message.clock - BATCH_S_MAX)), end)
        told = ", ".join(f"{count} {kind}" for kind, count in skipped.items())
        yield {
            "ph": "X", "name": f"left out: {told}", "cat": "sampled", "pid": CLUSTER,
            "tid": SAMPLED_TRACK, "ts": start, "dur": end - start, "args": dict(skipped),
        }  # fmt: skip

    def _names(self) -> Iterator[TraceEvent]:
        """Yield what the tracks are called, if there was anything to be said."""
        if self._begin is None:
            return
        yield _meta("process_name", CLUSTER, 0, name="cluster")
        yield _meta("process_name", WORKERS, 0, name="workers")
        if self._skipped:
            yield _meta("thread_name", CLUSTER, SAMPLED_TRACK, name=SAMPLED)
        yield _meta("process_sort_index", CLUSTER, 0, sort_index=0)
        yield _meta("process_sort_index", WORKERS, 0, sort_index=1)
        for worker, track in self._tracks.items():
            yield _meta("thread_name", WORKERS, track.number, name=track.name or worker.hex())

    def _enter(self, snapshot: feed.Snapshot) -> Iterator[TraceEvent]:
        """Begin with another scheduler, whose clock is another."""
        is_restart = self._begin is not None
        self._run = snapshot.run
        self._batch_at = snapshot.clock
        if self._begin is None:
            self._begin = snapshot.time - snapshot.scheduler.up_s
        self._offset = snapshot.time - self._begin - snapshot.clock
        if is_restart:
            name, kind = "the scheduler was started again", SchedulerRestarted.kind
            at = self._at(snapshot.clock - snapshot.scheduler.up_s)
            place = {"s": "p", "pid": CLUSTER, "tid": 0}
            yield {"ph": "i", "name": name, "cat": kind, "ts": at, **place, "args": {}}

    def _at(self, clock: float) -> int:
        return max(round((clock + self._offset) * 1e6), 0)

    def _track(self, worker: bytes) -> _Track:
        track = self._tracks.get(worker)
        if track is None:
            track = self._tracks[worker] = _Track(len(self._tracks) + 1)
        return track

    def _counters(self, snapshot: feed.Snapshot) -> Iterator[TraceEvent]:
        tasks, process = snapshot.tasks, snapshot.scheduler
        counters: dict[str, dict[str, float]] = {
            "tasks": {"running": tasks.running, "assigned": tasks.assigned, "ready": tasks.ready,
                      "waiting": tasks.waiting},
            "memory of workers": {"bytes": sum(row.rss_bytes or 0 for row in snapshot.workers)},
            "CPUs of workers": {"busy": round(sum(row.cpu or 0.0 for row in snapshot.workers), 3)},
            "objects": {"bytes": snapshot.objects_bytes},
            "lag of the scheduler": {"ms": round(process.lag_s * 1e3, 3)},
        }  # fmt: skip
        at = self._at(snapshot.clock)
        for name, values in counters.items():
            yield {"ph": "C", "name": name, "pid": CLUSTER, "tid": 0, "ts": at, "args": values}

    def _convert(self, event: feed.Event) -> Iterator[TraceEvent]:
        if isinstance(event, feed.WorkerJoined):
            self._track(event.worker).name = worker_name(event)
        elif isinstance(event, feed.Done):
            yield self._slice(event, event.function or NO_NAME)
        elif isinstance(event, feed.Failed):
            name = f"{event.function or NO_NAME} failed: {event.error or event.reason}"
            # What died with its worker, or had none, took nobody knows how long.
            if event.worker and event.busy_s:
                yield self._slice(event, name) | {"cname": FAILED_COLOUR}
            else:
                yield self._mark(event, name)
        elif isinstance(event, feed.Cancelled):
            yield self._mark(event, f"{event.function or NO_NAME} cancelled")
        elif isinstance(event, feed.Retried):
            why = event.error or event.reason
            yield self._mark(event, f"{event.function or NO_NAME} retried: {why}")
        elif isinstance(event, feed.WorkerDied):
            yield self._mark(event, f"died: {death(event)}")
        elif isinstance(event, feed.MachineLeft):
            yield self._mark(event, f"machine {event.host} left")
        elif isinstance(event, feed.Operated):
            yield self._mark(event, operation(event))

    def _slice(self, event: feed.Done | feed.Failed, name: str) -> TraceEvent:
        track = self._track(event.worker)
        end = self._at(event.at)
        start = track.place(self._at(event.at - event.busy_s), end)
        return {
            "ph": "X",
            "name": name,
            "cat": event.kind,
            "pid": WORKERS,
            "tid": track.number,
            "ts": start,
            "dur": end - start,
            "args": _details(event),
        }

    def _mark(self, event: Any, name: str) -> TraceEvent:
        """Return what happened at a moment, to a worker or to nobody's."""
        worker = getattr(event, "worker", b"")
        place = {"s": "p", "pid": CLUSTER, "tid": 0}
        if worker:
            place = {"s": "t", "pid": WORKERS, "tid": self._track(worker).number}
        about = {"name": name, "cat": event.kind, "ts": self._at(event.at)}
        return {"ph": "i", **about, **place, "args": _details(event)}


def _details(event: feed.Event) -> dict[str, Any]:
    """Return what there is to read about an event, once it is clicked at."""
    return {name: value for name, value in as_dict(event).items() if value not in {"", None}}


def _meta(kind: str, process: int, track: int, **args: Any) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "ts": 0, "args": args}


if __name__ == "__main__":
    raise SystemExit(main())

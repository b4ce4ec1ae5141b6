"""The worker: what it has to run, what it was asked to give back or drop, what it reports.

The shell runs the tasks. Its main thread moves ``work.cursor`` forward without a lock; everything
else here is called under the shell's lock. So a task is *claimed* once the cursor stands on it,
and :meth:`WorkerCore._shrink` looks at the cursor again after it moved a work's end.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.wire.batch import Buffer

    Values: TypeAlias = dict[int, tuple[Buffer, tuple[bytes, ...]]]

FLUSH_S = 0.004
"""Results wait about this long for more of them. A report costs worker, scheduler and client
some 0.2 ms each when it finds their caches cold: every 2 ms, that was a tenth of a core."""


class FunctionEntry:
    """A function that this worker was sent, and what it became when it was unpickled."""

    __slots__ = ("call", "objects", "payload", "set_classes")

    def __init__(self, payload: Buffer, objects: tuple[bytes, ...]) -> None:
        self.payload = payload
        self.objects = objects
        self.call: Callable[..., Any] | None = None
        self.set_classes: int | None = None
        """What ``by_value.set_classes()`` was when it was unpickled; None: it set no class."""


class Work:
    """Contiguous tasks to run."""

    __slots__ = (
        "batch", "cursor", "first", "function", "message", "results", "session", "stop", "values",
    )  # fmt: skip

    def __init__(
        self,
        message: m.Assign | m.AssignNodes,
        function: FunctionEntry,
        values: Values | None = None,
        results: Values | None = None,
    ) -> None:
        self.message = message
        self.function = function
        self.session = message.session
        self.first = message.first
        self.batch = message.batch
        self.cursor = -1
        """Index of the task that runs, or ran last."""
        self.stop = len(message.batch)
        """Index after the last task to run."""
        self.values = values
        """Of nodes: the results that came with them, by node, as payload and segments."""
        self.results = results if results is not None else {}
        """What nodes of the same graph returned here."""

    def part(self, start: int, stop: int) -> Work:
        """Return the tasks ``start <= index < stop`` of this one as a work of their own."""
        part = Work(self.message, self.function, self.values, self.results)
        part.first = self.first + start
        part.batch = self.batch.cut(start, stop)
        part.stop = stop - start
        return part


def values_of(message: m.AssignNodes) -> Values:
    """Return the results that came with nodes."""
    values: Values = {}
    ends = numbers(message.segment_ends)
    low = 0
    for index, (node, payload) in enumerate(
        zip(numbers(message.inputs), message.results, strict=False)
    ):
        high = ends[index] if ends else 0
        values[node] = payload, message.segments[low:high]
        low = high
    return values


class WorkerCore:
    """Holds the queue and the reports of a worker."""

    def __init__(self) -> None:
        self.queue: deque[Work] = deque()
        self.functions: dict[bytes, FunctionEntry] = {}
        self.mapped: dict[bytes, memoryview] = {}
        """Segments that the shell has mapped."""
        self.missing: dict[bytes, str] = {}
        """Segments that the shell need not wait for, and why."""
        self.results: list[bytes] = []
        """Pickled results of the open segment; the shell appends without a lock."""
        self.last_end = 0.0
        """When the last task ended; the shell writes it without a lock."""
        self.interrupt: tuple[int, int] | None = None
        """Session and task that the shell should interrupt, if it runs."""
        self.leave: str | None = None
        """Why to leave, once the queue is empty; None: stay."""
        self.welcome = False
        self._graphs: dict[tuple[int, int], Values] = {}
        """What nodes returned here, by session and graph."""
        self._kept: deque[tuple[int, Values, range]] = deque()
        """Works of nodes whose results are kept: their number, those results, their nodes."""
        self._works = 0
        """Number of works of nodes so far."""
        self._segment: tuple[int, int] = (0, 0)
        self._since = 0.0
        self._outbox: list[m.Message] = []

    # -- from the scheduler ------------------------------------------------------------------

    def receive(self, messages: Sequence[m.Message]) -> None:
        """Take in what the scheduler sent.

        Raises RemoteProtocolError if it must not send this.
        """
        handlers = self._HANDLERS
        for message in messages:
            handler = handlers.get(type(message))
            if handler is None:
                raise RemoteProtocolError(f"{type(message).__name__} is not for a worker")
            handler(self, message)

    def _on_welcome(self, _: m.Welcome) -> None:
        self.welcome = True

    def _on_retire(self, _: m.Retire) -> None:
        self.leave = ""

    def _on_goodbye(self, message: m.Refused | m.Goodbye) -> None:
        self.leave = message.reason

    def _on_unknown(self, _: m.Unknown) -> None:
        self.leave = "the scheduler does not know this worker any more"

    def _on_graph_over(self, message: m.GraphOver) -> None:
        self._graphs.pop((message.session, message.graph), None)

    def _on_forget(self, message: m.Forget) -> None:
        self.functions.pop(message.function, None)

    def _on_function(self, message: m.Function) -> None:
        self.functions[message.function] = FunctionEntry(message.payload, message.objects)
        self._expect(message.objects)

    def _on_release(self, message: m.Release) -> None:
        for segment in message.objects:
            self.mapped.pop(segment, None)
            self.missing.pop(segment, None)
            # The machine that held it is lost: whoever waits for a copy would do so for ever.
            if any(segment in _segments_of(work) for work in self.queue):
                self.missing[segment] = "the machine that held this object was lost"

    def _on_missing(self, message: m.Missing) -> None:
        for segment in message.objects:
            self.missing[segment] = message.reason

    def _expect(self, segments: tuple[bytes, ...]) -> None:
        """These are there or will come, unless it is said that they will not after this."""
        for segment in segments:
            self.missing.pop(segment, None)

    def _on_assign(self, message: m.Assign) -> None:
        function = self.functions.get(message.function)
        if function is None:
            raise RemoteProtocolError("tasks of a function that was not sent")
        self._expect(function.objects + message.objects)
        self.queue.append(Work(message, function))

    def _on_assign_nodes(self, message: m.AssignNodes) -> None:
        function = self.functions.get(message.function)
        if function is None:
            raise RemoteProtocolError("nodes of a graph whose functions were not sent")
        self._expect(function.objects + message.objects + message.segments)
        values = values_of(message)
        results = self._graphs.setdefault((message.session, message.graph), {})
        self.queue.append(Work(message, function, values, results))
        self._works += 1
        start = message.first - message.graph
        kept = self._kept
        kept.append((self._works, results, range(start, start + len(message.batch))))
        while kept[0][0] < message.oldest:
            _, results, nodes = kept.popleft()
            for node in nodes:
                results.pop(node, None)

    def _on_revoke(self, message: m.Revoke) -> None:
        removed = 0
        stop = message.first + message.count
        for first, end in self._take_out(message.session, message.first, stop):
            removed += end - first
        self._outbox.append(
            m.Revoked(message.session, message.first, message.count, message.count - removed)
        )

    def _on_abort(self, message: m.Abort) -> None:
        stop = message.first + message.count
        for first, end in self._take_out(message.session, message.first, stop):
            self._outbox.append(m.Aborted(message.session, first, end - first))
        if self.queue:
            work = self.queue[0]
            running = work.first + work.cursor
            is_running = work.cursor >= 0 and work.session == message.session
            if is_running and message.first <= running < stop:
                self.interrupt = (work.session, running)

    _HANDLERS: ClassVar[dict[type[m.Message], Callable[[Any, Any], None]]] = {
        m.Assign: _on_assign,
        m.AssignNodes: _on_assign_nodes,
        m.GraphOver: _on_graph_over,
        m.Function: _on_function,
        m.Forget: _on_forget,
        m.Revoke: _on_revoke,
        m.Abort: _on_abort,
        m.Release: _on_release,
        m.Missing: _on_missing,
        m.Welcome: _on_welcome,
        m.Retire: _on_retire,
        m.Refused: _on_goodbye,
        m.Goodbye: _on_goodbye,
        m.Unknown: _on_unknown,
    }

    def _take_out(self, session: int, first: int, stop: int) -> list[tuple[int, int]]:
        """Remove the tasks of this range that are not claimed; return them as ranges.

        From the end, where the scheduler begins to ask, until the range is found: it may ask for
        each of thousands.
        """
        queue, removed = self.queue, []
        left = stop - first
        for index in range(len(queue) - 1, -1, -1):
            work = queue[index]
            low = max(first - work.first, 0)
            high = min(stop - work.first, work.stop)
            if work.session != session or low >= high:
                continue
            left -= high - low
            old_stop = work.stop
            low = self._shrink(work, low)
            if low < high:
                removed.append((work.first + low, work.first + high))
            if high < old_stop:
                queue.insert(index + 1, work.part(max(low, high), old_stop))
            if not work.stop and index:
                # The shell looks at the first one without a lock: that one stays.
                del queue[index]
            if not left:
                break
        removed.reverse()
        return removed

    def _shrink(self, work: Work, stop: int) -> int:
        """Let a work end at ``stop``, or after what is claimed by now; return where it ends."""
        old_stop = work.stop
        work.stop = stop
        # A cursor beyond the old end has claimed nothing: the shell is about to finish the work.
        work.stop = max(stop, min(work.cursor + 1, old_stop))
        return work.stop

    # -- from the shell ----------------------------------------------------------------------

    def begin(self, work: Work, now: float) -> None:
        """The shell starts on a work, or goes on with it after something else than a result."""
        self.flush()
        self._segment = (work.session, work.first + work.cursor)
        self._since = now
        self.last_end = now

    def finish(self, work: Work) -> None:
        """The shell ran a work to its end."""
        if self.queue and self.queue[0] is work:
            self.queue.popleft()
            if self.missing and not self.queue:
                self.missing.clear()

    def end_with(self, work: Work) -> None:
        """Let a work end with the task at its cursor; the rest is a work of its own."""
        old_stop = work.stop
        stop = self._shrink(work, work.cursor + 1)
        if stop < old_stop:
            self.queue.insert(1, work.part(stop, old_stop))

    def flush(self) -> None:
        """Report the results so far."""
        results = self.results
        count = len(results)
        if not count:
            return
        session, first = self._segment
        payloads = results[:count]
        del results[:count]
        end = self.last_end
        self._outbox.append(m.Done(session, first, max(end - self._since, 0.0), Batch.of(payloads)))
        self._segment = (session, first + count)
        self._since = end

    def started(self, work: Work) -> None:
        """The task at the cursor starts, and the scheduler wants to know."""
        self.flush()
        self._outbox.append(m.Started(work.session, work.first + work.cursor))

    def stored(self, work: Work, payload: bytes, segments: dict[bytes, int]) -> None:
        """The task at the cursor returned a value with large buffers; then as for erred."""
        self.flush()
        task = work.first + work.cursor
        busy_s = max(self.last_end - self._since, 0.0)
        names, sizes = tuple(segments), tuple(segments.values())
        self._outbox.append(m.Stored(work.session, task, busy_s, payload, names, sizes))

    def erred(self, work: Work, kind: str, payload: bytes, detail: dict[str, Any]) -> None:
        """The task at the cursor failed; the shell calls :meth:`begin` before the next."""
        self.flush()
        task = work.first + work.cursor
        busy_s = max(self.last_end - self._since, 0.0)
        self._outbox.append(m.Erred(work.session, task, busy_s, kind, payload, detail))

    def skipped(self, work: Work) -> None:
        """The task at the cursor needs what did not return here; then as for :meth:`erred`."""
        self.flush()
        self._outbox.append(m.Skipped(work.session, work.first + work.cursor))

    def interrupted(self, work: Work) -> None:
        """The task at the cursor was interrupted as asked; then as for :meth:`erred`."""
        self.flush()
        self.interrupt = None
        self._outbox.append(m.Aborted(work.session, work.first + work.cursor, 1))

    def interrupt_due(self) -> bool:
        """Return True if the task that was aborted still runs."""
        if self.interrupt is not None:
            work = self.queue[0] if self.queue else None
            if work is None or self.interrupt != (work.session, work.first + work.cursor):
                self.interrupt = None
        return self.interrupt is not None

    def printed(self, work: Work, stream: str, text: str) -> None:
        """The task at the cursor printed something."""
        task = work.first + work.cursor
        self._outbox.append(m.Printed(work.session, task, stream, text))

    def profiled(self, work: Work, duration_s: float, cpu_time_s: float, memory_peak: int) -> None:
        """The task at the cursor took so much; what became of it follows."""
        task = work.first + work.cursor
        self._outbox.append(m.Profile(work.session, task, duration_s, cpu_time_s, memory_peak))

    @property
    def has_actions(self) -> bool:
        """Return True if :meth:`take_actions` has something."""
        return bool(self._outbox)

    def take_actions(self) -> list[m.Message]:
        """Return what is to be sent to the scheduler."""
        outbox = self._outbox
        self._outbox = []
        return outbox


def _segments_of(work: Work) -> tuple[bytes, ...]:
    """Return the segments that a work came with."""
    message = work.message
    return message.segments if isinstance(message, m.AssignNodes) else message.objects

"""What a worker tells the scheduler of the tasks that it runs."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.records.limits import FLUSH_S
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scaler_cluster.core.worker.work import Work

BESIDE = (m.Started, m.Printed, m.Profile)
"""What is said of a task beside what became of it."""
PATIENT = (m.Done, m.Printed, m.Profile)
"""What may wait for more of it."""
RESULTS = (m.Done, m.Erred, m.Printed, m.Profile)
"""What is said again to a scheduler that does not know this worker."""


class Kept(int):
    """In place of the result of a node: the worker keeps it, and it has so many bytes."""

    __slots__ = ()


class Reports:
    """Results of contiguous tasks are reported together, everything else by itself, in order.

    All is called under the lock of the worker, unless it says otherwise.
    """

    def __init__(self) -> None:
        self.results: list[bytes | Kept] = []
        """Pickled results of the open segment; the task loop appends without a lock."""
        self.last_end = 0.0
        """When the last task ended; the task loop writes it without a lock."""
        self.took_s = 0.0
        """How long a task took lately: each after a long one is measured, of short ones one every
        few milliseconds. The task loop writes it without a lock."""
        self.held_until = 0.0
        """Results wait until then for more of them; no sooner does the control thread act."""
        self.unsent_since = 0.0
        """When the first task began whose result was not sent."""
        self.is_withheld = False
        """True: the scheduler has not said yet which tasks it wants to hear of."""
        self.unwanted: tuple[int, int] | None = None
        """Session and id of a task that runs, and of which the scheduler is not to hear."""
        self.garbage: list[bytes] = []
        """Segments of results that nobody wants; who removes them empties it."""
        self.outbox: list[m.Message] = []
        """What is to be said, in order; as long as it is withheld, :meth:`take` returns nothing."""
        self._segment: tuple[int, int] = (0, 0)
        self._since = 0.0
        self._are_nodes = False
        """Of the open segment: results may be kept."""

    def say(self, message: m.Message) -> None:
        """Send a message to the scheduler, after those before it."""
        self.outbox.append(message)

    def take(self) -> list[m.Message]:
        """Return what is to be sent to the scheduler."""
        if self.is_withheld:
            return []
        outbox = self.outbox
        self.outbox = []
        self.held_until = 0.0
        self.unsent_since = self.last_end
        if self.unwanted is not None:
            outbox = self._without_unwanted(outbox)
        return outbox

    # -- before a scheduler that does not know this worker ---------------------------------------

    def withhold(self, undelivered: Sequence[m.Message]) -> list[m.Message]:
        """Send nothing until :meth:`release`; return what is withheld.

        Of what was said before that are results, and what belongs to them.
        """
        self.flush()
        self.is_withheld = True
        # What was stored may be gone with the scheduler, or a client has got it by now.
        self.outbox = [one for one in (*undelivered, *self.outbox) if isinstance(one, RESULTS)]
        return self.outbox

    def take_garbage(self) -> list[bytes]:
        """Return the segments that are to be removed."""
        garbage, self.garbage = self.garbage, []
        return garbage

    def release(self) -> None:
        """Send what was withheld, and go on as ever."""
        self.is_withheld = False

    def give_up(self) -> None:
        """Nobody wants what was withheld."""
        if self.is_withheld:
            self.outbox.clear()
            self.is_withheld = False

    @property
    def are_waiting(self) -> bool:
        """Return True if there is something to report."""
        return bool(self.results) or (bool(self.outbox) and not self.is_withheld)

    @property
    def since(self) -> float:
        """When the first task began of which nothing was reported."""
        return self._since

    @property
    def is_patient(self) -> bool:
        """Return True if what waits may wait for more of it."""
        return all(isinstance(one, PATIENT) for one in self.outbox)

    def due(self, pumped_at: float) -> float:
        """Return when the control thread is to report what waits; it did last at ``pumped_at``.

        Just after a longer task, the task loop itself decides.
        """
        last = self.last_end if self.took_s >= FLUSH_S else pumped_at
        return max(max(last, pumped_at) + FLUSH_S, self.held_until)

    def next_task(self, work: Work) -> int:
        """Return the first task of the work that runs of which nothing was reported."""
        self.flush()
        return self._segment[1] if work.is_begun else work.first

    def discard(self, session: int, first: int, stop: int) -> None:
        """Forget what is withheld of these tasks."""
        self.flush()
        kept: list[m.Message] = []
        for message in self.outbox:
            begin, end = _tasks_of(message, session)
            if end <= first or begin >= stop:
                kept.append(message)
            elif isinstance(message, m.Done):
                kept += _parts(message, first - begin, stop - begin)
            elif isinstance(message, m.Stored):
                self.garbage += message.objects
        self.outbox = kept

    def _without_unwanted(self, outbox: list[m.Message]) -> list[m.Message]:
        """Say of the task that is not wanted only that it has ended, once it has."""
        assert self.unwanted is not None
        session, task = self.unwanted
        kept: list[m.Message] = []
        for message in outbox:
            begin, end = _tasks_of(message, session)
            if not begin <= task < end:
                kept.append(message)
                continue
            if isinstance(message, m.Stored):
                self.garbage += message.objects
            if not isinstance(message, BESIDE):
                self.unwanted = None
                kept.append(m.Aborted(0, task, 1))
        return kept

    # -- what the task loop says ----------------------------------------------------------------

    def begin(self, work: Work, now: float) -> None:
        """The loop starts on a work, or goes on with it after something else than a result."""
        if self.results:
            self.flush()
        if not self.outbox:
            self.unsent_since = now
        work.is_begun = True
        self._are_nodes = work.values is not None
        self._segment = (work.session, work.first + work.cursor)
        self._since = now
        self.last_end = now

    def flush(self) -> None:
        """Report the results so far."""
        results = self.results
        found = results[:]
        if not found:
            return
        count = len(found)
        del results[:count]
        session, first = self._segment
        end = self.last_end
        busy_s = max(end - self._since, 0.0)
        payloads: list[Any] = found
        if self._are_nodes and not all(type(one) is bytes for one in found):
            payloads = [one if type(one) is bytes else b"" for one in found]
            sizes = array("Q", [0 if type(one) is bytes else int(one) for one in found])
            done = m.DoneNodes(session, first, busy_s, Batch.of(payloads), sizes.tobytes())
            self.outbox.append(done)
        else:
            self.outbox.append(m.Done(session, first, busy_s, Batch.of(payloads)))
        self._segment = (session, first + count)
        self._since = end

    def started(self, work: Work) -> None:
        """The task at the cursor starts, and the scheduler wants to know."""
        self.flush()
        self.say(m.Started(work.session, work.task))

    def stored(self, work: Work, payload: bytes, segments: dict[bytes, int]) -> None:
        """The task at the cursor returned a value with large buffers; then as for erred."""
        self.flush()
        busy_s = max(self.last_end - self._since, 0.0)
        names, sizes = tuple(segments), tuple(segments.values())
        self.say(m.Stored(work.session, work.task, busy_s, payload, names, sizes))

    def shared(self, message: m.Shared) -> None:
        """What a node returned was sent, or cannot be; that it returned is said before."""
        self.flush()
        self.say(message)

    def erred(self, work: Work, kind: str, payload: bytes, detail: dict[str, Any]) -> None:
        """The task at the cursor failed; the loop calls :meth:`begin` before the next."""
        self.flush()
        busy_s = max(self.last_end - self._since, 0.0)
        self.say(m.Erred(work.session, work.task, busy_s, kind, payload, detail))

    def skipped(self, work: Work) -> None:
        """The task at the cursor needs what did not return here; then as for :meth:`erred`."""
        self.flush()
        self.say(m.Skipped(work.session, work.task))

    def interrupted(self, work: Work) -> None:
        """The task at the cursor was interrupted as asked; then as for :meth:`erred`."""
        self.flush()
        self.say(m.Aborted(work.session, work.task, 1))

    def printed(self, work: Work, stream: str, text: str) -> None:
        """The task at the cursor printed something."""
        self.say(m.Printed(work.session, work.task, stream, text))

    def profiled(self, work: Work, duration_s: float, cpu_time_s: float, memory_peak: int) -> None:
        """The task at the cursor took so much; what became of it follows."""
        self.say(m.Profile(work.session, work.task, duration_s, cpu_time_s, memory_peak))


def _tasks_of(message: m.Message, session: int) -> tuple[int, int]:
    """Return the tasks of a session that a report is about; none: it is about others."""
    if isinstance(message, m.Done | m.DoneNodes) and message.session == session:
        return message.first, message.first + len(message.batch)
    if isinstance(message, m.Aborted) and message.session == session:
        return message.first, message.first + message.count
    alone = m.Stored | m.Erred | m.Skipped | m.Started | m.Printed | m.Profile
    if isinstance(message, alone) and message.session == session:
        return message.task, message.task + 1
    return 0, 0


def _parts(done: m.Done, start: int, stop: int) -> Iterator[m.Done]:
    """Yield what is before ``start`` and from ``stop`` on, counted from the first result."""
    count = len(done.batch)
    for low, high in ((0, start), (stop, count)):
        if 0 <= low < high <= count:
            busy_s = done.busy_s * (high - low) / count
            yield m.Done(done.session, done.first + low, busy_s, done.batch.cut(low, high))

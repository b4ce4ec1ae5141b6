"""The loop in which a worker runs the tasks of a work, one after the other.

While messages come in, it acts without the lock. What keeps it right is the order of cursor, stop,
results and reports, so the simulation runs this very loop and looks for faults in that order.
"""

from __future__ import annotations

import enum
from functools import partial
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from scaler_cluster.core.records.credit import holding_s
from scaler_cluster.core.records.limits import FLUSH_S
from scaler_cluster.core.worker.kept_results import Pickled
from scaler_cluster.core.worker.reports import Kept
from scaler_cluster.core.worker.slot import SLOT_SESSION, SLOT_TASK, SLOT_WORK

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from scaler_cluster.core.worker.work import Work
    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.wire.batch import Buffer

OVERDUE_S = 0.005
"""Results that wait so long are reported by the loop, between two tasks: the tasks leave the
control thread no chance to run."""
AHEAD_S = 0.003
"""Results wait for the next ones if the worker has so much more work then, or another task: until
it has been given more, something is left to run."""


class Stored(NamedTuple):
    """A task returned a value whose large buffers lie in segments, each with its size."""

    payload: bytes
    segments: dict[bytes, int]


class Failure(NamedTuple):
    """A task failed: kind, payload and detail of :class:`Erred`."""

    kind: str
    payload: bytes
    detail: dict[str, Any]


class Unfinished(enum.Enum):
    """Why a task neither returned nor failed."""

    SKIPPED = enum.auto()
    """The node needs a result that is not here."""
    INTERRUPTED = enum.auto()
    """It was stopped, as the core had asked for."""


Outcome: TypeAlias = "bytes | Kept | Stored | Failure | Unfinished"
"""What became of a task; bytes are its pickled result."""


class Slot(Protocol):
    """Words of memory, by their number."""

    def __getitem__(self, word: int, /) -> int:
        """Return a word."""

    def __setitem__(self, word: int, value: int, /) -> None:
        """Write a word."""


class LoopHost(Protocol):
    """The process in which the loop runs, or what stands for it in a simulation."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held by the thread that uses the core.

        The loop asks for it each time: a forked child has another one.
        """

    @property
    def slot(self) -> Slot:
        """The words that outlive the process."""

    @property
    def pumped_at(self) -> float:
        """When :meth:`pump` was called last."""

    def clock(self) -> float:
        """Return the time."""

    def pump(self) -> object:
        """Send what is to be sent, and take in what has arrived; the lock is held."""

    def expect_results(self, by: float) -> None:
        """Results wait, and the next task may be long: see that they are reported by then."""

    def share(self) -> None:
        """Send results that workers elsewhere need, and write out what takes too much room.

        See :class:`KeptGraphs`.
        """

    def reported(self) -> None:
        """What this thread has stored was reported; the lock is held."""

    def has_come(self, work: Work) -> bool:
        """Return True once the segments of a work are here, or will never be.

        May wait until then. After False the loop yields, and asks again.
        """

    def load(self, work: Work) -> Callable[[Buffer], Outcome | None]:
        """Return what runs a task of the work, given its payload.

        Of a node it may put the value into ``work.kept``, for the nodes that need it here.
        It returns what became of the task; after None the loop yields, and is sent that.
        """


def run_work(core: WorkerCore, host: LoopHost, work: Work) -> Generator[None, Outcome | None, None]:
    """Run the tasks of a work. The loop takes no lock as long as nothing special happens."""
    message = work.message
    if message.objects or work.function.objects or work.values is not None:
        while not host.has_come(work):
            yield
    reports, clock, slot = core.reports, host.clock, host.slot
    work.cursor = 0
    with host.lock:
        if not work.stop:
            # All of it was taken back. It must not be charged with what this worker dies of.
            core.finish(work)
            return
        reports.begin(work, clock())
    slot[SLOT_SESSION] = 0
    slot[SLOT_WORK] += 1
    slot[SLOT_TASK] = work.first
    slot[SLOT_SESSION] = work.session
    run = host.load(work)
    append: Callable[[bytes | Kept], object] = reports.results.append
    if work.values is not None:
        append = partial(_keep, work, work.node, append)
    first, items, report_start = work.first, work.batch.payloads(), message.report_start
    overdue_at = 0.0
    now = clock()
    index = 0
    while True:
        work.cursor = index
        if index >= work.stop:
            with host.lock:
                if index >= work.stop:
                    core.finish(work)
                    return
        slot[SLOT_TASK] = first + index
        if report_start:
            with host.lock:
                reports.started(work)
                host.pump()
        outcome = run(items[index])
        while outcome is None:
            outcome = yield
        before = now
        now = reports.last_end = clock()
        if type(outcome) is bytes:
            append(outcome)
        elif type(outcome) is Kept:
            append(outcome)
            core.kept.add(outcome)
            if core.kept.is_due:
                host.share()
        else:
            with host.lock:
                _report(core, work, outcome)
                host.reported()
                work.cursor = index + 1
                reports.begin(work, now)
            if core.kept.is_due:
                host.share()
        if now >= overdue_at:
            overdue_at = _look_after_results(core, host, work, now, now - before)
        index += 1


def _look_after_results(
    core: WorkerCore, host: LoopHost, work: Work, now: float, took_s: float
) -> float:
    """See that results are reported that have waited for long enough, or may come to.

    The last task took so long. Return when to do so again.
    """
    reports = core.reports
    reports.took_s = took_s
    is_long = took_s >= FLUSH_S
    if _may_hold(core, host, work, now, took_s):
        host.expect_results(reports.held_until)
        # After that, the next result would come too late.
        last = reports.held_until - 2 * took_s
        return 0.0 if is_long else min(now + OVERDUE_S, last)
    # What is last is reported by the host, at once.
    if work.cursor + 1 < work.stop or len(core.queue) > 1:
        if is_long or now - host.pumped_at >= OVERDUE_S:
            with host.lock:
                reports.flush()
                host.pump()
            if core.kept.to_share:
                host.share()
        else:
            host.expect_results(now + FLUSH_S)
    # After a long task, the result of the next one may wait for others.
    return 0.0 if is_long else host.pumped_at + OVERDUE_S


def _may_hold(core: WorkerCore, host: LoopHost, work: Work, now: float, took_s: float) -> bool:
    """Return True if what waits can wait for what the next tasks return, and note until when."""
    held = holding_s(took_s)
    # What a node returned may be what nodes elsewhere wait for.
    if not held or work.values is not None:
        return False
    reports = core.reports
    ahead = ceil((max(took_s, OVERDUE_S) + max(took_s, AHEAD_S)) / took_s)
    # The control thread adds works to the queue, and takes results to report them.
    with host.lock:
        until = reports.unsent_since + held
        if now + took_s > until or not reports.is_patient:
            return False
        if _ahead(core, work, ahead) < ahead:
            # More may have come since the last report.
            host.pump()
        if _ahead(core, work, ahead) < ahead:
            return False
        reports.held_until = until + took_s
    return True


def _ahead(core: WorkerCore, work: Work, limit: int) -> int:
    """Return how many tasks wait behind the one that ended last, at least; the lock is held."""
    others = islice(core.queue, 1, 1 + limit)
    return work.stop - work.cursor - 1 + sum(one.stop for one in others)


def _keep(
    work: Work, start: int, append: Callable[[bytes | Kept], object], result: bytes | Kept
) -> None:
    """Note what a node returned for the nodes after it; ``start`` is the first of the work."""
    node = start + work.cursor
    if isinstance(result, Kept):
        work.kept.alone[node] = int(result)
    else:
        # Unless the value itself was put there.
        work.kept.values.setdefault(node, Pickled(result, ()))
    append(result)


def _report(core: WorkerCore, work: Work, outcome: Outcome) -> None:
    """Report what became of the task at the cursor, if that is not a result alone."""
    if isinstance(outcome, Stored):
        core.reports.stored(work, *outcome)
        if work.values is not None:
            found = Pickled(outcome.payload, tuple(outcome.segments))
            if work.kept.values.setdefault(work.node, found) is not found:
                nbytes = sum(outcome.segments.values())
                work.kept.copies[work.node] = nbytes, found
                core.kept.add(nbytes)
    elif isinstance(outcome, Failure):
        core.reports.erred(work, *outcome)
    elif outcome is Unfinished.SKIPPED:
        core.reports.skipped(work)
    else:
        assert outcome is Unfinished.INTERRUPTED
        core.interrupted(work)

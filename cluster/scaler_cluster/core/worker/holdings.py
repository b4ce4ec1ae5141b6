"""What a worker holds when the scheduler does not know it, and what of that nobody asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.worker.ledger import Ledger
from scaler_cluster.core.worker.work import take_out
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator, Sequence

    from scaler_cluster.core.worker.reports import Reports
    from scaler_cluster.core.worker.work import Work

MOMENT_S = 1e-6
"""A task that runs has run for so long at least."""


class Holdings:
    """Knows what of a worker's queue and reports the scheduler was told of."""

    def __init__(self, queue: deque[Work], reports: Reports) -> None:
        self._queue = queue
        self._reports = reports
        self.ledger = Ledger()
        """Which tasks were started that must never start again."""
        self.devices: tuple[int, ...] = ()
        """The GPUs that its tasks were last told to use."""
        self.aborted: tuple[int, int] | None = None
        """Session and id of the running task that was aborted last."""
        self._told: tuple[int, int] | None = None
        """Session and id of the task that was said to run; None: none was."""

    def name(
        self, undelivered: Sequence[m.Message], first_segment: int, now: float
    ) -> list[m.Message]:
        """Name all there is, beginning with what was said and may not have arrived."""
        held: list[m.Message] = []
        nested = {work.session for work in self._queue if work.message.depth}
        for message in self._reports.withhold(undelivered):
            if isinstance(message, m.Done):
                count = len(message.batch)
                done = message.session, message.first, count, count, 0.0
                held.append(m.Holding(*done, message.session in nested))
            elif isinstance(message, m.Erred):
                erred = message.session, message.task, 1, 1, 0.0
                held.append(m.Holding(*erred, message.session in nested))
        self._told = None
        for index, work in enumerate(self._queue):
            if index == 0 and work.cursor >= 0:
                held += self._of_running(work, now)
            elif work.stop:
                queued = work.session, work.first, work.stop, 0, 0.0
                held.append(m.Holding(*queued, work.message.depth > 0, work.message.portion))
        ledger = self.ledger.packed(), self.ledger.is_whole
        held.append(m.Held(*ledger, first_segment, self.devices))
        return held

    def _of_running(self, work: Work, now: float) -> Iterator[m.Holding]:
        """Yield what is left of the work that runs."""
        reports, stop = self._reports, work.first + work.stop
        first, started, running_s = reports.next_task(work), 0, 0.0
        if work.is_once:
            self.ledger.add(work.session, work.first, min(work.task + 1, stop))
        running = work.session, first
        if running in (self.aborted, reports.unwanted):
            # It was about to end: whoever asks for it now gets it from elsewhere.
            reports.unwanted = running
            first += 1
        elif first < stop:
            self._told, started = running, 1
            running_s = max(now - reports.since, MOMENT_S)
        if first < stop:
            left = work.session, first, stop - first, started, running_s
            yield m.Holding(*left, work.message.depth > 0, work.message.portion)

    def disown(self, session: int, first: int, stop: int) -> tuple[int, int] | None:
        """Drop tasks that nobody asks for; return that which runs and is to be interrupted."""
        reports, told, queue = self._reports, self._told, self._queue
        reports.discard(session, first, stop)
        take_out(queue, session, first, stop)
        work = queue[0] if queue else None
        running = (work.session, work.task) if work is not None and work.cursor >= 0 else None
        if work is not None and running is not None and _is_within(running, session, first, stop):
            # It may have been queued when it was named, and have begun since.
            if reports.next_task(work) == work.task:
                reports.unwanted = self.aborted = running
            else:
                # It has returned just now.
                reports.discard(session, first, stop)
                running = None
        else:
            running = None
        if told != running and told is not None and _is_within(told, session, first, stop):
            reports.say(m.Aborted(0, told[1], 1))
        return running


def _is_within(task: tuple[int, int], session: int, first: int, stop: int) -> bool:
    return task[0] == session and first <= task[1] < stop

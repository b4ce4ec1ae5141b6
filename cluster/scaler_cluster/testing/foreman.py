"""The foreman of a machine: a wide worker to the centre, a client to the machine's own scheduler.

Theory of operation
-------------------
The centre gives the foreman runs of tasks, as to a worker that runs many at once. The foreman keeps
them in a queue, and asks the scheduler of its machine for as many as its workers run, and a little
ahead. What it has not asked for yet, it gives back at once when the centre wants it. Results are
collected for some milliseconds, and reported together.

To the scheduler of the machine it is a client like any other: what has not come back is asked for
again if that scheduler is killed, while its workers run on. To the centre it is a worker like any
other: it says what it holds if the centre is killed.

This is a core, as those of :mod:`scaler_cluster.core`: messages and the time come in, messages go
out. Objects and graphs are not for it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.core.client.events import Settled
from scaler_cluster.core.records.limits import WINDOW_S
from scaler_cluster.core.worker.ledger import Ledger
from scaler_cluster.ids import ranges_of
from scaler_cluster.testing.foreman_reports import Entrusted, ForemanReports
from scaler_cluster.testing.wide import target
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FEED_S = 0.015
"""How much work the machine's scheduler has ahead for each worker."""
TIMED_S = 1e6
"""As a timeout: the centre watches the clock, and must hear of the start."""


@dataclass(slots=True)
class _Queued:
    """Tasks of an Assign that the machine's scheduler was not asked for."""

    message: m.Assign
    start: int
    stop: int

    @property
    def first(self) -> int:
        return self.message.first + self.start

    def holds_any(self, session: int, first: int, stop: int) -> bool:
        end = self.message.first + self.stop
        return self.message.session == session and self.first < stop and end > first


class ForemanCore:
    """Hands on tasks from the centre to the scheduler of a machine, and their outcomes back."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.client = ClientCore()
        """What talks to the scheduler of the machine."""
        self.is_unknown = False
        """True: the shell is to say Hello to the centre anew, and what :meth:`come_back` says."""
        self.is_given_up = False
        """True: the centre does not want this worker; the shell begins with another one."""
        self.given: dict[int, dict[int, Entrusted]] = {}
        """What the machine's scheduler was asked for, by session and task."""
        self.by_local: dict[int, Entrusted] = {}
        self._queue: deque[_Queued] = deque()
        self._functions: dict[bytes, bytes] = {}
        self._mean_s: dict[bytes, float] = {}
        self._ledger = Ledger()
        self._reports = ForemanReports()
        self._handlers: dict[type[m.Message], Callable[[Any], None]] = {
            m.Function: self._on_function,
            m.Forget: lambda _: None,
            m.Assign: self._on_assign,
            m.Revoke: self._on_revoke,
            m.Abort: self._on_abort,
            m.Welcome: self._on_welcome,
            m.Unknown: self._on_unknown,
            m.Goodbye: self._on_goodbye,
            m.Refused: self._on_goodbye,
            m.Release: lambda _: None,
        }

    # -- the centre --------------------------------------------------------------------------

    def receive(self, messages: Sequence[m.Message]) -> None:
        """Take in what the centre sent."""
        for message in messages:
            self._handlers[type(message)](message)

    def _on_function(self, message: m.Function) -> None:
        self._functions[message.function] = bytes(message.payload)

    def _on_assign(self, message: m.Assign) -> None:
        self._queue.append(_Queued(message, 0, len(message.batch)))

    def _on_unknown(self, _: m.Unknown) -> None:
        self.is_unknown = True

    def _on_goodbye(self, _: m.Goodbye | m.Refused) -> None:
        self.is_given_up = True

    def _on_revoke(self, message: m.Revoke) -> None:
        removed = self._take_out(message.session, message.first, message.first + message.count)
        kept = message.count - removed
        self._reports.say(m.Revoked(message.session, message.first, message.count, kept))

    def _on_abort(self, message: m.Abort) -> None:
        first, stop = message.first, message.first + message.count
        self._take_out(message.session, first, stop)
        given = self.given.get(message.session, {})
        asked = [given[task].local for task in range(first, stop) if task in given]
        for task in range(first, stop) if asked else ():
            self._forget(message.session, task)
        self.client.cancel(asked)
        if self._reports.is_withheld:
            self._reports.discard(message.session, first, stop)
        else:
            # The workers stop, or are killed, as the machine's scheduler sees to it.
            self._reports.say(m.Aborted(message.session, first, message.count))

    def _take_out(self, session: int, first: int, stop: int) -> int:
        """Drop tasks from the queue; return how many there were."""
        removed = 0
        left: deque[_Queued] = deque()
        for one in self._queue:
            if not one.holds_any(session, first, stop):
                left.append(one)
                continue
            low = max(first - one.message.first, one.start)
            high = min(stop - one.message.first, one.stop)
            removed += high - low
            for start, end in ((one.start, low), (high, one.stop)):
                if start < end:
                    left.append(_Queued(one.message, start, end))
        self._queue = left
        return removed

    # -- another centre ----------------------------------------------------------------------

    def come_back(self, undelivered: Sequence[m.Message]) -> list[m.Message]:
        """Return what to say, after a new Hello, to a centre that does not know this worker.

        ``undelivered`` was said before and may not have arrived.
        """
        self.is_unknown = False
        held: list[m.Message] = [*self._reports.withhold(undelivered)]
        for session, tasks in self.given.items():
            for first, stop in ranges_of(sorted(tasks)):
                held.append(m.Holding(session, first, stop - first, 0, 0.0))
        for item in self._queue:
            count = item.stop - item.start
            held.append(m.Holding(item.message.session, item.first, count, 0, 0.0))
        held.append(m.Held(self._ledger.packed(), self._ledger.is_whole, 0))
        return held

    def _on_welcome(self, _: m.Welcome) -> None:
        self._reports.is_withheld = False
        for tasks in self.given.values():
            for one in tasks.values():
                if one.is_timed and one.has_started:
                    self._reports.say(m.Started(one.session, one.task))

    def begin_anew(self) -> None:
        """Let go of everything: the centre has given this worker up for good."""
        self.is_given_up = self.is_unknown = False
        self.client.cancel(list(self.by_local))
        self._queue.clear()
        self.given.clear()
        self.by_local.clear()
        self._functions.clear()
        self._reports.clear()

    # -- the machine -------------------------------------------------------------------------

    def feed(self) -> list[Entrusted]:
        """Ask the machine's scheduler for what its workers should have; return what it is."""
        asked: list[Entrusted] = []
        while self._queue:
            item = self._queue[0]
            message = item.message
            unit_s = self._mean_s.get(message.function, WINDOW_S)
            room = target(self.width, unit_s, FEED_S) - len(self.by_local)
            count = min(room, item.stop - item.start)
            if count <= 0:
                break
            asked += self._ask(message, item.start, item.start + count)
            item.start += count
            if item.start == item.stop:
                self._queue.popleft()
        return asked

    def _ask(self, message: m.Assign, start: int, stop: int) -> list[Entrusted]:
        session, first = message.session, message.first + start
        function = message.function, self._functions[message.function], (), ""
        options = _options_of(message)
        if message.at_most_once:
            self._ledger.add(session, first, first + stop - start)
        given = self.given.setdefault(session, {})
        asked = []
        for task, payload in enumerate(message.batch.cut(start, stop), first):
            one = Entrusted(session, task, message.function, message.report_start)
            one.local = self.client.submit(function, message.call, options, (), bytes(payload), one)
            given[task] = self.by_local[one.local] = one
            asked.append(one)
        return asked

    def took(self, local: int, count: int, busy_s: float) -> None:
        """The machine's scheduler says how long tasks took: a field of Results, in the end."""
        for task in range(local, local + count):
            one = self.by_local.get(task)
            if one is not None:
                one.busy_s = busy_s / count
                mean_s = self._mean_s.get(one.function, one.busy_s)
                self._mean_s[one.function] = 0.9 * mean_s + 0.1 * one.busy_s

    def started(self, local: int) -> None:
        """The machine's scheduler says that a task with a timeout starts."""
        one = self.by_local.get(local)
        if one is not None and one.is_timed:
            one.has_started = True
            if not self._reports.is_withheld:
                self._reports.say(m.Started(one.session, one.task))

    def settle(self) -> list[m.Message]:
        """Take in what the machine's scheduler said to :attr:`client`; return the other news."""
        news: list[m.Message] = []
        for event in self.client.events.take():
            if isinstance(event, Settled):
                for one, outcome in event.pairs:
                    assert isinstance(one, Entrusted)
                    self._ended(one, outcome)
            elif isinstance(event, m.Output):
                at = self.by_local.get(event.task)
                if at is not None:
                    self._reports.say(m.Printed(at.session, at.task, event.stream, event.text))
            elif isinstance(event, m.Message):
                news.append(event)
        return news

    def _ended(self, one: Entrusted, outcome: object) -> None:
        self._forget(one.session, one.task)
        if isinstance(outcome, m.Failed):
            failed = outcome.kind, bytes(outcome.payload), outcome.detail
            self._reports.say(m.Erred(one.session, one.task, one.busy_s, *failed))
        else:
            assert isinstance(outcome, bytes | memoryview), f"{one} ended with {outcome!r}"
            self._reports.returned(one, bytes(outcome))

    def _forget(self, session: int, task: int) -> None:
        tasks = self.given.get(session)
        one = tasks.pop(task, None) if tasks is not None else None
        if one is not None:
            del self.by_local[one.local]
            if not tasks:
                del self.given[session]

    # -- reports -----------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if there is nothing to run, and nothing to report."""
        return not (self._queue or self.by_local or self._reports)

    @property
    def is_starving(self) -> bool:
        """True if a worker of the machine has nothing to do."""
        return not self._queue and len(self.by_local) < self.width

    @property
    def deadline(self) -> float:
        """When :meth:`take_actions` has something to say even if nothing happens."""
        return self._reports.due(is_starving=self.is_starving, is_last=not self.by_local)

    def take_actions(self, now: float) -> list[m.Message]:
        """Return what is to be sent to the centre."""
        return self._reports.take(now, self.deadline)


def _options_of(message: m.Assign) -> m.TaskOptions:
    """Return the options with which the machine's scheduler is asked for tasks."""
    return m.intern_options(
        m.TaskOptions(
            timeout_s=TIMED_S if message.report_start else None,
            at_most_once=message.at_most_once,
            stream_output=message.stream_output,
            depth=message.depth,
            log_level=message.log_level,
        )
    )

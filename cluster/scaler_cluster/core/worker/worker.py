"""The worker: what it has to run, and what it was asked to give back or drop.

The task loop moves ``work.cursor`` forward without a lock; everything else here is called under
the lock of the worker. So a task is *claimed* once the cursor stands on it, and
:meth:`Work.shrink` looks at the cursor again after it moved the end of a work.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from scaler_cluster.core.worker.holdings import Holdings
from scaler_cluster.core.worker.kept_results import KeptGraphs
from scaler_cluster.core.worker.reports import Reports
from scaler_cluster.core.worker.work import (
    FunctionEntry,
    Work,
    take_out,
    values_of,
)
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class WorkerCore:
    """Holds the queue and the reports of a worker."""

    def __init__(self) -> None:
        self.queue: deque[Work] = deque()
        self.functions: dict[bytes, FunctionEntry] = {}
        self.mapped: dict[bytes, memoryview] = {}
        """Segments that the shell has mapped."""
        self.missing: dict[bytes, str] = {}
        """Segments that the shell need not wait for, and why."""
        self.awaited: dict[bytes, None] = {}
        """Segments that were not here when a work needed them; the scheduler will say more."""
        self.reports = Reports()
        self.interrupt: tuple[int, int] | None = None
        """Session and task that the shell should interrupt, if it runs."""
        self.leave: str | None = None
        """Why to leave, once the queue is empty; None: stay."""
        self.is_unknown = False
        """True: the shell is to say Hello anew, and what :meth:`come_back` returns."""
        self.hosts: m.Hosts | None = None
        """The actor that lives here: what runs of it is never interrupted. None: none does."""
        self.portion: m.Portion | None = None
        """What that has of the machine."""
        self.on_tail_logs: Callable[[m.TailLogs], None] = partial(_refuse_to_tail, self.reports)
        """Answers when a monitor wants to know what tasks print."""
        self.on_leave: Callable[[], None] = lambda: None
        """Says what else there is to say, just before the worker leaves."""
        self.on_sample: Callable[[m.Sample], None] = partial(_refuse_sample, self)
        """Answers when a monitor wants to know what tasks do."""
        self._holdings = Holdings(self.queue, self.reports)
        self.kept = KeptGraphs()

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

    def _on_retire(self, _: m.Retire) -> None:
        self.leave = ""
        self._give_all_away()

    def _give_all_away(self) -> None:
        """What this worker alone has would be lost with it, if it leaves and its cluster stays."""
        if self.leave == "" and not self.queue:
            self.on_leave()
            self.kept.ask_for_all()

    def _on_goodbye(self, message: m.Refused | m.Goodbye) -> None:
        self.leave = message.reason
        self.reports.give_up()

    def _on_unknown(self, _: m.Unknown) -> None:
        self.is_unknown = True

    def _on_welcome(self, _: m.Welcome) -> None:
        # What was awaited is looked for again: another scheduler was to tell of it.
        self.awaited.clear()
        # What is used is mapped again; of the rest this scheduler does not know.
        self.mapped.clear()
        self.reports.release()

    def _on_function(self, message: m.Function) -> None:
        self.functions[message.function] = FunctionEntry(message.payload, message.objects)
        self._expect(message.objects)

    def _on_release(self, message: m.Release) -> None:
        for segment in message.objects:
            self.mapped.pop(segment, None)
            self.missing.pop(segment, None)
            self.awaited.pop(segment, None)
            # The machine that held it is lost: a work that waits for a copy would do so for ever.
            if any(segment in work.segments for work in self.queue):
                self.missing[segment] = "the machine that held this object was lost"

    def _on_missing(self, message: m.Missing) -> None:
        for segment in message.objects:
            self.missing[segment] = message.reason
            self.awaited.pop(segment, None)

    def _on_arrived(self, message: m.Arrived) -> None:
        for segment in message.objects:
            self.awaited.pop(segment, None)

    def _on_hosts(self, message: m.Hosts) -> None:
        self.hosts, self.portion = message, message.portion

    def _expect(self, segments: tuple[bytes, ...]) -> None:
        """These are there or will come, unless it is said that they will not after this."""
        for segment in segments:
            self.missing.pop(segment, None)

    def _on_assign(self, message: m.Assign) -> None:
        function = self.functions.get(message.function)
        if function is None:
            raise RemoteProtocolError("tasks of a function that was not sent")
        if self.missing:
            self._expect(function.objects + message.objects)
        if message.portion is not None:
            self._holdings.devices = message.portion.devices or self._holdings.devices
        self.queue.append(Work(message, function))

    def _on_assign_nodes(self, message: m.AssignNodes) -> None:
        function = self.functions.get(message.function)
        if function is None:
            raise RemoteProtocolError("nodes of a graph whose functions were not sent")
        self._expect(function.objects + message.objects + message.segments)
        if message.portion is not None:
            self._holdings.devices = message.portion.devices or self._holdings.devices
        values = values_of(message)
        kept = self.kept.of(message.session, message.graph)
        self.queue.append(Work(message, function, values, kept))

    def _on_revoke(self, message: m.Revoke) -> None:
        removed = 0
        stop = message.first + message.count
        for first, end in take_out(self.queue, message.session, message.first, stop):
            removed += end - first
        self.reports.say(
            m.Revoked(message.session, message.first, message.count, message.count - removed)
        )

    def _on_abort(self, message: m.Abort) -> None:
        stop = message.first + message.count
        if self.reports.is_withheld:
            running = self._holdings.disown(message.session, message.first, stop)
            if self.hosts is None:
                self.interrupt = running or self.interrupt
            return
        for first, end in take_out(self.queue, message.session, message.first, stop):
            self.reports.say(m.Aborted(message.session, first, end - first))
        if self.queue and self.hosts is None:
            work = self.queue[0]
            is_running = work.cursor >= 0 and work.session == message.session
            if is_running and message.first <= work.task < stop:
                self.interrupt = self._holdings.aborted = (work.session, work.task)

    _HANDLERS: ClassVar[dict[type[m.Message], Callable[[Any, Any], None]]] = {
        m.Assign: _on_assign,
        m.AssignNodes: _on_assign_nodes,
        m.DropResults: lambda core, message: core.kept.drop(message),
        m.Share: lambda core, message: core.kept.ask(message),
        m.GraphOver: lambda core, message: core.kept.end(message.session, message.graph),
        m.Function: _on_function,
        m.Forget: lambda core, message: core.functions.pop(message.function, None),
        m.Hosts: _on_hosts,
        m.Revoke: _on_revoke,
        m.Abort: _on_abort,
        m.Release: _on_release,
        m.Missing: _on_missing,
        m.Arrived: _on_arrived,
        m.Welcome: _on_welcome,
        m.Retire: _on_retire,
        m.TailLogs: lambda core, message: core.on_tail_logs(message),
        m.Sample: lambda core, message: core.on_sample(message),
        m.Refused: _on_goodbye,
        m.Goodbye: _on_goodbye,
        m.Unknown: _on_unknown,
    }

    # -- from the shell ----------------------------------------------------------------------

    def waits(
        self, work: Work, segments: tuple[bytes, ...], is_here: Callable[[bytes], bool]
    ) -> bool:
        """Return True while a work must wait for segments that are on their way to this machine.

        A segment is looked for with ``is_here`` until it was found absent once: from then on the
        scheduler tells this worker what becomes of it. As long as a work waits, all of its tasks
        may be taken back.
        """
        if not work.stop or self.leave is not None:
            return False
        awaited = self.awaited
        for one in segments:
            if one not in self.missing and one not in awaited and not is_here(one):
                awaited[one] = None
        return any(one in awaited for one in segments)

    def may_leave(self, unheard: int) -> bool:
        """Return True if this worker is to leave, and nothing is lost with it.

        ``unheard`` is how many envelopes the scheduler has not acknowledged. News of the end of
        this process comes to it by another connection, and may be faster than they. A scheduler
        that gave a reason to leave, as each does that ends or refuses a worker, hears no more.
        """
        if self.leave is None or self.queue or self.reports.is_withheld:
            return False
        return self.leave != "" or not (unheard or self.reports.are_waiting)

    def come_back(
        self, undelivered: Sequence[m.Message], first_segment: int, now: float
    ) -> list[m.Message]:
        """Return what to say to a scheduler that does not know this worker, after a new Hello.

        ``undelivered`` was said before and may not have arrived. Segments from the number
        ``first_segment`` on may still be reported. Until the scheduler answers, nothing else is
        said; the tasks run on meanwhile.
        """
        self.is_unknown = False
        for session, graph in list(self.kept.graphs):
            self.kept.end(session, graph)
        for told in (self.mapped, self.missing, self.awaited):
            told.clear()
        hosts = [] if self.hosts is None else [self.hosts]
        return [*hosts, *self._holdings.name(undelivered, first_segment, now)]

    def finish(self, work: Work) -> None:
        """The shell ran a work to its end."""
        if work.is_once:
            self._holdings.ledger.add(work.session, work.first, work.first + work.stop)
        if self.queue and self.queue[0] is work:
            self.queue.popleft()
            self._give_all_away()
            if self.missing and not self.queue:
                for segment in self.missing:
                    # It was released just before a task mapped it.
                    self.mapped.pop(segment, None)
                self.missing.clear()

    def end_with(self, work: Work) -> None:
        """Let a work end with the task at its cursor; the rest is a work of its own."""
        old_stop = work.stop
        stop = work.shrink(work.cursor + 1)
        if stop < old_stop:
            self.queue.insert(1, work.part(stop, old_stop))

    def interrupted(self, work: Work) -> None:
        """The task at the cursor was interrupted as asked."""
        self.interrupt = None
        self.reports.interrupted(work)

    def interrupt_due(self) -> bool:
        """Return True if the task that was aborted still runs."""
        if self.interrupt is not None:
            work = self.queue[0] if self.queue else None
            if work is None or self.interrupt != (work.session, work.task):
                self.interrupt = None
        return self.interrupt is not None

    def take_actions(self) -> list[m.Message]:
        """Return what is to be sent to the scheduler."""
        return self.reports.take()


def _refuse_to_tail(reports: Reports, message: m.TailLogs) -> None:
    """Answer for a worker that does not see what its tasks print."""
    if message.is_first and message.for_s:
        reports.say(m.LogLines(reason="another system runs the tasks of this worker"))


def _refuse_sample(core: WorkerCore, message: m.Sample) -> None:
    """Answer for a worker that cannot look into its tasks."""
    answer = m.Sampled(message.number)
    if core.queue:
        work = core.queue[0]
        answer.session, answer.task, answer.runs = work.session, work.task, work.message.function
        answer.reason = "another system runs the task"
    core.reports.say(answer)

"""The worker process: runs tasks in its main thread, one at a time.

The main thread reads the socket itself between tasks, so nothing is handed from thread to thread
on the fast path. A control thread acts while a task sleeps or computes outside of Python: it
reports results that wait, takes new tasks in, gives queued ones back and interrupts a cancelled
one. Both use the link and the core under one lock.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from functools import partial
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from scaler_cluster.client import worker_context
from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.records.limits import FLUSH_S
from scaler_cluster.core.records.placement import has_inside, is_named
from scaler_cluster.core.worker.task_loop import Failure, run_work
from scaler_cluster.errors import CodeError
from scaler_cluster.ids import HUB, alias_of
from scaler_cluster.links.link import new_incarnation
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.pickling.nodes import NodeLoader
from scaler_cluster.process.interrupts import deferred
from scaler_cluster.runtime.control_thread import ControlThread
from scaler_cluster.runtime.failures import describe_setup_failure
from scaler_cluster.runtime.forked_lock import ForkedLock
from scaler_cluster.runtime.functions import enter, function_of, is_entered
from scaler_cluster.runtime.named_run import make_named_run
from scaler_cluster.runtime.node_results import NodeResults
from scaler_cluster.runtime.output import Sender, TaskOutput, undivert
from scaler_cluster.runtime.profile import measured
from scaler_cluster.runtime.sharing import Sharing
from scaler_cluster.runtime.task_interrupts import TaskInterrupts
from scaler_cluster.runtime.task_run import TaskEnd, make_run
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from scaler_cluster.core.worker.reports import Kept
    from scaler_cluster.core.worker.task_loop import Outcome
    from scaler_cluster.core.worker.work import FunctionEntry, Work
    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.links.open_link import Spoke
    from scaler_cluster.objects.worker_store import WorkerStore
    from scaler_cluster.runtime.memory_maintenance import MemoryMaintenance
    from scaler_cluster.runtime.nested import NestedSession
    from scaler_cluster.runtime.profile import Took
    from scaler_cluster.runtime.task_environment import TaskEnvironment
    from scaler_cluster.security.credentials import Credentials
    from scaler_cluster.wire.batch import Buffer

TICK_S = 0.05
"""Repetitions and acknowledgements are looked after this often at most."""
SHARING_S = 0.0005
"""How long the main thread sleeps at once while the control thread pickles results."""
DRAIN_LIMIT = 64
PRINT_AHEAD = 1024
"""Envelopes that the scheduler has not acknowledged, beyond which a task that prints waits: it
acknowledges every 64th."""


class WorkerShell:
    """Runs a worker until it is told to leave."""

    def __init__(
        self,
        link: Spoke,
        core: WorkerCore,
        slot: memoryview,
        store: WorkerStore,
        hello: m.Hello,
        address: str,
        credentials: Credentials,
        peer: bytes,
        maintenance: MemoryMaintenance,
        environment: TaskEnvironment,
    ) -> None:
        self.address = address
        self.credentials = credentials
        """Of the scheduler."""
        self.peer = peer
        self.process = hello.pid, hello.host
        """See TaskHost."""
        name = f"the worker {hello.name}, " if hello.name else "the worker "
        self.where = f"{name}process {hello.pid} on {hello.host}"
        """What this process is called in errors."""
        self._names = hello.name, hello.host, alias_of(peer).hex()
        self.nested: NestedSession | None = None
        """Where its tasks submit tasks; None as long as they never did."""
        # Reentrant only because such a lock says whether this thread holds it: see Sender.
        self.lock: AbstractContextManager[object] = threading.RLock()
        """Held by the thread that uses the core and the link."""
        self.slot = slot
        """The words that outlive the process."""
        self.clock = perf_counter
        """Returns the time."""
        self.pumped_at = 0.0
        """When :meth:`pump` was called last."""
        self.is_busy = False
        """The main thread runs tasks."""
        self._opening = threading.Lock()
        self._hello = hello
        self._link = link
        self._core = core
        self._exchange = Exchange(new_incarnation())
        self._tick_at = 0.0
        self._store = store
        self.reported = store.names.reported
        """See LoopHost."""
        self._maintenance = maintenance
        self._environment = environment
        self._interrupts = TaskInterrupts(core)
        self._sharing = Sharing(self, core, store)
        self.share = self._sharing.send_all
        """See LoopHost."""
        self._end = TaskEnd(self, store, self._interrupts)
        self._control = ControlThread(self, core, self._interrupts, link.fd)
        core.on_sample = self._control.sample
        self.expect_results = self._control.expect_results
        """See LoopHost."""
        os.register_at_fork(after_in_child=self._on_forked)
        self._send([hello])
        worker_context.open_session = self.open_session
        self._control.start()

    def run(self) -> None:
        """Run tasks until told to leave and nothing is left to run."""
        core, link, maintenance, clock = self._core, self._link, self._maintenance, self.clock
        reports = core.reports
        while True:
            with self.lock:
                if reports.results:
                    reports.flush()
                if not core.queue:
                    self._control.stop_listening()
                has_more = self.pump()
                self.is_busy = bool(core.queue)
                # The control thread may begin with a result, and end with one, at any other time.
                has_to_share, is_sharing = core.kept.has_requests, self._sharing.threads > 0
                # Only what arrives from now on wakes the control thread.
                self._control.turn(self.pumped_at, 0.0 if has_more else reports.took_s)
            if reports.last_end > maintenance.done_at and clock() >= maintenance.due:
                maintenance.run()
            if self.is_busy:
                while core.queue:
                    for _ in run_work(core, self, core.queue[0]):
                        raise AssertionError("nothing is waited for in here")
                    if self.nested is not None:
                        self.nested.end_task()
                    if reports.last_end >= maintenance.due:
                        # First of all, what is done is reported.
                        break
            elif has_to_share:
                self.share()
            elif is_sharing:
                # The control thread is at it: what it has to send is sent from here.
                sleep(SHARING_S)
            elif core.may_leave(self._exchange.backlog(HUB)):
                self._store.give_up_claim()
                with self.lock:
                    self._send([m.Goodbye()])
                return
            else:
                # No spinning here: two CPUs are enough for client and scheduler to converse with
                # a worker that sleeps, but not for three that spin.
                deadline, rest_due = self._exchange.deadline, maintenance.rest_due(reports.last_end)
                due = min(deadline, rest_due)
                if reports.last_end > maintenance.done_at:
                    due = min(due, maintenance.due)
                link.wait(min(max(due - clock(), 0.0), 3600.0))
                now = clock()
                if now >= deadline:
                    self._tick_at = now
                if now >= rest_due and not link.readable():
                    maintenance.rest()

    # -- under the lock ----------------------------------------------------------------------

    def _send(self, messages: list[m.Message]) -> None:
        for frames in self._exchange.send(HUB, messages, self.clock()):
            self._link.send(HUB, frames)

    def pump(self) -> bool:
        """See Controlled."""
        link, exchange, core = self._link, self._exchange, self._core
        reports = core.reports
        while True:
            now = self.pumped_at = self.clock()
            if reports.outbox and not reports.is_withheld:
                for frames in exchange.send(HUB, reports.take(), now):
                    link.send(HUB, frames)
            if now >= self._tick_at:
                self._tick_at = now + TICK_S
                for _, frames in exchange.tick(now):
                    link.send(HUB, frames)
                link.tend()
                if reports.garbage:
                    self._store.remove(reports.take_garbage())
            # After the last send: that may swallow the signal that something has arrived. A worker
            # of short tasks begins with the first that comes, and looks for more a little later.
            limit = DRAIN_LIMIT if self.is_busy or reports.took_s >= FLUSH_S else 1
            received = link.receive(limit)
            for _, frames in received:
                core.receive(exchange.receive(HUB, frames, now))
            if core.is_unknown:
                self._come_back(now)
                exchange = self._exchange
            is_empty = not reports.outbox or reports.is_withheld
            has_all = len(received) < limit
            if is_empty and (core.queue or has_all):
                return not has_all

    def _come_back(self, now: float) -> None:
        """Tell a scheduler that does not know this worker what it holds."""
        if self.nested is not None and not self.nested.forget_scheduler():
            # What its task submitted is lost, and the task with it.
            os._exit(0)
        undelivered, self._exchange = self._exchange.undelivered(HUB), Exchange(new_incarnation())
        said = self._core.come_back(undelivered, self._store.names.first, now)
        self._send([replace(self._hello, resume=1), *said])

    # -- what the task loop asks for: see LoopHost -------------------------------------------

    def has_come(self, work: Work) -> bool:
        """Wait until the segments of a work are here, or will never be; return True."""
        message = work.message
        stored = work.function.objects + message.objects
        made = message.segments if isinstance(message, m.AssignNodes) else ()
        if stored or made:
            segments = self._store.awaitable(stored, made)
            if segments and self._waits(work, segments):
                self._wait_for(work, segments)
        return True

    def _waits(self, work: Work, segments: tuple[bytes, ...]) -> bool:
        # Under the lock: else the news that one has come may come while it is being looked for.
        with self.lock:
            return self._core.waits(work, segments, self._store.is_here)

    def _wait_for(self, work: Work, segments: tuple[bytes, ...]) -> None:
        """Read the socket until the scheduler has said what became of the segments of a work."""
        with self.lock:
            self.is_busy = False
            self._control.turn(self.pumped_at, 0.0)
            self._core.reports.flush()
        while self._waits(work, segments):
            if self._core.kept.to_share:
                self.share()
            with self.lock:
                self._tick_at = 0.0
                self.pump()
                due = self._exchange.deadline
            if self._sharing.threads:
                # As in run: what the control thread has to send is sent from here.
                sleep(SHARING_S)
            elif self._waits(work, segments):
                self._link.wait(min(max(due - self.clock(), 0.0), 3600.0))
        with self.lock:
            self.is_busy = True
            self._control.turn(self.pumped_at, 0.0)

    def load(self, work: Work) -> Callable[[Buffer], Outcome]:
        """Return what runs a task of the work; it fails if the function cannot be unpickled."""
        portion = work.message.portion or self._core.portion
        if portion is None:
            return self._load(work)
        # First of all: what is unpickled may look at the environment.
        leave = self._environment.enter(portion)
        run = self._load(work)

        def run_within(payload: Buffer) -> Outcome:
            try:
                return run(payload)
            finally:
                leave()

        return run_within

    def _load(self, work: Work) -> Callable[[Buffer], Outcome]:
        message, store, entry = work.message, self._store, work.function
        kind = m.CALL_NODE if isinstance(message, m.AssignNodes) else message.call
        prints = message.stream_output or message.log_level
        is_plain = kind != m.CALL_NODE and not (message.objects or prints or message.profiling)
        if is_plain and kind in entry.runs and is_entered(entry):
            return entry.runs[kind]
        try:
            enter(entry, message.function, store.map, self.nested)
        except CodeError as caught:
            return self._failing(caught, f"{self.where} cannot run tasks of this client")
        except BaseException as caught:
            return self._failing(caught, "the worker cannot unpickle the function")
        call = function_of(entry, kind)
        loads: Callable[[Any], Any] = payloads.loads
        if message.objects:
            try:
                loads = partial(payloads.loads, buffers=store.map(message.objects))
            except BaseException as caught:
                return self._failing(caught, "the worker cannot map the arguments")
        keep_result: Callable[[Any], Kept | None] | None = None
        if isinstance(message, m.AssignNodes) and work.values is not None:
            loader = NodeLoader(
                entry.call, work.values, work.kept, loads, store.map, store.map_once
            )
            loads = loader.load
            if entry.code is None:
                # What is kept is pickled later, when the code of its client may not be in here.
                keep_result = NodeResults(work, loader.taken, is_shared=message.is_shared).keep
        output: TaskOutput | None = None
        if prints:
            sender = Sender(partial(self._try_print, work), self.lock)
            streams, log_level = message.stream_output, message.log_level
            output = TaskOutput(sender, streams=streams, log_level=log_level)
        if message.profiling:
            call = measured(call, partial(self._profiled, work))
        if kind == m.CALL_NAMED:
            run = make_named_run(call, output, self._end)
        else:
            run = make_run(loads, call, kind, message.objects, output, self._end, keep_result)
        if is_plain:
            entry.runs[kind] = run
        return run

    def _failing(self, error: BaseException, what: str) -> Callable[[Buffer], Outcome]:
        """Return what lets each task of a work fail, as none of them can be run."""
        failure = Failure(*describe_setup_failure(error, what, self.where))
        return lambda _: failure

    # -- while a task runs -------------------------------------------------------------------

    def _try_print(self, work: Work, stream: str, text: str) -> bool:
        """Send what a task printed or logged, unless too much of it is under way."""
        with self._interrupts.held_off(), self.lock:
            has_room = self._exchange.backlog(HUB) < PRINT_AHEAD
            if has_room:
                self._core.reports.printed(work, stream, text)
            # What comes in quick succession goes together: else the control thread sends it soon.
            if not has_room or self.clock() - self.pumped_at >= FLUSH_S:
                self.pump()
            else:
                self.expect_results(self.clock() + FLUSH_S)
            return has_room

    def _profiled(self, work: Work, took: Took) -> None:
        """Report what a task took; it goes with what became of it."""
        with self._interrupts.held_off(), self.lock:
            self._core.reports.profiled(work, *took)

    def _on_forked(self) -> None:
        """In the child of a task that forks: see that it never acts as the worker."""
        undivert()
        worker_context.open_session = None
        self.lock = ForkedLock()
        for work in self._core.queue:
            work.stop = 0

    def open_session(self) -> NestedSession:
        """Return the one session of this worker's tasks, made when it is first asked for."""
        if self.nested is None:
            # Most workers never need it, and it takes a while to import.
            from scaler_cluster.runtime.nested import NestedSession

            with deferred, self._opening:
                if self.nested is None:
                    self.nested = NestedSession(self)
                    self._interrupts.limited = self.nested.stack
        return self.nested

    # -- what the tasks ask for: see TaskHost ------------------------------------------------

    def may_run(self, options: m.TaskOptions) -> bool:
        """Return True if this worker has what tasks with these options demand."""
        if options.is_for_any:
            return True
        hello, queue = self._hello, self._core.queue
        # What the task has that waits may be used by one that runs on its stack.
        portion = queue[0].message.portion if queue else None
        has_it = has_inside(dict(hello.capabilities), portion, options)
        return has_it and is_named(options, self._names)

    def enter_task(self) -> Work | None:
        """Return the work whose task runs now, and is its last: the next is another work."""
        with self.lock:
            if not self._interrupts.in_task or not self._core.queue:
                return None
            work = self._core.queue[0]
            self._core.end_with(work)
            return work

    def end_if_forked(self) -> None:
        """End the process if a task forked it and it came back from the task."""
        with self.lock:
            pass

    def map_segments(self, segments: tuple[bytes, ...]) -> list[memoryview]:
        """Return segments as buffers; raises MissingObjectsError."""
        return self._store.map(segments)

    def loaded_function(self, digest: bytes) -> FunctionEntry | None:
        """Return a function that tasks which were sent here have called."""
        return self._core.functions.get(digest)

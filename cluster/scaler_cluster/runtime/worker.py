"""The worker process: runs tasks in its main thread, one at a time.

The main thread reads the socket itself between tasks, so nothing is handed from thread to thread
on the fast path. A control thread acts while a task sleeps or computes outside of Python: it
reports results that wait, takes new tasks in, gives queued ones back and interrupts a cancelled
one. Both use the link and the core under one lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from functools import partial
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster import payload as payloads
from scaler_cluster.by_value import PROTOCOL, set_classes
from scaler_cluster.core.exchange import Exchange
from scaler_cluster.core.placement import has_all, is_named
from scaler_cluster.core.worker import FLUSH_S, Work, WorkerCore
from scaler_cluster.errors import MissingObjects, PayloadError, StorageFull, TaskInterrupted
from scaler_cluster.exceptions import dumps_exception, lacking
from scaler_cluster.links.link import HUB
from scaler_cluster.nodes import NodeLoader, NotReturned, call_node
from scaler_cluster.runtime import inside, pools
from scaler_cluster.runtime.callees import load_callee
from scaler_cluster.runtime.interrupts import deferred
from scaler_cluster.runtime.output import Sender, TaskOutput, undivert
from scaler_cluster.runtime.profile import measured
from scaler_cluster.texts import show
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from scaler_cluster.core.worker import FunctionEntry
    from scaler_cluster.links.zmq_link import ZmqLink
    from scaler_cluster.objects.worker_store import WorkerStore
    from scaler_cluster.runtime.memory_maintenance import MemoryMaintenance
    from scaler_cluster.runtime.nested import NestedSession
    from scaler_cluster.runtime.profile import Took
    from scaler_cluster.wire.batch import Buffer

OVERDUE_S = 0.005
"""Results that wait so long are reported by the main thread, between two tasks: the tasks leave
the control thread no chance to run."""
TICK_MIN_S, TICK_MAX_S = 0.0005, 0.02
"""How late at most the control thread looks at the socket while a long task runs."""
INTERRUPT_SIGNAL = signal.SIGUSR2
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
"""The file that the code of import statements is said to be in."""
TICK_S = 0.005
"""Repetitions and acknowledgements are looked after this often at most."""
DRAIN_LIMIT = 64
MANAGERS = f"{os.sep}multiprocessing{os.sep}managers.py"
MANAGERS_HINT = (
    "; it was made by a multiprocessing.Manager(), whose server this worker must reach by its "
    "address, with the same multiprocessing.current_process().authkey: both are so in a cluster "
    "that the manager's program has started itself, elsewhere they are yours to see to"
)
PRINT_AHEAD = 1024
"""Envelopes that the scheduler has not acknowledged, beyond which a task that prints waits: it
acknowledges every 64th."""

# Words of the memory that a worker shares with its supervisor: what it runs, should it die.
SLOT_SESSION, SLOT_TASK, SLOT_READY, SLOT_WORK, SLOT_TRACE, SLOT_WORDS = 0, 1, 2, 3, 4, 5


class ForkedLock:
    """The worker's lock in a child that a task forked: who comes back from the task ends here."""

    def __enter__(self) -> None:
        """End the process, as the end of its program would."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)

    def __exit__(self, *_: object) -> None:
        """Never get so far."""


class WorkerShell:
    """Runs a worker until it is told to leave."""

    def __init__(
        self,
        link: ZmqLink,
        core: WorkerCore,
        slot: memoryview,
        store: WorkerStore,
        hello: m.Hello,
        address: str,
        peer: bytes,
        maintenance: MemoryMaintenance,
    ) -> None:
        self.address = address
        """Of the scheduler."""
        self.peer = peer
        name = f"the worker {hello.name}, " if hello.name else "the worker "
        self.where = f"{name}process {hello.pid} on {hello.host}"
        """What this process is called in errors."""
        self.nested: NestedSession | None = None
        """Where its tasks submit tasks; None as long as they never did."""
        self._hello = hello
        self._link = link
        self._core = core
        self._slot = slot
        # Reentrant only so that it can be asked who has it: see Sender.
        self._lock = threading.RLock()
        self._exchange = Exchange(os.getpid())
        self._in_task = False
        self._busy = False
        self._ticking = False
        self._main = threading.get_ident()
        self._tick_at = 0.0
        self._wake = threading.Event()
        self._pumped_at = 0.0
        self._store = store
        self._maintenance = maintenance
        signal.signal(INTERRUPT_SIGNAL, self._on_interrupt)
        os.register_at_fork(after_in_child=self._on_forked)
        self._send([hello])
        inside.shell = self
        threading.Thread(target=self._guard_control, name="scaler-control", daemon=True).start()

    def run(self) -> None:
        """Run tasks until told to leave and nothing is left to run."""
        core, link, maintenance = self._core, self._link, self._maintenance
        while True:
            with self._lock:
                core.flush()
                self._pump()
                self._busy = bool(core.queue)
            if core.last_end > maintenance.done_at and clock() >= maintenance.due:
                maintenance.run()
            if self._busy:
                if not self._ticking:
                    self._ticking = True
                    self._wake.set()
                while core.queue:
                    self._run(core.queue[0])
                    if self.nested is not None:
                        self.nested.end_task()
                    if core.last_end >= maintenance.due:
                        # First of all, what is done is reported.
                        break
            elif core.leave is not None:
                self._send([m.Goodbye()])
                return
            else:
                # No spinning here: two CPUs are enough for client and scheduler to converse with
                # a worker that sleeps, but not for three that spin.
                due = self._exchange.deadline
                if core.last_end > maintenance.done_at:
                    due = min(due, maintenance.due)
                link.wait(min(max(due - clock(), 0.0), 3600.0))

    def may_run(self, options: m.TaskOptions) -> bool:
        """Return True if this worker has what tasks with these options demand."""
        if not options.capabilities and not options.workers:
            return True
        hello = self._hello
        has_it = has_all(dict(hello.capabilities), options.capabilities)
        return has_it and is_named(options, hello.name, hello.host)

    # -- the lock's keepers ------------------------------------------------------------------

    def _send(self, messages: list[m.Message]) -> None:
        self._link.send(HUB, self._exchange.send(HUB, messages, clock()))

    def _pump(self) -> None:
        """Send what is to be sent and take in what has arrived; the lock is held."""
        link, exchange, core = self._link, self._exchange, self._core
        while True:
            now = self._pumped_at = clock()
            actions = core.take_actions()
            if actions:
                link.send(HUB, exchange.send(HUB, actions, now))
            if now >= self._tick_at:
                self._tick_at = now + TICK_S
                for _, frames in exchange.tick(now):
                    link.send(HUB, frames)
            # After the last send: that may swallow the signal that something has arrived. Who has
            # nothing to do begins with the first that comes, and looks for more a little later.
            limit = DRAIN_LIMIT if self._busy else 1
            received = link.receive(limit)
            for _, frames in received:
                core.receive(exchange.receive(HUB, frames, now))
            if not core.has_actions and (core.queue or len(received) < limit):
                return

    # -- the main thread ---------------------------------------------------------------------

    def _load(self, work: Work) -> Callable[..., Any]:
        """Return what to call with a payload's items; raises whatever unpickling it raises."""
        entry = work.function
        if not is_loaded(entry):
            load_function(entry, self._store.map(entry.objects))
            if self.nested is not None:
                self.nested.remember(work.message.function, entry)
        # What a peer sent that speaks for itself may be None: that fails where it is called.
        function: Callable[..., Any] = entry.call  # type: ignore[assignment]
        message = work.message
        kind = m.CALL_NODE if isinstance(message, m.AssignNodes) else message.call
        if kind == m.CALL_ARGS:
            return function
        if kind == m.CALL_NODE:
            return call_node
        if kind == m.CALL_KWARGS:
            return lambda args, kwargs: function(*args, **kwargs)
        return lambda *chunk: [function(*args) for args in chunk]

    def _fail_all(self, work: Work, error: BaseException, what: str) -> None:
        core = self._core
        _, detail = dumps_exception(error, error.__traceback__)
        detail["message"] = f"{what}: {show(error)}{lacking(error, self.where)}"
        kind = m.FAILED_MISSING if isinstance(error, MissingObjects) else m.FAILED_DESERIALIZE
        index = 0
        while True:
            work.cursor = index
            with self._lock:
                if index >= work.stop:
                    core.finish(work)
                    return
                core.begin(work, clock())
                core.erred(work, kind, b"", detail)
            index += 1

    def _run(self, work: Work) -> None:
        """Run the tasks of a work. The loop takes no lock as long as nothing special happens."""
        core, slot = self._core, self._slot
        message = work.message
        stored = work.function.objects + message.objects
        made = message.segments if isinstance(message, m.AssignNodes) else ()
        if stored or made:
            # As long as they wait, all of its tasks may be taken back.
            self._store.wait_for(stored, made, lambda: work.stop > 0 and core.leave is None)
        work.cursor = 0
        with self._lock:
            if not work.stop:
                # All of it was taken back. It must not be charged with what this worker dies of.
                core.finish(work)
                return
            core.begin(work, clock())
        slot[SLOT_SESSION] = 0
        slot[SLOT_WORK] += 1
        slot[SLOT_TASK] = work.first
        slot[SLOT_SESSION] = work.session
        try:
            call = self._load(work)
        except BaseException as caught:
            self._fail_all(work, caught, "the worker cannot unpickle the function")
            return
        loads: Callable[[Any], Any] = payloads.loads
        if message.objects:
            try:
                loads = partial(payloads.loads, buffers=self._store.map(message.objects))
            except BaseException as caught:
                self._fail_all(work, caught, "the worker cannot map the arguments")
                return
        append, store = core.results.append, self._store
        keep, buffers, large = store.keep, store.buffers, store.large
        if work.values is not None:
            loads = NodeLoader(
                work.function.call, work.values, work.results, loads, store.map, store.map_once
            ).load
            append = partial(_keep, work, work.first - message.graph, append)  # type: ignore[union-attr]
        segments: dict[bytes, int] = {}
        dumps, protocol = payloads.c_dumps, PROTOCOL
        items = list(work.batch)
        first = work.first
        output: TaskOutput | None = None
        if message.stream_output or message.log_level:
            sender = Sender(partial(self._try_print, work), self._lock)
            streams, log_level = message.stream_output, message.log_level
            output = TaskOutput(sender, streams=streams, log_level=log_level)
        if message.profiling:
            call = measured(call, partial(self._profiled, work))
        overdue_at = self._pumped_at + OVERDUE_S
        now = clock()
        culprit = "the arguments"
        index = 0
        while True:
            work.cursor = index
            if index >= work.stop:
                with self._lock:
                    if index >= work.stop:
                        core.finish(work)
                        return
            slot[SLOT_TASK] = first + index
            if message.report_start:
                with self._lock:
                    core.started(work)
                    self._pump()
            error: BaseException | None = None
            stopped = False
            stage = m.FAILED_DESERIALIZE
            try:
                try:
                    self._in_task = True
                    args = loads(items[index])
                    stage = m.FAILED_EXCEPTION
                    if output is None:
                        value = call(*args)
                    else:
                        with output:
                            value = call(*args)
                    stage = m.FAILED_RESULT
                    if type(value) is bytes and len(value) >= large:
                        result = store.pickle(value)
                    else:
                        result = dumps(value, protocol, buffer_callback=keep)
                        if b"__main__" in result:
                            result = store.pickle(value)
                        elif len(result) >= large:
                            result = store.pickle(value, result)
                    self._in_task = False
                except TaskInterrupted:
                    raise
                except BaseException as caught:
                    error = caught
                    if stage == m.FAILED_RESULT:
                        # C pickle cannot do all that cloudpickle can.
                        result, error = _pickle_again(store, value)
                    elif stage == m.FAILED_DESERIALIZE and work.values is None:
                        culprit = _culprit(store, message, items[index])  # type: ignore[arg-type]
                    self._in_task = False
            except TaskInterrupted:
                self._in_task = False
                stopped = True
                if output is not None:
                    # Its end may have been interrupted.
                    output.__exit__()
            if buffers:
                self.end_if_forked()
                segments, error = _write(store, error, stopped=stopped)
            args = value = None
            before = now
            now = core.last_end = clock()
            if error is None and not stopped and not segments:
                append(result)
            else:
                with self._lock:
                    if segments:
                        core.stored(work, result, segments)
                        if work.values is not None:
                            node = first + index - message.graph  # type: ignore[union-attr]
                            work.results[node] = result, tuple(segments)
                        segments = {}
                    else:
                        self._report(work, stage, error, culprit)
                    work.cursor = index + 1
                    core.begin(work, now)
                error = None
            if now >= overdue_at:
                if now - before >= FLUSH_S or now - self._pumped_at >= OVERDUE_S:
                    with self._lock:
                        core.flush()
                        self._pump()
                overdue_at = self._pumped_at + OVERDUE_S
            index += 1

    def _report(self, work: Work, stage: str, error: BaseException | None, culprit: str) -> None:
        """Report a task that did not return: it raised, or was interrupted (None)."""
        core = self._core
        if error is None:
            core.interrupted(work)
        elif isinstance(error, NotReturned) and stage == m.FAILED_DESERIALIZE:
            core.skipped(work)
        else:
            core.erred(work, *describe_failure(stage, error, culprit, self.where))

    def _try_print(self, work: Work, stream: str, text: str) -> bool:
        """Send what a task printed or logged, unless too much of it is under way."""
        with self._uninterrupted(), self._lock:
            has_room = self._exchange.backlog(HUB) < PRINT_AHEAD
            if has_room:
                self._core.printed(work, stream, text)
            # What comes in quick succession goes together: else the control thread sends it soon.
            if not has_room or clock() - self._pumped_at >= FLUSH_S:
                self._pump()
            return has_room

    def _profiled(self, work: Work, took: Took) -> None:
        """Report what a task took; it goes with what became of it."""
        with self._uninterrupted(), self._lock:
            self._core.profiled(work, *took)

    @contextlib.contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        """Let no interrupt tear what a task's own thread sends; the next one comes soon."""
        in_task = self._in_task
        is_main = threading.get_ident() == self._main
        if is_main:
            self._in_task = False
        try:
            yield
        finally:
            if is_main:
                self._in_task = in_task

    def _on_interrupt(self, signum: int, frame: FrameType | None) -> None:
        """Stop the running task if it is the one that was aborted; in the main thread."""
        if _is_untimely(frame):
            # The signal comes again.
            return
        core = self._core
        if self._in_task and self.nested is not None and self.nested.stack.has_expired:
            if not deferred.postpone(lambda: self._on_interrupt(signum, frame)):
                self.nested.stack.raise_expired()
        elif self._in_task and core.interrupt is not None and core.queue:
            work = core.queue[0]
            if core.interrupt == (work.session, work.first + work.cursor):
                if deferred.postpone(lambda: self._on_interrupt(signum, frame)):
                    return
                core.interrupt = None
                raise TaskInterrupted

    def _on_forked(self) -> None:
        """In the child of a task that forks: see that it never acts as the worker."""
        undivert()
        inside.shell = None
        self._lock = ForkedLock()  # type: ignore[assignment]
        for work in self._core.queue:
            work.stop = 0

    def enter_task(self) -> Work | None:
        """Return the work whose task runs now, and is its last: :meth:`run` goes on after it."""
        with self._lock:
            if not self._in_task or not self._core.queue:
                return None
            work = self._core.queue[0]
            self._core.end_with(work)
            return work

    def end_if_forked(self) -> None:
        """End the process if a task forked it and it came back from the task."""
        with self._lock:
            pass

    def map_segments(self, segments: tuple[bytes, ...]) -> list[memoryview]:
        """Return segments as buffers; raises MissingObjects."""
        return self._store.map(segments)

    def loaded_function(self, digest: bytes) -> FunctionEntry | None:
        """Return a function that tasks which were sent here have called."""
        return self._core.functions.get(digest)

    # -- the control thread ------------------------------------------------------------------

    def _guard_control(self) -> None:
        try:
            self._control()
        except BaseException:
            # Without this thread tasks could not be stopped: let another process take over.
            sys.excepthook(*sys.exc_info())
            os._exit(1)

    def _control(self) -> None:
        """Act for the main thread while it is inside a task; sleep when no task has run lately."""
        core = self._core
        seen = 0.0
        pause_s: float | None = None
        while True:
            if self._wake.wait(pause_s):
                self._wake.clear()
            with self._lock:
                if not self._busy and core.last_end == seen:
                    self._ticking = False
                    pause_s = None
                    continue
                seen = core.last_end
                now = clock()
                if self._busy and now - self._pumped_at >= FLUSH_S:
                    core.flush()
                    self._pump()
                pause_s = max(self._pumped_at + FLUSH_S - now, (now - seen) / 2, TICK_MIN_S)
                pause_s = min(pause_s, TICK_MAX_S)
                if core.interrupt_due():
                    signal.pthread_kill(self._main, INTERRUPT_SIGNAL)


def load_function(entry: FunctionEntry, buffers: Sequence[Buffer]) -> None:
    """Unpickle a function; raises what that raises."""
    before = set_classes()
    entry.call = load_callee(entry.payload, buffers)
    pools.know(entry.call)
    after = set_classes()
    entry.set_classes = after if after != before else None


def is_loaded(entry: FunctionEntry) -> bool:
    """Return True if a function was unpickled, and its classes have the attributes that it knew."""
    return entry.call is not None and entry.set_classes in {None, set_classes()}


def _is_untimely(frame: FrameType | None) -> bool:
    """Return True if an exception must not be raised where this thread is.

    A module that is cut short may be one that no process can import twice, as numpy's are; and in
    a finalizer the exception would be lost.
    """
    while frame is not None:
        if frame.f_code.co_filename == IMPORT_SYSTEM or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def describe_failure(
    stage: str, error: BaseException, culprit: str, where: str
) -> tuple[str, bytes, dict[str, Any]]:
    """Return kind, payload and detail of a task's failure.

    ``culprit`` could not be unpickled, and ``where`` is this process, both for people.
    """
    trace = error.__traceback__
    payload, detail = dumps_exception(error, trace.tb_next if trace else None)
    if stage == m.FAILED_DESERIALIZE and isinstance(error, MissingObjects):
        # What a node needs was lost on the way: the scheduler may be able to have it made again.
        stage = m.FAILED_MISSING
        detail["message"] = str(error)
    elif stage == m.FAILED_DESERIALIZE:
        hint = MANAGERS_HINT if MANAGERS in detail["traceback"] else lacking(error, where)
        detail["message"] = f"the worker cannot unpickle {culprit}: {show(error)}{hint}"
    elif stage == m.FAILED_RESULT and isinstance(error, StorageFull):
        stage = m.FAILED_EXCEPTION
    elif stage == m.FAILED_RESULT:
        cause = show(error, str if isinstance(error, PayloadError) else repr)
        detail["message"] = f"the worker cannot pickle the result: {cause}"
    return stage, payload if stage == m.FAILED_EXCEPTION else b"", detail


def _pickle_again(store: WorkerStore, value: object) -> tuple[bytes, BaseException | None]:
    """Pickle what C pickle cannot."""
    try:
        return store.pickle(value), None
    except TaskInterrupted:
        raise
    except BaseException as error:
        return b"", error


def _keep(work: Work, offset: int, append: Callable[[bytes], None], result: bytes) -> None:
    """Note what a node returned for those that follow in the same work."""
    append(result)
    work.results[offset + work.cursor] = result, ()


def _culprit(store: WorkerStore, message: m.Assign, payload: Any) -> str:
    """Return what of a call cannot be unpickled."""
    if message.call == m.CALL_ARGS:
        with contextlib.suppress(Exception):
            buffers = store.map(message.objects)
            index = payloads.failing_argument(payload, buffers, TaskInterrupted)
            if index is not None:
                return f"argument {index}"
    return "the arguments"


def _write(
    store: WorkerStore, error: BaseException | None, *, stopped: bool
) -> tuple[dict[bytes, int], BaseException | None]:
    """Store the large buffers of a result, unless there is none after all."""
    if error is not None or stopped:
        store.buffers.clear()
        return {}, error
    try:
        return store.write(), None
    except Exception as failure:
        return {}, failure

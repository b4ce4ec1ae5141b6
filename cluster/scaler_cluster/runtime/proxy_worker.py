"""A worker that runs nothing itself: each of its tasks is a call that another system runs.

To the scheduler it is a worker like any other. Here it is one of many in a process, and the task
loop of all of them runs in one thread, which never waits. Each task has a thread of its own, which
unpickles the call, waits for the other system, and pickles the result.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from functools import partial
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.worker.slot import SLOT_SESSION, SLOT_TASK, SLOT_WORDS, SLOT_WORK
from scaler_cluster.core.worker.task_loop import Failure, run_work
from scaler_cluster.errors import CodeError, TaskInterrupted
from scaler_cluster.ids import HUB
from scaler_cluster.links.link import new_incarnation
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.pickling.code_bundle import split
from scaler_cluster.pickling.named import is_named
from scaler_cluster.pickling.nodes import NodeLoader
from scaler_cluster.pickling.payload import function_name
from scaler_cluster.provision.remote import RemoteCall
from scaler_cluster.runtime.failures import describe_failure, describe_setup_failure
from scaler_cluster.runtime.remote_answer import CallFailed, Told, read_answer, value_of
from scaler_cluster.runtime.remote_call import pack, run_chunk
from scaler_cluster.runtime.sharing import Sharing
from scaler_cluster.runtime.task_run import TaskEnd, make_run
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from scaler_cluster.core.worker.task_loop import Outcome
    from scaler_cluster.core.worker.work import FunctionEntry, Work
    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.links.zmq_link import ZmqLink
    from scaler_cluster.objects.worker_store import WorkerStore
    from scaler_cluster.provision.remote import RemoteRunner
    from scaler_cluster.runtime.remote_answer import Answer
    from scaler_cluster.wire.batch import Buffer

DRAIN_LIMIT = 64
_loading = threading.Lock()
"""Held while a node's payload is unpickled: what it needs is found by way of a global variable."""


class NotInterrupted:
    """Stands for the interrupts of a worker's main thread: the threads here are not interrupted."""

    in_task = False


class RemoteTask:
    """The task that a worker has elsewhere at the moment."""

    def __init__(self) -> None:
        self.call: RemoteCall | None = None
        self.outcome: Outcome | None = None
        """What became of it; None: nobody knows yet."""
        self.answer: Answer | None = None
        self.thread: threading.Thread | None = None
        self.is_interrupted = False

    def interrupt(self) -> None:
        """Stop it."""
        self.is_interrupted = True
        if self.call is not None:
            self.call.interrupt()


class ProxyWorker:
    """One worker; see LoopHost for what its task loop asks for.

    ``reached_at`` is the address by which the scheduler is reached from where the calls run, and
    ``where`` what that place is called in errors. ``wake`` is called, by other threads, when
    :meth:`turn` has something to do.
    """

    def __init__(
        self,
        link: ZmqLink,
        store: WorkerStore,
        core: WorkerCore,
        hello: m.Hello,
        peer: bytes,
        runner: RemoteRunner,
        reached_at: str,
        where: str,
        wake: Callable[[ProxyWorker], object],
    ) -> None:
        self.slot = [0] * SLOT_WORDS
        self.lock = contextlib.nullcontext()
        self.pumped_at = 0.0
        self.clock = clock
        self.where = where
        self.is_over = False
        """It has left the scheduler, as it was told to."""
        self.link = link
        self._store = store
        self._core = core
        self._hello = hello
        self._peer = peer
        self._runner = runner
        self._reached_at = reached_at
        self._wake = wake
        self._exchange = Exchange(new_incarnation())
        self._sharing = Sharing(self, core, store)
        self.share = self._sharing.send_all
        self._loop: Generator[None, Outcome | None, None] | None = None
        self._task: RemoteTask | None = None
        self._ended: threading.Thread | None = None
        """The thread of the task that ended last."""
        self._send([hello])

    @property
    def deadline(self) -> float:
        """When :meth:`turn` has something to do, if nothing arrives before."""
        return self._exchange.deadline

    def turn(self) -> None:
        """Take in what has arrived, go on with the tasks, and send what is to be sent."""
        core = self._core
        while True:
            self.pump()
            self._advance()
            if core.kept.has_requests:
                self.share()
            if core.reports.results:
                core.reports.flush()
            if core.reports.outbox and not core.reports.is_withheld:
                # First of all, that is sent.
                continue
            if core.may_leave(self._exchange.backlog(HUB)):
                self._leave()
                return
            for _, frames in self._exchange.tick(clock()):
                self.link.send(HUB, frames)
            self.link.tend()
            if not self.link.readable():
                return

    def ran(self) -> tuple[int, int, int]:
        """Return session, task and number of the work that it runs, or ran last."""
        return self.slot[SLOT_SESSION], self.slot[SLOT_TASK], self.slot[SLOT_WORK]

    def drop(self) -> threading.Thread | None:
        """End it now; return the thread of its task, which stops that."""
        self.is_over = True
        task, self._task = self._task, None
        if task is None:
            return None
        task.interrupt()
        return task.thread

    def _leave(self) -> None:
        self._store.give_up_claim()
        self._send([m.Goodbye()])
        self.is_over = True

    def _send(self, messages: list[m.Message]) -> None:
        for frames in self._exchange.send(HUB, messages, clock()):
            self.link.send(HUB, frames)

    # -- the task loop -----------------------------------------------------------------------

    def pump(self) -> None:
        """Send what is to be sent and take in what has arrived."""
        core = self._core
        reports = core.reports
        now = self.pumped_at = clock()
        if reports.outbox and not reports.is_withheld:
            self._send(reports.take())
        if reports.garbage:
            self._store.remove(reports.take_garbage())
        for _, frames in self.link.receive(DRAIN_LIMIT):
            core.receive(self._exchange.receive(HUB, frames, now))
        if core.is_unknown:
            undelivered = self._exchange.undelivered(HUB)
            self._exchange = Exchange(new_incarnation())
            said = core.come_back(undelivered, self._store.names.first, now)
            self._send([replace(self._hello, resume=1), *said])

    def _advance(self) -> None:
        """Let the loop run until it waits for something, or there is nothing to run."""
        core = self._core
        while True:
            outcome: Outcome | None = None
            if self._loop is None:
                if not core.queue:
                    return
                self._loop = run_work(core, self, core.queue[0])
            elif self._task is not None:
                if core.interrupt_due():
                    self._task.interrupt()
                outcome = self._task.outcome
                if outcome is None:
                    return
                self._tell_of(core.queue[0], self._task.answer)
                self._ended, self._task = self._task.thread, None
            try:
                self._loop.send(outcome)
            except StopIteration:
                self._loop = None
            else:
                if self._task is None:
                    # It waits for what is on its way to this machine.
                    return

    def expect_results(self, _by: float) -> None:
        """Nothing to see to: :meth:`turn` reports them, as it is never inside of a task."""

    def reported(self) -> None:
        """What the task that ended last has stored was reported."""
        if self._ended is not None and self._ended.ident is not None:
            self._store.names.reported(self._ended.ident)

    def has_come(self, work: Work) -> bool:
        """Return True once the segments of a work are here, or will never be."""
        message = work.message
        stored = work.function.objects + message.objects
        made = message.segments if isinstance(message, m.AssignNodes) else ()
        segments = self._store.awaitable(stored, made)
        return not self._core.waits(work, segments, self._store.is_here)

    def load(self, work: Work) -> Callable[[Buffer], None]:
        """Return what has a task of the work run elsewhere."""

        def start(payload: Buffer) -> None:
            task = self._task = RemoteTask()
            told = self._told(work)
            task.thread = threading.Thread(
                target=self._run, args=(task, work, payload, told), name="task", daemon=True
            )
            task.thread.start()

        return start

    def _told(self, work: Work) -> Told:
        message = work.message
        return Told(
            self._reached_at,
            self._peer,
            self._hello.pid,
            self._hello.host,
            message.depth,
            bool(message.stream_output),
            message.log_level,
            bool(message.profiling),
        )

    def _tell_of(self, work: Work, answer: Answer | None) -> None:
        """Report what a task printed and took; what became of it follows."""
        if answer is None:
            return
        for stream, text in answer.output:
            self._core.reports.printed(work, stream, text)
        if answer.took is not None and work.message.profiling:
            self._core.reports.profiled(work, *answer.took)

    # -- in the thread of a task -------------------------------------------------------------

    def _run(self, task: RemoteTask, work: Work, payload: Buffer, told: Told) -> None:
        try:
            outcome = self._load(task, work, told)(payload)
        except BaseException as error:
            outcome = Failure(*describe_failure(m.FAILED_EXCEPTION, error, "", self.where))
        task.outcome = outcome
        self._wake(self)

    def _load(self, task: RemoteTask, work: Work, told: Told) -> Callable[[Buffer], Outcome]:
        """Return what runs the task, given its payload: unpickles, has it called, and pickles."""
        message, store, entry = work.message, self._store, work.function
        kind = m.CALL_NODE if isinstance(message, m.AssignNodes) else message.call
        culprit = "the function"
        loads: Callable[[Any], Any]
        try:
            function = _load_function(entry, store)
            culprit = "the arguments"
            loads = partial(payloads.loads, buffers=store.map(message.objects))
        except BaseException as caught:
            what = f"the proxy cannot unpickle {culprit}"
            failure = Failure(*describe_setup_failure(caught, what, self.where))
            return lambda _: failure
        if work.values is not None:
            loader = NodeLoader(function, work.values, work.kept, loads, store.map, store.map_once)

            def load_node(data: Buffer) -> tuple[Any, ...]:
                with _loading:
                    return loader.load(data)

            loads = load_node
        call = self._caller(kind, function, partial(self._call, task, told))
        end = ProxyEnd(self, store, NotInterrupted())
        return make_run(loads, call, kind, message.objects, None, end)

    @staticmethod
    def _caller(kind: int, function: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return what is called with a payload's items, as a worker would call the function."""
        if kind == m.CALL_ARGS:
            return lambda *args: call(function, args, {})
        if kind == m.CALL_KWARGS:
            return lambda args, kwargs: call(function, args, kwargs)
        if kind == m.CALL_NODE:
            return call
        return lambda *chunk: call(run_chunk, (function, chunk), {})

    def _call(
        self, task: RemoteTask, told: Told, function: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Have a function called elsewhere; return what it returned."""
        try:
            sent = pack(function, args, kwargs, told)
        except Exception as error:
            what = "the proxy cannot pickle the call"
            raise CallFailed(Failure(*describe_setup_failure(error, what, self.where))) from None
        call = task.call = RemoteCall(*sent, function_name(function))
        if task.is_interrupted:
            raise TaskInterrupted
        self._runner.submit(call)
        try:
            answer = task.answer = read_answer(call.wait(), self.where)
        except TaskInterrupted:
            self._runner.cancel(call)
            raise
        return value_of(answer, self.where)

    # -- for TaskEnd -------------------------------------------------------------------------

    def end_if_forked(self) -> None:
        """Do nothing: no task runs in here."""


class ProxyEnd(TaskEnd):
    """What a task comes to that was called elsewhere."""

    def raised(self, stage: str, error: BaseException, about: str) -> Outcome:
        """It failed there, or here."""
        if isinstance(error, CallFailed):
            self._drop_buffers()
            return error.failure
        return super().raised(stage, error, about)


def _load_function(entry: FunctionEntry, store: WorkerStore) -> Any:
    """Unpickle a function; raises CodeError if it brings code, and what unpickling raises."""
    code, pickled, buffers = split(entry.payload, store.map(entry.objects))
    if code is not None and not code.bundle.is_empty:
        raise CodeError("uploaded code and plugins do not reach the system behind a proxy")
    if is_named(pickled):
        raise CodeError("named functions do not reach the system behind a proxy")
    return payloads.loads(pickled, buffers=buffers)

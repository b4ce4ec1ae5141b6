"""The session of the tasks of a worker: what they submit, and how they wait for it.

Who waits for a task that has not started runs it, on its own stack. If all of it runs elsewhere,
the worker is blocked, and the scheduler gives its place to another. There is one session for all
clients of the process; what a task submitted through it ends with the task.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections import deque
from concurrent.futures import CancelledError
from dataclasses import replace
from time import perf_counter as clock
from types import FunctionType
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.client import FUNCTIONS_MAX
from scaler_cluster.core.nested import NestedCore
from scaler_cluster.core.subtasks import HandedOver, OwnGraph, Subtask
from scaler_cluster.core.waiting import Step, Waiting
from scaler_cluster.errors import (
    ConfigError,
    FutureInside,
    PayloadError,
    StorageFull,
    StorageUnreachable,
)
from scaler_cluster.ids import call_of
from scaler_cluster.payload import function_name
from scaler_cluster.runtime.connection import Connection
from scaler_cluster.runtime.graphs import SessionGraphs
from scaler_cluster.runtime.inline_runner import InlineRunner
from scaler_cluster.runtime.interrupts import deferred
from scaler_cluster.runtime.nested_future import NestedFuture
from scaler_cluster.runtime.scope import Scope, current
from scaler_cluster.runtime.session import CONNECT_TIMEOUT_S, Session
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.map import MapCall
    from scaler_cluster.client.packing import Packed
    from scaler_cluster.core.client import Function
    from scaler_cluster.core.worker import FunctionEntry
    from scaler_cluster.objects.client_store import ClientStore
    from scaler_cluster.payload import ObjectReference
    from scaler_cluster.runtime.profile import Took
    from scaler_cluster.runtime.worker import WorkerShell

LEVELS_MAX = 400
"""Tasks on one stack; see LEVEL_FRAMES for its size."""
WATCH_S = 0.05
"""A callback that has not been called for so long may be what its task waits for, in a way that
nobody can see: an event loop, or an event."""

_opening = threading.Lock()


def open_session(shell: WorkerShell) -> NestedSession:
    """Return the one session of this worker's tasks, made when it is first asked for."""
    with deferred, _opening:
        if shell.nested is None:
            shell.nested = NestedSession(shell)
        return shell.nested


class NestedConnection(Connection):
    """A connection that sends away what has been held for long enough."""

    core: NestedCore
    look_at = math.inf
    """When the I/O thread is to look after futures that have callbacks."""

    @property
    def deadline(self) -> float:
        """When :meth:`pump` has something to send, or the I/O thread something to look after."""
        return min(super().deadline, self.core.deadline, self.look_at)

    def pump(self) -> list[tuple[Any, object]]:
        """See :class:`Connection`."""
        core = self.core
        core.send_away(clock())
        while core.ended:
            self._stored().release(core.ended.pop())
        return super().pump()

    def _make_store(self) -> ClientStore:
        from scaler_cluster.objects.nested_store import NestedStore

        homes = self.core.welcome.homes
        return NestedStore(homes, self.peer, self._connect, self.core.views)


class NestedGraphs(SessionGraphs):
    """Asks for the graphs of tasks; their nodes run elsewhere, or on the stack of who waits."""

    _session: NestedSession
    supplied = 0
    """How many inputs the scheduler was told of late: what takes them may be ready now."""

    def _supply_late(self, task: int, future: ScalerFuture[Any]) -> None:
        super()._supply_late(task, future)
        self.supplied += 1

    def _submit(
        self, packed: Packed, wanted: dict[Any, int], *, is_single: bool
    ) -> dict[Any, ScalerFuture[Any]]:
        session = self._session
        scope = session.scope()
        packed.options = {session.deeper(one, scope): None for one in packed.options}
        inputs = [one._task for one in packed.inputs if not one.done()]
        with deferred:
            futures = super()._submit(packed, wanted, is_single=is_single)
            key, future = next(iter(futures.items()))
            graph = OwnGraph(
                scope.number, future._task - wanted[key], packed.function, tuple(packed.options),
                packed.kinds, inputs, session.retain(packed.function[2]),
            )  # fmt: skip
            with session.connection.lock:
                session.core.own_graph(graph, [one._task for one in futures.values()])
        return futures


class NestedSession(Session):
    """One for all tasks of a worker; raises ClusterUnreachable."""

    core: NestedCore
    connection: NestedConnection
    future_class = NestedFuture

    def __init__(self, shell: WorkerShell) -> None:
        self._shell = shell
        self._task: Scope | None = None
        """The task that the worker was given, once it has used this."""
        self.stack = InlineRunner(self, shell)
        self._options: dict[tuple[m.TaskOptions, int, bool, int], m.TaskOptions] = {}
        self._running = threading.RLock()
        """Held by the thread that runs a task: one at a time, as anywhere."""
        self._clients = itertools.count(1)
        self._watched: deque[tuple[float, ScalerFuture[Any]]] = deque()
        """Futures with a callback, and when to look whether it was called."""
        self._awaited: list[ScalerFuture[Any]] = []
        """Those whose callbacks may be what their task waits for."""
        core = NestedCore(shell.may_run)
        connection = NestedConnection(shell.address, core, shell.peer)
        super().__init__(shell.address, timeout=CONNECT_TIMEOUT_S, connection=connection)
        self._graphs = NestedGraphs(self)

    @property
    def graphs(self) -> NestedGraphs:
        """Return what asks for graphs, and runs nodes of theirs here."""
        return self._graphs

    @property
    def cluster_name(self) -> str:
        """What is different in each cluster: the directory of its objects."""
        return self.core.welcome.homes[0].disk

    def new_identity(self) -> bytes:
        """Return what names a client that speaks through this, one of several."""
        return b"%s|%d" % (self.connection.peer, next(self._clients))

    # -- whose -------------------------------------------------------------------------------

    def scope(self) -> Scope:
        """Return the task in which this is called; raises ConfigError outside of tasks."""
        scope = current.get()
        if scope is not None and not scope.is_over:
            return scope
        scope = self._task
        return scope if scope is not None and not scope.is_over else self._enter_task()

    def _enter_task(self) -> Scope:
        with deferred, _opening:
            if self._task is not None:
                # Another thread of it was faster.
                return self._task
            work = self._shell.enter_task()
            if work is None:
                raise ConfigError(
                    "there is no task here that could submit tasks: in a worker, clients work "
                    "only inside of tasks"
                )
            self.stack.begin()
            scope = self._task = Scope(work.message, 0)
        if threading.current_thread() is threading.main_thread():
            current.set(scope)
        return scope

    def end_task(self) -> None:
        """The task that the worker was given has ended; called by the worker's main thread."""
        scope, self._task = self._task, None
        if scope is not None:
            self.end(scope)

    def end(self, scope: Scope) -> None:
        """A task has ended: give up what it submitted and has not come back, and what it sent."""
        scope.is_over = True
        if scope.number in self.core.owned or scope.references or scope.seceded:
            self._give_up(scope)
            self._set_seceded(scope, seceded=False)

    def _give_up(self, scope: Scope) -> None:
        with deferred:
            with self.connection.lock:
                futures, calls = self.core.give_up(scope.number)
                for call in calls:
                    self.core.close_call(call.first, call.asked)  # type: ignore[attr-defined]
                    call.abort(CancelledError())  # type: ignore[attr-defined]
                settled = self.connection.pump()
            for future in futures:
                future._cancel_here()  # type: ignore[attr-defined]
            references, scope.references = scope.references, []
            for release in references:
                release()
            self._after(settled)
            self._lead.wake_others()

    def remember(self, digest: bytes, entry: FunctionEntry) -> None:
        """Note what a function was unpickled from just now: a task may well submit it itself."""
        if type(entry.call) is FunctionType and not entry.objects and entry.set_classes is None:
            packed = digest, bytes(entry.payload), (), function_name(entry.call)
            self._pickle_function.remember(entry.call, packed)

    # -- asking ------------------------------------------------------------------------------

    def submit(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: m.TaskOptions = m.DEFAULT_OPTIONS,
        *,
        again: bool = False,
    ) -> ScalerFuture[Any]:
        """Ask for one call; see :class:`Session`."""
        self.check_usable()
        scope = self.scope()
        held: list[bytes] = []
        try:
            packed, payload, objects = self._pack(function, args, kwargs, held, again=again)
        except FutureInside:
            return self.graphs.submit_linked(function, args, kwargs, options, again=again)
        except (PayloadError, StorageFull, StorageUnreachable) as error:
            return self.failed(error)
        future: ScalerFuture[Any] = NestedFuture(self)
        call = m.CALL_KWARGS if kwargs else m.CALL_ARGS
        kept = (*held, *self.retain(packed[2])) if held or packed[2] else ()
        options = self.deeper(options, scope)
        batch = Batch.single(payload)
        child = Subtask(scope.number, packed, call, options, objects, batch, kept)
        self._hold(lambda now: self._hold_single(child, future, now))
        return future

    def _hold_single(self, child: Subtask, future: ScalerFuture[Any], now: float) -> None:
        future._task = self.core.hold(child, future, now)

    def _hold(self, hold: Callable[[float], None]) -> None:
        """Take something in, see that somebody looks after it, and after what is due."""
        core = self.core
        with deferred:
            settled: list[tuple[Any, object]] = []
            with self.connection.lock:
                self.check_usable()
                now = clock()
                was_due = core.deadline
                hold(now)
                if was_due <= now:
                    settled = self.connection.pump()
            if was_due > now + 1.0:
                self._lead.wake_io()
            if settled:
                self._after(settled)

    def retain(self, objects: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Keep what was stored until it is released once more; return it."""
        if objects:
            self.connection.stored().retain(objects)
        return objects

    def deeper(self, options: m.TaskOptions, scope: Scope) -> m.TaskOptions:
        """Return the options of what a task submits.

        What is sent to the client of the task is sent of these as well.
        """
        told = scope.told
        log_level = told.log_level or options.log_level
        stream_output = told.stream_output or options.stream_output
        key = options, told.depth, stream_output, log_level
        deeper = self._options.get(key)
        if deeper is None:
            if len(self._options) >= FUNCTIONS_MAX:
                self._options.clear()
            deeper = self._options[key] = replace(
                options, depth=told.depth + 1, stream_output=stream_output, log_level=log_level
            )
        return deeper

    def open_call(self, call: MapCall) -> int:
        """Take a map in; see :class:`Session`."""
        scope = self.scope()
        with deferred, self.connection.lock:
            self.check_usable()
            return self.core.open_nested_call(call, scope.number)

    def submit_run(
        self,
        function: Function,
        first: int,
        call: int,
        options: m.TaskOptions,
        objects: tuple[bytes, ...],
        batch: Batch,
    ) -> None:
        """Ask for contiguous tasks of a map; see :class:`Session`."""
        scope = self.scope()
        kept = self.retain(objects + function[2])
        options = self.deeper(options, scope)
        child = Subtask(scope.number, function, call, options, objects, batch, kept)
        self._hold(lambda now: self.core.hold_piece(child, first, now))

    @contextlib.contextmanager
    def leading(self) -> Any:
        """Do nothing: a map is held here, as other tasks are."""
        yield

    def send_object(self, value: object, name: str) -> ObjectReference:
        """Store a value until the task ends; see :class:`Session`."""
        scope = self.scope()
        reference = super().send_object(value, name)
        scope.references.append(reference.release)
        return reference

    def clear_objects(self) -> None:
        """Let go of what this task sent."""
        self._give_up(self.scope())

    def give_up(self) -> None:
        """Cancel everything of this task that has not come back."""
        self._give_up(self.scope())

    def close(
        self, reason: str, *, wait: bool = True, cancel_queued: bool = False, abandon: bool = False
    ) -> None:
        """Wait until what this task submitted has come back, or give it up.

        The session stays, for other clients and other tasks. One that is merely dropped, which
        does not wait, leaves what it submitted to the end of its task.
        """
        if self._forked or not wait:
            return
        scope = current.get() or self._task
        if scope is None or scope.is_over:
            return
        if abandon or cancel_queued:
            self._give_up(scope)
        core = self.core
        with deferred, self.connection.lock:
            tasks = list(core.owned.get(scope.number, ()))
        for task in tasks:
            self.wait(lambda task=task: not core.is_pending(task), task=task)  # type: ignore[misc]

    # -- waiting -----------------------------------------------------------------------------

    def wait(
        self,
        done: Callable[[], bool],
        future: ScalerFuture[Any] | None = None,
        timeout: float | None = None,
        task: int | deque[int] = -1,
    ) -> bool:
        """Wait until ``done()``, running what is waited for as long as it has not started."""
        if threading.current_thread() is self._thread:
            # In a callback: this thread has others to serve.
            self.count_waiting(1)
            try:
                return super().wait(done, future, timeout)
            finally:
                self.count_waiting(-1)
        if future is not None:
            task = future._task
        tasks = task if isinstance(task, deque) else deque((task,))
        if not done() and (timeout is None or timeout > 0):
            if self.scope().level >= LEVELS_MAX:
                raise RecursionError(
                    f"{LEVELS_MAX} tasks wait for each other on the stack of one worker"
                )
            if self.core.graphs:
                tasks = self._with_needs(tasks)
            waiting = Waiting(clock(), timeout)
            if not waiting.may_run:
                self.send_now(tasks)
            try:
                self._wait_for(done, tasks, waiting)
            finally:
                if waiting.is_blocked:
                    self.count_waiting(-1)
        return done()

    def _with_needs(self, tasks: deque[int]) -> deque[int]:
        """Return what may have to run before these tasks as well, if any of them is a node."""
        with deferred, self.connection.lock:
            found = self.core.with_needs(tasks)
        return tasks if len(found) == len(tasks) else deque(found)

    def _wait_for(self, done: Callable[[], bool], tasks: deque[int], waiting: Waiting) -> None:
        turn = supplied = 0
        while not done():
            if supplied != self.graphs.supplied:
                supplied = self.graphs.supplied
                waiting.ran(clock())
            with deferred:
                # Blocked is what was said, also if this is interrupted.
                step = waiting.next(clock(), is_held=self.is_held(tasks))
                if step in (Step.BLOCK, Step.UNBLOCK):
                    self.count_waiting(1 if step is Step.BLOCK else -1)
            if step is Step.RUN:
                if self.try_to_run(tasks):
                    waiting.ran(clock())
                else:
                    waiting.could_not_run(clock())
            elif step is Step.RECALL:
                self.recall(tasks, turn)
                turn += 1
            elif step is Step.REST:
                self.rest(done, tasks, waiting, supplied)
            elif step is Step.STOP:
                return

    def claim(self, tasks: deque[int]) -> Subtask | None:
        """Return the first of these tasks that may run here."""
        with deferred, self.connection.lock:
            return self.core.claim_first(tasks)

    def is_held(self, tasks: deque[int]) -> bool:
        """Return True if one of these may run here."""
        return self.core.is_any_held(list(tasks))

    def recall(self, tasks: deque[int], turn: int) -> None:
        """Ask for the first of these tasks, and for some of the others in turn."""
        with deferred, self.connection.lock:
            self.core.recall_some(tasks, turn)

    def send_now(self, tasks: deque[int]) -> None:
        """Let others run these tasks."""
        with deferred, self.connection.lock:
            for task in tasks:
                self.core.send_now(task)

    def rest(
        self, done: Callable[[], bool], tasks: deque[int], waiting: Waiting, supplied: int
    ) -> None:
        """Wait until something has changed for who waits for these tasks."""

        def has_changed() -> bool:
            return done() or self.is_held(tasks) or self.graphs.supplied != supplied

        timeout = max(waiting.until - clock(), 0.0)
        super().wait(has_changed if waiting.may_run else done, None, timeout)

    def count_waiting(self, change: int) -> None:
        """One more thread waits for what runs elsewhere, or one less."""
        with deferred:
            with self.connection.lock:
                is_said = self.core.count_waiting(change)
                settled = self.connection.pump() if is_said else []
            self._after(settled)

    def track_callback(self, future: ScalerFuture[Any]) -> None:
        """Somebody is to be called back by this future."""
        look_at = clock() + WATCH_S
        with deferred, self.connection.lock:
            self._watched.append((look_at, future))
            if self.connection.look_at > look_at:
                self.connection.look_at = look_at
                self._lead.wake_io()

    def _run_callbacks(self) -> None:
        """Run callbacks; the worker is blocked as long as some wait for long, for all we know."""
        super()._run_callbacks()
        now = clock()
        if now < self.connection.look_at:
            return
        before = bool(self._awaited)
        while self._watched and self._watched[0][0] <= now:
            self._awaited.append(self._watched.popleft()[1])
        self._awaited = [future for future in self._awaited if not future.done()]
        if bool(self._awaited) is not before:
            self.count_waiting(-1 if before else 1)
        with self.connection.lock:
            is_idle = not (self._awaited or self._watched)
            self.connection.look_at = math.inf if is_idle else now + WATCH_S

    def set_seceded(self, *, seceded: bool) -> None:
        """The task in which this is called leaves its worker's place to others, or returns."""
        self._set_seceded(self.scope(), seceded=seceded)

    def _set_seceded(self, scope: Scope, *, seceded: bool) -> None:
        if scope.seceded is not seceded:
            scope.seceded = seceded
            self.count_waiting(1 if seceded else -1)

    # -- running -----------------------------------------------------------------------------

    def try_to_run(self, tasks: deque[int]) -> bool:
        """Run one of these tasks on this stack; return False if none is here, or another runs."""
        above = self.scope()
        if not self.is_held(tasks) or not self._running.acquire(blocking=False):
            return False
        try:
            child = self.claim(tasks)
            if child is None:
                return False
            if (
                child.options.timeout_s is not None
                and threading.current_thread() is not threading.main_thread()
            ):
                # Only the main thread can be interrupted.
                with deferred, self.connection.lock:
                    self.core.hand_over(child)
                return False
            self.stack.run(child, above)
            return True
        finally:
            self._running.release()

    def settle(
        self, child: Subtask, outcome: Any, took_s: float, profiles: Sequence[Took] = ()
    ) -> None:
        """Hand a task's outcome on; None: it was interrupted, with the task that waits for it."""
        core = self.core
        if type(child) is HandedOver and outcome is None:
            return
        waiter: Any = None
        with self.connection.lock:
            if type(child) is HandedOver or not call_of(child.first):
                waiter = core.came_back(child, took_s)
                if profiles and waiter is not None:
                    waiter._profiled(*profiles[-1])
            elif isinstance(outcome, bytes):
                core.returned_here(child, outcome, took_s)
            elif outcome is not None:
                core.failed_here(child, outcome)
        if type(child) is HandedOver:
            # Nobody waits for it but other nodes, which the scheduler gives it to.
            waiter = waiter or NestedFuture(self)
        self._after([(waiter, outcome)] if waiter is not None else [])
        if type(child) is HandedOver:
            self.graphs.supply(child.first, waiter)
            self.push()

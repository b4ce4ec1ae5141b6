"""The session of the tasks of a worker: what they submit, and how they wait for it.

Who waits for a task that has not started runs it, on its own stack. If all of it runs elsewhere,
the worker is blocked, and the scheduler gives its place to another. There is one session for all
clients of the process; what a task submitted through it ends with the task.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
from collections import deque
from concurrent.futures import CancelledError
from dataclasses import replace
from time import perf_counter as clock
from types import FunctionType
from typing import TYPE_CHECKING, Any

from scaler_cluster import payload as payloads
from scaler_cluster.client.future import settle_all
from scaler_cluster.core.client import FUNCTIONS_MAX
from scaler_cluster.core.nested import Child, NestedCore
from scaler_cluster.errors import (
    ConfigError,
    FutureInside,
    PayloadError,
    StorageFull,
    StorageUnreachable,
)
from scaler_cluster.ids import call_of
from scaler_cluster.runtime.connection import Connection
from scaler_cluster.runtime.graphs import SessionGraphs
from scaler_cluster.runtime.interrupts import TaskExpired, TaskInterrupted, deferred
from scaler_cluster.runtime.nested_future import NestedFuture
from scaler_cluster.runtime.scope import Scope, current
from scaler_cluster.runtime.session import CONNECT_TIMEOUT_S, Session
from scaler_cluster.runtime.worker import INTERRUPT_SIGNAL, describe_failure
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.map import MapCall
    from scaler_cluster.client.packing import Packed
    from scaler_cluster.core.client import Function
    from scaler_cluster.objects.client_store import ClientStore
    from scaler_cluster.payload import ObjectReference
    from scaler_cluster.runtime.worker import WorkerShell

BLOCKED_AFTER_S = 0.005
"""A thread that waits so long for what runs elsewhere says so. About ten round trips: sooner, the
place would often be wanted back before somebody else has it."""
RECALL_MIN_S, RECALL_MAX_S = 0.01, 0.2
"""How often a task that runs or is queued elsewhere is asked for again: it may have come back to
the scheduler meanwhile, while no worker has room for it."""
RECALL_OTHERS = 8
"""Of many tasks that somebody waits for at once, so many are asked for each time."""
WATCH_S = 0.05
"""A callback that has not been called for so long may be what its task waits for, in a way that
nobody can see: an event loop, or an event."""
PATIENCE_S = 0.3
"""What is better run elsewhere, because somebody looks at the clock, is given so long to start:
a spare worker needs a third of it, on a busy machine."""
LEVELS_MAX = 400
"""Tasks on one stack."""
LEVEL_FRAMES = 30
"""By so much the recursion limit is raised for each task on the stack, of which some ten are ours.
All together stay well below the 20,000 frames that a stack of 8 MiB holds on Python 3.10."""

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
        return NestedStore(homes, self._peer, self._connect, self.core.views)


class NestedGraphs(SessionGraphs):
    """Asks for the graphs of tasks; their nodes run wherever there is room."""

    _session: NestedSession

    def _submit(
        self, packed: Packed, wanted: dict[Any, int], options: m.TaskOptions, *, is_single: bool
    ) -> dict[Any, ScalerFuture[Any]]:
        session = self._session
        scope = session.scope()
        options = session.deeper(options, scope)
        futures = super()._submit(packed, wanted, options, is_single=is_single)
        with deferred, session.connection.lock:
            tasks = [future._task for future in futures.values()]
            session.core.own_nodes(scope.number, tasks)
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
        self._functions: dict[bytes, Callable[..., Any]] = {}
        self._options: dict[tuple[m.TaskOptions, int], m.TaskOptions] = {}
        self._running = threading.RLock()
        """Held by the thread that runs a task: one at a time, as anywhere."""
        self._waiting = 0
        """Threads that wait for what runs elsewhere, and tasks that have seceded."""
        self._recursion_limit = 0
        self._limited: list[Scope] = []
        """Tasks with a timeout on the stack of the main thread, the lowest first."""
        self._watched: deque[tuple[float, ScalerFuture[Any]]] = deque()
        """Futures with a callback, and when to look whether it was called."""
        self._awaited: list[ScalerFuture[Any]] = []
        """Those whose callbacks may be what their task waits for."""
        connection = NestedConnection(shell.address, NestedCore(), shell.peer)
        super().__init__(shell.address, timeout=CONNECT_TIMEOUT_S, connection=connection)
        self.graphs = NestedGraphs(self)

    @property
    def cluster_name(self) -> str:
        """What is different in each cluster: the directory of its objects."""
        return self.core.welcome.homes[0].disk

    # -- whose -------------------------------------------------------------------------------

    def scope(self) -> Scope:
        """Return the task in which this is called; raises ConfigError outside of tasks."""
        scope = current.get()
        if scope is not None and not scope.is_over:
            return scope
        scope = self._task
        return scope if scope is not None and not scope.is_over else self._enter_task()

    def _enter_task(self) -> Scope:
        with deferred:
            work = self._shell.enter_task()
            if work is None:
                raise ConfigError(
                    "there is no task here that could submit tasks: in a worker, clients work "
                    "only inside of tasks"
                )
            entry = work.function
            if type(entry.call) is FunctionType and not entry.objects:
                # It may well be what this task submits, and cloudpickle takes its time.
                packed = work.message.function, bytes(entry.payload), ()
                self._pickle_function.remember(entry.call, packed)
            self._recursion_limit = sys.getrecursionlimit()
            scope = self._task = Scope(work.message.depth, 0)
        if _is_main():
            current.set(scope)
        return scope

    def end_task(self) -> None:
        """The task that the worker was given has ended; called by the worker's main thread."""
        scope, self._task = self._task, None
        if scope is not None:
            self._end(scope)

    def _end(self, scope: Scope) -> None:
        """A task has ended: give up what it submitted and has not come back, and what it sent."""
        scope.is_over = True
        if scope.over is not None:
            scope.expired = False
            scope.over.set()
            self._limited.remove(scope)
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
            for reference in references:
                self.release([bytes(part) for part in reference.whole.parts])
            self._after(settled)
            self._lead.wake_others()

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
        future: ScalerFuture[Any] = NestedFuture(self)
        held: list[bytes] = []
        try:
            packed, payload, objects = self._pack(function, args, kwargs, held, again=again)
        except FutureInside:
            return self.graphs.submit_linked(function, args, kwargs, options, again=again)
        except (PayloadError, StorageFull, StorageUnreachable) as error:
            settle_all([(future, error)])
            return future
        call = m.CALL_KWARGS if kwargs else m.CALL_ARGS
        kept = (*held, *self._retain(packed[2])) if held or packed[2] else ()
        options = self.deeper(options, scope)
        batch = Batch.single(payload)
        child = Child(scope.number, packed, call, options, objects, batch, kept)
        self._hold(lambda now: self._hold_single(child, future, now))
        return future

    def _hold_single(self, child: Child, future: ScalerFuture[Any], now: float) -> None:
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

    def _retain(self, objects: tuple[bytes, ...]) -> tuple[bytes, ...]:
        if objects:
            self.connection.stored().retain(objects)
        return objects

    def deeper(self, options: m.TaskOptions, scope: Scope) -> m.TaskOptions:
        """Return the options of what a task submits."""
        key = options, scope.depth
        deeper = self._options.get(key)
        if deeper is None:
            if len(self._options) >= FUNCTIONS_MAX:
                self._options.clear()
            deeper = self._options[key] = replace(options, depth=scope.depth + 1)
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
        kept = self._retain(objects + function[2])
        options = self.deeper(options, scope)
        child = Child(scope.number, function, call, options, objects, batch, kept)
        self._hold(lambda now: self.core.hold_piece(child, first, now))

    def drop_call(self, call: MapCall) -> None:
        """Nobody will ask this map for results any more; see :class:`Session`."""
        # In a finalizer, an interrupt would be lost.
        with deferred:
            super().drop_call(call)

    @contextlib.contextmanager
    def leading(self) -> Any:
        """Do nothing: a map is held here, as other tasks are."""
        yield

    def send_object(self, value: object, name: str) -> ObjectReference:
        """Store a value until the task ends; see :class:`Session`."""
        scope = self.scope()
        reference = super().send_object(value, name)
        scope.references.append(reference)
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
            _Wait(self, done, tasks, timeout).run()
        return done()

    def claim(self, tasks: deque[int]) -> Child | None:
        """Return the first of these tasks that may run here."""
        core = self.core
        with deferred, self.connection.lock:
            while tasks and not core.is_pending(tasks[0]):
                tasks.popleft()
            for task in tasks:
                child = core.claim(task)
                if child is not None:
                    return child
        return None

    def is_held(self, tasks: deque[int]) -> bool:
        """Return True if one of these may run here."""
        return any(map(self.core.is_held, list(tasks)))

    def recall(self, tasks: deque[int], turn: int) -> None:
        """Ask for the first of these tasks, and for some of the others in turn."""
        with deferred, self.connection.lock:
            if not tasks:
                return
            self.core.recall(tasks[0])
            for index in range(1, min(RECALL_OTHERS, len(tasks))):
                self.core.recall(tasks[(turn * RECALL_OTHERS + index) % len(tasks)])

    def send_now(self, tasks: deque[int]) -> None:
        """Let others run these tasks."""
        with deferred, self.connection.lock:
            for task in tasks:
                self.core.send_now(task)

    def rest(
        self, done: Callable[[], bool], tasks: deque[int], timeout: float, *, may_run: bool
    ) -> None:
        """Wait until something has changed for who waits for these tasks."""
        if may_run:
            super().wait(lambda: done() or self.is_held(tasks), None, timeout)
        else:
            super().wait(done, None, timeout)

    def count_waiting(self, change: int) -> None:
        """One more thread waits for what runs elsewhere, or one less."""
        with deferred:
            with self.connection.lock:
                before = self._waiting
                self._waiting += change
                settled = []
                if not before or not self._waiting:
                    self.core.say(m.Blocked(self._waiting > 0))
                    settled = self.connection.pump()
            self._after(settled)

    def watch(self, future: ScalerFuture[Any]) -> None:
        """Somebody is to be called back by this future."""
        self._watched.append((clock() + WATCH_S, future))
        if self.connection.look_at == math.inf:
            self.connection.look_at = clock() + WATCH_S
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
            if child.options.timeout_s is not None and not _is_main():
                # Only the main thread can be interrupted.
                with deferred, self.connection.lock:
                    self.core.hand_over(child)
                return False
            self._run(child, above)
            return True
        finally:
            self._running.release()

    def _run(self, child: Child, above: Scope) -> None:
        scope = Scope(child.options.depth, above.level + 1)
        limit = self._recursion_limit + scope.level * LEVEL_FRAMES
        if sys.getrecursionlimit() < limit:
            sys.setrecursionlimit(limit)
        start = clock()
        outcome: Any = None
        token = current.set(scope)
        try:
            if child.options.timeout_s is not None:
                self._limit(scope, child.options.timeout_s)
            outcome = self._call(child)
        except TaskExpired as error:
            if error.args[0] is not scope and not error.args[0].is_over:
                raise
            detail = {"timeout_s": child.options.timeout_s}
            outcome = m.Failed(child.first, m.FAILED_TIMEOUT, b"", detail)
        finally:
            with deferred:
                current.reset(token)
                self._end(scope)
                if above.level == 0:
                    sys.setrecursionlimit(self._recursion_limit)
                self._settle(child, outcome, clock() - start)

    def _settle(self, child: Child, outcome: Any, took_s: float) -> None:
        """Hand a task's outcome on; None: it was interrupted, with the task that waits for it."""
        core = self.core
        with self.connection.lock:
            if call_of(child.first):
                if isinstance(outcome, bytes):
                    core.returned_here(child, outcome, took_s)
                elif outcome is not None:
                    core.failed_here(child, outcome)
                waiter = None
            else:
                waiter = core.came_back(child, took_s)
        self._after([(waiter, outcome)] if waiter is not None else [])

    def _limit(self, scope: Scope, timeout_s: float) -> None:
        """Let a task on the main thread's stack be interrupted when its time is over."""
        over = scope.over = threading.Event()
        self._limited.append(scope)

        def expire() -> None:
            if not over.wait(timeout_s):
                scope.expired = True
            while scope.expired:
                signal.pthread_kill(threading.main_thread().ident or 0, INTERRUPT_SIGNAL)
                over.wait(WATCH_S)

        threading.Thread(target=expire, name="scaler-timeout", daemon=True).start()

    @property
    def has_expired(self) -> bool:
        """Return True if :meth:`raise_expired` raises."""
        return any(scope.expired for scope in self._limited)

    def raise_expired(self) -> None:
        """Interrupt a task whose time is over, and what stands on it; in the main thread."""
        for scope in self._limited:
            if scope.expired:
                scope.expired = False
                raise TaskExpired(scope)

    def _call(self, child: Child) -> bytes | m.Failed:
        """Run a task as if this worker had been sent it; return its pickled result or failure."""
        tries = 0
        while True:
            failure = m.FAILED_DESERIALIZE
            try:
                function = self._load(child.function)
                data = child.batch.data
                args = payloads.loads(data, buffers=self._views(child.objects))
                failure = m.FAILED_EXCEPTION
                if child.call == m.CALL_ARGS:
                    value = function(*args)
                elif child.call == m.CALL_KWARGS:
                    value = function(*args[0], **args[1])
                else:
                    value = [function(*one) for one in args]
                failure = m.FAILED_RESULT
                return payloads.dumps(value)
            except TaskInterrupted:
                raise
            except BaseException as error:
                if failure == m.FAILED_EXCEPTION and tries < child.options.retries:
                    tries += 1
                    continue
                return m.Failed(child.first, *describe_failure(failure, error, "the arguments"))

    def _load(self, packed: Function) -> Callable[..., Any]:
        digest, payload, objects = packed
        function = self._functions.get(digest) or self._shell.loaded_function(digest)
        if function is None:
            function = payloads.loads(payload, buffers=self._views(objects))
            if len(self._functions) >= FUNCTIONS_MAX:
                self._functions.clear()
            self._functions[digest] = function
            if type(function) is FunctionType and not objects:
                self._pickle_function.remember(function, packed)
        return function

    def _views(self, objects: tuple[bytes, ...]) -> list[memoryview]:
        return [self.core.views[one] for one in objects]


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


class _Wait:
    """One thread that waits for tasks."""

    def __init__(
        self,
        session: NestedSession,
        done: Callable[[], bool],
        tasks: deque[int],
        timeout: float | None,
    ) -> None:
        self._session = session
        self._done = done
        self._tasks = tasks
        now = clock()
        self._end = None if timeout is None else now + timeout
        # Who looks at the clock must not be kept by a task that takes longer, if that can be.
        self._run_at = now if timeout is None else now + PATIENCE_S
        self._block_at = now + BLOCKED_AFTER_S
        self._recall_at = self._run_at
        self._pause = RECALL_MIN_S
        self._turn = 0
        self._is_blocked = False

    def run(self) -> None:
        """Wait until it is done, or time is over."""
        session, done = self._session, self._done
        if session.scope().level >= LEVELS_MAX:
            raise RecursionError(
                f"{LEVELS_MAX} tasks wait for each other on the stack of one worker"
            )
        if self._end is not None:
            session.send_now(self._tasks)
        try:
            while not done():
                now = clock()
                if self._end is not None and now >= self._end:
                    return
                may_run = now >= self._run_at
                if may_run and session.is_held(self._tasks):
                    self._unblock()
                    if session.try_to_run(self._tasks):
                        self._pause, self._recall_at = RECALL_MIN_S, 0.0
                        self._block_at = clock() + BLOCKED_AFTER_S
                        continue
                    # Another thread runs something.
                    may_run = False
                    self._run_at = now + BLOCKED_AFTER_S
                self._wait_elsewhere(now, may_run=may_run)
        finally:
            self._unblock()

    def _wait_elsewhere(self, now: float, *, may_run: bool) -> None:
        if may_run and now >= self._recall_at:
            self._session.recall(self._tasks, self._turn)
            self._turn += 1
            self._recall_at = now + self._pause
            self._pause = min(2 * self._pause, RECALL_MAX_S)
        if not self._is_blocked and now >= self._block_at:
            self._is_blocked = True
            self._session.count_waiting(1)
        due = [self._recall_at]
        if not self._is_blocked:
            due.append(self._block_at)
        if not may_run:
            due.append(self._run_at)
        if self._end is not None:
            due.append(self._end)
        self._session.rest(self._done, self._tasks, max(min(due) - now, 0.0), may_run=may_run)

    def _unblock(self) -> None:
        if self._is_blocked:
            self._is_blocked = False
            self._session.count_waiting(-1)
            self._block_at = clock() + BLOCKED_AFTER_S

"""The session of the tasks of a worker: what they submit, and whose it is.

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
from functools import partial
from time import perf_counter as clock
from time import sleep
from types import FunctionType
from typing import TYPE_CHECKING, Any

from scaler_cluster.client.named_calls import submit_named
from scaler_cluster.client.task_session import TaskSession
from scaler_cluster.core.client.liveness import RECONNECT_TIMEOUT_S
from scaler_cluster.core.client.requests import FUNCTIONS_MAX
from scaler_cluster.core.worker.subtasks import HandedOver, Subtask
from scaler_cluster.core.worker.waiting import BLOCKED_AFTER_S
from scaler_cluster.errors import (
    ClusterBrokenError,
    ClusterUnreachableError,
    ConfigError,
    FutureInsideError,
    NamedCallError,
    PayloadError,
    StorageFullError,
    StorageUnreachableError,
)
from scaler_cluster.pickling.payload import function_name
from scaler_cluster.process.interrupts import deferred
from scaler_cluster.runtime import worker_code
from scaler_cluster.runtime.inline_runner import InlineRunner
from scaler_cluster.runtime.nested_connection import NestedConnection
from scaler_cluster.runtime.nested_future import NestedFuture, NestedNamedFuture
from scaler_cluster.runtime.nested_graphs import NestedGraphs
from scaler_cluster.runtime.nested_waiter import NestedWaiter
from scaler_cluster.runtime.task_context import Scope, current
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.client.client_map import ClientMap
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.core.client.requests import Function
    from scaler_cluster.core.worker.work import FunctionEntry
    from scaler_cluster.pickling.payload import ObjectReference
    from scaler_cluster.runtime.profile import Took
    from scaler_cluster.runtime.task_host import TaskHost

REFUSED_S = 10.0
"""A scheduler that was started anew hears of the worker within this time: until then it refuses."""
PAUSE_S = 0.1
LONG_S = 0.001
"""After a task that took longer, the I/O thread is woken to tell of it, if it does not know of any:
it looks by itself soon after others."""
CALLBACK_S = 10.0
"""So long a callback may still take that a future of an earlier task calls."""
_opening = threading.Lock()


class NestedSession(TaskSession):
    """One for all tasks of a worker; raises ClusterUnreachableError."""

    connection: NestedConnection
    future_class = NestedFuture

    def __init__(self, shell: TaskHost) -> None:
        self._shell = shell
        self._task: Scope | None = None
        """The task that the worker was given, once it has used this."""
        self.stack = InlineRunner(self, shell)
        self._options: dict[tuple[m.TaskOptions, int, bool, int], m.TaskOptions] = {}
        self._clients = itertools.count(1)
        self._is_forgotten = False
        """Another scheduler is there, and no task has used this session since."""
        self._has_failed_task = False
        """A task failed as this session heard of the other scheduler before the worker did."""
        self._open()

    def _open(self) -> None:
        shell = self._shell
        end = clock() + REFUSED_S
        while True:
            connection = NestedConnection(shell)
            try:
                # A scheduler is there: it may be silent for as long as with a session that is open.
                super().__init__(shell.address, timeout=RECONNECT_TIMEOUT_S, connection=connection)
                break
            except ClusterUnreachableError:
                if clock() >= end:
                    raise
            sleep(PAUSE_S)
        self.pickler.carry(worker_code.carried())
        self._nested_waiter = NestedWaiter(
            connection, self._lead, self._settler, self.supplier, self.scope, self.stack.run
        )

    @property
    def graphs(self) -> NestedGraphs:
        """Return what asks for graphs, and runs nodes of theirs here."""
        self.check_usable()
        return NestedGraphs(self)

    @property
    def cluster_name(self) -> str:
        """What is different in each cluster: the directory of its objects."""
        return self.connection.welcome.homes[0].disk

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

    def check_in_task(self) -> None:
        """Raise ConfigError outside of tasks."""
        self.scope()

    def forget_scheduler(self) -> bool:
        """Another scheduler is there; return False if the worker cannot go on.

        So it is if a task uses this session, or has failed by it: that task is to run again. Else
        the next task that uses this session comes to the new scheduler.
        """
        if not _opening.acquire(blocking=False):
            return False
        try:
            is_idle = self._task is None and self.connection.is_idle
            self._is_forgotten = is_idle and not self._has_failed_task
        finally:
            _opening.release()
        return self._is_forgotten

    def _open_again(self) -> None:
        if not self._io.finished.is_set():
            self.connection.closing = "the scheduler is another one"
            self.break_now(ClusterBrokenError(self.connection.closing))
            self._lead.wake_io()
            if not self._io.finished.wait(CALLBACK_S):
                raise ClusterBrokenError(
                    "a callback of an earlier task of this worker does not end: until it does, no "
                    "task here can submit tasks to the scheduler, which was started anew"
                )
        self._open()
        self._is_forgotten = False

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
            if self._is_forgotten:
                self._open_again()
            self.stack.begin()
            scope = self._task = Scope(work.message, 0)
        if threading.current_thread() is threading.main_thread():
            current.set(scope)
        return scope

    def end_task(self) -> None:
        """The task that the worker was given has ended; called by the worker's main thread."""
        scope = self._task
        if scope is not None:
            self._has_failed_task |= self.connection.error is not None
            self._task = None
            self.end(scope)
            if self.connection.has_untold:
                self._lead.wake_io()

    def end(self, scope: Scope) -> None:
        """A task has ended: give up what it submitted and has not come back, and what it sent."""
        scope.is_over = True
        if self.connection.owns(scope.number) or scope.references or scope.seceded:
            self._give_up(scope)
            self._set_seceded(scope, seceded=False)

    def _give_up(self, scope: Scope) -> None:
        with deferred:
            futures = self.connection.give_up_of(scope.number, CancelledError())
            events = self.connection.pump()
            for future in futures:
                future._cancel_here()
            references, scope.references = scope.references, []
            for release in references:
                release()
            self._settler.handle(events)

    def remember(self, digest: bytes, entry: FunctionEntry) -> None:
        """Note what a function was unpickled from just now: a task may well submit it itself."""
        if type(entry.call) is FunctionType and not entry.objects and entry.set_classes is None:
            packed = digest, bytes(entry.payload), (), function_name(entry.call)
            self.pickler.remember(entry.call, packed)

    # -- asking ------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise if no task can be submitted; see :class:`Session`."""
        if self._is_forgotten and not self.connection.forked:
            self.check_in_task()
        self._has_failed_task |= self.connection.error is not None
        super().check_usable()

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
            packed, payload, objects = self.pickler.call(function, args, kwargs, held, again=again)
        except FutureInsideError:
            return self.graphs.submit_linked(function, args, kwargs, options, again=again)
        except NamedCallError:
            return submit_named(self, function, args, kwargs, options)
        except (PayloadError, StorageFullError, StorageUnreachableError) as error:
            return self.failed(error)
        future: ScalerFuture[Any] = NestedFuture(self)
        call = m.CALL_KWARGS if kwargs else m.CALL_ARGS
        kept = (*held, *self.pickler.retain(packed[2])) if held or packed[2] else ()
        options = self.deeper(options, scope)
        batch = Batch.single(payload)
        child = Subtask(scope.number, packed, call, options, objects, batch, kept)
        with deferred:
            self._look_after(self.connection.hold(child, future))
        return future

    def ask_named(
        self, packed: Function, payload: bytes, options: m.TaskOptions
    ) -> ScalerFuture[Any]:
        """Ask for one call of a named function; see :class:`Session`."""
        scope = self.scope()
        future: ScalerFuture[Any] = NestedNamedFuture(self)
        options, batch = self.deeper(options, scope), Batch.single(payload)
        child = Subtask(scope.number, packed, m.CALL_NAMED, options, (), batch)
        with deferred:
            self._look_after(self.connection.hold(child, future))
        return future

    def _look_after(self, due_s: float) -> None:
        """Something was taken in: see that a thread looks after it, and after what is due."""
        if due_s > 1.0:
            self._lead.wake_io()
        elif due_s <= 0:
            self._settler.handle(self.connection.pump())

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

    def open_call(self, call: ClientMap) -> int:
        """Take a map in; see :class:`Session`."""
        scope = self.scope()
        with deferred:
            return self.connection.open_nested_call(call, scope.number)

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
        kept = self.pickler.retain(objects + function[2])
        options = self.deeper(options, scope)
        child = Subtask(scope.number, function, call, options, objects, batch, kept)
        with deferred:
            self._look_after(self.connection.hold_piece(child, first))

    def leading(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: a map is held here, as other tasks are."""
        return contextlib.nullcontext()

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
        if self.connection.forked or not wait:
            return
        scope = current.get() or self._task
        if scope is None or scope.is_over:
            return
        if abandon or cancel_queued:
            self._give_up(scope)

        def is_over(task: int) -> bool:
            return not self.connection.is_pending(task)

        with deferred:
            tasks = self.connection.tasks_of(scope.number)
        for task in tasks:
            self.wait(partial(is_over, task), task=task)

    # -- waiting -----------------------------------------------------------------------------

    def wait(
        self,
        done: Callable[[], bool],
        future: ScalerFuture[Any] | None = None,
        timeout: float | None = None,
        task: int | deque[int] = -1,
    ) -> bool:
        """Wait until ``done()``, running what is waited for as long as it has not started."""
        if future is not None:
            task = future._task
        tasks = task if isinstance(task, deque) else deque((task,))
        return self._nested_waiter.wait_for(done, future, timeout, tasks)

    @property
    def scope_number(self) -> int:
        """What asks here; raises ConfigError outside of tasks."""
        return self.scope().number

    def _wait_for_others(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for what others do; the worker is blocked unless that takes but a moment."""
        end = math.inf if timeout is None else clock() + timeout
        waiter = self._nested_waiter
        if waiter.wait(done, None, min(BLOCKED_AFTER_S, max(end - clock(), 0.0))):
            return True
        is_counted = False
        try:
            with deferred:
                waiter.count_waiting(1)
                is_counted = True
            return waiter.wait(done, None, None if timeout is None else max(end - clock(), 0.0))
        finally:
            if is_counted:
                waiter.count_waiting(-1)

    def track_callback(self, future: ScalerFuture[Any]) -> None:
        """Somebody is to be called back by this future."""
        with deferred:
            if self.connection.callbacks.track(future, clock()):
                self._lead.wake_io()

    def _look_after_callbacks(self) -> None:
        change = self.connection.callbacks.look(clock())
        if change:
            self._nested_waiter.count_waiting(change)

    def set_seceded(self, *, seceded: bool) -> None:
        """The task in which this is called leaves its worker's place to others, or returns."""
        self._set_seceded(self.scope(), seceded=seceded)

    def _set_seceded(self, scope: Scope, *, seceded: bool) -> None:
        if scope.seceded is not seceded:
            scope.seceded = seceded
            self._nested_waiter.count_waiting(1 if seceded else -1)

    # -- what ran here -----------------------------------------------------------------------

    def view(self, one: bytes) -> memoryview:
        """Return the bytes of an object that a task stored."""
        return self.connection.view(one)

    def settle(
        self, child: Subtask, outcome: Any, took_s: float, profiles: Sequence[Took] = ()
    ) -> None:
        """Hand a task's outcome on; None: it was interrupted, with the task that waits for it."""
        profile = m.Profile(0, child.first, *profiles[-1]) if profiles else None
        self._settler.handle(self.connection.settle(child, outcome, took_s, profile))
        if took_s > LONG_S and self.connection.has_untold:
            self._lead.wake_io()
        if type(child) is HandedOver:
            self.push()

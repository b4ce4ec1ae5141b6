"""Threads of a worker that wait for what their tasks submitted: they run it themselves."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.client.waiter import Waiter
from scaler_cluster.core.worker.waiting import Step, Waiting
from scaler_cluster.process.interrupts import deferred

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.input_supplier import InputSupplier
    from scaler_cluster.client.leader_follower import LeaderFollower
    from scaler_cluster.client.settler import Settler
    from scaler_cluster.core.worker.subtasks import Subtask
    from scaler_cluster.runtime.nested_connection import NestedConnection
    from scaler_cluster.runtime.task_context import Scope

LEVELS_MAX = 400
"""Tasks on one stack; see LEVEL_FRAMES for its size."""


class NestedWaiter(Waiter):
    """Runs what a thread waits for on its stack; if all of it runs elsewhere, the worker blocks.

    ``run`` runs a task on the stack of another one.
    """

    uninterrupted = deferred
    _connection: NestedConnection

    def __init__(
        self,
        connection: NestedConnection,
        lead: LeaderFollower,
        settler: Settler,
        supplier: InputSupplier,
        scope: Callable[[], Scope],
        run: Callable[[Subtask, Scope], None],
    ) -> None:
        super().__init__(connection, lead, settler)
        self._supplier = supplier
        self._scope = scope
        self._run = run
        self._running = threading.RLock()
        """Held by the thread that runs a task: one at a time, as anywhere."""

    def wait_for(
        self,
        done: Callable[[], bool],
        future: ScalerFuture[Any] | None,
        timeout: float | None,
        tasks: deque[int],
    ) -> bool:
        """Wait until ``done()``, running these tasks as long as they have not started."""
        if threading.current_thread() is self._settler.io_thread:
            # In a callback: this thread has others to serve.
            self.count_waiting(1)
            try:
                return self.wait(done, future, timeout)
            finally:
                self.count_waiting(-1)
        if not done() and (timeout is None or timeout > 0):
            if self._scope().level >= LEVELS_MAX:
                raise RecursionError(
                    f"{LEVELS_MAX} tasks wait for each other on the stack of one worker"
                )
            waiting = Waiting(clock(), timeout)
            with contextlib.closing(waiting.steps(self, tasks, done, clock)) as steps:
                for step in steps:
                    if step is Step.RUN:
                        waiting.has_run = self._try_to_run(waiting.tasks)
                    else:
                        self._rest(done, waiting)
        return done()

    def _rest(self, done: Callable[[], bool], waiting: Waiting) -> None:
        """Wait until something has changed for a thread that waits."""

        def has_changed() -> bool:
            return done() or self.is_held(waiting.tasks) or self.supplied != waiting.supplied

        timeout = max(waiting.until - clock(), 0.0)
        self.wait(has_changed if waiting.may_run else done, None, timeout)

    def _try_to_run(self, tasks: deque[int]) -> bool:
        """Run one of these tasks on this stack; return False if none is here, or another runs."""
        above = self._scope()
        if not self.is_held(tasks) or not self._running.acquire(blocking=False):
            return False
        try:
            with deferred:
                child = self._connection.claim(tasks)
            if child is None:
                return False
            is_main = threading.current_thread() is threading.main_thread()
            if child.options.timeout_s is not None and not is_main:
                # Only the main thread can be interrupted.
                with deferred:
                    self._connection.send(child)
                return False
            self._run(child, above)
            return True
        finally:
            self._running.release()

    @property
    def supplied(self) -> int:
        """How many inputs the scheduler was told of late: what takes them may be ready now."""
        return self._supplier.supplied_late

    # -- for the steps -----------------------------------------------------------------------

    def with_needs(self, tasks: deque[int]) -> deque[int]:
        """Return what may have to run before these tasks as well, if any of them is a node."""
        with deferred:
            found = self._connection.with_needs(tasks)
        # The same, which may grow, unless there is more to it.
        return tasks if len(found) == len(tasks) else deque(found)

    def is_held(self, tasks: deque[int]) -> bool:
        """Return True if one of these may run here."""
        return self._connection.is_held(tasks)

    def send_now(self, tasks: deque[int]) -> None:
        """Let others run these tasks."""
        with deferred:
            self._connection.send_now(tasks)

    def recall(self, tasks: deque[int], turn: int) -> None:
        """Ask for the first of these tasks, and for some of the others in turn."""
        with deferred:
            self._connection.recall(tasks, turn)

    def count_waiting(self, change: int) -> None:
        """One more thread waits for what runs elsewhere, or one less."""
        with deferred:
            if self._connection.count_waiting(change):
                self._settler.handle(self._connection.pump())

"""A thread that waits for tasks that its task submitted."""

from __future__ import annotations

from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.runtime.interrupts import deferred

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from scaler_cluster.runtime.nested import NestedSession

BLOCKED_AFTER_S = 0.005
"""A thread that waits so long for what runs elsewhere says so. About ten round trips: sooner, the
place would often be wanted back before somebody else has it."""
RECALL_MIN_S, RECALL_MAX_S = 0.01, 0.2
"""How often a task that runs or is queued elsewhere is asked for again: it may have come back to
the scheduler meanwhile, while no worker has room for it."""
PATIENCE_S = 0.3
"""What is better run elsewhere, because somebody looks at the clock, is given so long to start:
a spare worker needs a third of it, on a busy machine."""
LEVELS_MAX = 400
"""Tasks on one stack."""


class Wait:
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
            with deferred:
                self._is_blocked = True
                self._session.count_waiting(1)
        due = [self._recall_at if may_run else self._run_at]
        if not self._is_blocked:
            due.append(self._block_at)
        if self._end is not None:
            due.append(self._end)
        self._session.rest(self._done, self._tasks, max(min(due) - now, 0.0), may_run=may_run)

    def _unblock(self) -> None:
        if self._is_blocked:
            with deferred:
                self._is_blocked = False
                self._session.count_waiting(-1)
            self._block_at = clock() + BLOCKED_AFTER_S

"""What a thread does that waits for tasks which its task submitted."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

BLOCKED_AFTER_S = 0.005
"""A thread that waits so long for what runs elsewhere says so. About ten round trips: sooner, the
place would often be wanted back before somebody else has it."""
RECALL_MIN_S, RECALL_MAX_S = 0.01, 0.2
"""How often a task that runs or is queued elsewhere is asked for again: it may have come back to
the scheduler meanwhile, while no worker has room for it."""
PATIENCE_S = 0.3
"""What is better run elsewhere, because somebody looks at the clock, is given so long to start:
a spare worker needs a third of it, on a busy machine."""


class Step(Enum):
    """What to do next."""

    RUN = auto()
    """Run one of the tasks; then say how that went: ``ran`` or ``could_not_run``."""
    RECALL = auto()
    """Ask for them."""
    BLOCK = auto()
    """Say that this thread only waits."""
    UNBLOCK = auto()
    """Say that it has something to do."""
    REST = auto()
    """Sleep until ``until``, unless something changes."""
    STOP = auto()
    """The time is over."""


class WaitingSession(Protocol):
    """What a thread that waits does to the session of its worker's tasks."""

    @property
    def uninterrupted(self) -> AbstractContextManager[object]:
        """What keeps an interrupt from coming between a decision and what follows from it."""

    @property
    def supplied(self) -> int:
        """How many inputs the scheduler was told of late: what takes them may be ready now."""

    def with_needs(self, tasks: deque[int]) -> deque[int]:
        """Return what may have to run before these tasks as well."""

    def is_held(self, tasks: deque[int]) -> bool:
        """Return True if one of these may run here."""

    def send_now(self, tasks: deque[int]) -> None:
        """Let others run these tasks."""

    def recall(self, tasks: deque[int], turn: int) -> None:
        """Ask for the first of these tasks, and for some of the others in turn."""

    def count_waiting(self, change: int) -> None:
        """One more thread waits for what runs elsewhere, or one less."""


class Waiting:
    """Decides for one thread; it ends when what it waits for is there."""

    def __init__(self, now: float, timeout: float | None) -> None:
        self.supplied = 0
        """Inputs that had been supplied when the last step was decided."""
        self.has_run = False
        """Whether the thread, when it was to RUN, has run one of the tasks."""
        self.is_blocked = False
        """Whether the last that was said is BLOCK."""
        self.may_run = timeout is None
        """Whether it may run what it waits for. Who looks at the clock must not be kept by a task
        that takes longer, if that can be."""
        self.until = now
        """When REST is over at the latest."""
        self.tasks: deque[int] = deque()
        """What it waits for, and what these take."""
        self._end = None if timeout is None else now + timeout
        self._run_at = now if timeout is None else now + PATIENCE_S
        self._block_at = now + BLOCKED_AFTER_S
        self._recall_at = self._run_at
        self._pause = RECALL_MIN_S

    def next(self, now: float, *, is_held: bool) -> Step:
        """Return what to do; ``is_held`` tells whether one of the tasks may run here."""
        if self._end is not None and now >= self._end:
            return Step.STOP
        self.may_run = now >= self._run_at
        if self.may_run and is_held:
            if self.is_blocked:
                self.is_blocked = False
                return Step.UNBLOCK
            return Step.RUN
        if self.may_run and now >= self._recall_at:
            self._recall_at = now + self._pause
            self._pause = min(2 * self._pause, RECALL_MAX_S)
            return Step.RECALL
        if not self.is_blocked and now >= self._block_at:
            self.is_blocked = True
            return Step.BLOCK
        due = [self._recall_at if self.may_run else self._run_at]
        if not self.is_blocked:
            due.append(self._block_at)
        if self._end is not None:
            due.append(self._end)
        self.until = min(due)
        return Step.REST

    def ran(self, now: float) -> None:
        """One of the tasks has run here: others are likely to be had as well."""
        self._pause = RECALL_MIN_S
        self._recall_at = now
        self._block_at = now + BLOCKED_AFTER_S

    def could_not_run(self, now: float) -> None:
        """Another thread runs a task, or was faster."""
        self._run_at = now + BLOCKED_AFTER_S

    def steps(
        self,
        session: WaitingSession,
        tasks: deque[int],
        done: Callable[[], bool],
        clock: Callable[[], float],
    ) -> Generator[Step, None, None]:
        """Wait for tasks until ``done()``; yield what only the thread itself can do.

        That is REST, and RUN, after which it sets :attr:`has_run`. To be closed, should the thread
        leave before the end.
        """
        turn = 0
        self.tasks = session.with_needs(tasks)
        if not self.may_run:
            session.send_now(self.tasks)
        try:
            while not done():
                if self.supplied != session.supplied:
                    self.supplied = session.supplied
                    self.ran(clock())
                with session.uninterrupted:
                    # Blocked is what was said, also if this is interrupted.
                    step = self.next(clock(), is_held=session.is_held(self.tasks))
                    if step in (Step.BLOCK, Step.UNBLOCK):
                        session.count_waiting(1 if step is Step.BLOCK else -1)
                if step is Step.RUN:
                    yield step
                    if self.has_run:
                        self.ran(clock())
                    else:
                        self.could_not_run(clock())
                elif step is Step.RECALL:
                    session.recall(self.tasks, turn)
                    turn += 1
                elif step is Step.REST:
                    yield step
                elif step is Step.STOP:
                    return
        finally:
            if self.is_blocked:
                session.count_waiting(-1)

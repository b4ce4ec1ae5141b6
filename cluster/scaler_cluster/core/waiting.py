"""What a thread does that waits for tasks which its task submitted."""

from __future__ import annotations

from enum import Enum, auto

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


class Waiting:
    """Decides for one thread; it ends when what it waits for is there."""

    def __init__(self, now: float, timeout: float | None) -> None:
        self.is_blocked = False
        """Whether the last that was said is BLOCK."""
        self.may_run = timeout is None
        """Whether it may run what it waits for. Who looks at the clock must not be kept by a task
        that takes longer, if that can be."""
        self.until = now
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

"""Which workers are stuck: their process is stopped, or their task does nothing any more."""

from __future__ import annotations

import math
from dataclasses import dataclass

LOOKS = 5
"""How often a worker is looked at before it is said to be stuck."""
LOOK_MIN_S, LOOK_MAX_S = 0.05, 1.0
TELL_S = 5.0
"""A process that has been stopped for so long is worth a line in the log, if it is not replaced
sooner."""
QUIET_CPU_SHARE = 0.01
"""Who uses less of a CPU does nothing: a worker looks after its connection in any case."""


def look_after_s(stopped_timeout_s: float, hang_timeout_s: float) -> float:
    """Return how often workers are to be looked at."""
    # One that is never replaced is still reported.
    soonest_s = min(stopped_timeout_s, hang_timeout_s, TELL_S)
    return min(max(soonest_s / LOOKS, LOOK_MIN_S), LOOK_MAX_S)


@dataclass(frozen=True)
class Look:
    """What the operating system, and the memory shared with it, tell of a worker."""

    is_stopped: bool
    """Whether its process is stopped, as by SIGSTOP."""
    cpu_s: float
    """CPU time that it has used, with its children; 0 where nobody asks for it."""
    ran: tuple[int, int, int]
    """Session, task and number of the work that it runs, or ran last; session 0: none."""
    is_running: bool = False
    """Whether it has a CPU or waits for one, or a child does: who is starved does not hang."""


@dataclass(slots=True)
class Stillness:
    """How long the worker of a slot has been stopped, and how long it has done nothing."""

    looked_at: float = math.inf
    stopped_at: float = math.inf
    """When its process was first seen stopped; inf: it is not."""
    is_told: bool = False
    """Whether that was said."""
    quiet_at: float = math.inf
    """Since when its task has not made progress, nor used CPU time worth the name."""
    quiet_cpu_s: float = 0.0
    quiet_ran: tuple[int, int, int] = (0, 0, 0)

    def take(self, look: Look, now: float, look_s: float) -> None:
        """Take note of a look at the worker."""
        if now - self.looked_at > 2 * look_s + LOOK_MAX_S:
            # This process was stopped or starved itself: so may have been all of the machine.
            self.stopped_at = self.quiet_at = math.inf
        self.looked_at = now
        if not look.is_stopped:
            self.stopped_at, self.is_told = math.inf, False
        elif self.stopped_at == math.inf:
            self.stopped_at = now
        used_s = look.cpu_s - self.quiet_cpu_s
        most_s = QUIET_CPU_SHARE * (now - self.quiet_at)
        # It is less than before if a child has ended that nobody waited for.
        is_quiet = look.ran == self.quiet_ran and 0 <= used_s <= most_s
        if not is_quiet or look.is_running:
            self.quiet_at, self.quiet_cpu_s, self.quiet_ran = now, look.cpu_s, look.ran

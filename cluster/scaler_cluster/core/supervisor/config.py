"""What the supervisor's core is told."""

from __future__ import annotations

import math
from dataclasses import dataclass

HEARTBEAT_S = 1.0


@dataclass(frozen=True)
class SupervisorConfig:
    """Settings of a supervisor, in seconds and bytes."""

    workers: int
    """How many there are at first, and for good unless the scheduler or the user says otherwise."""
    capacity: int = 0
    """The most there may ever be; 0: as many as at first."""
    address: str = ""
    """Address of the scheduler, for texts that people read."""
    memory_limit_bytes: int = 0
    """A worker whose resident set exceeds this is killed; 0: no limit."""
    heartbeat_s: float = HEARTBEAT_S
    """How often the scheduler is told that this machine lives; anything it sends is an answer."""
    death_timeout_s: float = math.inf
    """A scheduler that was silent for this long is given up."""
    leaves_if_broken: bool = False
    """Leave once no worker can start; else stay, with no workers."""
    stopped_timeout_s: float = math.inf
    """A worker whose process has been stopped for so long is killed."""
    hang_timeout_s: float = math.inf
    """So is one whose task has done nothing for so long."""
    task_timeout_s: float = math.inf
    """The timeout of tasks that have none of their own."""

    @property
    def places(self) -> int:
        """How many ordinary workers there may be at once."""
        return max(self.capacity, self.workers)

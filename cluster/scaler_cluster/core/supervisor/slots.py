"""The places of a machine's workers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from scaler_cluster.core.supervisor.stuck import Stillness


@dataclass(slots=True)
class WorkerSlot:
    """The place of one worker."""

    peer: bytes = b""
    """Peer id of the worker that lives here; empty: none."""
    spawn_at: float = 0.0
    """When to start one here; inf: never again."""
    pid: int = 0
    ran: tuple[int, int, int] = (0, 0, 0)
    """Session, task and number of the work that it was seen to run last; session 0: none."""
    overdue_at: float = math.inf
    """When that has run for too long."""
    reason: str = ""
    """Why it was killed, if it was."""
    out_of_memory: bool = False
    follows_death: bool = False
    """The worker that was here before died."""
    stillness: Stillness = field(default_factory=Stillness)

"""Looks whether workers are stopped, or do nothing, and tells the supervisor's core."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from scaler_cluster.core.supervisor.stuck import Look
from scaler_cluster.runtime.control_groups import read
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.supervisor.supervisor import SupervisorCore
    from scaler_cluster.runtime.oom import OomWatch
    from scaler_cluster.runtime.worker_slots import WorkerSlots

log = logging.getLogger("scaler.supervisor")


class StuckWatch:
    """Looks at each worker of a machine from time to time."""

    def __init__(self, core: SupervisorCore, slots: WorkerSlots, oom: OomWatch, now: float) -> None:
        self._core = core
        self._slots = slots
        self._oom = oom
        self.due = now + core.look_after_s
        """When to :meth:`look`."""

    def look(self, now: float) -> None:
        """Tell the core how each worker is."""
        core = self._core
        self.due = now + core.look_after_s
        self._oom.refresh(now)
        active: dict[int, tuple[float, bool]] = {}
        if core.config.hang_timeout_s < math.inf:
            # Nearly all supervisors are not told to, and need no such import.
            from scaler_cluster.runtime.vitals import family_activity

            active = family_activity(slot.pid for slot in core.slots if slot.pid)
        for index, slot in enumerate(core.slots):
            if slot.pid:
                cpu_s, is_running = active.get(slot.pid, (0.0, False))
                ran = self._slots.ran(index)
                look = Look(is_stopped(slot.pid), cpu_s, ran, is_running=is_running)
                core.looked(index, look, now)

    def log(self, stuck: m.Stuck) -> None:
        """Say that a stopped worker was noticed; whether a quiet one works, the scheduler knows."""
        if stuck.how == m.STOPPED:
            end = "it stays"
            if stuck.is_doomed:
                end = f"it is killed in {stuck.left_s:.0f} s" if stuck.left_s else "it is killed"
            log.warning(
                "Worker (pid %d) has been stopped (SIGSTOP) for %.1f s: %s",
                stuck.pid,
                stuck.for_s,
                end,
            )


def is_stopped(pid: int) -> bool:
    """Return True for a process that SIGSTOP has stopped; not for one that a debugger holds.

    Only Linux tells. The name of the program comes before the state, in parentheses.
    """
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].startswith(b" T ")

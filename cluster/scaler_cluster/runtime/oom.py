"""Reads how many processes the kernel has killed for lack of memory."""

from __future__ import annotations

from pathlib import Path

from scaler_cluster.core.supervisor.oom import OomKills, oom_reason
from scaler_cluster.runtime.control_groups import memory_groups, read

VMSTAT = "/proc/vmstat"
REFRESH_S = 5.0
"""A process whose memory is taken may need seconds to end, where memory is short."""


class OomWatch:
    """Knows the counts of a moment ago: a death is compared with those before it."""

    def __init__(self, now: float) -> None:
        self._file = _group_file()
        self._before = self._last = self._count()
        self._due = now + REFRESH_S

    def refresh(self, now: float) -> None:
        """Take note of the counts, if it is time.

        The ones before the last are kept: a death of this moment may not have been told yet.
        """
        if now >= self._due:
            self._due = now + REFRESH_S
            self._before, self._last = self._last, self._count()

    def reason(self, signal: int | None) -> str:
        """Return why a worker was killed that this supervisor did not kill; see `oom_reason`."""
        if signal is None:
            return ""
        now = self._count()
        reason = oom_reason(signal, self._before, now)
        if reason:
            # One kill explains one death.
            self._before = self._before.after_one_more()
            self._last = self._last.at_least(self._before)
        return reason

    def _count(self) -> OomKills:
        return OomKills(_kills(self._file), _kills(VMSTAT), self._file)


def _group_file() -> str:
    """Return the file in which the kernel counts for this process's control group, or ""."""
    for root, inner, is_unified in memory_groups():
        name = "memory.events" if is_unified else "memory.oom_control"
        # In a container, the group has another name outside than it has inside.
        for directory in (inner, *inner.parents):
            if root in (directory, *directory.parents) and _kills(f"{directory}/{name}") >= 0:
                return f"{directory}/{name}"
    return ""


def _kills(path: str) -> int:
    if path and Path(path).is_file():
        for line in read(path).splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return -1

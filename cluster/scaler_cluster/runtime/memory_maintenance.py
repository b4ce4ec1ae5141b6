"""What a worker does for its memory between tasks."""

from __future__ import annotations

import ctypes
import gc
import math
import mmap
import sys
from pathlib import Path
from time import perf_counter as clock


class MemoryMaintenance:
    """Collects garbage when that is due, and gives free memory back beyond a threshold.

    ``interval_s`` 0: never.
    """

    def __init__(self, interval_s: float, trim_above_bytes: int) -> None:
        self._interval_s = interval_s
        self._trim_above_bytes = trim_above_bytes
        self.done_at = clock() if interval_s else math.inf
        self.due = self.done_at + interval_s
        """When :meth:`run` is to be called, if tasks have run since it was."""

    def run(self) -> None:
        """Do it now."""
        gc.collect()
        if rss_bytes() > self._trim_above_bytes:
            _trim()
        self.done_at = clock()
        self.due = self.done_at + self._interval_s


def rss_bytes() -> int:
    """Return the resident set of this process; 0 where that cannot be told."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def _trim() -> None:
    """Let the C library give back what it keeps; without effect if it cannot."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

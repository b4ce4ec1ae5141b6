"""What a worker does for its memory between tasks."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import sys
from time import perf_counter as clock
from typing import Any

FREE_BYTES_MAX = 128 << 20
"""Free memory that a worker keeps as long as it has work. To give it back and get it anew takes
0.25 ms a megabyte: arrays of 2 MB then cost four times as much as adding them."""
FREE_SHARE = 8
"""It keeps one part in so many free, at most, of what the results of nodes may take in it: what is
free counts as used."""
HEAP_ITEM_BYTES_MAX = 32 << 20
"""Larger items are given back at once: the C library takes no higher number."""
REST_S = 5.0
"""A worker that has had no work for this long gives its free memory back."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Names of the C library for what it keeps, and up to where it keeps it."""
USER_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


class MemoryMaintenance:
    """Keeps free memory while there is work, and gives it back when there is none.

    Also collects garbage every ``interval_s`` (0: never), and then gives memory back if the worker
    has more than ``trim_above_bytes``. ``kept_max_bytes`` is how much results of nodes may take.
    """

    def __init__(
        self, interval_s: float, trim_above_bytes: int, kept_max_bytes: float = math.inf
    ) -> None:
        self._interval_s = interval_s
        self._trim_above_bytes = trim_above_bytes
        self.done_at = clock() if interval_s else math.inf
        self.due = self.done_at + interval_s
        """When :meth:`run` is due, if tasks have run since it was called last."""
        self._rested_at = clock()
        keep_free(min(FREE_BYTES_MAX, kept_max_bytes / FREE_SHARE))

    def run(self) -> None:
        """Collect garbage now, and trim the memory if there is too much."""
        gc.collect()
        # Not when a worker starts: most workers end before this is due.
        from scaler_cluster.runtime.vitals import rss_bytes

        if rss_bytes(os.getpid()) > self._trim_above_bytes:
            _trim()
        self.done_at = clock()
        self.due = self.done_at + self._interval_s

    def rest_due(self, last_end: float) -> float:
        """Return when :meth:`rest` is due, if there is no work by then."""
        return last_end + REST_S if last_end > self._rested_at else math.inf

    def rest(self) -> None:
        """There is no work: give back what was kept free."""
        _trim()
        self._rested_at = clock()


def keep_free(nbytes: float) -> None:
    """Let the C library keep so much free memory, unless the user has told it what to keep."""
    mallopt = _libc("mallopt")
    if mallopt is not None and not any(name in os.environ for name in USER_SETTINGS):
        mallopt(M_TRIM_THRESHOLD, int(nbytes))
        mallopt(M_MMAP_THRESHOLD, HEAP_ITEM_BYTES_MAX)


def _trim() -> None:
    """Let the C library give free memory back; no effect if the library cannot."""
    trim = _libc("malloc_trim")
    if trim is not None:
        trim(0)


def _libc(name: str) -> Any:
    """Return a function of the GNU C library, None where there is another library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None

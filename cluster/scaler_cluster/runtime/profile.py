"""What a call takes: time, the CPUs' time, and memory."""

from __future__ import annotations

import os
import resource
import sys
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    Took: TypeAlias = tuple[float, float, int]
    """Seconds, seconds of CPUs, and the bytes by which memory grew at most."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
RESET_PEAK = "5"
"""Written to /proc/self/clear_refs, this lets the peak begin anew."""


def measured(call: Callable[..., Any], report: Callable[[Took], None]) -> Callable[..., Any]:
    """Return what calls ``call`` and reports what each call took, also one that raises."""

    def measure(*args: Any, **kwargs: Any) -> Any:
        memory = _begin_peak()
        cpu_s = _cpu_time_s()
        start = clock()
        try:
            return call(*args, **kwargs)
        finally:
            took_s = clock() - start
            took_cpu_s = max(_cpu_time_s() - cpu_s, 0.0)
            report((took_s, took_cpu_s, max(_peak() - memory, 0)))

    return measure


def _cpu_time_s() -> float:
    """Return what this process has used, in all its threads, and children of it that ended."""
    total = 0.0
    for processes in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(processes)
        total += usage.ru_utime + usage.ru_stime
    return total


def _begin_peak() -> int:
    """Return the memory that this process has, from which on its peak counts."""
    try:
        with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123 - half the time
            file.write(RESET_PEAK)
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:
        # Not Linux, or a container that forbids it: only a new record can be seen then.
        return _peak()


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

"""What processes cost: CPU time and memory of this process and of its descendants."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

LOOK_S = 0.05
QUIET_WINDOW_S = 0.25
QUIET_SHARE = 0.25
"""Part of a core below which a cluster counts as quiet: Dask, idle, uses 0.05 to 0.15."""
QUIET_WINDOWS = 3
QUIET_TIMEOUT_S = 300.0


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, 0 if it is gone.

    From its CPU clock, in nanoseconds, as clock_getcpuclockid(3) makes it: /proc counts in ticks
    of 10 ms. Elsewhere from psutil.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except (OSError, AttributeError):
        pass
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def in_child(call: Callable[[], None]) -> None:
    """Call something in a fork: this process neither holds nor has warmed what it needs."""
    child = multiprocessing.get_context("fork").Process(target=call)
    child.start()
    child.join()
    if child.exitcode:
        raise ChildProcessError(f"the process ended with {child.exitcode}")


def children() -> list[psutil.Process]:
    """Return all living descendants of this process."""
    return [child for child in psutil.Process().children(recursive=True) if _is_alive(child)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def unique_bytes(process: psutil.Process) -> int:
    """Return the memory that only this process holds, 0 if it is gone."""
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0


class PeakMemory:
    """Looks, in a thread, how much memory this process and its descendants hold, until it ends.

    That is what each holds for itself, and what has come into shared memory since then, mapped or
    not. Pages that a fork left shared count in each process. Other programs that use the machine's
    shared memory meanwhile falsify it.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        """The most that was seen."""
        self._shared = _shared_bytes()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_often)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look_often(self) -> None:
        while True:
            held = sum(map(_private_bytes, [psutil.Process(), *children()]))
            self.nbytes = max(self.nbytes, held + _shared_bytes() - self._shared)
            if self._is_over.wait(LOOK_S):
                return


def _private_bytes(process: psutil.Process) -> int:
    """Return the memory of a process without files and shared memory, 0 if it is gone."""
    try:
        memory = process.memory_info()
    except psutil.Error:
        return 0
    return int(memory.rss - getattr(memory, "shared", 0))


def _shared_bytes() -> int:
    """Return how much of the machine's shared memory is in use, 0 where that has no directory."""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return (room.f_blocks - room.f_bfree) * room.f_frsize


@dataclass(frozen=True)
class Usage:
    """CPU seconds and unique bytes at one moment, of this process and of its descendants."""

    client_cpu_s: float
    cluster_cpu_s: float
    client_bytes: int
    cluster_bytes: int


def cpu_usage() -> tuple[float, float]:
    """Return the CPU time of this process and of all its descendants together."""
    return time.process_time(), sum(cpu_s(child.pid) for child in children())


def usage() -> Usage:
    """Return what this process and its descendants use now."""
    gc.collect()
    cluster = children()
    return Usage(
        client_cpu_s=time.process_time(),
        cluster_cpu_s=sum(cpu_s(child.pid) for child in cluster),
        client_bytes=unique_bytes(psutil.Process(os.getpid())),
        cluster_bytes=sum(unique_bytes(child) for child in cluster),
    )


def await_quiet() -> None:
    """Return when neither this process nor its descendants have work left.

    Libraries do not say when what was submitted has arrived; their CPU time does.
    Raises TimeoutError.
    """
    end = time.monotonic() + QUIET_TIMEOUT_S
    quiet = 0
    before = sum(cpu_usage())
    while quiet < QUIET_WINDOWS:
        if time.monotonic() > end:
            raise TimeoutError("the cluster does not come to rest")
        time.sleep(QUIET_WINDOW_S)
        now = sum(cpu_usage())
        # The look itself costs CPU time of this process, a few milliseconds at most.
        quiet = quiet + 1 if now - before < QUIET_SHARE * QUIET_WINDOW_S else 0
        before = now

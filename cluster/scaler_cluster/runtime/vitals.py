"""The CPU time and the memory of processes and machines.

psutil tells them. It does not know the limits of control groups, which are read here.
"""

from __future__ import annotations

import contextlib
import math
import os
from functools import lru_cache
from time import perf_counter as clock
from time import process_time
from typing import TYPE_CHECKING

import psutil

from scaler_cluster.runtime.control_groups import memory_groups, read
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

BASELINE_S = 0.25
"""The first measurement takes this long: in a shorter one the clock ticks of 10 ms show."""
FRESH_S = 30.0
"""A measurement is made against the one before, if that is not older than this."""
GENERATIONS_MAX = 32
"""No descendant is looked for beyond these."""
PROCESSES_MAX = 1024
"""More than a machine has workers."""
NOT_BUSY = frozenset(("idle", "iowait", "guest", "guest_nice"))
"""Of the times of CPUs: nothing was done, or it is counted as the time of users as well."""


@lru_cache(PROCESSES_MAX)
def _process(pid: int) -> psutil.Process:
    # To make one takes twice as long as to ask it. The figures go by the pid alone, so a process
    # that has the pid of an earlier one is no trap.
    return psutil.Process(pid)


def rss_bytes(pid: int) -> int:
    """Return a process's resident set, 0 if it is gone."""
    try:
        return int(_process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def cpu_seconds(pid: int) -> float:
    """Return how much of a CPU a process has used, 0 if it is gone."""
    try:
        used = _process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(used.user + used.system)


def family_activity(pids: Iterable[int]) -> dict[int, tuple[float, bool]]:
    """Return how much of a CPU each process has used, and whether it has one or waits for one.

    Its descendants that live count as well; those that have ended count where they were waited for.
    Looks once at each process of the machine.
    """
    parents: dict[int, int] = {}
    active: dict[int, tuple[float, bool]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error), process.oneshot():
            parents[process.pid] = process.ppid()
            is_running = process.status() == psutil.STATUS_RUNNING
            active[process.pid] = sum(process.cpu_times()[:4]), is_running
    totals = dict.fromkeys(pids, (0.0, False))
    for pid, (used_s, is_running) in active.items():
        one = pid
        for _ in range(GENERATIONS_MAX):
            if one in totals:
                before_s, is_any = totals[one]
                totals[one] = before_s + used_s, is_any or is_running
                break
            one = parents.get(one, 0)
    return totals


def machine_cpu_seconds() -> float:
    """Return how long the CPUs of this machine have been busy together."""
    times = psutil.cpu_times()._asdict()
    return float(sum(spent_s for kind, spent_s in times.items() if kind not in NOT_BUSY))


class Memory:
    """The memory that this process may use: the machine's, or less if a control group limits it."""

    def __init__(self) -> None:
        self._groups = list(_limited_groups())

    def total_and_free(self) -> tuple[int, int]:
        """Return how many bytes there are, and how many are free."""
        machine = psutil.virtual_memory()
        total, free = machine.total, machine.available
        for directory, limit_name, usage_name, cache_name in self._groups:
            limit, usage = read(f"{directory}/{limit_name}"), read(f"{directory}/{usage_name}")
            if not limit.strip().isdigit() or not usage or int(limit) >= total:
                continue
            stat = dict(line.split() for line in read(f"{directory}/memory.stat").splitlines())
            # The cache of files is given back whenever memory is wanted.
            used = int(usage) - int(stat.get(cache_name, 0))
            total, free = int(limit), min(free, int(limit) - used)
        return total, max(free, 0)


def _limited_groups() -> list[tuple[str, str, str, bytes]]:
    """Return the control groups that this process is in, with the names of their files."""
    found = []
    for root, inner, is_unified in memory_groups():
        if is_unified:
            names = ("memory.max", "memory.current", b"inactive_file")
        else:
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file"
        around = [one for one in (inner, *inner.parents) if root in (one, *one.parents)]
        found += [(str(directory), *names) for directory in around]
    return found


class Examiner:
    """Answers a scheduler that asks for the CPU time and memory of a machine and its workers."""

    def __init__(
        self, processes: Callable[[], Mapping[bytes, int]], memory_limit_bytes: int = 0
    ) -> None:
        self.due = math.inf
        """When to :meth:`answer`."""
        self._processes = processes
        """Returns the workers with their pids."""
        self._memory_limit_bytes = memory_limit_bytes
        self._asked: m.Examine | None = None
        self._asked_at = 0.0
        self._memory = Memory()
        self._measured_at = -math.inf
        self._busy_s: dict[bytes, float] = {}
        """CPU seconds of each worker; the key of this process is ``b""``."""
        self._machine_busy_s = 0.0

    def ask(self, question: m.Examine, now: float) -> None:
        """Take note of a question; the answer to the first one takes BASELINE_S."""
        self._asked, self._asked_at = question, now
        self.due = now
        if now - self._measured_at > FRESH_S:
            self._measure(self._processes())
            self.due = now + BASELINE_S

    def answer(self, restarts: int) -> m.Vitals:
        """Return the answer to the last question; ``restarts`` counts workers started again."""
        assert self._asked is not None
        asked, self._asked = self._asked, None
        self.due = math.inf
        processes = self._processes()
        cpu, machine_cpu = self._measure(processes)
        return m.Vitals(
            asked.sent_at,
            clock() - self._asked_at,
            os.cpu_count() or 1,
            machine_cpu,
            *self._memory.total_and_free(),
            cpu[b""],
            rss_bytes(os.getpid()),
            tuple(processes),
            tuple(cpu[peer] for peer in processes),
            tuple(map(rss_bytes, processes.values())),
            self._memory_limit_bytes,
            restarts,
        )

    def _measure(self, processes: Mapping[bytes, int]) -> tuple[dict[bytes, int], int]:
        """Return how busy each process is, and the machine, since this was called last."""
        # This turn of the supervisor may have begun long ago.
        now = clock()
        passed_s = max(now - self._measured_at, 1e-3)
        busy_s = {peer: cpu_seconds(pid) for peer, pid in processes.items()}
        busy_s[b""] = process_time()
        before, self._busy_s = self._busy_s, busy_s
        machine_before, self._machine_busy_s = self._machine_busy_s, machine_cpu_seconds()
        self._measured_at = now

        def milli(used_s: float) -> int:
            return max(round(used_s / passed_s * 1000), 0)

        cpu = {peer: milli(used_s - before.get(peer, 0.0)) for peer, used_s in busy_s.items()}
        return cpu, milli(self._machine_busy_s - machine_before)

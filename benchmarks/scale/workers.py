"""How many workers one scheduler has room for: stand-ins, and real processes."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import psutil

from benchmarks.processes import children, cpu_s, unique_bytes
from benchmarks.roles import roles
from benchmarks.scale.crowd import PER_MACHINE, Crowd, Stand, crowd
from benchmarks.scale.figures import KIB, Meter, begin, halves, row, watch
from benchmarks.scale.listeners import run_listener
from benchmarks.tasks import noop, sleep_ms
from scaler_exec import ScalerExecutor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

IDLE_S = 4.0
RUN_S = 3.0
RATE = 2000.0
WINDOW = 128
CLIENTS = 50
REAL_TASKS = 50_000


def measure_workers(counts: Sequence[int]) -> None:
    """Print what so many stand-ins of workers cost a scheduler."""
    begin(
        f"Stand-ins of workers, {PER_MACHINE} on each machine",
        f"workers --counts {' '.join(map(str, counts))}",
        "workers", "all joined after s", "CPU µs per join", "KiB per worker", "idle: CPU %",
        "monitor: CPU %", "snapshots/s", "KiB each", "2,000 lone tasks/s: CPU µs each",
        "median ms", "99 % ms", "most lone tasks/s", "CPU µs each", "drained after s",
        "CPU µs per worker",
    )  # fmt: skip
    for count in counts:
        with crowd() as one:
            _measure(one, count)


def _measure(one: Crowd, count: int) -> None:
    meter = Meter(one.scheduler)
    joined_s = one.join(-(-count // PER_MACHINE), PER_MACHINE)
    join_us = meter.cpu_s / count * 1e6
    # Until then, what has joined is acknowledged.
    time.sleep(1.0)
    each = meter.nbytes / count / KIB
    idle = watch(one.scheduler, IDLE_S)
    with listening(one) as listener:
        watched = watch(one.scheduler, IDLE_S)
        listener.tell("count")
        snapshots, nbytes = listener.hear()
    one.add_clients(CLIENTS)
    paced = lone(one, RATE, 0)
    most = lone(one, 0.0, WINDOW)
    one.manage()
    time.sleep(3.0)
    meter = Meter(one.scheduler)
    drained_s = one.drain()
    drain_us = meter.cpu_s / count * 1e6
    row(
        count, joined_s, join_us, each, idle, watched, snapshots / IDLE_S,
        nbytes / max(snapshots, 1) / KIB, paced[1], paced[2], paced[3], most[0], most[1],
        drained_s, drain_us,
    )  # fmt: skip


@contextlib.contextmanager
def listening(one: Crowd) -> Iterator[Stand]:
    """Let a monitor listen meanwhile; return the process, which counts from now on."""
    listener = Stand(run_listener, one.cluster.monitor_address)
    try:
        # Its first snapshot has come then.
        time.sleep(1.0)
        listener.tell("count")
        listener.hear()
        yield listener
    finally:
        listener.close()


def lone(
    one: Crowd, rate: float, window: int, each_s: float = 0.0
) -> tuple[float, float, float, float, float, float]:
    """Return what lone tasks cost: how many a second there were, the CPU time of the scheduler for
    each in microseconds, the median and the 99th percentile of their latency in milliseconds, the
    scheduler's part of a core in percent, and the CPU time of the stand-ins for each."""
    meter, stands = Meter(one.scheduler), one.stands_cpu_s
    took_s, latencies = one.run(rate, window, RUN_S, each_s)
    used_s, count = meter.cpu_s, len(latencies)
    stands_us = (one.stands_cpu_s - stands) / count * 1e6
    return (
        count / took_s,
        used_s / count * 1e6,
        *halves(latencies),
        used_s / took_s * 100,
        stands_us,
    )


# -- the dashboard -----------------------------------------------------------------------------


def measure_dashboard(counts: Sequence[int]) -> None:
    """Print what the dashboard costs, while nobody looks at its page."""
    begin(
        "The dashboard, without a browser",
        f"dashboard --counts {' '.join(map(str, counts))}",
        "workers", "scheduler CPU %", "dashboard CPU %", "dashboard MiB",
    )  # fmt: skip
    for count in counts:
        with crowd(has_dashboard=True) as one:
            one.join(-(-count // PER_MACHINE), PER_MACHINE)
            time.sleep(IDLE_S)
            meters = [Meter(one.scheduler), Meter(one.dashboard)]
            time.sleep(2 * IDLE_S)
            shares = [meter.cpu_percent for meter in meters]
            row(count, *shares, unique_bytes(psutil.Process(one.dashboard)) / KIB**2)


# -- real processes ----------------------------------------------------------------------------


def measure_real(counts: Sequence[int]) -> None:
    """Print what so many real processes take."""
    begin(
        "Real worker processes on this machine",
        f"real --counts {' '.join(map(str, counts))}",
        "workers", "all ran a task after s", "CPU s of the start", "MiB per worker",
        "idle: scheduler CPU %", "idle: supervisor CPU %",
        "idle: CPU ms per worker and s", "mapped no-ops/s", "scheduler CPU µs each",
        "shut down after s",
    )  # fmt: skip
    for count in counts:
        _measure_real(count)


def _measure_real(count: int) -> None:
    start = time.perf_counter()
    with ScalerExecutor(max_workers=count) as executor:
        nap_ms = 500.0
        # Long tasks are given one by one, so each worker has had one when all have ended.
        list(executor.map(sleep_ms, [nap_ms] * count))
        started_s = time.perf_counter() - start - nap_ms / 1000
        found = roles(executor)
        cluster = children()
        cpu = sum(_cpu(one) for one in cluster)
        scheduler, supervisor = found["scheduler"][0], _supervisor(found["others"])
        each = sum(unique_bytes(psutil.Process(one)) for one in found["workers"]) / count
        meters = [Meter(scheduler), Meter(supervisor)]
        before = sum(map(_cpu, map(psutil.Process, found["workers"])))
        time.sleep(IDLE_S)
        shares = [meter.cpu_percent for meter in meters]
        workers_s = sum(map(_cpu, map(psutil.Process, found["workers"]))) - before
        meter, begun = Meter(scheduler), time.perf_counter()
        assert list(executor.map(noop, range(REAL_TASKS)))[-1] == REAL_TASKS - 1
        rate = REAL_TASKS / (time.perf_counter() - begun)
        each_us = meter.cpu_s / REAL_TASKS * 1e6
        begun = time.perf_counter()
    ended_s = time.perf_counter() - begun
    row(
        count, started_s, cpu, each / KIB**2, *shares,
        workers_s / IDLE_S / count * 1e3, rate, each_us,
        ended_s,
    )  # fmt: skip


def _cpu(process: psutil.Process) -> float:
    return cpu_s(process.pid)


def _supervisor(pids: Sequence[int]) -> int:
    """Return which of some processes is the supervisor."""
    return next(
        pid for pid in pids if any("supervisor" in word for word in psutil.Process(pid).cmdline())
    )

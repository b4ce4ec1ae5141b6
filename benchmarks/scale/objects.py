"""How many objects one scheduler knows, and how many bytes a second go through it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.processes import cpu_s, unique_bytes
from benchmarks.roles import roles
from benchmarks.scale.figures import KIB, begin, row
from benchmarks.tasks import noop
from scaler_exec import ScalerExecutor

if TYPE_CHECKING:
    from collections.abc import Sequence

OBJECT_BYTES = 16 * KIB
MEASURED_BYTES = 256 * KIB**2
TASKS_MAX = 50_000
SIZES = (100, KIB, 16 * KIB, 60 * KIB)
ARRAYS = (256 * KIB, 4 * KIB**2)


def length(content: Any) -> int:
    """Return how long something is."""
    return len(content)


def _texts(nbytes: int, count: int) -> list[bytes]:
    return [number.to_bytes(4, "big") * (nbytes // 4) for number in range(count)]


def measure_objects(counts: Sequence[int]) -> None:
    """Print what so many objects cost that are stored at once."""
    begin(
        f"Objects of {OBJECT_BYTES // KIB} KiB, each sent once, all held",
        f"objects --counts {' '.join(map(str, counts))}",
        "objects", "sent/s", "scheduler CPU µs each", "scheduler bytes each", "released/s",
        "scheduler CPU µs each",
    )  # fmt: skip
    for count in counts:
        with ScalerExecutor(max_workers=1) as executor:
            executor.submit(noop, 1).result()
            scheduler = roles(executor)["scheduler"][0]
            used, held = cpu_s(scheduler), unique_bytes(psutil.Process(scheduler))
            start = time.perf_counter()
            kept = [
                executor.send_object(number.to_bytes(8, "big") * (OBJECT_BYTES // 8))
                for number in range(count)
            ]
            # A task comes after all that was said before it.
            executor.submit(noop, 1).result()
            sent_s = time.perf_counter() - start
            sent_us = (cpu_s(scheduler) - used) / count * 1e6
            each = (unique_bytes(psutil.Process(scheduler)) - held) / count
            used = cpu_s(scheduler)
            start = time.perf_counter()
            kept.clear()
            executor.submit(noop, 1).result()
            gone_s = time.perf_counter() - start
            gone_us = (cpu_s(scheduler) - used) / count * 1e6
            row(count, count / sent_s, sent_us, each, count / gone_s, gone_us)


def measure_bytes() -> None:
    """Print how many bytes a second go through a scheduler, and past it."""
    begin(
        "Arguments of tasks, two real workers",
        "bytes",
        "argument", "way", "tasks/s", "MiB/s", "scheduler CPU µs per task", "scheduler CPU %",
    )  # fmt: skip
    import numpy as np

    with ScalerExecutor(max_workers=2) as executor:
        for nbytes in SIZES:
            count = min(MEASURED_BYTES // nbytes, TASKS_MAX)
            _measure_bytes(executor, "bytes", "the scheduler", nbytes, _texts(nbytes, count))
        for nbytes in ARRAYS:
            count = min(MEASURED_BYTES // nbytes, TASKS_MAX)
            arrays = [np.full(nbytes // 8, number, "d") for number in range(count)]
            _measure_bytes(executor, "arrays", "shared memory", nbytes, arrays)


def _measure_bytes(
    executor: ScalerExecutor, what: str, way: str, nbytes: int, values: Sequence[Any]
) -> None:
    scheduler = roles(executor)["scheduler"][0]
    list(executor.map(length, values[:20]))
    used, start = cpu_s(scheduler), time.perf_counter()
    assert sum(1 for _ in executor.map(length, values)) == len(values)
    took_s, used = time.perf_counter() - start, cpu_s(scheduler) - used
    count = len(values)
    size = f"{nbytes // KIB:,} KiB" if nbytes >= KIB else f"{nbytes} B"
    rate = count / took_s
    row(
        f"{what} of {size}",
        way,
        rate,
        rate * nbytes / KIB**2,
        used / count * 1e6,
        used / took_s * 100,
    )

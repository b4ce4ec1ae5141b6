"""How many clients one scheduler has room for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.scale.crowd import PER_MACHINE, crowd
from benchmarks.scale.figures import KIB, Meter, begin, row, watch
from benchmarks.scale.workers import IDLE_S, RATE, WINDOW, lone

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKERS = 256


def measure_clients(counts: Sequence[int]) -> None:
    """Print what so many stand-ins of clients cost a scheduler."""
    begin(
        f"Stand-ins of clients, with {WORKERS} of workers",
        f"clients --counts {' '.join(map(str, counts))}",
        "clients", "all joined after s", "CPU µs per join", "KiB per client", "idle: CPU %",
        "2,000 lone tasks/s: CPU µs each", "median ms", "99 % ms", "most lone tasks/s",
        "CPU µs each",
    )  # fmt: skip
    for count in counts:
        with crowd() as one:
            one.join(WORKERS // PER_MACHINE, PER_MACHINE)
            time.sleep(1.0)
            meter = Meter(one.scheduler)
            joined_s = one.add_clients(count)
            join_us = meter.cpu_s / count * 1e6
            time.sleep(1.0)
            each = meter.nbytes / count / KIB
            idle = watch(one.scheduler, IDLE_S)
            paced = lone(one, RATE, 0)
            most = lone(one, 0.0, WINDOW)
            row(count, joined_s, join_us, each, idle, *paced[1:4], *most[:2])

"""Tables in Markdown, and what a scheduler has used."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import psutil

from benchmarks.processes import cpu_s, unique_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

KIB = 1024


def begin(title: str, command: str, *columns: str) -> None:
    """Print the head of a table, with the command that prints it."""
    print(f"\n{title} (`python -m benchmarks.scale {command}`):\n")
    print(f"| {' | '.join(columns)} |")
    print(f"|{'---|' * len(columns)}", flush=True)


def row(*cells: object) -> None:
    """Print a row; floats have three digits or none after the point."""
    print(f"| {' | '.join(map(shown, cells))} |", flush=True)


def shown(cell: object) -> str:
    """Return what a cell shows."""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def halves(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile, in milliseconds."""
    return statistics.median(values) * 1e3, statistics.quantiles(values, n=100)[98] * 1e3


class Meter:
    """What a process uses from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu_s = cpu_s(pid)
        self._nbytes = unique_bytes(psutil.Process(pid))
        self._start = time.perf_counter()

    @property
    def cpu_s(self) -> float:
        """CPU seconds."""
        return cpu_s(self._pid) - self._cpu_s

    @property
    def cpu_percent(self) -> float:
        """Part of one core."""
        return self.cpu_s / (time.perf_counter() - self._start) * 100

    @property
    def nbytes(self) -> int:
        """Bytes that only this process holds."""
        return unique_bytes(psutil.Process(self._pid)) - self._nbytes


def watch(pid: int, duration_s: float) -> float:
    """Return the part of a core that a process uses over some seconds, in percent."""
    meter = Meter(pid)
    time.sleep(duration_s)
    return meter.cpu_percent

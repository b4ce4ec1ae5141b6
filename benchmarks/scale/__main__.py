"""``python -m benchmarks.scale [KIND ...]`` prints how far one scheduler goes, as Markdown."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from typing import TYPE_CHECKING

from benchmarks.scale.clients import measure_clients
from benchmarks.scale.crowd import Crowd
from benchmarks.scale.objects import measure_bytes, measure_objects
from benchmarks.scale.tasks import measure_lone, measure_tasks
from benchmarks.scale.workers import measure_dashboard, measure_real, measure_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COUNTED: dict[str, tuple[Callable[[Sequence[int]], None], Sequence[int]]] = {
    "workers": (measure_workers, (100, 1000, 2000, 5000, 10_000)),
    "dashboard": (measure_dashboard, (100, 1000, 10_000)),
    "real": (measure_real, (100, 400)),
    "clients": (measure_clients, (100, 1000, 5000)),
    "objects": (measure_objects, (1000, 10_000, 50_000)),
}
"""What is measured for some numbers, and those where no others are given."""
KINDS = ("tasks", "lone", *COUNTED, "bytes")


def measure(kind: str, counts: Sequence[int], scale: float) -> None:
    """Print the table of a kind."""
    if kind == "tasks":
        measure_tasks(scale)
    elif kind == "lone":
        measure_lone()
    elif kind == "bytes":
        measure_bytes()
    else:
        run, usual = COUNTED[kind]
        run(counts or usual)


def main() -> int:
    """Run what is named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], metavar="KIND")
    parser.add_argument("--counts", nargs="+", type=int, default=(), help="of workers, clients ...")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many tasks")
    parser.add_argument("--tcp", action="store_true", help="stand-ins connect by TCP, with keys")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        if options.tcp:
            Crowd.address = "tcp://127.0.0.1:0"
            # Else the keys that are made for this user would stay.
            os.environ["XDG_STATE_HOME"] = state
        for kind in options.kinds or KINDS:
            measure(kind, options.counts, options.scale)
    return 0


if __name__ == "__main__":
    sys.exit(main())

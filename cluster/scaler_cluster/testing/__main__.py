"""Run simulations: ``python -m scaler_cluster.testing PLAN FIRST [COUNT]``; one alone is logged.

``python -m scaler_cluster.testing two_levels`` prints figures of two levels of schedulers instead;
with FIRST and COUNT it plays so many seeds of them with faults.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from scaler_cluster.testing.plan import PLANS, drawn
from scaler_cluster.testing.runner import Tally, play_all
from scaler_cluster.testing.simulation import simulate
from scaler_cluster.testing.two_level_cases import compare, play

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRESS_S = 30.0
"""How often a line says how far it is."""


def main() -> int:
    """Run what the command line says; return the exit status: 1 if a seed failed."""
    if sys.argv[1:2] == ["two_levels"]:
        return _two_levels([int(one) for one in sys.argv[2:]])
    parser = argparse.ArgumentParser(prog="python -m scaler_cluster.testing")
    parser.add_argument("plan", choices=[*PLANS, "all"])
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument(
        "count", type=int, nargs="?", help="how many seeds of each plan; without: one, with a log"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="how many processes (default: all cores)"
    )
    wanted = parser.parse_args()
    names = list(PLANS) if wanted.plan == "all" else [wanted.plan]
    if wanted.count is None:
        for name in names:
            plan = replace(drawn(PLANS[name], wanted.first), check_every=1)
            simulate(wanted.first, plan, print)
        return 0
    began = time.monotonic()
    told = [0, began]

    def tell(total: Tally) -> None:
        for failure in total.failures[int(told[0]) :]:
            print(f"{failure}\n", flush=True)
        told[0] = len(total.failures)
        if time.monotonic() - told[1] >= PROGRESS_S:
            told[1] = time.monotonic()
            print(_summary(total, told[1] - began), flush=True)

    total = play_all(names, wanted.first, wanted.count, wanted.jobs, tell)
    print(f"{wanted.plan}: {_summary(total, time.monotonic() - began)}")
    return 1 if total.failures else 0


def _two_levels(seeds: Sequence[int]) -> int:
    """Print figures of two levels, or play seeds of them: the first, and how many."""
    tell = partial(print, flush=True)
    if not seeds:
        compare(tell)
        return 0
    return 1 if play(seeds[0], seeds[1] if len(seeds) > 1 else 1, tell) else 0


def _summary(total: Tally, took_s: float) -> str:
    each_s = total.cpu_s / max(total.played, 1)
    failed = f"{total.played} schedules, {len(total.failures)} failed"
    return f"{failed}; {took_s:.0f} s, {1000 * each_s:.1f} ms of a core for each"


if __name__ == "__main__":
    sys.exit(main())

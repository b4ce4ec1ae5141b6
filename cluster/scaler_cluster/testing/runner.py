"""Many seeds: each with the part of a plan that it draws, on several processes."""

from __future__ import annotations

import gc
import multiprocessing
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.testing.plan import PLANS, drawn
from scaler_cluster.testing.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SEEDS_AT_ONCE = 20
"""Seeds that a process plays before it says how they went."""
GARBAGE_MAX = 50_000
"""Objects that a process makes before it looks for garbage, of which simulations leave little."""


@dataclass
class Tally:
    """How some seeds went."""

    played: int = 0
    cpu_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    """What failed and how to repeat it, in a few lines each."""

    def add(self, other: Tally) -> None:
        """Count these as well."""
        self.played += other.played
        self.cpu_s += other.cpu_s
        self.failures += other.failures


def play(name: str, seeds: Sequence[int]) -> Tally:
    """Play the part of a plan that each seed draws."""
    tally = Tally()
    began = time.process_time()
    for seed in seeds:
        try:
            simulate(seed, drawn(PLANS[name], seed))
        except AssertionError as error:
            again = f"python -m scaler_cluster.testing {name!r} {seed}"
            tally.failures.append(f"{name} {seed}: {error}\nwith a log: {again}")
        tally.played += 1
    tally.cpu_s = time.process_time() - began
    return tally


def play_all(
    names: Sequence[str], first: int, count: int, jobs: int, tell: Callable[[Tally], object]
) -> Tally:
    """Play seeds of several plans in turn; ``tell`` is called with what was played so far."""
    total = Tally()
    parts = list(_parts(names, first, count))
    with multiprocessing.get_context("spawn").Pool(jobs, _prepare) as pool:
        for tally in pool.imap_unordered(_play_part, parts):
            total.add(tally)
            tell(total)
    return total


def _parts(names: Sequence[str], first: int, count: int) -> Iterator[tuple[str, range]]:
    for start in range(first, first + count, SEEDS_AT_ONCE):
        seeds = range(start, min(start + SEEDS_AT_ONCE, first + count))
        for name in names:
            yield name, seeds


def _play_part(part: tuple[str, range]) -> Tally:
    return play(*part)


def _prepare() -> None:
    gc.freeze()
    gc.set_threshold(GARBAGE_MAX)

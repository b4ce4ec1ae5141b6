"""How long one task takes from the call to its result when nothing else is going on."""

from __future__ import annotations

import time

from benchmarks.figures import quantile
from benchmarks.scenario import Metric, Run, Scenario, check
from benchmarks.tasks import noop

TRIPS = 1_000
TRIPS_S = 3.0
"""A slow peer makes as many as it can in this."""
WARM_UP_TRIPS = 20


def round_trip(run: Run) -> dict[str, float]:
    """Submit one task and wait for it, many times."""
    with run.opened() as peer:
        for item in range(WARM_UP_TRIPS):
            peer.collect([peer.submit(noop, item)])
        trips: list[float] = []
        results: list[int] = []
        while len(trips) < TRIPS and sum(trips) < TRIPS_S:
            start = time.perf_counter()
            results += peer.collect([peer.submit(noop, len(trips))])
            trips.append(time.perf_counter() - start)
        check(results, range(len(trips)))
    return {
        "p50": quantile(trips, 0.5) * 1e6,
        "p99": quantile(trips, 0.99) * 1e6,
        "tasks": len(trips),
    }


SCENARIOS = (
    Scenario(
        "round_trip",
        f"{TRIPS:,} lone round trips",
        (Metric("p50", "us", "less"), Metric("p99", "us", "less")),
        round_trip,
        shares="tasks",
    ),
)

"""More and more tasks, and more and more workers, until the next step would take too long."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.scenario import Metric, Run, Scenario, check, timed
from benchmarks.tasks import noop, sleep_ms

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS = {f"1e{exponent}": 10**exponent for exponent in range(3, 8)}
WORKER_COUNTS = {str(count): count for count in (1, 4, 16, 64)}
COUNTS_LIMIT_S, SLOW_COUNTS_LIMIT_S, WORKERS_LIMIT_S = 40.0, 12.0, 25.0
"""How long a step may take, as far as the step before it tells; less for peers that are slow."""
WARM_UP_TASKS = 100
NAP_MS, NAPS_EACH = 10, 40


def climb(
    steps: dict[str, int], measure: Callable[[int], float], limit_s: float
) -> dict[str, float]:
    """Measure steps of growing size, until the next one would take longer than the limit."""
    figures: dict[str, float] = {}
    sizes = list(steps.values())
    for (name, size), following in zip(steps.items(), [*sizes[1:], 0], strict=True):
        took_s, figures[name] = timed(partial(measure, size))
        if took_s * following / size > limit_s:
            break
    return figures


def more_tasks(run: Run) -> dict[str, float]:
    """Map ever more no-ops on one cluster."""

    def rate(count: int) -> float:
        seconds, results = timed(lambda: list(peer.map(noop, range(count))))
        check(results, range(count))
        return count / seconds

    with run.opened() as peer:
        list(peer.map(noop, range(WARM_UP_TASKS)))
        limit_s = COUNTS_LIMIT_S if peer.scale == 1 else SLOW_COUNTS_LIMIT_S
        return climb(COUNTS, rate, limit_s)


def more_workers(run: Run) -> dict[str, float]:
    """Map naps on clusters of ever more workers, each started anew and warmed up first."""
    peer = run.peer

    def efficiency(workers: int) -> float:
        peer.workers = workers
        with run.opened():
            list(peer.map(sleep_ms, [5 * NAP_MS] * 2 * workers))
            naps = [NAP_MS] * NAPS_EACH * workers
            start = time.perf_counter()
            check(list(peer.map(sleep_ms, naps)), naps)
            took_s = time.perf_counter() - start
        return NAP_MS / 1000 * NAPS_EACH / took_s * 100

    return climb(WORKER_COUNTS, efficiency, WORKERS_LIMIT_S)


SCENARIOS = (
    Scenario(
        "many_tasks",
        "map of no-ops, by their number",
        tuple(Metric(name, "tasks/s", "more") for name in COUNTS),
        more_tasks,
    ),
    Scenario(
        "many_workers",
        f"{NAPS_EACH} sleeps of {NAP_MS} ms for each worker, by the number of workers",
        tuple(Metric(name, "%", "more") for name in WORKER_COUNTS),
        more_workers,
    ),
)

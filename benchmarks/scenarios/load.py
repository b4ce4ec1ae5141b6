"""How well two workers are kept busy: short tasks, and tasks of uneven length."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.peer import WORKERS
from benchmarks.scenario import Metric, Run, Scenario, check, timed
from benchmarks.tasks import sleep_ms, spin_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LONG_MS, SHORT_MS = 200, 10
LONG_TASKS, SHORT_TASKS = 10, 190


def uneven_order(order: str) -> list[int]:
    """Return the durations: the long ones in a ``block``, at the ``tail``, or ``alternate``.

    Handed out one by one, in this order, to whoever is free, each of the three takes exactly the
    ideal time: no order is impossible for an engine that does not look ahead.
    """
    long, short = [LONG_MS] * LONG_TASKS, [SHORT_MS] * SHORT_TASKS
    if order == "block":
        half = SHORT_TASKS // 2
        return short[:half] + long + short[half:]
    if order == "tail":
        return short + long
    stride = (LONG_TASKS + SHORT_TASKS) // LONG_TASKS
    return ([LONG_MS] + [SHORT_MS] * (stride - 1)) * LONG_TASKS


def ideal_ms(durations: Sequence[float], workers: int = WORKERS) -> float:
    """Return the least time: all workers always busy, or longest tasks first, if that is more."""
    loads = [0.0] * workers
    for duration in sorted(durations, reverse=True):
        loads[loads.index(min(loads))] += duration
    return max(sum(durations) / workers, *loads)


def _measure(run: Run, function: Callable[[float], float], durations: Sequence[float]) -> float:
    """Return how many milliseconds the map of the durations takes."""
    with run.opened() as peer:
        check(list(peer.map(function, [1] * 20)), [1] * 20)
        seconds, results = timed(lambda: list(peer.map(function, durations)))
        check(results, durations)
    return seconds * 1000


def efficiency(
    run: Run, function: Callable[[float], float], duration_ms: float, count: int
) -> dict[str, float]:
    """Measure tasks of one length.

    ``efficiency`` compares with a bare loop of one worker's share in this process, measured just
    before: a sleep of 1 ms takes 1.06 to 1.10 here, which no engine can help. ``nominal``
    compares with the durations as they were asked for.
    """
    share = count // WORKERS
    loop_s, _ = timed(lambda: [function(duration_ms) for _ in range(share)])
    took_ms = _measure(run, function, [duration_ms] * count)
    return {
        "efficiency": loop_s * 1000 / took_ms * 100,
        "nominal": duration_ms * share / took_ms * 100,
        "tasks": count,
    }


def uneven(run: Run, order: str) -> dict[str, float]:
    """Measure tasks of two lengths in one of the orders."""
    durations = uneven_order(order)
    took_ms = _measure(run, sleep_ms, durations)
    return {"ideal": took_ms / ideal_ms(durations), "tasks": len(durations)}


EFFICIENCY = (Metric("efficiency", "%", "more"), Metric("nominal", "%", "more"))

SCENARIOS = (
    Scenario(
        "tasks_1ms",
        "1,000 tasks that sleep 1 ms",
        EFFICIENCY,
        partial(efficiency, function=sleep_ms, duration_ms=1, count=1_000),
        shares="tasks",
    ),
    Scenario(
        "tasks_10ms",
        "200 tasks that use 10 ms of CPU",
        EFFICIENCY,
        partial(efficiency, function=spin_ms, duration_ms=10, count=200),
        shares="tasks",
    ),
    *(
        Scenario(
            f"uneven_{order}",
            f"{SHORT_TASKS} tasks of {SHORT_MS} ms and {LONG_TASKS} of {LONG_MS} ms: {words}",
            (Metric("ideal", "x ideal", "less"),),
            partial(uneven, order=order),
            shares="tasks",
        )
        for order, words in (
            ("block", "the long ones together in the middle"),
            ("tail", "the long ones last"),
            ("alternate", "the long ones spread evenly"),
        )
    ),
)

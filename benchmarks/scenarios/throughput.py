"""How many tasks a second: nothing in the tasks, so all that counts is the engine."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.processes import cpu_usage
from benchmarks.scenario import Metric, Run, Scenario, check, timed
from benchmarks.tasks import noop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.peer import Peer

MAP_TASKS = 100_000
SUBMITS = 20_000
WARM_UP_TASKS = 2_000
CLOSURES = 4_000
SCRIPT = """
OFFSET, SCALE = 0, 1
def scaled(value):
    return value * SCALE
def work(value):
    return scaled(value) + OFFSET
"""
CHUNK = 100
MEASURED_S = 0.5
"""A fast engine is through in a tenth of that; then it does it again, until this has passed."""


def _repeat(count: int, work: Callable[[], list[int]]) -> dict[str, float]:
    """Do the work until it has taken long enough to be measured; return what one task costs."""
    seconds, passes = 0.0, 0
    client, cluster = cpu_usage()
    while seconds < MEASURED_S:
        took_s, results = timed(work)
        seconds += took_s
        passes += 1
        if passes == 1:
            first = results
    client_now, cluster_now = cpu_usage()
    check(first, range(count))
    check(results, range(count))
    tasks = passes * count
    return {
        "rate": tasks / seconds,
        "client_cpu": (client_now - client) / tasks * 1e6,
        "cluster_cpu": (cluster_now - cluster) / tasks * 1e6,
        "tasks": count,
    }


def mapped(run: Run, chunksize: int) -> dict[str, float]:
    """Map no-ops."""
    count = run.count(MAP_TASKS)
    with run.opened() as peer:
        list(peer.map(noop, range(run.count(WARM_UP_TASKS)), chunksize))
        return _repeat(count, lambda: list(peer.map(noop, range(count), chunksize)))


def no_ops() -> Iterator[Callable[[int], int]]:
    """Yield one function that workers import, again and again."""
    return itertools.repeat(noop)


def script_function() -> Iterator[Callable[[int], int]]:
    """Yield one function of a script, which names two globals and a helper, again and again."""
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, script)
    return itertools.repeat(script["work"])


def closures() -> Iterator[Callable[[int], int]]:
    """Yield functions, each made anew, as where ``submit`` is given a lambda in a loop."""
    for number in itertools.count():

        def add_nothing(value: int, zero: int = number - number) -> int:
            return value + zero

        yield add_nothing


def submitted(
    run: Run, functions: Callable[[], Iterator[Callable[[int], int]]], tasks: int
) -> dict[str, float]:
    """Submit all, then collect all."""
    every = functions()

    def work(peer: Peer, count: int) -> list[int]:
        handles = [peer.submit(next(every), item) for item in range(count)]
        results: list[int] = peer.collect(handles)
        return results

    count = run.count(tasks)
    with run.opened() as peer:
        work(peer, run.count(WARM_UP_TASKS))
        return _repeat(count, lambda: work(peer, count))


METRICS = (
    Metric("rate", "tasks/s", "more"),
    Metric("client_cpu", "us/task", "less"),
    Metric("cluster_cpu", "us/task", "less"),
)

SCENARIOS = (
    Scenario(
        "map_noop",
        f"map of {MAP_TASKS:,} no-ops, each its own task",
        METRICS,
        partial(mapped, chunksize=1),
        shares="tasks",
    ),
    Scenario(
        "map_chunked",
        f"map of {MAP_TASKS:,} no-ops, {CHUNK} to a task",
        METRICS,
        partial(mapped, chunksize=CHUNK),
        shares="tasks",
        without=dict.fromkeys(("dask", "parsl", "executorlib", "scaler"), "its map has no chunks"),
    ),
    Scenario(
        "submit_script",
        f"{SUBMITS:,} submits of a function of a script, then collect",
        METRICS,
        partial(submitted, functions=script_function, tasks=SUBMITS),
        peers=("ours", "loky", "dask"),
    ),
    Scenario(
        "submit_closures",
        f"{CLOSURES:,} submits of closures, each a new one, then collect",
        METRICS,
        partial(submitted, functions=closures, tasks=CLOSURES),
        peers=("ours", "loky", "dask"),
    ),
    Scenario(
        "submit_collect",
        f"{SUBMITS:,} submits, then collect",
        METRICS,
        partial(submitted, functions=no_ops, tasks=SUBMITS),
        shares="tasks",
        without={"joblib": "it has no submit"},
    ),
)

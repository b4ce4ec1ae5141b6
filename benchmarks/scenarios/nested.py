"""Tasks that submit tasks and wait for them."""

from __future__ import annotations

from functools import partial

from benchmarks.scenario import Metric, Run, Scenario, check, timed
from benchmarks.tasks import dask_fibonacci, fibonacci, own_fibonacci, ray_fibonacci

N = 16
SLOW_N = {"dask": 9, "ray": 9, "scaler": 4}
"""Each task that waits gets Dask a thread more, Ray and Scaler a process: 16 takes minutes."""
TREES = {"ours": own_fibonacci, "dask": dask_fibonacci, "ray": ray_fibonacci}


def calls(n: int) -> int:
    """Return how many tasks fibonacci(n) is."""
    return 1 if n < 2 else 1 + calls(n - 1) + calls(n - 2)


def value(n: int) -> int:
    """Return the n-th number."""
    return n if n < 2 else value(n - 1) + value(n - 2)


def nested_fibonacci(run: Run) -> dict[str, float]:
    """Run the tree once to warm up, then measure it."""
    with run.opened() as peer:
        n = N if run.full else SLOW_N.get(peer.name, N)
        tree = TREES.get(peer.name) or partial(fibonacci, peer.client)  # type: ignore[attr-defined]
        peer.collect([peer.submit(tree, n)])
        seconds, results = timed(lambda: peer.collect([peer.submit(tree, n)]))
        check(results, [value(n)])
    return {"rate": calls(n) / seconds, "tasks": calls(n)}


SCENARIOS = (
    Scenario(
        "nested_fibonacci",
        f"fibonacci({N}), each call a task that submits two more (the others fewer)",
        (Metric("rate", "tasks/s", "more"),),
        nested_fibonacci,
        peers=("ours", "dask", "ray", "scaler"),
    ),
)

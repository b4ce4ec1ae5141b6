"""Tasks that submit tasks and wait for them."""

from __future__ import annotations

from benchmarks.scenario import Metric, Run, Scenario, check, timed
from benchmarks.tasks import dask_fibonacci, own_fibonacci

N = 16
DASK_N = 9
"""Each task of Dask's that waits leaves its slot and gets a thread more: 16 would need minutes."""


def calls(n: int) -> int:
    """Return how many tasks fibonacci(n) is."""
    return 1 if n < 2 else 1 + calls(n - 1) + calls(n - 2)


def value(n: int) -> int:
    """Return the n-th number."""
    return n if n < 2 else value(n - 1) + value(n - 2)


def nested_fibonacci(run: Run) -> dict[str, float]:
    """Run the tree once to warm up, then measure it."""
    with run.opened() as peer:
        if run.peer.name == "dask":
            n = N if run.full else DASK_N
            tree = dask_fibonacci
        else:
            n, tree = N, own_fibonacci
        peer.collect([peer.submit(tree, n)])
        seconds, results = timed(lambda: peer.collect([peer.submit(tree, n)]))
        check(results, [value(n)])
    return {"rate": calls(n) / seconds, "tasks": calls(n)}


SCENARIOS = (
    Scenario(
        "nested_fibonacci",
        f"fibonacci({N}), each call a task that submits two more (Dask: {DASK_N})",
        (Metric("rate", "tasks/s", "more"),),
        nested_fibonacci,
        peers=("ours", "dask"),
    ),
)

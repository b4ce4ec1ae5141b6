"""Graphs of tasks that do next to nothing: what counts is how they are passed on.

From the graph to its results, so also what the client does before anything runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.processes import cpu_usage
from benchmarks.scenario import Metric, Run, Scenario, check, timed
from benchmarks.tasks import add_all, increase

if TYPE_CHECKING:
    from collections.abc import Callable

    Graph = tuple[dict[Any, Any], list[Any], list[Any]]
    """A graph, the wanted keys, and what their values must be."""

LEAVES, MANY_LEAVES = 10_000, 100_000
LINKS = 10_000
FAN = 10_000
COLUMNS, ROWS = 1_000, 100
KEYS = 20_000
WARM_UP_NODES = 500
MEASURED_S = 0.5


def tree(leaves: int) -> Graph:
    """Return a sum by pairs."""
    graph: dict[Any, Any] = {("leaf", n): (increase, n + 0.5) for n in range(leaves)}
    level: list[Any] = list(graph)
    depth = 0
    while len(level) > 1:
        depth += 1
        above = [
            (("sum", depth, n // 2), (add_all, *level[n : n + 2])) for n in range(0, len(level), 2)
        ]
        graph.update(above)
        level = [key for key, _ in above]
    return graph, level, [sum(n + 1.5 for n in range(leaves))]


def chain(links: int) -> Graph:
    """Return tasks of which each takes the result of the one before."""
    graph: dict[Any, Any] = {("link", 0): (increase, 0.5)}
    graph |= {("link", n): (increase, ("link", n - 1)) for n in range(1, links)}
    return graph, [("link", links - 1)], [links + 0.5]


def fan(width: int) -> Graph:
    """Return one task that many take, and one that takes them all."""
    graph: dict[Any, Any] = {"first": (increase, 0.5)}
    graph |= {("part", n): (add_all, "first", n + 0.5) for n in range(width)}
    graph["last"] = (add_all, *[("part", n) for n in range(width)])
    return graph, ["last"], [sum(n + 2.0 for n in range(width))]


def stencil(size: int) -> Graph:
    """Return rows of tasks, each of which takes three of the row before."""
    columns = max(size * COLUMNS // (COLUMNS * ROWS), 3)
    graph: dict[Any, Any] = {("cell", 0, n): (increase, 0.5) for n in range(columns)}
    for row in range(1, ROWS):
        for n in range(columns):
            below = [("cell", row - 1, near % columns) for near in (n - 1, n, n + 1)]
            graph["cell", row, n] = (add_all, *below)
    last = [("cell", ROWS - 1, n) for n in range(columns)]
    return graph, last, [1.5 * 3.0 ** (ROWS - 1)] * columns


def flat(keys: int) -> Graph:
    """Return tasks that have nothing to do with each other, all of them wanted."""
    graph: dict[Any, Any] = {("key", n): (increase, n + 0.5) for n in range(keys)}
    return graph, list(graph), [n + 1.5 for n in range(keys)]


def got(run: Run, make: Callable[[int], Graph], size: int) -> dict[str, float]:
    """Run a graph until it has taken long enough to be measured; return what a node costs."""
    warm_up, graph_of = flat(WARM_UP_NODES), make(run.count(size))
    with run.opened() as peer:
        check(peer.get(*warm_up[:2]), warm_up[2])
        graph, keys, expected = graph_of
        seconds, passes = 0.0, 0
        client, cluster = cpu_usage()
        while seconds < MEASURED_S:
            took_s, results = timed(lambda: peer.get(graph, keys))
            seconds += took_s
            passes += 1
            check(results, expected)
        client_now, cluster_now = cpu_usage()
    nodes = passes * len(graph)
    return {
        "rate": nodes / seconds,
        "client_cpu": (client_now - client) / nodes * 1e6,
        "cluster_cpu": (cluster_now - cluster) / nodes * 1e6,
        "nodes": len(graph),
    }


METRICS = (
    Metric("rate", "nodes/s", "more"),
    Metric("client_cpu", "us/node", "less"),
    Metric("cluster_cpu", "us/node", "less"),
)
PEERS = ("ours", "dask", "ray", "parsl", "executorlib", "scaler")


def _scenario(name: str, summary: str, make: Callable[[int], Graph], size: int) -> Scenario:
    return Scenario(
        f"graph_{name}",
        summary,
        METRICS,
        partial(got, make=make, size=size),
        peers=PEERS,
        shares="graphs",
    )


SCENARIOS = (
    _scenario("tree", f"sum by pairs of {LEAVES:,} leaves", tree, LEAVES),
    _scenario("tree_large", f"sum by pairs of {MANY_LEAVES:,} leaves", tree, MANY_LEAVES),
    _scenario("chain", f"a chain of {LINKS:,} tasks", chain, LINKS),
    _scenario("fan", f"one to {FAN:,} to one", fan, FAN),
    _scenario("stencil", f"stencil of {COLUMNS:,} by {ROWS}", stencil, COLUMNS * ROWS),
    _scenario("keys", f"get of {KEYS:,} nodes, all wanted", flat, KEYS),
)

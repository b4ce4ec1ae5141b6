"""The floors that the engine must hold, each computed from figures of one and the same run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from benchmarks.ratios import BEST_LOCAL, DISTRIBUTED, geometric_mean, ratios
from benchmarks.scenarios import dask_workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.ratios import Ratio
    from benchmarks.runner import Measured


@dataclass(frozen=True)
class Goal:
    """One floor."""

    text: str
    bound: float
    better: str
    value: Callable[[Measured], float | None]
    """None where a scenario or peer that it needs was not run."""

    def met(self, value: float) -> bool:
        """Return True if the value is on the right side of the bound."""
        return value >= self.bound if self.better == "more" else value <= self.bound


def _own(scenario: str, metric: str) -> Callable[[Measured], float | None]:
    return lambda measured: measured.median(scenario, "ours", metric)


def _ratio(
    scenario: str, metric: str, peer: str, other: tuple[str, str] = ("", "")
) -> Callable[[Measured], float | None]:
    """Return ours divided by the peer's, which may come from another scenario and metric."""

    def value(measured: Measured) -> float | None:
        ours = measured.median(scenario, "ours", metric)
        theirs = measured.median(other[0] or scenario, peer, other[1] or metric)
        return ours / theirs if ours and theirs else None

    return value


def _growth(metric: str) -> Callable[[Measured], float | None]:
    """Return how many times as much a deeper queue costs than a shallower one, at worst."""

    def value(measured: Measured) -> float | None:
        medians = [
            measured.median(f"queue_depth_1e{exponent}", "ours", metric) for exponent in (4, 5, 6)
        ]
        known = [median for median in medians if median]
        if len(known) < len(medians):
            return None
        return max(deep / shallow for shallow, deep in combinations(known, 2))

    return value


def _workloads(
    ratio: Ratio, of: Callable[[Iterable[float]], float]
) -> Callable[[Measured], float | None]:
    """Return a figure of the ratios of all workloads of Dask."""

    def value(measured: Measured) -> float | None:
        found = ratios(measured, ratio)
        return of(found.values()) if len(found) == len(dask_workloads.SCENARIOS) else None

    return value


GOALS = (
    Goal("map, tasks/s", 300_000, "more", _own("map_noop", "rate")),
    Goal("map / ProcessPoolExecutor", 30, "more", _ratio("map_noop", "rate", "ppe")),
    Goal("map / Pool.imap", 5, "more", _ratio("map_noop", "rate", "pool")),
    Goal("map / Dask", 400, "more", _ratio("map_noop", "rate", "dask")),
    Goal(
        "map / bare pipeline, repacked, 1000 a message",
        0.5,
        "more",
        _ratio("map_noop", "rate", "bare", ("bare_pipeline_repack", "by_1000")),
    ),
    Goal("submit and collect, tasks/s", 40_000, "more", _own("submit_collect", "rate")),
    Goal(
        "submit and collect / ProcessPoolExecutor",
        4,
        "more",
        _ratio("submit_collect", "rate", "ppe"),
    ),
    Goal("map in chunks / ProcessPoolExecutor", 1, "more", _ratio("map_chunked", "rate", "ppe")),
    Goal("round trip p50 / ProcessPoolExecutor", 1.3, "less", _ratio("round_trip", "p50", "ppe")),
    Goal("1 ms tasks, % efficient", 95, "more", _own("tasks_1ms", "efficiency")),
    Goal("uneven, block, x ideal", 1.05, "less", _own("uneven_block", "ideal")),
    Goal("uneven, tail, x ideal", 1.05, "less", _own("uneven_tail", "ideal")),
    Goal("uneven, alternate, x ideal", 1.05, "less", _own("uneven_alternate", "ideal")),
    Goal("nested tasks, tasks/s", 5_000, "more", _own("nested_fibonacci", "rate")),
    Goal("start to first result, s", 0.5, "less", _own("lifecycle", "start")),
    Goal("idle cluster, % of a core", 1, "less", _own("lifecycle", "idle_cpu")),
    Goal("idle cluster, MB", 80, "less", _own("lifecycle", "memory")),
    Goal(
        "cluster bytes per queued task, 10^6",
        1024,
        "less",
        _own("queue_depth_1e6", "cluster_memory"),
    ),
    Goal("Dask / workloads, mean", 3, "more", _workloads(DISTRIBUTED, geometric_mean)),
    Goal("Dask / workloads, least", 1.3, "more", _workloads(DISTRIBUTED, min)),
    Goal("threads or sync / workloads, mean", 1, "more", _workloads(BEST_LOCAL, geometric_mean)),
    Goal("threads or sync / workloads, least", 0.6, "more", _workloads(BEST_LOCAL, min)),
    Goal("time to drain a task, 10^4 to 10^6, growth", 1.5, "less", _growth("drain")),
    Goal("cluster CPU per task, 10^4 to 10^6, growth", 1.5, "less", _growth("cluster_cpu")),
)

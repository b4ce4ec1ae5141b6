"""How much faster the workloads of Dask are on our engine than on others, in the same run."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import geometric_mean
from typing import TYPE_CHECKING

from benchmarks.scenarios import dask_workloads

if TYPE_CHECKING:
    from benchmarks.runner import Measured

__all__ = ["BEST_LOCAL", "DISTRIBUTED", "RATIOS", "Ratio", "geometric_mean", "ratios"]


@dataclass(frozen=True)
class Ratio:
    """The seconds of the fastest of these peers, divided by ours."""

    text: str
    peers: tuple[str, ...]


DISTRIBUTED = Ratio("dask / ours", ("dask",))
BEST_LOCAL = Ratio("best of threads, sync / ours", ("threads", "sync"))
RATIOS = (DISTRIBUTED, Ratio("dask_1x2 / ours", ("dask_1x2",)), BEST_LOCAL)


def ratios(measured: Measured, ratio: Ratio) -> dict[str, float]:
    """Return the ratio of each workload that ran on our engine and on all peers of the ratio."""
    found = {}
    for scenario in dask_workloads.SCENARIOS:
        ours = measured.median(scenario.name, "ours", "seconds")
        theirs = [measured.median(scenario.name, peer, "seconds") for peer in ratio.peers]
        times = [median for median in theirs if median]
        if ours and len(times) == len(theirs):
            found[scenario.name] = min(times) / ours
    return found

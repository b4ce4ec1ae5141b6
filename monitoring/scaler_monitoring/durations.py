"""How long tasks took: a histogram of bounded size, from which quantiles are read. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, exp, floor, log

GROWTH = 1.05
"""Each bucket is so much wider than the one before: a quantile is wrong by 2.5 % at most."""
LEAST_S = 1e-6
"""All that is shorter shares a bucket."""
BUCKETS_MAX = 567
"""The last one ends at about 1e6 seconds; all that is longer is in it."""
_STEP = log(GROWTH)


@dataclass(slots=True)
class Durations:
    """Durations of any number of tasks, in buckets that are evenly spaced by their logarithm."""

    count: int = 0
    sum_s: float = 0.0
    max_s: float = 0.0
    buckets: dict[int, int] = field(default_factory=dict)
    """How many durations are in which bucket; those without any are left out."""

    def add(self, seconds: float, count: int = 1) -> None:
        """Take in tasks of which each took so long."""
        self.count += count
        self.sum_s += seconds * count
        self.max_s = max(self.max_s, seconds)
        index = _bucket(seconds)
        self.buckets[index] = self.buckets.get(index, 0) + count

    def merge(self, other: Durations) -> None:
        """Take in all that another one has."""
        self.count += other.count
        self.sum_s += other.sum_s
        self.max_s = max(self.max_s, other.max_s)
        for index, count in other.buckets.items():
            self.buckets[index] = self.buckets.get(index, 0) + count

    def quantile(self, share: float) -> float | None:
        """Return the duration that this share of the tasks did not exceed; None: there are none."""
        if not self.count:
            return None
        rank = max(ceil(share * self.count), 1)
        indices = sorted(self.buckets)
        ranks = accumulate(self.buckets[one] for one in indices)
        index = next(one for one, below in zip(indices, ranks, strict=True) if below >= rank)
        # The middle of the bucket, by its logarithm: as far from both of its ends.
        return min(LEAST_S * exp((index + 0.5) * _STEP), self.max_s)

    def bars(self, most: int) -> list[tuple[float, float, int]]:
        """Return from when to when, and how many: at most so many bars without a gap between."""
        if not self.buckets:
            return []
        first, last = min(self.buckets), max(self.buckets)
        width = ceil((last - first + 1) / most)
        counts = [0] * ceil((last - first + 1) / width)
        for index, count in self.buckets.items():
            counts[(index - first) // width] += count
        edges = [LEAST_S * exp((first + n * width) * _STEP) for n in range(len(counts) + 1)]
        return list(zip(edges, edges[1:], counts, strict=False))


def _bucket(seconds: float) -> int:
    if seconds <= LEAST_S:
        return 0
    return min(floor(log(seconds / LEAST_S) / _STEP), BUCKETS_MAX - 1)

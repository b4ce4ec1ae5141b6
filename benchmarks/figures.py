"""Medians and spreads."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


@dataclass(frozen=True)
class Figure:
    """One metric of one peer over all repeats."""

    median: float
    low: float
    high: float
    values: list[float]

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """Return the figure of these repeats."""
        return cls(statistics.median(values), min(values), max(values), list(values))

    def as_json(self) -> dict[str, object]:
        """Return what the JSON file holds."""
        return asdict(self)

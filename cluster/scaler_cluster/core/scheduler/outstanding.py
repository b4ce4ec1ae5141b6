"""What is outstanding, by what it demands: the tasks that wait, and those that workers have."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.scaling import Demand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.core.records.totals import Totals
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.wire.messages import Capabilities


def demands_of(table: Table) -> list[Demand]:
    """Return how many tasks have not ended, by what they demand.

    Tasks that wait for workers of some names are left out: no other worker helps them. Cost: O(runs
    that workers have).
    """
    counts: Counter[Capabilities] = Counter()
    for queue in table.backlog.queues():
        if not queue.options.workers:
            counts[queue.options.capabilities] += queue.count
    for resting in table.backlog.resting:
        counts[resting.options.capabilities] += resting.count
    for worker in table.workers.values():
        for run in worker.runs:
            counts[run.options.capabilities] += run.count
    return [Demand(capabilities, count) for capabilities, count in counts.items() if count]


def mean_s(functions: Iterable[Totals]) -> float | None:
    """Return how long a task takes that has not ended; None: for most of them nobody knows."""
    known, unknown, seconds = 0, 0, 0.0
    for totals in functions:
        pending = totals.pending
        if pending <= 0:
            continue
        if totals.mean_s is None:
            unknown += pending
        else:
            known += pending
            seconds += pending * totals.mean_s
    return seconds / known if known > unknown else None

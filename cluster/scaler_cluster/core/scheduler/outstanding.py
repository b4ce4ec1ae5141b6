"""What is outstanding: how many tasks, by what they demand, and how long they take."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.naming import tally
from scaler_cluster.core.scheduler.scaling import Demand

if TYPE_CHECKING:
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.wire.messages import Capabilities


def demands_of(table: Table) -> list[Demand]:
    """Return how many tasks have not ended, by what they demand.

    Tasks that wait for workers of some names are left out: no other worker helps them. Cost: O(runs
    that workers have).
    """
    counts: Counter[tuple[Capabilities, int]] = Counter()
    for queue in table.backlog.queues():
        if not queue.options.workers:
            counts[queue.options.capabilities, queue.options.cores] += queue.count
    for resting in table.backlog.resting:
        counts[resting.options.capabilities, resting.options.cores] += resting.count
    for worker in table.workers.values():
        for run in worker.runs:
            counts[run.options.capabilities, run.options.cores] += run.count
    return [Demand(offers, count, cores) for (offers, cores), count in counts.items() if count]


class Pace:
    """How long tasks take: as was measured, or longer if those of a function that run are not done.

    So a function that was quick, and is slow this time, is noticed before its first task has ended.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        """Of each function that workers have: how many of its tasks had ended, and since when."""

    def mean_s(self, table: Table, now: float) -> float | None:
        """Return how long a task takes that has not ended; None: of most of them nobody knows."""
        runs = (run for worker in table.workers.values() for run in worker.runs)
        busy = {id(totals) for run in runs for totals, _ in tally(table.functions, run)}
        before, self._seen = self._seen, {}
        known, unknown, seconds = 0, 0, 0.0
        for name, totals in table.names:
            pending = totals.pending
            if pending <= 0:
                continue
            if totals.mean_s is None:
                unknown += pending
                continue
            ended = totals.submitted - pending
            since = now
            if id(totals) in busy:
                count, at = before.get(name, (ended, now))
                since = at if count == ended else now
                self._seen[name] = ended, since
            known += pending
            waited_s = now - since
            # What takes longer than usual is expected to take as long again.
            seconds += pending * (totals.mean_s if waited_s <= totals.mean_s else 2 * waited_s)
        return seconds / known if known > unknown else None

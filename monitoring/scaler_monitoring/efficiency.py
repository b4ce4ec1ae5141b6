"""What became of the time of workers: work, overhead, or nothing. Pure: no sockets, no clock.

How long functions ran is counted by the workers themselves. Whether a worker had tasks is looked at
in each snapshot only, so what is shorter than the time between two is told roughly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler_monitoring.view import count_of

if TYPE_CHECKING:
    from scaler_cluster.wire import feed


@dataclass
class Efficiency:
    """Where the seconds of a time went, summed over workers; one is as good as a core."""

    passed_s: float = 0.0
    """How long was looked."""
    available_s: float = 0.0
    """Of workers that could run something: the three that follow, in all."""
    working_s: float = 0.0
    """They ran tasks, with their arguments unpickled and their results pickled."""
    overhead_s: float = 0.0
    """They had tasks and ran none to its end: messages and objects were on their way, or the work
    was lost, as it was cancelled or its worker died."""
    idle_s: float = 0.0
    """They had no tasks."""
    blocked_s: float = 0.0
    """Beside those: their task only waited for others, and another worker had their place."""
    cpu_s: float | None = None
    """What all of them used of CPUs; None: nobody has measured it."""

    def share(self, part_s: float) -> float:
        """Return which part of what was available this is, from 0 to 1."""
        return part_s / self.available_s if self.available_s else 0.0


class Meter:
    """Measures it from each snapshot to the next, be they of one scheduler or of several."""

    def __init__(self) -> None:
        self._last: feed.Snapshot | None = None
        self._passed_s = self._workers_s = self._occupied_s = self._blocked_s = self._busy_s = 0.0
        self._cpu_s: float | None = None

    def apply(self, snapshot: feed.Snapshot) -> None:
        """Take in the next one; those out of turn are ignored."""
        last = self._last
        if last is None or last.run != snapshot.run:
            self._last = snapshot
            return
        passed_s = snapshot.clock - last.clock
        if passed_s <= 0:
            return
        self._last = snapshot
        self._passed_s += passed_s
        # Between two looks things changed somewhere: half of the time they were as at each.
        for one in (last, snapshot):
            self._workers_s += passed_s / 2 * count_of(one, "workers")
            self._blocked_s += passed_s / 2 * sum(row.is_blocked for row in one.workers)
            self._occupied_s += (
                passed_s / 2 * sum(row.tasks > 0 and not row.is_blocked for row in one.workers)
            )
        self._busy_s += _busy_s(snapshot) - _busy_s(last)
        measured = [row.cpu for row in snapshot.workers if row.cpu is not None]
        if measured:
            self._cpu_s = (self._cpu_s or 0.0) + passed_s * sum(measured)

    def efficiency(self) -> Efficiency:
        """Return what it comes to."""
        available_s = max(self._workers_s - self._blocked_s, 0.0)
        # A task that waited for others counts all of its time, so this is not work.
        working_s = min(max(self._busy_s - self._blocked_s, 0.0), available_s)
        occupied_s = min(max(self._occupied_s, working_s), available_s)
        return Efficiency(
            self._passed_s,
            available_s,
            working_s,
            occupied_s - working_s,
            available_s - occupied_s,
            self._blocked_s,
            self._cpu_s,
        )


def _busy_s(snapshot: feed.Snapshot) -> float:
    """Return how long tasks have run so far, also those that still do."""
    ended_s = sum(row.busy_s - row.inlined_s for row in snapshot.functions)
    return ended_s + sum(row.age_s for row in snapshot.workers if row.tasks)

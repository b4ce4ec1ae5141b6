"""Which tasks a worker has started that must never start again: their ids only."""

from __future__ import annotations

from array import array
from collections import OrderedDict

RUNS_MAX = 16_384
"""Runs of tasks that are remembered; the oldest go."""


class Ledger:
    """Remembers tasks with ``at_most_once`` that were started here."""

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[int, int], int] = OrderedDict()
        """The number of tasks, by session and first task."""
        self._last = (0, 0)
        self.is_whole = True
        """False: some were forgotten."""

    def add(self, session: int, first: int, stop: int) -> None:
        """These tasks were started."""
        if stop <= first:
            return
        last = self._last
        if last[0] == session and last in self._runs and last[1] + self._runs[last] == first:
            self._runs[last] += stop - first
            return
        self._last = session, first
        self._runs[self._last] = stop - first
        if len(self._runs) > RUNS_MAX:
            self._runs.popitem(last=False)
            self.is_whole = False

    def packed(self) -> bytes:
        """Return session, first task and number of tasks of each run, as 64-bit numbers."""
        numbers = array("Q")
        for (session, first), count in self._runs.items():
            numbers.extend((session, first, count))
        return numbers.tobytes()

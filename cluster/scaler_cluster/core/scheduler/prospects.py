"""Which machines could take the next task of a queue soonest.

With thousands of machines nobody looks at each of them for each task: only at those that have
changed since the last look.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Sequence

    from scaler_cluster.core.records.workers import WorkerPool

CLEAN_AT_MIN = 64


class Changes:
    """Which machines have changed, in order: their workers, or what these share."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        """The number of the last change of each machine; the last one comes last."""
        self.last = 0
        """The number of the last change."""
        self.whole_since = 0
        """Who has not seen this change is to look at all machines."""

    def note(self, machine: bytes) -> None:
        """A machine has changed, come or gone."""
        self.last += 1
        self._numbers.pop(machine, None)
        self._numbers[machine] = self.last

    def since(self, number: int) -> list[bytes]:
        """Return what has changed after a change, in order; cost: O(that)."""
        found = []
        for machine, last in reversed(self._numbers.items()):
            if last <= number:
                break
            found.append(machine)
        found.reverse()
        return found

    def clean(self, machines: Collection[bytes]) -> None:
        """Forget machines that are gone, unless these are few."""
        if len(self._numbers) > 2 * len(machines) + CLEAN_AT_MIN:
            self._numbers = {one: it for one, it in self._numbers.items() if one in machines}
            self.whole_since = self.last


class Prospects:
    """What the machines lack for the next task of one queue: workers to become idle, and more."""

    def __init__(self, pools: Sequence[WorkerPool], changes: int) -> None:
        self.pools = pools
        """The pools of the queue when this was made."""
        self.seen = changes
        """The number of the last change that is in this."""
        self.unsettled: dict[bytes, None] = {}
        """Machines that are to be looked at each time."""
        self._lacks: dict[bytes, float] = {}
        self._numbers: dict[bytes, int] = {}
        """In which order machines came, as far as this has known them."""
        self._heap: list[tuple[float, int, bytes]] = []
        """All machines by what they lack. Only what agrees with ``_lacks`` counts."""
        self._count = 0

    def note(self, machine: bytes, lack: float | None) -> None:
        """A machine lacks so much; None: it cannot run such tasks, or is gone."""
        if lack is None:
            self._lacks.pop(machine, None)
            self._numbers.pop(machine, None)
            return
        if self._lacks.get(machine) == lack:
            return
        if machine not in self._numbers:
            self._count += 1
            self._numbers[machine] = self._count
        self._lacks[machine] = lack
        heappush(self._heap, (lack, self._numbers[machine], machine))
        if len(self._heap) > 2 * len(self._lacks) + CLEAN_AT_MIN:
            self._heap = [(it, self._numbers[one], one) for one, it in self._lacks.items()]
            heapify(self._heap)

    def lack_of(self, machine: bytes) -> float | None:
        """Return what a machine lacks; None: it cannot run such tasks."""
        return self._lacks.get(machine)

    def soonest(self) -> Generator[tuple[float, bytes], None, None]:
        """Yield machines by what they lack; cost: O(log machines) for each that is taken.

        Nothing is to be noted meanwhile.
        """
        taken: list[tuple[float, int, bytes]] = []
        try:
            while self._heap:
                entry = heappop(self._heap)
                lack, number, machine = entry
                is_there = self._lacks.get(machine) == lack and self._numbers[machine] == number
                if is_there and entry not in taken[-1:]:
                    taken.append(entry)
                    yield lack, machine
        finally:
            for entry in taken:
                heappush(self._heap, entry)

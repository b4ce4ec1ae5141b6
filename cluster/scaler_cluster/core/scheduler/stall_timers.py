"""When to look at each worker that reports nothing, where each report moves that on."""

from __future__ import annotations

import math
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import WorkerRecord


class StallTimers:
    """One timer for each worker. To set it costs O(1) if it was set before, and to a later time.

    So the heap has the time for which it was set at first, until that is the next of all.
    """

    def __init__(self) -> None:
        self._due: dict[bytes, tuple[float, WorkerRecord]] = {}
        self._heap: list[tuple[float, bytes]] = []
        self._noted: dict[bytes, float] = {}
        """Which entry of the heap counts, for each worker that has one."""

    def __contains__(self, peer: bytes) -> bool:
        """Return True if a worker's timer is set."""
        return peer in self._due

    def set(self, worker: WorkerRecord, when: float) -> None:
        """Look at a worker at this time, and no more when it was to be looked at before."""
        peer = worker.peer
        self._due[peer] = when, worker
        if when < self._noted.get(peer, math.inf):
            self._noted[peer] = when
            heappush(self._heap, (when, peer))

    def pop(self, peer: bytes) -> None:
        """Do not look at a worker; it may have no timer."""
        self._due.pop(peer, None)

    @property
    def next(self) -> float:
        """When the next worker is to be looked at; inf if none is."""
        heap, noted = self._heap, self._noted
        while heap:
            when, peer = heap[0]
            if noted.get(peer) != when:
                heappop(heap)
                continue
            due = self._due.get(peer)
            if due is None:
                heappop(heap)
                del noted[peer]
            elif due[0] > when:
                noted[peer] = due[0]
                heapreplace(heap, (due[0], peer))
            else:
                return when
        return math.inf

    def take(self, now: float) -> WorkerRecord | None:
        """Return the next worker whose time has come, without its timer; None: there is none."""
        if self.next > now:
            return None
        peer = heappop(self._heap)[1]
        del self._noted[peer]
        return self._due.pop(peer)[1]

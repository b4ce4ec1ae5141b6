"""How many workers a machine is to have, and in which places they are missing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.wire.messages import ACTORS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.supervisor.slots import WorkerSlot
    from scaler_cluster.wire.messages import Offer

SPARES_MIN = 4
"""Workers that may take the place of blocked ones, on a machine with few."""


def spares_max(workers: int) -> int:
    """Return how many spare workers a machine may have beside so many others."""
    return max(workers, SPARES_MIN) if workers else 0


def places_of(workers: int) -> int:
    """Return how many workers a machine has room for, with spare ones and those of actors."""
    return workers + spares_max(workers) + ACTORS_MAX if workers else 0


class Headcount:
    """Counts the ordinary workers, whose places come first, and the spare ones."""

    def __init__(self, workers: int, places: int) -> None:
        self.wanted = workers
        """How many ordinary workers there are to be."""
        self.spares = 0
        """How many spare workers there are to be."""
        self._first = workers
        self._places = places
        """How many ordinary workers there may be."""
        self._offer: Offer | None = None
        """How many the scheduler may choose; None: their number is fixed."""

    def bound(self, offer: Offer | None) -> list[Offer]:
        """Let the scheduler choose within these bounds; return what to tell it."""
        self._offer = offer
        if offer is not None:
            self.want(min(max(self.wanted, offer.least), offer.most))
        return self.words()

    def forget_scheduler(self) -> None:
        """Another scheduler comes: what the one before it wanted is over, but within bounds.

        A unit that was on its way out is whole again, unless its manager still lets it go.
        """
        self.spares = 0
        if self._offer is None:
            self.wanted = self._first

    def want(self, workers: int) -> None:
        """Have so many ordinary workers; what is there beyond that leaves by itself."""
        self.wanted = min(workers, self._places)

    def words(self) -> list[Offer]:
        """Return what the scheduler is to know of the bounds, if there are any."""
        return [] if self._offer is None else [replace(self._offer, wanted=self.wanted)]

    def vacant(self, slots: Sequence[WorkerSlot]) -> list[tuple[int, WorkerSlot]]:
        """Return the places in which a worker is to be, and none is."""
        places = self._places
        vacant = [(i, slot) for i, slot in enumerate(slots[:places]) if not slot.peer]
        spare = [(i, slot) for i, slot in enumerate(slots[places:], places) if not slot.peer]
        missing = self.wanted - (places - len(vacant))
        spares = self.spares - (len(slots) - places - len(spare))
        return vacant[: max(missing, 0)] + spare[: max(spares, 0)]

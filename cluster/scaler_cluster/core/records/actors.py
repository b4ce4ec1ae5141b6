"""What the scheduler remembers of actors: which worker has which, and how those ended that did."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.wire import messages as m

ENDS_MAX = 16_384
"""Actors of which it is known how they ended. Of others it is only known that they are not here."""


@dataclass(slots=True, eq=False)
class ActorRecord:
    """An actor that lives, or is about to."""

    name: str
    owner: int
    """The number of the session with which it ends."""
    creation: Run | None = None
    """The task that makes it; None: another scheduler was asked for that."""
    worker: WorkerRecord | None = None
    """Where it lives; None: it is yet to be placed."""
    is_awaiting: bool = False
    """It came back to this scheduler, and its client may not have."""
    is_whole: bool = True
    """Whether the worker knows all calls that it began for another scheduler."""


class ActorTable:
    """All actors."""

    def __init__(self) -> None:
        self.records: dict[str, ActorRecord] = {}
        self.changed: dict[str, None] = {}
        """Actors that have calls waiting, which may be given to the worker or fail by now."""
        self.leaving: list[WorkerRecord] = []
        """Workers of actors that could not be made."""
        self._ends: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def has_ended(self, name: str) -> bool:
        """Return True if an actor is known to be gone."""
        return name in self._ends

    def how_ended(self, name: str) -> dict[str, Any]:
        """Return what a call of an actor that is gone is told."""
        unknown = "the scheduler does not know it, or not any more"
        return self._ends.get(name) or {"actor": name, "message": unknown}

    def end(self, name: str, how: dict[str, Any]) -> None:
        """An actor is gone; what is said of that first holds."""
        self.records.pop(name, None)
        if name not in self._ends:
            self._ends[name] = {"actor": name, **how}
            if len(self._ends) > ENDS_MAX:
                self._ends.popitem(last=False)
        self.changed[name] = None

    def unmade(self, run: Run, failed: m.Failed) -> None:
        """A task that was to make an actor failed."""
        record = self.records.get(run.options.creates)
        if record is not None and record.creation is run:
            error, why = failed.detail.get("type", failed.kind), failed.detail.get("message", "")
            self.end(record.name, {"message": f"it could not be made: {error}: {why}"})
            if record.worker is not None:
                self.leaving.append(record.worker)

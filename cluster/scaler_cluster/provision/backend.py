"""The interface of all that starts workers: start units, say which there are, end them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.wire.messages import Offer


class BackendError(Exception):
    """A system refuses to start or to end something, or does not answer; one sentence says why."""


@dataclass(frozen=True)
class UnitStatus:
    """What a system says of a unit."""

    is_over: bool = False
    """True: it has ended, and is only still listed."""
    reason: str = ""
    """Why it has ended, or why it does not run yet, in the system's words; empty: nobody knows."""


class Backend(Protocol):
    """Starts, lists and ends units.

    Each method may block as long as it takes: a thread of its own calls them, one after another. A
    method that raises BackendError is called again later; any other exception is a bug.
    """

    def start(self, units: Sequence[str]) -> None:
        """Start these units, whose names are new; return as soon as the system has accepted them.

        Raises BackendError if the system refuses; :meth:`look` then tells which of them it has.
        """

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the manager's units that the system has, also those of a manager before this one.

        One that is missing has ended. Raises BackendError if the system does not answer.
        """

    def stop(self, units: Sequence[str]) -> None:
        """End these units now; whoever has ended already is no error. Raises BackendError."""

    def close(self) -> None:
        """Let go of connections and threads; units that are there stay if they can."""


class ManagerBackend(Backend, Protocol):
    """Does so for a manager."""

    lifetime_s: float | None
    """How long the system lets a unit live; None: as long as it likes."""

    def offered(self, offer: Offer) -> Offer:
        """Return what the system has of what the settings offer; raises BackendError.

        It may know what the settings leave open: how many workers a unit has, for example.
        """

    def dry_run(self, unit: str) -> str:
        """Return what :meth:`start` would hand to the system for a unit, as its users write it."""

"""How much of the workers' time clients and users have had, so that each gets as much as others."""

from __future__ import annotations

from dataclasses import dataclass

CREDIT_S = 1.0
"""Who had nothing to run for a time may catch up with the others by so much work, and no more."""


@dataclass(slots=True, eq=False)
class Account:
    """How much of the workers' time a client has had, or a user with all clients of one key.

    A task is charged for the time that it is expected to take when a worker gets it, and for the
    time that it took once that is known. So whoever has the least is to be served next.
    """

    whole: Account | None = None
    """That of the client's user, or of all users for a user's; None: it is that of all users."""
    served_s: float = 0.0
    clock_s: float = 0.0
    """How much those parts of it had had that were served last."""

    def charge(self, expected_s: float) -> None:
        """A worker gets tasks that are expected to take so long together."""
        part, whole = self, self.whole
        while whole is not None:
            served_s, clock_s = part.served_s, whole.clock_s
            if served_s > clock_s:
                whole.clock_s = served_s
            elif served_s < clock_s - CREDIT_S:
                served_s = clock_s - CREDIT_S
            part.served_s = served_s + expected_s
            part, whole = whole, whole.whole

    def correct(self, more_s: float) -> None:
        """Tasks took so much longer than expected; negative: they took less."""
        part = self
        while part.whole is not None:
            part.served_s += more_s
            part = part.whole

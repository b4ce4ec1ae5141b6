"""What a client asked of locks, queues and the like, and what it has there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.client.requests import Requests


class Asked:
    """One request, for whoever waits for its answer."""

    __slots__ = ("answer", "is_withdrawn", "message", "owner")

    def __init__(self, message: m.Coordinate, owner: int = 0) -> None:
        self.message = message
        self.owner = owner
        """The task that asks, by the number of its scope; 0: it is no task."""
        self.answer: m.Coordinated | None = None
        self.is_withdrawn = False
        """It is not waited for any more, or what it brought was given back."""

    @property
    def is_over(self) -> bool:
        """Return True if nothing is to be waited for."""
        return self.answer is not None or self.is_withdrawn


class ClientCoordination:
    """Requests that wait, and what the scheduler keeps for those that were answered.

    What is kept is said again to a scheduler that has forgotten this client, if it ``asks_again``.
    """

    def __init__(self, requests: Requests, *, asks_again: bool) -> None:
        self._requests = requests
        self._asks_again = asks_again
        self._number = 0
        self._waiting: dict[int, Asked] = {}
        self._kept: dict[int, Asked] = {}
        """Leases, values of this client that the scheduler has, and values that were taken of which
        it has not been told that they have arrived."""

    @property
    def is_idle(self) -> bool:
        """Return True if nothing is waited for or held here."""
        return not (self._waiting or self._leases)

    @property
    def _leases(self) -> list[Asked]:
        """What ends with who asked for it."""
        return [one for one in self._kept.values() if one.message.act in (m.ACQUIRE, m.TAKE)]

    # -- asking ------------------------------------------------------------------------------

    def ask(self, asked: Asked) -> None:
        """Send a request, whose number is given here, unless it was withdrawn before."""
        if asked.is_withdrawn:
            return
        self._number += 1
        asked.message.number = self._number
        self._waiting[self._number] = asked
        # Not the message itself: it is noted here in what place of the order it was done.
        self._requests.say(replace(asked.message))

    def withdraw(self, asked: Asked, *, has_values: bool = False) -> bool:
        """Wait for it no more, or give it back; return False if it is not here any more.

        Values that were taken go back unless whoever asked ``has_values``.
        """
        asked.is_withdrawn = True
        number = asked.message.number
        # One that was asked through an earlier connection may have the number of another.
        for requests in (self._waiting, self._kept):
            if requests.get(number) is asked:
                del requests[number]
                self._requests.say(m.Withdraw(number, has_values))
                return True
        return False

    def keeps(self, asked: Asked) -> bool:
        """Return True if the scheduler keeps something for this request, as far as is known."""
        return self._kept.get(asked.message.number) is asked

    def give_up(self, owner: int) -> None:
        """A task has ended: it waits for nothing and holds nothing."""
        for one in [*self._waiting.values(), *self._leases]:
            if one.owner == owner:
                self.withdraw(one)

    def owns(self, owner: int) -> bool:
        """Return True if a task waits for something or holds something."""
        return any(one.owner == owner for one in (*self._waiting.values(), *self._leases))

    # -- answers -----------------------------------------------------------------------------

    def answered(self, message: m.Coordinated) -> None:
        """The scheduler answers."""
        number = message.number
        asked = self._waiting.pop(number, None)
        if asked is None:
            # It was withdrawn, as the scheduler hears after it said this.
            return
        act = asked.message.act
        if message.is_kept and (self._asks_again or act in (m.ACQUIRE, m.TAKE)):
            self._kept[number] = asked
        if message.is_kept and act != m.TAKE:
            asked.message.order, asked.message.names = message.order, message.names
        asked.answer = message

    def lapsed(self, message: m.Lapsed) -> None:
        """The scheduler keeps something no more."""
        self._kept.pop(message.number, None)

    # -- another scheduler -------------------------------------------------------------------

    def again(self) -> list[m.Coordinate]:
        """Return what to say to a scheduler that knows nothing of this client."""
        self._kept = {n: one for n, one in self._kept.items() if one.message.act != m.TAKE}
        return [replace(one.message) for one in (*self._kept.values(), *self._waiting.values())]

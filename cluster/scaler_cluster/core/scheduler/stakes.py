"""Leases and values of clients, and values under way to who took them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.places import LEASED, Stake, cost_of
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler_cluster.core.scheduler.places import Place, Places


class Stakes:
    """All stakes, by session and number. Values of clients that are gone are in places only."""

    def __init__(self, places: Places, send: Callable[[int, m.Message], None]) -> None:
        self._places = places
        self._send = send
        self.by_session: dict[int, dict[int, Stake]] = {}
        self.taken: dict[int, dict[int, list[Stake]]] = {}
        """Values under way, by who took them."""

    def of(self, session: int) -> Mapping[int, Stake]:
        """Return what a client has, by number."""
        return self.by_session.get(session, {})

    def has(self, session: int, number: int) -> bool:
        """Return True if something is kept for this request."""
        return number in self.of(session) or number in self.taken.get(session, ())

    def add(
        self, session: int, user: str, message: m.Coordinate, order: int, places: list[Place]
    ) -> None:
        """Keep what a request leaves."""
        nbytes = cost_of(message)
        value = bytes(message.value)
        stake = Stake(session, user, message.number, order, places, value, nbytes)
        self._places.charge(user, nbytes)
        for place in places:
            place.stakes[stake.rank] = stake
        self.by_session.setdefault(session, {})[stake.number] = stake

    def remove(self, stake: Stake, *, is_lapsed: bool = False) -> None:
        """Keep something no more; tell whose it is if it has lapsed."""
        for place in stake.places:
            place.stakes.pop(stake.rank, None)
        self._places.charge(stake.user, -stake.nbytes)
        mine = self.by_session.get(stake.session, {})
        if mine.get(stake.number) is stake:
            del mine[stake.number]
            if not mine:
                del self.by_session[stake.session]
            if is_lapsed:
                self._send(stake.session, m.Lapsed(stake.number))

    def lapse(self, place: Place) -> None:
        """All that a place has is removed, or replaced."""
        for stake in list(place.stakes.values()):
            self.remove(stake, is_lapsed=True)

    def drop_twin(self, message: m.Coordinate, place: Place) -> bool:
        """Remove what a client had left here before, as it comes with it; False: that is gone."""
        low, high = (message.order, 0, 0), (message.order + 1, 0, 0)
        for rank in list(place.stakes.irange(low, high)):
            stake = place.stakes[rank]
            if stake.number == message.number and stake.order == message.order:
                self.remove(stake)
                return True
        return False

    # -- values under way ----------------------------------------------------------------------

    def send_off(self, session: int, number: int, values: list[Stake]) -> None:
        """Values were sent to a client; they are kept until it has them."""
        self.taken.setdefault(session, {})[number] = values

    def take_out(self, session: int, number: int) -> list[Stake]:
        """Return the values that were sent for a request, which are not under way any more."""
        taken = self.taken.get(session, {})
        values = taken.pop(number, [])
        if values and not taken:
            del self.taken[session]
        return values

    # -- clients that go -----------------------------------------------------------------------

    def ends_with(self, session: int) -> list[int]:
        """Return the numbers of the requests whose leases or values a client does not keep."""
        leases = (n for n, one in self.of(session).items() if one.places[0].kind in LEASED)
        return [*self.taken.get(session, ()), *leases]

    def disown(self, session: int) -> None:
        """A client is gone; its values stay."""
        self.by_session.pop(session, None)

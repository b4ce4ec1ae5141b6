"""Locks, semaphores, events, queues and variables: who has what, and who waits for it.

Whatever a client has is a *stake* of its session: a lease, which ends with the session, or a value,
which stays. Who waits has its turn in the order of coming. A request for several locks waits for
all of them at once and gets them together: the one that came first is the first at each of its
locks, so no two can wait for each other.

A scheduler that takes another one's place keeps requests until it opens, and hears what clients had
there: so it never gives out what somebody holds.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.places import (
    EXCESS,
    TAKEN_MAX,
    Places,
    Request,
    check,
    cost_of,
)
from scaler_cluster.core.scheduler.stakes import Stakes
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scaler_cluster.core.scheduler.places import Key, Place, Stake


class Coordination:
    """The places of all clients. ``send`` says something to a session.

    ``bytes_max`` is how much all clients of one user may have here.
    """

    def __init__(
        self, send: Callable[[int, m.Message], None], bytes_max: int, *, is_open: bool
    ) -> None:
        self._send = send
        self.is_open = is_open
        """False: requests are kept, and answered once it opens."""
        self._early: dict[Key, tuple[m.Coordinate, str]] = {}
        """These requests, and of which user each is."""
        self.places = Places(bytes_max)
        self.waiting: dict[int, dict[int, Request]] = {}
        """By session and number."""
        self.stakes = Stakes(self.places, send)
        self._order = 0
        self._acts: dict[str, Callable[[Request], None]] = {
            m.ACQUIRE: self._line_up,
            m.PUT: self._line_up,
            m.TAKE: self._take,
            m.SET: self._set,
            m.GET: self._line_up,
            m.CLEAR: self._clear,
            m.LOOK: self._look,
        }

    # -- doors ---------------------------------------------------------------------------------

    def ask(self, session: int, user: str, message: m.Coordinate, *, is_back: bool = False) -> None:
        """A client asks for something, or says what it has had.

        That was at another scheduler; if it ``is_back``, here, before it was given up. Raises
        RemoteProtocolError if it must not say this.
        """
        check(message)
        number = message.number
        is_waiting = number in self.waiting.get(session, ()) or (session, number) in self._early
        if is_waiting or self.stakes.has(session, number):
            raise RemoteProtocolError("a request that it has made already")
        if message.order:
            self._adopt(session, user, message, is_back=is_back)
        elif self._refuses(session, user, message):
            return
        elif self.is_open:
            self._begin(session, user, message)
        else:
            self.places.charge(user, cost_of(message))
            self._early[session, number] = message, user

    def withdraw(self, session: int, number: int, *, has_values: bool = False) -> None:
        """A client does not wait any more, or gives back what it has.

        So do values that it was to take, unless it has them.
        """
        early = self._early.pop((session, number), None)
        request = self.waiting.get(session, {}).get(number)
        stake = self.stakes.of(session).get(number)
        if early is not None:
            message, user = early
            self.places.charge(user, -cost_of(message))
        elif request is not None:
            self._give_up(request)
        elif stake is not None and stake.is_there:
            self.stakes.remove(stake)
            self._serve(stake.places)
        elif taken := self.stakes.take_out(session, number):
            if has_values:
                for one in taken:
                    self.stakes.remove(one, is_lapsed=True)
            else:
                self._return(taken)

    def end(self, session: int) -> None:
        """A client is gone: it waits for nothing and holds nothing; its values stay."""
        for _, number in [key for key in self._early if key[0] == session]:
            self.withdraw(session, number)
        for number in [*self.waiting.get(session, ()), *self.stakes.ends_with(session)]:
            self.withdraw(session, number)
        self.stakes.disown(session)

    def open(self) -> None:
        """Everybody has been heard: answer what was asked meanwhile."""
        self.is_open = True
        early, self._early = self._early, {}
        self.places.tidy(self.places)
        for (session, _), (message, user) in early.items():
            self.places.charge(user, -cost_of(message))
            if not self._refuses(session, user, message):
                self._begin(session, user, message)

    @property
    def early(self) -> list[tuple[m.Coordinate, str]]:
        """What is kept until it opens, and of which user each is."""
        return list(self._early.values())

    # -- what is asked -------------------------------------------------------------------------

    def _refuses(self, session: int, user: str, message: m.Coordinate) -> bool:
        """Say why somebody may not ask for this, or return False if it may."""
        conflict = self.places.conflict(message)
        reason = conflict or self.places.excess(user, cost_of(message))
        if reason:
            answer = m.Coordinated(message.number, 0, refused=reason, is_conflict=bool(conflict))
            self._send(session, answer)
        return bool(reason)

    def _begin(self, session: int, user: str, message: m.Coordinate) -> None:
        places = self.places.find_all(user, message)
        request = Request(session, user, message, places, cost_of(message))
        self.places.charge(user, request.nbytes)
        self.waiting.setdefault(session, {})[message.number] = request
        self._acts[message.act](request)
        if not message.may_wait and message.number in self.waiting.get(session, ()):
            self._give_up(request)
            self._send(session, m.Coordinated(message.number, 0))

    def _line_up(self, request: Request) -> None:
        for place in request.places:
            line = place.puts if request.message.act == m.PUT else place.waits
            line[request.key] = request
        self._serve(request.places)

    def _take(self, request: Request) -> None:
        if request.message.count:
            self._line_up(request)
            return
        (place,) = request.places
        room = m.VALUES_MAX * m.VALUE_BYTES_MAX
        while place.stakes and not place.waits and room > 0 and len(request.got) < TAKEN_MAX:
            stake = place.stakes.popitem(0)[1]
            room -= len(stake.value)
            request.got.append(stake)
        self._hand_over(request)
        self._serve([place])

    def _set(self, request: Request) -> None:
        self.stakes.lapse(request.places[0])
        self._keep(request, request.places)
        self._serve(request.places)

    def _clear(self, request: Request) -> None:
        (place,) = request.places
        self.stakes.lapse(place)
        if place.kind == m.QUEUE:
            place.most = max((one.message.most for one in place.puts.values()), default=0)
        self._answer(request, m.Coordinated(request.message.number, self._next_order()))
        self._serve([place])

    def _look(self, request: Request) -> None:
        count = len(request.places[0].stakes)
        number = request.message.number
        self._answer(request, m.Coordinated(number, self._next_order(), count=count))
        self.places.tidy(request.places)

    def _give_up(self, request: Request) -> None:
        """Nobody waits for it any more; what it has been given so far goes back."""
        self._forget(request)
        self._return(request.got)
        self._serve(request.places)

    def _return(self, values: list[Stake]) -> None:
        """Put values back to where they were taken from, in front of what came later."""
        for stake in values:
            (place,) = stake.places
            stake.places = [self.places.find(stake.user, place.kind, place.name, place.most)]
            stake.places[0].stakes[stake.rank] = stake
        self._serve({id(one.places[0]): one.places[0] for one in values}.values())

    # -- turns ---------------------------------------------------------------------------------

    def _serve(self, places: Iterable[Place]) -> None:
        """Give to those whose turn it is, as long as something can be given."""
        changed = OrderedDict((id(one), one) for one in places)
        seen = []
        while changed:
            _, place = changed.popitem(last=False)
            seen.append(place)
            for request in self._served_at(place):
                # All its places have another one at their heads now, or another value.
                changed.update((id(one), one) for one in request.places)
        if self.is_open:
            self.places.tidy(seen)

    def _served_at(self, place: Place) -> Iterator[Request]:
        """Serve those whose turn it is at one place; yield each."""
        while place.puts and place.has_room:
            request = next(iter(place.puts.values()))
            self._keep(request, [place])
            yield request
        while place.waits:
            request = next(iter(place.waits.values()))
            if not self._try(request):
                return
            yield request

    def _try(self, request: Request) -> bool:
        """Give a request what it waits for, or a part of it; return False if nothing is there."""
        message, place = request.message, request.places[0]
        if message.act == m.ACQUIRE:
            free = [one for one in request.places if one.has_room and one.is_first(request)]
            if len(free) < message.count:
                return False
            self._keep(request, free[: message.count])
        elif not place.stakes:
            return False
        elif message.act == m.GET:
            value = Batch.single(place.stakes.peekitem(0)[1].value)
            order = self._next_order()
            self._answer(request, m.Coordinated(message.number, order, values=value))
        else:
            request.got.append(place.stakes.popitem(0)[1])
            if len(request.got) == message.count:
                self._hand_over(request)
        return True

    def _keep(self, request: Request, places: list[Place]) -> None:
        """Do what a request asked for, which leaves a lease or a value."""
        message, order = request.message, self._next_order()
        names = tuple(one.name for one in places)
        self._answer(request, m.Coordinated(message.number, order, is_kept=True, names=names))
        self.stakes.add(request.session, request.user, message, order, places)

    def _hand_over(self, request: Request) -> None:
        """Send the values that a request was given; they are kept until they have arrived."""
        got, order = request.got, self._next_order()
        values = Batch.of([one.value for one in got]) if got else Batch.single(b"")
        orders = tuple(one.order for one in got)
        number = request.message.number
        is_kept = bool(got)
        answer = m.Coordinated(number, order, is_kept, orders=orders, values=values)
        self._answer(request, answer)
        if got:
            self.stakes.send_off(request.session, number, got)

    # -- what clients had at another scheduler ---------------------------------------------------

    def _adopt(self, session: int, user: str, message: m.Coordinate, *, is_back: bool) -> None:
        """Take in what a client has had, unless another one has it by now."""
        # Somewhat more than new ones may have: nothing is to be lost.
        may_have = not self.places.excess(user, cost_of(message), EXCESS)
        self._order = max(self._order, message.order)
        places = self.places.find_all(user, message)
        if message.act == m.ACQUIRE:
            may_have &= all(one.has_room for one in places)
        elif is_back:
            # It stayed here, or somebody has taken it.
            may_have = self.stakes.drop_twin(message, places[0])
        elif message.act == m.SET:
            may_have &= all(order < message.order for order, *_ in places[0].stakes)
            if may_have:
                self.stakes.lapse(places[0])
        if may_have:
            self.stakes.add(session, user, message, message.order, places)
            self._serve(places)
        else:
            self._send(session, m.Lapsed(message.number))
            if self.is_open:
                self.places.tidy(places)

    # -- books ---------------------------------------------------------------------------------

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _answer(self, request: Request, answer: m.Coordinated) -> None:
        self._forget(request)
        self._send(request.session, answer)

    def _forget(self, request: Request) -> None:
        for place in request.places:
            place.waits.pop(request.key, None)
            place.puts.pop(request.key, None)
        self.places.charge(request.user, -request.nbytes)
        mine = self.waiting[request.session]
        del mine[request.message.number]
        if not mine:
            del self.waiting[request.session]

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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from sortedcontainers import SortedDict

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import NAME_CHARS_MAX, TASK_ID_MAX
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

NAMES_MAX = 100
"""Locks of one request."""
VALUE_BYTES_MAX = 1 << 20
"""A larger value would keep other clients waiting; it can be stored as an object."""
USER_BYTES_MAX = 64 << 20
"""What all clients of one user may have here at once."""
EXCESS = 2
"""What was here before may be so much more."""
STAKE_BYTES = 500
"""What a request, a lease or a value without a byte takes, at least."""

VALUES_MAX = 1000
"""Values that a client may wait for: if each is as large as may be, they fit into a message."""
TAKEN_MAX = 100_000
"""Values that are taken at once, if all that there are are asked for, and no more bytes of them
than ``VALUES_MAX`` values may have."""
ORDER_MAX = TASK_ID_MAX // 2
"""Of what a client says that it has: later orders must not become too large for a message."""

Key: TypeAlias = "tuple[int, int]"
"""Session and number of a request."""
Rank: TypeAlias = "tuple[int, int, int]"
"""Order, session and number of a stake."""
LEASED = (m.LOCK, m.SEMAPHORE)
"""What clients hold."""
LIMITED = (m.SEMAPHORE, m.QUEUE)
"""What is told how many leases or values it has at most."""
ACTS = {
    m.LOCK: (m.ACQUIRE, m.LOOK),
    m.SEMAPHORE: (m.ACQUIRE, m.LOOK),
    m.EVENT: (m.SET, m.GET, m.CLEAR, m.LOOK),
    m.QUEUE: (m.PUT, m.TAKE, m.CLEAR, m.LOOK),
    m.VARIABLE: (m.SET, m.GET, m.CLEAR, m.LOOK),
}
"""What can be done to what."""


@dataclass(slots=True, eq=False)
class Request:
    """What a session waits for."""

    session: int
    user: str
    message: m.Coordinate
    places: list[Place]
    nbytes: int
    got: list[Stake] = field(default_factory=list)
    """Values that it has been given so far, of those that it waits for."""

    @property
    def key(self) -> Key:
        """Its name among those of all sessions."""
        return self.session, self.message.number


@dataclass(slots=True, eq=False)
class Stake:
    """A lease, or a value."""

    session: int
    """Whose it is; a value may outlive it."""
    user: str
    number: int
    order: int
    places: list[Place]
    value: bytes
    nbytes: int

    @property
    def rank(self) -> Rank:
        """Its turn: an order that another scheduler gave may come twice."""
        return self.order, self.session, self.number

    @property
    def is_there(self) -> bool:
        """Return False for a value that was given to somebody who waits for more."""
        return self.rank in self.places[0].stakes


@dataclass(slots=True, eq=False)
class Place:
    """What a name stands for."""

    kind: str
    name: str
    most: int
    """How many leases or values it may have; 0: any number."""
    user: str
    """Who named it first."""
    stakes: SortedDict[Rank, Stake] = field(default_factory=SortedDict)
    waits: OrderedDict[Key, Request] = field(default_factory=OrderedDict)
    """Who waits for a lease or a value, in turn."""
    puts: OrderedDict[Key, Request] = field(default_factory=OrderedDict)
    """Who waits for room, in turn."""

    @property
    def has_room(self) -> bool:
        """Return True if it may have one lease or value more."""
        return not self.most or len(self.stakes) < self.most

    @property
    def is_over(self) -> bool:
        """Return True if nothing is lost with it."""
        has_limit = self.kind == m.QUEUE and self.most
        return not (self.stakes or self.waits or self.puts or has_limit)


class Coordination:
    """The places of all clients. ``send`` says something to a session.

    ``bytes_max`` is how much all clients of one user may have here.
    """

    def __init__(
        self, send: Callable[[int, m.Message], None], bytes_max: int, *, is_open: bool
    ) -> None:
        self._send = send
        self._bytes_max = bytes_max
        self.is_open = is_open
        """False: requests are kept, and answered once it opens."""
        self._early: dict[Key, tuple[m.Coordinate, str]] = {}
        """These requests, and of which user each is."""
        self.places: dict[tuple[str, str], Place] = {}
        self.waiting: dict[int, dict[int, Request]] = {}
        """By session and number."""
        self.stakes: dict[int, dict[int, Stake]] = {}
        """By session and number; values of sessions that have ended are not among them."""
        self.taken: dict[int, dict[int, list[Stake]]] = {}
        """Values under way to who took them, by session and number."""
        self.nbytes: dict[str, int] = {}
        """How much each user has."""
        self._order = 0
        self._acts: dict[str, Callable[[Request], None]] = {
            m.ACQUIRE: self._line_up,
            m.PUT: self._put,
            m.TAKE: self._take,
            m.SET: self._set,
            m.GET: self._line_up,
            m.CLEAR: self._clear,
            m.LOOK: self._look,
        }

    # -- doors ---------------------------------------------------------------------------------

    def ask(self, session: int, user: str, message: m.Coordinate) -> None:
        """A client asks for something, or says what it has had at another scheduler.

        Raises RemoteProtocolError if it must not say this.
        """
        _check(message)
        number = message.number
        known = self.waiting, self.stakes, self.taken
        if (session, number) in self._early or any(number in one.get(session, ()) for one in known):
            raise RemoteProtocolError("a request that it has made already")
        if message.order:
            self._adopt(session, user, message)
        elif self._refuses(session, user, message):
            return
        elif self.is_open:
            self._begin(session, user, message)
        else:
            self._charge(user, _cost(message))
            self._early[session, number] = message, user

    def withdraw(self, session: int, number: int, *, has_values: bool = False) -> None:
        """A client does not wait any more, or gives back what it has.

        So do values that it was to take, unless it has them.
        """
        early = self._early.pop((session, number), None)
        request = self.waiting.get(session, {}).get(number)
        stake = self.stakes.get(session, {}).get(number)
        if early is not None:
            message, user = early
            self._charge(user, -_cost(message))
        elif request is not None:
            self._give_up(request)
        elif stake is not None and stake.is_there:
            self._remove(stake)
            self._serve(stake.places)
        elif number in self.taken.get(session, ()):
            taken = self.taken[session].pop(number)
            if not self.taken[session]:
                del self.taken[session]
            if has_values:
                for one in taken:
                    self._remove(one, is_lapsed=True)
            else:
                self._return(taken)

    def end(self, session: int) -> None:
        """A client is gone: it waits for nothing and holds nothing; its values stay."""
        for _, number in [key for key in self._early if key[0] == session]:
            self.withdraw(session, number)
        for number in [*self.waiting.get(session, ()), *self.taken.get(session, ())]:
            self.withdraw(session, number)
        for number, stake in list(self.stakes.get(session, {}).items()):
            if stake.places[0].kind in LEASED:
                self.withdraw(session, number)
        self.stakes.pop(session, None)

    def open(self) -> None:
        """Everybody has been heard: answer what was asked meanwhile."""
        self.is_open = True
        early, self._early = self._early, {}
        self._tidy(list(self.places.values()))
        for (session, _), (message, user) in early.items():
            self._charge(user, -_cost(message))
            if not self._refuses(session, user, message):
                self._begin(session, user, message)

    # -- what is asked -------------------------------------------------------------------------

    def _refuses(self, session: int, user: str, message: m.Coordinate) -> bool:
        """Say why somebody may not ask for this, or return False if it may."""
        place = self.places.get((message.kind, message.names[0]))
        is_conflict = bool(
            place is not None and message.most and place.most not in (0, message.most)
        )
        if place is not None and is_conflict:
            what = "leases" if place.kind == m.SEMAPHORE else "values"
            reason = (
                f"another client said that the {place.kind} {place.name!r} has at most "
                f"{place.most} {what}, not {message.most}"
            )
        elif self.nbytes.get(user, 0) + _cost(message) > self._bytes_max:
            reason = (
                f"all clients of one user may have {self._bytes_max} bytes in locks, semaphores, "
                "events, queues and variables: take values out, and delete what is not needed"
            )
        else:
            return False
        answer = m.Coordinated(message.number, 0, refused=reason, is_conflict=is_conflict)
        self._send(session, answer)
        return True

    def _begin(self, session: int, user: str, message: m.Coordinate) -> None:
        places = self._places(user, message)
        request = Request(session, user, message, places, _cost(message))
        self._charge(user, request.nbytes)
        self.waiting.setdefault(session, {})[message.number] = request
        self._acts[message.act](request)
        if not message.may_wait and message.number in self.waiting.get(session, ()):
            self._give_up(request)
            self._send(session, m.Coordinated(message.number, 0))

    def _places(self, user: str, message: m.Coordinate) -> list[Place]:
        most = 1 if message.kind == m.LOCK else message.most
        return [self._place(user, message.kind, name, most) for name in message.names]

    def _place(self, user: str, kind: str, name: str, most: int) -> Place:
        place = self.places.get((kind, name))
        if place is None:
            place = self.places[kind, name] = Place(kind, name, most, user)
            self._charge(user, STAKE_BYTES)
        place.most = place.most or most
        return place

    def _line_up(self, request: Request) -> None:
        for place in request.places:
            place.waits[request.key] = request
        self._serve(request.places)

    def _put(self, request: Request) -> None:
        (place,) = request.places
        place.puts[request.key] = request
        self._serve([place])

    def _take(self, request: Request) -> None:
        if request.message.count:
            self._line_up(request)
            return
        (place,) = request.places
        room = VALUES_MAX * VALUE_BYTES_MAX
        while place.stakes and not place.waits and room > 0 and len(request.got) < TAKEN_MAX:
            stake = place.stakes.popitem(0)[1]
            room -= len(stake.value)
            request.got.append(stake)
        self._hand_over(request)
        self._serve([place])

    def _set(self, request: Request) -> None:
        self._lapse(request.places[0])
        self._keep(request, request.places)
        self._serve(request.places)

    def _clear(self, request: Request) -> None:
        (place,) = request.places
        self._lapse(place)
        if place.kind == m.QUEUE:
            place.most = max((one.message.most for one in place.puts.values()), default=0)
        self._answer(request, m.Coordinated(request.message.number, self._next_order()))
        self._serve([place])

    def _look(self, request: Request) -> None:
        count = len(request.places[0].stakes)
        number = request.message.number
        self._answer(request, m.Coordinated(number, self._next_order(), count=count))
        self._tidy(request.places)

    def _give_up(self, request: Request) -> None:
        """Nobody waits for it any more; what it has been given so far goes back."""
        self._forget(request)
        self._return(request.got)
        self._serve(request.places)

    def _return(self, values: list[Stake]) -> None:
        """Put values back to where they were taken from, in front of what came later."""
        for stake in values:
            (place,) = stake.places
            stake.places = [self._place(stake.user, place.kind, place.name, place.most)]
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
            self._tidy(seen)

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
            free = [
                one
                for one in request.places
                if one.has_room and next(iter(one.waits)) == request.key
            ]
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
        self._add(request.session, request.user, message, order, places)

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
            self.taken.setdefault(request.session, {})[number] = got

    def _lapse(self, place: Place) -> None:
        """What a place has is removed, or replaced."""
        for stake in list(place.stakes.values()):
            self._remove(stake, is_lapsed=True)

    # -- what clients had at another scheduler ---------------------------------------------------

    def _adopt(self, session: int, user: str, message: m.Coordinate) -> None:
        """Take in what a client has had, unless another one has it by now."""
        # Somewhat more than new ones may have: nothing is to be lost.
        may_have = self.nbytes.get(user, 0) <= EXCESS * self._bytes_max
        self._order = max(self._order, message.order)
        places = self._places(user, message)
        if message.act == m.SET:
            rank = message.order, session, message.number
            may_have &= all(one < rank for one in places[0].stakes)
            if may_have:
                self._lapse(places[0])
        elif message.act == m.ACQUIRE:
            may_have &= all(one.has_room for one in places)
        if may_have:
            self._add(session, user, message, message.order, places)
            self._serve(places)
        else:
            self._send(session, m.Lapsed(message.number))
            if self.is_open:
                self._tidy(places)

    # -- books ---------------------------------------------------------------------------------

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _add(
        self, session: int, user: str, message: m.Coordinate, order: int, places: list[Place]
    ) -> None:
        nbytes = _cost(message)
        value = bytes(message.value)
        stake = Stake(session, user, message.number, order, places, value, nbytes)
        self._charge(user, nbytes)
        for place in places:
            place.stakes[stake.rank] = stake
        self.stakes.setdefault(session, {})[stake.number] = stake

    def _remove(self, stake: Stake, *, is_lapsed: bool = False) -> None:
        """Something is not there any more; tell whose it is if it has lapsed."""
        for place in stake.places:
            place.stakes.pop(stake.rank, None)
        self._charge(stake.user, -stake.nbytes)
        mine = self.stakes.get(stake.session, {})
        if mine.pop(stake.number, None) is not None and is_lapsed:
            self._send(stake.session, m.Lapsed(stake.number))
        if not mine:
            self.stakes.pop(stake.session, None)

    def _answer(self, request: Request, answer: m.Coordinated) -> None:
        self._forget(request)
        self._send(request.session, answer)

    def _forget(self, request: Request) -> None:
        for place in request.places:
            place.waits.pop(request.key, None)
            place.puts.pop(request.key, None)
        self._charge(request.user, -request.nbytes)
        mine = self.waiting[request.session]
        del mine[request.message.number]
        if not mine:
            del self.waiting[request.session]

    def _tidy(self, places: Iterable[Place]) -> None:
        """Forget places that nobody has anything of."""
        for place in places:
            key = place.kind, place.name
            if place.is_over and self.places.get(key) is place:
                del self.places[key]
                self._charge(place.user, -STAKE_BYTES)

    def _charge(self, user: str, nbytes: int) -> None:
        """Count bytes that a user has more, or less."""
        left = self.nbytes[user] = self.nbytes.get(user, 0) + nbytes
        if not left:
            del self.nbytes[user]


def _cost(message: m.Coordinate) -> int:
    """Return how many bytes a request takes, or what it leaves."""
    return (STAKE_BYTES * len(message.names)) + len(message.value)


def _check(message: m.Coordinate) -> None:
    """Raise RemoteProtocolError unless a client may ask for this, as far as the message says."""
    kind, act, names = message.kind, message.act, message.names
    if act not in ACTS.get(kind, ()):
        raise RemoteProtocolError("what cannot be done to a lock, event, queue or variable")
    most_names = NAMES_MAX if kind == m.LOCK and act == m.ACQUIRE else 1
    if not 0 < len(names) <= most_names or len(set(names)) < len(names):
        raise RemoteProtocolError("one name, or several different ones of locks")
    if not all(len(name) <= NAME_CHARS_MAX for name in names):
        raise RemoteProtocolError(f"a name of more than {NAME_CHARS_MAX} characters")
    least, most = (0, VALUES_MAX) if act == m.TAKE else (1, len(names))
    if not least <= message.count <= most:
        raise RemoteProtocolError("a number of locks or values that there cannot be")
    if (kind == m.SEMAPHORE and not message.most) or (kind not in LIMITED and message.most):
        raise RemoteProtocolError("a semaphore has a limit, and a queue may have one")
    if len(message.value) > VALUE_BYTES_MAX or (message.value and act not in (m.PUT, m.SET)):
        raise RemoteProtocolError(f"a value of more than {VALUE_BYTES_MAX} bytes")
    if message.order > ORDER_MAX or (message.order and act not in (m.ACQUIRE, m.PUT, m.SET)):
        raise RemoteProtocolError("nothing that a scheduler keeps for a client")

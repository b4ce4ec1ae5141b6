"""What the names of locks, queues and the like stand for, and how much of it there may be."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from sortedcontainers import SortedDict

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import NAME_CHARS_MAX, TASK_ID_MAX
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

USER_BYTES_MAX = 64 << 20
"""What all clients of one user may have here at once."""
EXCESS = 2
"""What was here before may be so much more."""
STAKE_BYTES = 500
"""What a request, a lease or a value without a byte takes, at least."""

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

    def is_first(self, request: Request) -> bool:
        """Return True if it is the turn of this request, which waits here."""
        return next(iter(self.waits.values())) is request

    @property
    def is_over(self) -> bool:
        """Return True if nothing is lost with it."""
        has_limit = self.kind == m.QUEUE and self.most
        return not (self.stakes or self.waits or self.puts or has_limit)


class Places:
    """All that has a name, and how many bytes of it each user has."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._places: dict[tuple[str, str], Place] = {}
        self.nbytes: dict[str, int] = {}

    def __iter__(self) -> Iterator[Place]:
        """Yield each of them."""
        return iter(list(self._places.values()))

    def get(self, kind: str, name: str) -> Place | None:
        """Return what has a name; None: nothing has."""
        return self._places.get((kind, name))

    def find(self, user: str, kind: str, name: str, most: int) -> Place:
        """Return what has a name, made now if nothing has."""
        place = self._places.get((kind, name))
        if place is None:
            place = self._places[kind, name] = Place(kind, name, most, user)
            self.charge(user, STAKE_BYTES)
        place.most = place.most or most
        return place

    def find_all(self, user: str, message: m.Coordinate) -> list[Place]:
        """Return what a request names."""
        most = 1 if message.kind == m.LOCK else message.most
        return [self.find(user, message.kind, name, most) for name in message.names]

    def conflict(self, message: m.Coordinate) -> str:
        """Return how a request contradicts what others have said; empty: it does not."""
        place = self.get(message.kind, message.names[0])
        if place is None or not message.most or place.most in (0, message.most):
            return ""
        what = "leases" if place.kind == m.SEMAPHORE else "values"
        return (
            f"another client said that the {place.kind} {place.name!r} has at most {place.most} "
            f"{what}, not {message.most}"
        )

    def excess(self, user: str, nbytes: int, times: int = 1) -> str:
        """Return why a user may not have so many bytes more; empty: it may.

        The bound is ``times`` the usual one.
        """
        if self.nbytes.get(user, 0) + nbytes <= times * self._bytes_max:
            return ""
        return (
            f"all clients of one user may have {self._bytes_max} bytes in locks, semaphores, "
            "events, queues and variables: take values out, and delete what is not needed"
        )

    def tidy(self, places: Iterable[Place]) -> None:
        """Forget places that nobody has anything of."""
        for place in places:
            if place.is_over and self.get(place.kind, place.name) is place:
                del self._places[place.kind, place.name]
                self.charge(place.user, -STAKE_BYTES)

    def charge(self, user: str, nbytes: int) -> None:
        """Count bytes that a user has more, or less."""
        left = self.nbytes[user] = self.nbytes.get(user, 0) + nbytes
        if not left:
            del self.nbytes[user]


def cost_of(message: m.Coordinate) -> int:
    """Return how many bytes a request takes, or what it leaves."""
    return (STAKE_BYTES * len(message.names)) + len(message.value)


def check(message: m.Coordinate) -> None:
    """Raise RemoteProtocolError unless a client may ask for this, as far as the message says."""
    kind, act, names = message.kind, message.act, message.names
    if act not in ACTS.get(kind, ()):
        raise RemoteProtocolError("what cannot be done to a lock, event, queue or variable")
    most_names = m.LOCKS_MAX if kind == m.LOCK and act == m.ACQUIRE else 1
    if not 0 < len(names) <= most_names or len(set(names)) < len(names):
        raise RemoteProtocolError("one name, or several different ones of locks")
    if not all(len(name) <= NAME_CHARS_MAX for name in names):
        raise RemoteProtocolError(f"a name of more than {NAME_CHARS_MAX} characters")
    least, most = (0, m.VALUES_MAX) if act == m.TAKE else (1, len(names))
    if not least <= message.count <= most:
        raise RemoteProtocolError("a number of locks or values that there cannot be")
    if (kind == m.SEMAPHORE and not message.most) or (kind not in LIMITED and message.most):
        raise RemoteProtocolError("a semaphore has a limit, and a queue may have one")
    if len(message.value) > m.VALUE_BYTES_MAX or (message.value and act not in (m.PUT, m.SET)):
        raise RemoteProtocolError(f"a value of more than {m.VALUE_BYTES_MAX} bytes")
    if message.order > ORDER_MAX or (message.order and act not in (m.ACQUIRE, m.PUT, m.SET)):
        raise RemoteProtocolError("nothing that a scheduler keeps for a client")

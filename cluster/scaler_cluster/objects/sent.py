"""What a client has stored: each buffer is written once, as long as its owner lives.

A task gets what its argument was when the task was submitted. So a buffer that was stored before is
looked at again, unless nobody may write to it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from scaler_cluster.errors import MissingObjectsError, StorageUnreachableError
from scaler_cluster.objects.digest import fingerprint_of
from scaler_cluster.objects.remote_store import Incoming
from scaler_cluster.objects.unchanging import may_not_change
from scaler_cluster.pickling.payload import ObjectReference, Token, Whole, loads, original_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.core.client.requests import Function, Objects
    from scaler_cluster.objects.client_store import ClientStore
    from scaler_cluster.wire.batch import Buffer
    from scaler_cluster.wire.messages import Returned

SMALL = frozenset((bool, float, int, type(None)))
"""Types of values that need not be looked at."""
IMMUTABLE = frozenset((bytes, str))
"""Types of large values that are known by their identity while they are held."""
Key: TypeAlias = tuple[int, int, int]
"""Identity of a buffer: of its owner, its address and its size."""


class StoredResult:
    """A value that came back in segments: mapped when it is asked for, dropped when it is not."""

    __slots__ = ("__weakref__", "_buffers", "_incoming", "_message", "_sent")

    def __init__(self, sent: SentObjects, message: Returned) -> None:
        self._sent = sent
        self._message = message
        self._buffers: list[memoryview] | None = None
        self._incoming: list[Incoming] = []
        """What has arrived of each segment; whoever asks again goes on from there."""

    def load(self) -> Any:
        """Return the value; what it is made of is this process's own, to be written to as well.

        Raises MissingObjectsError if it is gone, StorageUnreachableError if its storage does not
        answer, and whatever unpickling raises.
        """
        self.fetch()
        return loads(self._message.payload, buffers=self._buffers)

    @property
    def payload(self) -> Buffer:
        """Its pickle, without the large buffers."""
        return self._message.payload

    @property
    def objects(self) -> Objects:
        """The segments that hold those."""
        return self._message.objects

    @property
    def address(self) -> str:
        """Where to fetch it; empty: on the scheduler's machine."""
        return self._message.address

    def fetch(self, timeout: float | None = None) -> bool:
        """Make it independent of the cluster; raises as :meth:`load`.

        Returns False if that took more than ``timeout`` seconds, and keeps what has arrived.
        """
        if self._buffers is not None:
            return True
        end = None if timeout is None else clock() + timeout
        store, message = self._sent.store, self._message
        if not self._incoming:
            self._incoming = [Incoming(one) for one in message.objects]
        buffers = []
        for one in self._incoming:
            left = None if end is None else max(end - clock(), 0.0)
            buffer = store.open(one, message.address, left)
            if buffer is None:
                return False
            buffers.append(buffer)
        self._buffers = buffers
        return True

    def __del__(self) -> None:
        self._sent.drop(self._message.objects)


class Offering(Protocol):
    """Tells the scheduler of a client's objects."""

    def offer(self, one: bytes, segment: bytes, nbytes: int) -> None:
        """Say that an object is stored."""

    def release(self, objects: Objects) -> None:
        """Say that objects will not be named again by what is asked for from now on."""

    def forget(self, function: bytes) -> None:
        """Say that a function will not be named again by what is asked for from now on."""


class Nobody:
    """Has no scheduler to tell."""

    def offer(self, one: bytes, segment: bytes, nbytes: int) -> None:
        """See :class:`Offering`."""

    def release(self, objects: Objects) -> None:
        """See :class:`Offering`."""

    def forget(self, function: bytes) -> None:
        """See :class:`Offering`."""


class _Stored:
    """A buffer that was stored, as long as its owner lives."""

    __slots__ = ("fingerprint", "is_constant", "object_id", "owner")

    def __init__(
        self, object_id: bytes, owner: weakref.ref[Any], fingerprint: bytes, *, is_constant: bool
    ) -> None:
        self.object_id = object_id
        self.owner = owner
        self.fingerprint = fingerprint
        """Of its content; empty: not made yet, as most buffers are stored only once."""
        self.is_constant = is_constant
        """Whether nobody could write to it when it was looked at last."""


class SentObjects:
    """Stores buffers, and counts who of this process still needs each.

    A buffer is known by its owner (the array at the end of a chain of views), its address and its
    size, as long as that owner lives. If anybody may write to it, its content is compared by a
    fingerprint each time. Equal content is stored once. No bytes move under the lock.
    """

    def __init__(self, client: Offering, store: ClientStore) -> None:
        self._client: Offering = client
        self._lock = threading.Lock()
        self.store = store
        self._known: dict[Key, _Stored] = {}
        self._functions: dict[Key, bytes] = {}
        """Functions to be forgotten with their owner."""
        self._held: dict[bytes, int] = {}
        """How many owners and calls in here need each object."""
        self._cleared = 0
        """How often everything was let go of."""
        self._dead: deque[Key] = deque()
        """Buffers whose owner died."""
        self._dropped: deque[Objects] = deque()
        """Results that were fetched, or that nobody will ask for."""
        self._released: deque[Iterable[bytes]] = deque()
        """What calls need no longer."""
        self._results: weakref.WeakSet[StoredResult] = weakref.WeakSet()

    def hold(
        self,
        buffers: Iterable[memoryview],
        *,
        again: bool = False,
        looked_at: set[Key] | None = None,
    ) -> Objects:
        """Return the ids of buffers, stored now unless they are; the caller releases them.

        Args:
            buffers: What to store.
            again: Whether to look also at the content of buffers that nobody may write to.
            looked_at: Buffers that need not be looked at, as no code of the user has run since
                they were; those that are looked at now are added.

        Raises:
            StorageFullError: There is no room.
            StorageUnreachableError: The storage is on another machine and does not answer.
            MissingObjectsError: An object that was sent ahead was cleared.

        """
        ids: list[bytes] = []
        try:
            for buffer in buffers:
                ids.append(self._hold(buffer, again, looked_at))  # noqa: PERF401 - it may raise
        except BaseException:
            self.release(ids)
            raise
        return tuple(ids)

    def lazy_result(self, message: Returned) -> StoredResult:
        """Return what stands for a value in segments until it is asked for."""
        result = StoredResult(self, message)
        self._results.add(result)
        return result

    def keep_results(self) -> None:
        """Make what somebody may still ask for independent of the cluster, as far as it goes."""
        silent = set()
        for result in list(self._results):
            if result.address not in silent:
                try:
                    result.fetch()
                except StorageUnreachableError:
                    silent.add(result.address)
                except (MissingObjectsError, OSError):
                    continue

    def pin_to_owner(self, owner: object, function: Function) -> None:
        """Hold the objects of a function as long as its owner lives; then let it be forgotten."""
        digest, _, objects, _ = function
        with self._lock:
            for number, one in enumerate(objects):
                self._remember((id(owner), 0, number), owner, one, b"", is_constant=False)
            before = self._functions.get((id(owner), 0, 0))
            if before is not None and before != digest:
                self._client.forget(before)
            self._functions[id(owner), 0, 0] = digest

    def send(self, value: object, name: str) -> ObjectReference:
        """Store a value, whatever its size, for as long as the reference to it lives.

        Or until :meth:`clear`. Raises PayloadError, StorageFullError.
        """
        whole = Whole.of(value, large=0)
        assert isinstance(whole, Whole)
        parts = [memoryview(part) for part in whole.parts]
        objects = self.hold(parts)
        size = sum(part.nbytes for part in parts)
        reference = ObjectReference(name, size, Whole(whole.load, tuple(map(Token, objects))))
        release = weakref.finalize(reference, self._release_sent, objects, self._cleared)
        release.atexit = False
        reference.release = release
        return reference

    def _release_sent(self, objects: Objects, cleared: int) -> None:
        if cleared == self._cleared:
            self.release(objects)

    def clear(self) -> None:
        """Let go of everything; what was asked for already still finds it."""
        with self._lock:
            self._sweep()
            self._cleared += 1
            self._known.clear()
            for function in self._functions.values():
                self._client.forget(function)
            self._functions.clear()
            if self._held:
                self._client.release(tuple(self._held))
            self._held.clear()

    def abandon(self) -> None:
        """The scheduler knows nothing of this any more, and is not told anything of it."""
        self._client = Nobody()
        self.store.rest()

    def release(self, objects: Iterable[bytes]) -> None:
        """Let go of objects, after what names them was asked for.

        It takes no lock, so a finalizer may call it.
        """
        self._released.append(objects)

    def retain(self, objects: Iterable[bytes]) -> None:
        """Hold objects that somebody else holds as well, until they are released once more."""
        with self._lock:
            for one in objects:
                self._held[one] += 1

    def drop(self, segments: Objects) -> None:
        """Let go of a result; takes no lock, so a finalizer may call it."""
        self._dropped.append(segments)

    @property
    def has_dead(self) -> bool:
        """Return True if :meth:`sweep` has something to do."""
        return bool(self._dead or self._dropped or self._released)

    def sweep(self) -> None:
        """Let go of what was dropped, and of objects whose owners died."""
        with self._lock:
            self._sweep()

    def _sweep(self) -> None:
        while self._dropped:
            self._client.release(self._dropped.popleft())
        while self._released:
            self._let_go(self._released.popleft())
        while self._dead:
            key = self._dead.popleft()
            known = self._known.get(key)
            # Another owner may have come to live at the same place.
            if known is not None and known.owner() is None:
                del self._known[key]
                self._let_go((known.object_id,))
                function = self._functions.pop(key, None)
                if function is not None:
                    self._client.forget(function)

    def _hold(self, buffer: memoryview, again: bool, looked_at: set[Key] | None) -> bytes:
        if type(buffer.obj) is Token:
            one = bytes(buffer.obj)
            if not self._hold_stored(one):
                raise MissingObjectsError(
                    f"object {one.hex()} was cleared, or is another client's: send it again"
                )
            return one
        key, owner = identify(buffer)
        is_constant = may_not_change(buffer)
        with self._lock:
            known = self._known.get(key)
            if known is not None and known.owner() is None:
                known = None
        fingerprint = b""
        if known is not None:
            is_same = (looked_at is not None and key in looked_at) or (
                is_constant and known.is_constant and not again
            )
            if not is_same:
                fingerprint = fingerprint_of(buffer)
                is_same = fingerprint == known.fingerprint
            if is_same and self._hold_stored(known.object_id):
                known.is_constant = is_constant
                if looked_at is not None:
                    looked_at.add(key)
                return known.object_id
        is_likely = known is not None and not known.fingerprint
        one = self._store(buffer, key, owner, fingerprint, likely=is_likely, constant=is_constant)
        if looked_at is not None:
            looked_at.add(key)
        return one

    def _hold_stored(self, one: bytes) -> bool:
        """Hold an object if it is stored; return whether it is."""
        with self._lock:
            if one not in self._held:
                return False
            self._held[one] += 1
            return True

    def _store(
        self,
        buffer: memoryview,
        key: Key,
        owner: object,
        fingerprint: bytes,
        *,
        likely: bool,
        constant: bool,
    ) -> bytes:
        """Return the id of a buffer, which is held; if that is ``likely`` stored, look first."""
        segment = one = b""
        try:
            while not one:
                segment, one = self.store.write_new(buffer, self._held, likely=likely)
                with self._lock:
                    if one in self._held:
                        self._held[one] += 1
                    elif segment:
                        # In this order: a Ctrl-C in between leaves an offer that is made again.
                        self._client.offer(one, segment, buffer.nbytes)
                        self._held[one] = 1
                        segment = b""
                    else:
                        # Another thread let go of the equal one at this moment.
                        one = b""
                        continue
                    self._remember(key, owner, one, fingerprint, is_constant=constant)
            if segment:
                self.store.remove(segment)
        finally:
            self.store.reported()
        return one

    def _remember(
        self, key: Key, owner: object, one: bytes, fingerprint: bytes, *, is_constant: bool
    ) -> None:
        dead = self._dead
        try:
            reference = weakref.ref(owner, lambda _: dead.append(key))
        except TypeError:
            # Whoever cannot be watched is held by the call alone.
            return
        before = self._known.get(key)
        self._known[key] = _Stored(one, reference, fingerprint, is_constant=is_constant)
        self._held[one] += 1
        if before is not None:
            self._let_go((before.object_id,))

    def _let_go(self, objects: Iterable[bytes]) -> None:
        gone = []
        for one in objects:
            # Unless everything was cleared meanwhile.
            if one in self._held:
                self._held[one] -= 1
                if not self._held[one]:
                    del self._held[one]
                    gone.append(one)
        if gone:
            self._client.release(tuple(gone))


class CallObjects:
    """What the tasks of one call (a map, a graph) refer to.

    Tasks are asked for in groups; what one group refers to is held until the next one was asked
    for, which may refer to it as well. In a ``steady`` call no code of the user runs between two
    items, so a large value is pickled and looked at once for all of them; see :meth:`resume`.
    """

    def __init__(self, sent: SentObjects, *, again: bool, steady: bool) -> None:
        self._sent = sent
        self._again = again
        self._looked_at: set[Key] | None = set() if steady else None
        self._is_steady = steady
        self._before: dict[int, tuple[object, Whole, Objects]] = {}
        """Large values of the last group by their id, what stands for each, and its objects."""
        self._now: dict[int, tuple[object, Whole, Objects]] = {}
        """The same of this group."""
        self._used: list[bytes] = []

    def resume(self) -> None:
        """Code of the user has run: look at everything again."""
        if self._looked_at is not None:
            self._looked_at.clear()
        for _, _, objects in (*self._before.values(), *self._now.values()):
            self._used += objects
        self._before, self._now = {}, {}

    def hold(self, buffers: Iterable[memoryview]) -> Objects:
        """Return the ids of buffers, stored unless they are; held until the group is over."""
        objects = self._sent.hold(buffers, again=self._again, looked_at=self._looked_at)
        self._used += objects
        return objects

    def shrink(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values, the large ones replaced by what stands for them."""
        return tuple(map(self._shrink, values))

    def _shrink(self, value: object) -> object:
        if type(value) in SMALL:
            return value
        known = self._now.get(id(value)) or self._before.pop(id(value), None)
        if known is None:
            whole = Whole.of(value)
            if type(whole) is not Whole:
                return value
            parts = [memoryview(part) for part in whole.parts]
            objects = self._sent.hold(parts, again=self._again, looked_at=self._looked_at)
            known = value, Whole(whole.load, tuple(map(Token, objects))), objects
            if not self._is_steady and type(value) not in IMMUTABLE:
                self._used += objects
                return known[1]
        self._now[id(value)] = known
        return known[1]

    def end_group(self) -> None:
        """The group was asked for: let go of what it does not share with the next one."""
        self._sent.release(self._used)
        self._used = []
        for _, _, objects in self._before.values():
            self._sent.release(objects)
        self._before, self._now = self._now, {}

    def close(self) -> None:
        """Let go of everything."""
        self.end_group()
        self.end_group()


def identify(buffer: memoryview) -> tuple[Key, object]:
    """Return what tells this buffer from others as long as its owner lives, and that owner.

    A view (a slice, a transposed array, a column of a frame) is often made anew for each pickle;
    what it is a view of stays. So does what a copy was made of.
    """
    owner: Any = buffer.obj
    original = original_of(owner)
    if original is not None:
        owner = original
    interface = getattr(owner, "__array_interface__", None)
    address = id(owner) if interface is None else interface["data"][0]
    while (base := getattr(owner, "base", None)) is not None and _is_watchable(base):
        owner = base
    return (id(owner), address, buffer.nbytes), owner


def _is_watchable(value: object) -> bool:
    return type(value).__weakrefoffset__ != 0

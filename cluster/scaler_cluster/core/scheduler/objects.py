"""What the scheduler knows of large data: which sessions may name it, which machines have it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.records.objects import (
    CopyRecord,
    ObjectRecord,
    Owners,
    StoreRecord,
    Transfers,
)
from scaler_cluster.core.scheduler.garbage import Garbage
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import (
    DRAFT,
    OBJECT_ID_BYTES,
    claim_of,
    home_of,
    is_segment_of,
    segment_number,
    segment_prefix,
)
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import OBJECTS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scaler_cluster.core.records.functions import FunctionRecord
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.session import SessionRecord

HOME = b""
"""Key of the scheduler's own machine among the stores."""
SESSION_OBJECTS_MAX = 10_000_000
"""Far more than fit into a machine: beyond this a client is misbehaving."""
STORAGE_DOWN_MAX_S = 60.0
"""A machine without a storage is not waited for longer than this: copies to it fail."""
COPIES_KEPT = 0.75
"""If copies fill a machine's memory, they are removed down to this share: the next find room."""
_NONE = object()


class ObjectTable:
    """The objects that clients stored and tasks returned, with the moves that keep all in step."""

    def __init__(
        self,
        workers: Mapping[bytes, WorkerRecord],
        sessions: Mapping[bytes, SessionRecord],
        functions: Mapping[bytes, FunctionRecord],
        send: Callable[[bytes, m.Message], None],
        homes: Sequence[m.StorageEndpoint],
        *,
        are_elsewhere: bool,
        retention_s: float,
    ) -> None:
        self._workers = workers
        self._sessions = sessions
        self._functions = functions
        self._send = send
        self._retention_s = retention_s
        """A copy that was not used for this long is removed before twice that is over."""
        self._look_at = -math.inf
        """When to look for unused copies next."""
        self.records: dict[bytes, ObjectRecord] = {}
        self.adopts = False
        """True while clients may come that name what nobody here knows yet: no segment is removed
        because it is not known."""
        self.left: list[tuple[bytes, bytes]] = []
        """Machines and segments that nobody has named since, and that are removed after that."""
        self.owners = Owners()
        self.homes = {home.address.encode() if are_elsewhere else HOME: home for home in homes}
        """The storages that clients store in. The key of a storage that runs by itself is its
        address."""
        self._home_keys = tuple(self.homes)
        self.stores = {key: StoreRecord(home) for key, home in self.homes.items()}
        """Machines that keep segments, by the peer id of their supervisor; homes, by their key."""
        self.storages: dict[bytes, bytes] = {}
        """Keys of the machines by the peer id of their storage."""
        self.copying: dict[tuple[bytes, bytes], CopyRecord] = {}
        """Objects that are on their way, by the key of the machine they go to and their segment."""
        self.transfers = Transfers()
        self.garbage = Garbage(self.stores, send)

    # -- use -----------------------------------------------------------------------------------

    def announce(self, session: SessionRecord, message: m.Object) -> None:
        """A client stored an object; raises RemoteProtocolError if it must not."""
        if not is_segment_of(session.peer, message.segment):
            raise RemoteProtocolError("an object in a segment that somebody else wrote")
        if len(message.object) != OBJECT_ID_BYTES:
            raise RemoteProtocolError("an object that is not named by its digest")
        session.announced.add(segment_number(message.segment))
        home = self._home_keys[home_of(message.object, len(self._home_keys))]
        if message.object in session.objects:
            # Ctrl-C in the client came at a bad moment: it stored the object twice.
            self.garbage.add(home, message.segment, message.nbytes)
            return
        if len(session.objects) >= SESSION_OBJECTS_MAX:
            raise RemoteProtocolError("a client that never releases an object")
        record = self.records.get(message.object)
        if record is None:
            record = self.owners.made(message.segment, message.nbytes, session.number)
            self.records[message.object] = record
            self.lay(record, home)
        elif record.segment != message.segment:
            self._send(session.peer, join(self, session, message.object, message.segment, home))
        session.objects[message.object] = None
        record.is_clients = True
        record.users += 1

    def take_result(
        self, session: SessionRecord, worker: WorkerRecord, message: m.Stored | m.Shared, name: str
    ) -> str:
        """A worker stored a result for a client; return where the client fetches it from.

        ``name`` is the one under which the task is counted.
        """
        for segment, nbytes in zip(message.objects, message.sizes, strict=True):
            record = self.owners.made(segment, nbytes, session.number, name)
            self.records[segment] = record
            record.users = 1
            self.lay(record, worker.store)
            session.objects[segment] = None
        return self.stores[worker.store].place.address

    def hold(self, objects: tuple[bytes, ...]) -> None:
        """Count one user more of each of these objects."""
        for one in objects:
            self.records[one].users += 1

    def release(self, objects: Iterable[bytes], *, by_client: bool = False) -> None:
        """Count one user of each out; an object without users is unmapped and removed.

        What clients store stays while they may come back and name it, unless they release it; what
        was there before this scheduler stays in any case, as several clients may name it.
        """
        for one in objects:
            record = self.records[one]
            record.users -= 1
            if record.users:
                continue
            del self.records[one]
            self.owners.removed(record)
            segment = record.segment
            for worker in record.workers:
                del self._workers[worker].objects[one]
                self._send(worker, m.Release((segment,)))
            for key, store in self.stores.items():
                # A storage that is still fetching it is told as well: it gives up.
                if key in record.stores or self.copying.pop((key, segment), None) is not None:
                    store.objects -= key in record.stores
                    store.nbytes -= record.nbytes
                    store.copies.pop(one, None)
                    if self.adopts and (record.is_adopted or (record.is_clients and not by_client)):
                        self.left.append((key, segment))
                    else:
                        self.garbage.add(key, segment, record.nbytes)

    # -- place ---------------------------------------------------------------------------------

    def key_of(self, worker: m.Hello) -> bytes:
        """Return the key of the machine on which a worker stores: a home, or one of its own."""
        homes = (key for key, home in self.homes.items() if home.disk == worker.place.disk)
        return next(homes, worker.supervisor)

    def lay(self, record: ObjectRecord, key: bytes) -> None:
        """Note that a machine has an object."""
        record.stores[key] = None
        self.stores[key].objects += 1
        self.stores[key].nbytes += record.nbytes

    def purge(self, owner: bytes, key: bytes, *, may_claim: bool = False) -> None:
        """Have everything removed that a peer stored without saying so before it was gone.

        A worker that ``may_claim`` room may have died with it: a storage is started for that, too.
        """
        store = self.stores.get(key)
        if self.adopts:
            # It goes with all else that nobody names.
            return
        if store is not None and store.peer is None and may_claim:
            store.garbage.append(DRAFT + claim_of(owner))
        if store is not None and store.peer is not None:
            prefix = segment_prefix(owner)
            segments = (record.segment for record in self.records.values())
            keep = tuple(segment for segment in segments if segment.startswith(prefix))
            # If that is more than one message holds, all of it stays until the cluster ends.
            if len(keep) <= OBJECTS_MAX:
                self.garbage.sweep(key)
                self._send(store.peer, m.Purge(prefix, keep))

    def segments(self, objects: tuple[bytes, ...], worker: WorkerRecord) -> tuple[bytes, ...]:
        """Return where a worker finds objects, and remember that it may map them."""
        found = []
        for one in objects:
            record = self.records[one]
            record.workers[worker.peer] = None
            worker.objects[one] = None
            found.append(record.segment)
        return tuple(found)

    def bring(self, objects: tuple[bytes, ...], worker: WorkerRecord) -> None:
        """Have objects copied to a worker's machine, unless they are there or on their way.

        The worker is told of objects that cannot be had, so it must be sent the tasks that need
        them first.
        """
        key = worker.store
        for one in objects:
            record = self.records[one]
            place = key, record.segment
            if key in record.stores:
                if one in self.stores[key].copies:
                    self.stores[key].copies[one] = True
                    self.stores[key].copies.move_to_end(one)
                continue
            if place in self.copying:
                continue
            if not record.stores:
                reason = "the machine that held this object was lost"
                self._send(worker.peer, m.Missing((record.segment,), reason))
            else:
                copy = self.copying[place] = CopyRecord(one)
                self.stores[key].nbytes += record.nbytes
                self._make_room(key)
                self._send_copy(key, copy)

    def are_at(self, objects: tuple[bytes, ...], key: bytes) -> bool:
        """Return True if a machine has all of these objects, as far as they can be had at all."""
        all_stores = [self.records[one].stores for one in objects]
        return all(key in stores or not stores for stores in all_stores)

    def _make_room(self, key: bytes) -> None:
        """If a machine's memory is full, have the copies removed that were used longest ago."""
        store = self.stores[key]
        limit = store.place.memory_limit
        if not limit or store.nbytes <= limit:
            return
        wanted = _wanted_on(key, self._workers, self._functions, self._sessions)
        for one in list(store.copies):
            if one not in wanted:
                self._drop_copy(key, one)
                if store.nbytes <= limit * COPIES_KEPT:
                    return

    def _drop_unused(self, key: bytes) -> None:
        """Have the copies removed that were not used since this was last called."""
        store = self.stores[key]
        unused = [one for one, is_used in store.copies.items() if not is_used]
        store.copies.update(dict.fromkeys(store.copies, False))
        if unused:
            wanted = _wanted_on(key, self._workers, self._functions, self._sessions)
            for one in unused:
                if one not in wanted:
                    self._drop_copy(key, one)

    def _drop_copy(self, key: bytes, one: bytes) -> None:
        """Have a copy removed, unless it is the copy that other machines fetch."""
        store, record = self.stores[key], self.records[one]
        if next(iter(record.stores)) == key:
            return
        del store.copies[one], record.stores[key]
        store.objects -= 1
        store.nbytes -= record.nbytes
        for peer in [p for p in record.workers if self._workers[p].store == key]:
            del record.workers[peer], self._workers[peer].objects[one]
            self._send(peer, m.Release((record.segment,)))
        self.garbage.add(key, record.segment, record.nbytes)

    def _send_copy(self, key: bytes, copy: CopyRecord) -> None:
        peer, record = self.stores[key].peer, self.records[copy.object]
        # If there is no storage, the next one is asked as soon as it comes.
        if peer is not None:
            # It may be a segment that it is yet to remove.
            self.garbage.sweep(key)
            places = ((one, self.stores[one].place.address) for one in record.stores)
            copy.source, address = next((one for one in places if one[1]), (None, ""))
            self._send(peer, m.Copy(record.segment, address))

    def transferred(self, key: bytes, segment: bytes, error: str) -> None:
        """A machine has a copy, or failed to get it: the workers told of it meanwhile hear so."""
        copy = self.copying.pop((key, segment), None)
        if copy is None:
            return
        one = copy.object
        record = self.records[one]
        if copy.source in self.stores:
            self.transfers.count(copy.source, key, 0 if error else record.nbytes, error)
        if not error:
            record.stores[key] = None
            self.stores[key].objects += 1
            self.stores[key].copies[one] = True
        else:
            self.stores[key].nbytes -= record.nbytes
        message = m.Missing((segment,), error) if error else m.Arrived((segment,))
        for peer in record.workers:
            if self._workers[peer].store == key:
                self._send(peer, message)

    # -- machines and their storages -----------------------------------------------------------

    def forget_worker(self, worker: WorkerRecord) -> None:
        """A worker is gone, and has nothing mapped any more."""
        for one in worker.objects:
            del self.records[one].workers[worker.peer]

    def tick(self, now: float) -> None:
        """Have unused copies removed, and fail copies to machines that have no storage."""
        if now >= self._look_at:
            self._look_at = now + self._retention_s
            for key in self.stores:
                self._drop_unused(key)
        if self.copying:
            self._give_up_copies(now)

    def _give_up_copies(self, now: float) -> None:
        for key in list(dict.fromkeys(goal for goal, _ in self.copying)):
            store = self.stores[key]
            if store.peer is not None:
                store.down_since = math.inf
                continue
            store.down_since = min(store.down_since, now)
            if now - store.down_since >= STORAGE_DOWN_MAX_S:
                for goal, segment in list(self.copying):
                    if goal == key:
                        self.transferred(key, segment, "the object storage does not start")

    def found(self, key: bytes, segments: tuple[bytes, ...]) -> set[bytes]:
        """A storage found these segments; return all that it should have.

        What was lost with the machine and is still named can be had again: it was only cut off.
        """
        known = {record.segment for record in self.records.values() if key in record.stores}
        known.update(segment for goal, segment in self.copying if goal == key)
        lost = {record.segment: record for record in self.records.values() if not record.stores}
        for segment in dict.fromkeys(one for one in segments if one in lost and one not in known):
            self.lay(lost[segment], key)
            known.add(segment)
        return known

    def add_storage(self, peer: bytes, key: bytes, place: m.StorageEndpoint) -> bytes | None:
        """Take in the storage of a machine, which fetches what is still wanted there.

        Return the storage whose place it takes, if there was one.
        """
        store = self.stores.setdefault(key, StoreRecord())
        store.place = place
        before, store.peer = store.peer, peer
        if before is not None:
            del self.storages[before]
        self.storages[peer] = key
        for (goal, _), copy in self.copying.items():
            if goal == key:
                self._send_copy(key, copy)
        return before

    def drop_storage(self, peer: bytes) -> None:
        """A storage has ended: the segments of its machine stay, unless it ran by itself."""
        key = self.storages.pop(peer)
        store = self.stores[key]
        store.peer = None
        if key in self.homes and key != HOME:
            store.copies.clear()
            for record in self.records.values():
                if record.stores.pop(key, _NONE) is None:
                    store.objects -= 1
                    store.nbytes -= record.nbytes

    def drop_store(self, key: bytes) -> None:
        """Forget a machine with all it held."""
        store = self.stores.pop(key, None)
        if store is None:
            return
        if store.peer is not None:
            del self.storages[store.peer]
        for place in [place for place in self.copying if place[0] == key]:
            del self.copying[place]
        self.transfers.forget(key)
        for record in self.records.values():
            record.stores.pop(key, None)


def join(
    objects: ObjectTable,
    session: SessionRecord,
    one: bytes,
    segment: bytes,
    key: bytes,
    *,
    is_old: bool = False,
) -> m.Object:
    """A client has an object in another segment than others: return what has it name theirs.

    If this scheduler dies before the client hears so, it names its own segment to the next one. So
    that stays, as an object by itself, until the client releases it. If it ``is_old``, it was there
    before this scheduler, and other clients may name it as well.
    """
    record, spare = objects.records[one], objects.records.get(segment)
    if spare is None:
        spare = objects.owners.made(segment, record.nbytes, session.number)
        objects.records[segment] = spare
        objects.lay(spare, key)
    if segment not in session.objects:
        session.objects[segment] = None
        spare.users += 1
    spare.is_clients = True
    spare.is_adopted |= is_old
    return m.Object(one, record.segment, record.nbytes, segment)


def _wanted_on(
    key: bytes,
    workers: Mapping[bytes, WorkerRecord],
    functions: Mapping[bytes, FunctionRecord],
    sessions: Mapping[bytes, SessionRecord],
) -> set[bytes]:
    """Return the objects that the workers of a machine need.

    They need them for their tasks and functions, and for the nodes that the scheduler has
    handed to a waiting task there.
    """
    wanted: set[bytes] = set()
    for worker in workers.values():
        if worker.store == key:
            for run in worker.runs:
                wanted.update(run.needed)
            for function in worker.functions:
                if function in functions:
                    wanted.update(functions[function].objects)
    for session in sessions.values():
        if session.worker and workers[session.worker].store == key:
            for graph in session.graphs.values():
                for handed_over in graph.handed_over.values():
                    wanted.update(handed_over.needed)
    return wanted

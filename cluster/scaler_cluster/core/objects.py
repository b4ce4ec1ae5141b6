"""What the scheduler knows of large data: who may name it, and which machines have it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.records import ObjectRecord, StoreRecord
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import DRAFT, OBJECT_ID_BYTES, is_segment_of, segment_prefix
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import OBJECTS_MAX, in_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.core.records import SessionRecord, WorkerRecord
    from scaler_cluster.core.table import Table

HOME = b""
"""Key of the scheduler's own machine among those that keep segments."""
SESSION_OBJECTS_MAX = 10_000_000
"""Far more than fit into a machine: beyond this a client is misbehaving."""
STORAGE_DOWN_MAX_S = 60.0
"""Copies are not waited for longer where there is nobody to make them."""


class ObjectTable:
    """The objects part of the scheduler's table, with the moves that keep it in step."""

    def __init__(self, table: Table, home_address: str) -> None:
        self._table = table
        self.records: dict[bytes, ObjectRecord] = {}
        self.stores: dict[bytes, StoreRecord] = {HOME: StoreRecord(home_address)}
        """Machines that keep segments, by the peer id of their supervisor."""
        self.storages: dict[bytes, bytes] = {}
        """Keys of the machines by the peer id of their storage."""
        self.copying: dict[tuple[bytes, bytes], bytes] = {}
        """Objects that are on their way, by the key of the machine they go to and their segment."""

    # -- who may name what -------------------------------------------------------------------

    def announce(self, session: SessionRecord, message: m.Object) -> None:
        """A client stored an object; raises RemoteProtocolError if it must not."""
        if not is_segment_of(session.peer, message.segment):
            raise RemoteProtocolError("an object in a segment that somebody else wrote")
        if message.object in session.objects:
            # Somebody pressed Ctrl-C at a bad moment.
            self.remove_segments(HOME, (message.segment,))
            return
        if len(message.object) != OBJECT_ID_BYTES:
            raise RemoteProtocolError("an object that is not named by its digest")
        if len(session.objects) >= SESSION_OBJECTS_MAX:
            raise RemoteProtocolError("a client that never releases an object")
        record = self.records.get(message.object)
        if record is None:
            record = ObjectRecord(message.segment)
            record.stores[HOME] = None
            self.records[message.object] = record
        else:
            self.remove_segments(HOME, (message.segment,))
        session.objects[message.object] = None
        record.users += 1

    def take_result(
        self, session: SessionRecord, worker: WorkerRecord, segments: tuple[bytes, ...]
    ) -> str:
        """A worker stored a result for a client; return where that fetches it from."""
        for segment in segments:
            record = self.records[segment] = ObjectRecord(segment, users=1)
            record.stores[worker.store] = None
            session.objects[segment] = None
        return self.stores[worker.store].address if worker.store else ""

    def hold(self, objects: tuple[bytes, ...]) -> None:
        """Count one user more of each of these objects."""
        for one in objects:
            self.records[one].users += 1

    def release(self, objects: Iterable[bytes]) -> None:
        """Count one user of each out; what nobody uses any more is unmapped and removed."""
        for one in objects:
            record = self.records[one]
            record.users -= 1
            if record.users:
                continue
            del self.records[one]
            segment = record.segment
            for worker in record.workers:
                del self._table.workers[worker].objects[one]
                self._table.send(worker, m.Release((segment,)))
            for key in self.stores:
                # To whoever fetches it as well: it gives up.
                if key in record.stores or self.copying.pop((key, segment), b""):
                    self.remove_segments(key, (segment,))

    # -- where it lies -----------------------------------------------------------------------

    def remove_segments(self, key: bytes, segments: tuple[bytes, ...]) -> None:
        """Have segments of a machine removed that nobody uses."""
        store = self.stores.get(key)
        if store is None:
            return
        if store.peer is None:
            store.garbage += segments
        else:
            self._table.send(store.peer, m.Release(segments))

    def purge(self, owner: bytes, key: bytes) -> None:
        """Have everything removed that a peer that is gone stored without having said so."""
        store = self.stores.get(key)
        if store is not None and store.peer is not None:
            prefix = segment_prefix(owner)
            segments = (record.segment for record in self.records.values())
            keep = tuple(segment for segment in segments if segment.startswith(prefix))
            # With more than a message holds, what is left goes with the cluster.
            if len(keep) <= OBJECTS_MAX:
                self._table.send(store.peer, m.Purge(prefix, keep))

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

        It is told of those that cannot be had; so it must have been told to use them before.
        """
        key = worker.store
        for one in objects:
            record = self.records[one]
            place = key, record.segment
            if key in record.stores or place in self.copying:
                continue
            if not record.stores:
                reason = "the machine that held this object was lost"
                self._table.send(worker.peer, m.Missing((record.segment,), reason))
            else:
                self.copying[place] = one
                self._send_copy(key, record)

    def _send_copy(self, key: bytes, record: ObjectRecord) -> None:
        peer = self.stores[key].peer
        # Without a storage it is asked for as soon as there is one.
        if peer is not None:
            addresses = [self.stores[source].address for source in record.stores]
            self._table.send(peer, m.Copy(record.segment, next(filter(None, addresses), "")))

    def transferred(self, key: bytes, segment: bytes, error: str) -> None:
        """A machine has a copy, or tried in vain; then whoever waits for it is told."""
        one = self.copying.pop((key, segment), None)
        if one is None:
            return
        record = self.records[one]
        if not error:
            record.stores[key] = None
            return
        for peer in record.workers:
            if self._table.workers[peer].store == key:
                self._table.send(peer, m.Missing((segment,), error))

    # -- machines and their storages ---------------------------------------------------------

    def forget_worker(self, worker: WorkerRecord) -> None:
        """A worker is gone, and what it had mapped with it."""
        for one in worker.objects:
            del self.records[one].workers[worker.peer]

    def give_up_copies(self, now: float) -> None:
        """Fail the copies to machines that have had no storage for long."""
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

    def take_inventory(self, key: bytes, segments: tuple[bytes, ...]) -> None:
        """Let a storage that has come up remove, of what it found, what nobody has a use for."""
        store = self.stores[key]
        known = {record.segment for record in self.records.values()}
        peers = (*self._table.sessions, *self._table.workers)
        prefixes = tuple(map(segment_prefix, peers))
        for segment in segments:
            # What its owner has not announced yet is about to be.
            name = segment.removeprefix(DRAFT)
            if name not in known and not name.startswith(prefixes):
                store.garbage.append(segment)
        garbage, store.garbage = store.garbage, []
        for piece in in_pieces(garbage):
            self.remove_segments(key, piece)

    def add_storage(self, peer: bytes, key: bytes) -> bytes | None:
        """Take in the storage of a machine, which fetches what is still wanted there.

        Return the one whose place it takes, if there was one.
        """
        store = self.stores.setdefault(key, StoreRecord())
        before, store.peer = store.peer, peer
        if before is not None:
            del self.storages[before]
        self.storages[peer] = key
        for (goal, _), one in self.copying.items():
            if goal == key:
                self._send_copy(key, self.records[one])
        return before

    def drop_storage(self, peer: bytes) -> None:
        """A storage has ended; its machine's segments are there, and another one will come."""
        self.stores[self.storages.pop(peer)].peer = None

    def drop_store(self, key: bytes) -> None:
        """Forget a machine with all it held."""
        store = self.stores.pop(key, None)
        if store is None:
            return
        if store.peer is not None:
            del self.storages[store.peer]
        for place in [place for place in self.copying if place[0] == key]:
            del self.copying[place]
        for record in self.records.values():
            record.stores.pop(key, None)

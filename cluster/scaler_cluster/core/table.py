"""What the scheduler knows: peers, functions, live runs, the ready queue and the outbox."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.lifecycle import ENDS, Event, move
from scaler_cluster.core.queue import ReadyQueue
from scaler_cluster.core.records import StoreRecord
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import DRAFT, segment_prefix
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch
from scaler_cluster.wire.codec import OBJECTS_MAX, in_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.core.records import (
        FunctionRecord,
        ObjectRecord,
        SessionRecord,
        SupervisorRecord,
        WorkerRecord,
    )
    from scaler_cluster.core.tasks import Run

_NONE = object()
HOME = b""
"""Key of the scheduler's own machine among those that keep segments."""
STORAGE_DOWN_MAX_S = 60.0
"""Copies are not waited for longer where there is nobody to make them."""
EMPTY = Batch(b"", memoryview(b"").cast("I"))
"""The batch of a run that ended."""


class Table:
    """The scheduler's state, with the moves that keep its parts in step."""

    def __init__(self, home_address: str = "") -> None:
        self.sessions: dict[bytes, SessionRecord] = {}
        self.session_by_number: dict[int, SessionRecord] = {}
        self.supervisors: dict[bytes, SupervisorRecord] = {}
        self.workers: dict[bytes, WorkerRecord] = {}
        self.functions: dict[bytes, FunctionRecord] = {}
        self.objects: dict[bytes, ObjectRecord] = {}
        self.stores: dict[bytes, StoreRecord] = {HOME: StoreRecord(home_address)}
        """Machines that keep segments, by the peer id of their supervisor."""
        self.storages: dict[bytes, bytes] = {}
        """Keys of the machines by the peer id of their storage."""
        self.copying: dict[tuple[bytes, bytes], bytes] = {}
        """Objects that are on their way, by the key of the machine they go to and their segment."""
        self.ready = ReadyQueue()
        self.outbox: dict[bytes, list[m.Message]] = {}
        self.in_flight = 0
        """Tasks that workers have."""

    def send(self, peer: bytes, message: m.Message) -> None:
        """Put a message into the outbox."""
        messages = self.outbox.get(peer)
        if messages is None:
            self.outbox[peer] = [message]
        else:
            messages.append(message)

    def send_session(self, number: int, message: m.Message) -> None:
        """Put a message for a client into the outbox, if it is still there."""
        session = self.session_by_number.get(number)
        if session is not None:
            self.send(session.peer, message)

    # -- peers -------------------------------------------------------------------------------

    def knows(self, peer: bytes) -> bool:
        """Return True if the peer is a client, a worker, a supervisor or the storage."""
        return (
            peer in self.sessions
            or peer in self.workers
            or peer in self.supervisors
            or peer in self.storages
        )

    def add_session(self, session: SessionRecord) -> None:
        """Take a client in."""
        self.sessions[session.peer] = session
        self.session_by_number[session.number] = session

    def drop_session(self, session: SessionRecord) -> None:
        """Forget a client; its runs have been cancelled."""
        del self.sessions[session.peer]
        del self.session_by_number[session.number]

    def drop_worker(self, worker: WorkerRecord) -> None:
        """Forget a worker; its runs are still to be settled."""
        del self.workers[worker.peer]
        for one in worker.objects:
            del self.objects[one].workers[worker.peer]
        supervisor = self.supervisors.get(worker.supervisor)
        if supervisor is not None:
            supervisor.workers.pop(worker.peer, None)

    def release_function(self, function: bytes) -> None:
        """Count one user of a function out, and drop it with the last one."""
        record = self.functions[function]
        record.users -= 1
        if record.users:
            return
        del self.functions[function]
        if record.objects:
            for worker in self.workers.values():
                if worker.functions.pop(function, _NONE) is None:
                    self.send(worker.peer, m.Forget(function))
            self.release_objects(record.objects)

    # -- objects -----------------------------------------------------------------------------

    def hold_objects(self, objects: tuple[bytes, ...]) -> None:
        """Count one user more of each of these objects."""
        for one in objects:
            self.objects[one].users += 1

    def release_objects(self, objects: Iterable[bytes]) -> None:
        """Count one user of each out; what nobody uses any more is unmapped and removed."""
        for one in objects:
            record = self.objects[one]
            record.users -= 1
            if record.users:
                continue
            del self.objects[one]
            segment = record.segment
            for worker in record.workers:
                del self.workers[worker].objects[one]
                self.send(worker, m.Release((segment,)))
            for key in self.stores:
                # To whoever fetches it as well: it gives up.
                if key in record.stores or self.copying.pop((key, segment), b""):
                    self.remove_segments(key, (segment,))

    def remove_segments(self, key: bytes, segments: tuple[bytes, ...]) -> None:
        """Have segments of a machine removed that nobody uses."""
        store = self.stores.get(key)
        if store is None:
            return
        if store.peer is None:
            store.garbage += segments
        else:
            self.send(store.peer, m.Release(segments))

    def purge(self, owner: bytes, key: bytes) -> None:
        """Have everything removed that a peer that is gone stored without having said so."""
        store = self.stores.get(key)
        if store is not None and store.peer is not None:
            prefix = segment_prefix(owner)
            segments = (record.segment for record in self.objects.values())
            keep = tuple(segment for segment in segments if segment.startswith(prefix))
            if len(keep) <= OBJECTS_MAX:
                self.send(store.peer, m.Purge(prefix, keep))

    def segments(self, objects: tuple[bytes, ...], worker: WorkerRecord) -> tuple[bytes, ...]:
        """Return where a worker finds objects, and remember that it may map them."""
        found = []
        for one in objects:
            record = self.objects[one]
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
            record = self.objects[one]
            place = key, record.segment
            if key in record.stores or place in self.copying:
                continue
            if not record.stores:
                reason = "the machine that held this object was lost"
                self.send(worker.peer, m.Missing((record.segment,), reason))
            else:
                self.copying[place] = one
                self._send_copy(key, record)

    def _send_copy(self, key: bytes, record: ObjectRecord) -> None:
        peer = self.stores[key].peer
        # Without a storage it is asked for as soon as there is one.
        if peer is not None:
            addresses = [self.stores[source].address for source in record.stores]
            self.send(peer, m.Copy(record.segment, next(filter(None, addresses), "")))

    def transferred(self, key: bytes, segment: bytes, error: str) -> None:
        """A machine has a copy, or tried in vain; then whoever waits for it is told."""
        one = self.copying.pop((key, segment), None)
        if one is None:
            return
        record = self.objects[one]
        if not error:
            record.stores[key] = None
            return
        for peer in record.workers:
            if self.workers[peer].store == key:
                self.send(peer, m.Missing((segment,), error))

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
        known = {record.segment for record in self.objects.values()}
        prefixes = tuple(segment_prefix(peer) for peer in (*self.sessions, *self.workers))
        for segment in segments:
            # What its owner has not announced yet is about to be.
            name = segment.removeprefix(DRAFT)
            if name not in known and not name.startswith(prefixes):
                store.garbage.append(segment)
        garbage, store.garbage = store.garbage, []
        for piece in in_pieces(garbage):
            self.remove_segments(key, piece)

    def add_storage(self, peer: bytes, key: bytes) -> None:
        """Take in the storage of a machine; it fetches what is still wanted there."""
        store = self.stores.setdefault(key, StoreRecord())
        if store.peer is not None:
            del self.storages[store.peer]
        store.peer = peer
        self.storages[peer] = key
        for (goal, _), one in self.copying.items():
            if goal == key:
                self._send_copy(key, self.objects[one])

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
        for record in self.objects.values():
            record.stores.pop(key, None)

    # -- runs --------------------------------------------------------------------------------

    def add_run(self, run: Run) -> None:
        """Take a new run in.

        Raises RemoteProtocolError if one of its tasks is there already.
        """
        session = self.session_by_number[run.session]
        runs = session.runs
        # New tasks nearly always come after all others.
        is_last = not runs or runs.peekitem()[1].stop <= run.first
        if not is_last and self.overlapping(session, run.first, run.stop):
            raise RemoteProtocolError(f"task {run.first} was submitted twice")
        runs[run.first] = run
        self.use(run)

    def use(self, run: Run) -> None:
        """Count a run among the users of what it needs."""
        self.functions[run.function].users += 1
        if run.objects:
            self.hold_objects(run.objects)

    def overlapping(self, session: SessionRecord, first: int, stop: int) -> list[Run]:
        """Return the session's live runs that hold tasks of ``first <= id < stop``, in order."""
        runs = session.runs
        index = max(runs.bisect_right(first) - 1, 0)
        found = []
        for key in runs.keys()[index : runs.bisect_left(stop)]:
            run = runs[key]
            if run.stop > first:
                found.append(run)
        return found

    def split(self, run: Run, count: int) -> Run:
        """Cut the first ``count`` tasks off a run and return them; ``run`` becomes the rest."""
        session = self.session_by_number.get(run.session)
        head = run.cut_head(count)
        self.use(head)
        if session is not None:
            session.runs[head.first] = head
            session.runs[run.first] = run
        return head

    def drop_head(self, run: Run, count: int) -> None:
        """Let the first ``count`` tasks of a run end; at least one stays."""
        session = self.session_by_number.get(run.session)
        if session is not None:
            del session.runs[run.first]
        run.drop_head(count)
        if session is not None:
            session.runs[run.first] = run

    def end(self, run: Run, event: Event) -> None:
        """Move a whole run to one of the ends and forget it."""
        state = move(run, event)
        if state not in ENDS:
            raise AssertionError(f"{event.name} is not the end of {run}")
        session = self.session_by_number.get(run.session)
        if session is not None:
            del session.runs[run.first]
        self.release_function(run.function)
        if run.objects:
            self.release_objects(run.objects)
        run.worker = None
        # A deadline may hold on to the run for long; it must not hold on to the payloads.
        run.batch = EMPTY

"""Where a client keeps what it passes to tasks, and finds what they return."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.errors import MissingObjectsError
from scaler_cluster.ids import home_of
from scaler_cluster.objects.digest import digest_of
from scaler_cluster.objects.storage_dirs import StorageDirs

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from scaler_cluster.objects.remote_store import Incoming, RemoteStore
    from scaler_cluster.objects.reported_names import ReportedNames
    from scaler_cluster.objects.segments import Segments
    from scaler_cluster.wire.messages import StorageEndpoint

IDLE_S = 60.0
"""A connection to another machine that is not used for so long is closed with the next use of any:
machines come and go, and a client may live for months."""


class _Reached:
    """A connection to a storage, and whether it is in use."""

    __slots__ = ("store", "used_at", "users")

    def __init__(self, store: RemoteStore) -> None:
        self.store = store
        self.users = 0
        self.used_at = 0.0


class ClientStore:
    """Maps the segments of this machine, and sends to and fetches from the storages of others.

    ``homes`` are the storages that clients store in, ``names`` are for segments that it writes,
    ``connect`` makes a connection to a storage.
    """

    def __init__(
        self,
        homes: Sequence[StorageEndpoint],
        names: ReportedNames,
        connect: Callable[[str], RemoteStore],
    ) -> None:
        self._homes = homes
        self._connect = connect
        self._names = names
        self._remote: dict[str, _Reached] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._segments: dict[str, Segments] = {}
        """Of the homes whose files are here, by their address."""
        for home in homes:
            place = StorageDirs.of(home)
            if place.is_here:
                # Only where there are such files: it needs more of the system than a client has.
                from scaler_cluster.objects.segments import Segments

                self._segments[home.address] = Segments(place, self._names)

    def write_new(
        self, data: memoryview, known: Container[bytes], *, likely: bool = False
    ) -> tuple[bytes, bytes]:
        """Store bytes unless their digest is known; return their segment, or b"", and the digest.

        If it is ``likely`` known, that is looked at first. Raises StorageFullError,
        StorageUnreachableError.
        """
        segments = self._segments.get(self._homes[0].address)
        if segments is not None and len(self._homes) == 1:
            return segments.write_new(data, known, likely=likely)
        digest = digest_of(data)
        if digest in known:
            return b"", digest
        address = self._home_of(digest)
        if address in self._segments:
            return self._segments[address].write(data), digest
        segment = next(self._names).encode()
        with self._remote_store(address) as store:
            store.push(segment, data)
        return segment, digest

    def reported(self) -> None:
        """What this thread has stored was offered to the scheduler, or never will be."""
        self._names.reported()

    def remove(self, segment: bytes) -> None:
        """Remove a segment that nobody was told of; one that was sent goes with this client."""
        for segments in self._segments.values():
            segments.remove(segment)

    def open(
        self, incoming: Incoming, address: str, timeout: float | None = None
    ) -> memoryview | None:
        """Return the bytes of a segment, which are this process's own; None: not in time.

        The address is that of the storage that has it. Raises MissingObjectsError,
        StorageUnreachableError.
        """
        if address in self._segments:
            return self._segments[address].open(incoming.segment, writable=True)
        if not address:
            raise MissingObjectsError("this client cannot see the machine that holds this object")
        with self._remote_store(address) as store:
            return store.fetch(incoming, timeout)

    def tend(self) -> None:
        """Take note of what has become of connections that are not in use; it does not wait."""
        if self._lock.acquire(blocking=False):
            try:
                stores = [reached.store for reached in self._remote.values()]
            finally:
                self._lock.release()
            for store in stores:
                store.tend()

    def rest(self) -> None:
        """Leave the storages of other machines until one is needed, as hardly any will be."""
        with self._lock:
            idle = self._take_idle(clock())
        for store in idle:
            store.close()

    def close(self) -> None:
        """Leave the storages of other machines."""
        with self._lock:
            self._is_closed = True
            remote, self._remote = self._remote, {}
        for reached in remote.values():
            reached.store.close()

    def _home_of(self, digest: bytes) -> str:
        """Return the address of the storage that keeps the object of this id."""
        return self._homes[home_of(digest, len(self._homes))].address

    @contextmanager
    def _remote_store(self, address: str) -> Iterator[RemoteStore]:
        """Use the connection to a storage."""
        with self._lock:
            if self._is_closed:
                raise MissingObjectsError("this client was closed before the object was fetched")
            idle = self._take_idle(clock() - IDLE_S, address)
            if address not in self._remote:
                self._remote[address] = _Reached(self._connect(address))
            reached = self._remote[address]
            reached.users += 1
        for store in idle:
            store.close()
        try:
            yield reached.store
        finally:
            with self._lock:
                reached.users -= 1
                reached.used_at = clock()

    def _take_idle(self, since: float, wanted: str = "") -> list[RemoteStore]:
        """Forget the connections that were not used since then; return them."""
        idle = [
            address
            for address, reached in self._remote.items()
            if not reached.users and reached.used_at < since and address != wanted
        ]
        return [self._remote.pop(address).store for address in idle]

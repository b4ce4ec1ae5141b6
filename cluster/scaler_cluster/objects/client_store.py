"""Where a client keeps what it passes to tasks, and finds what they return."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from scaler_cluster.errors import MissingObjects
from scaler_cluster.ids import segment_names
from scaler_cluster.objects.digest import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from scaler_cluster.objects.place import Place
    from scaler_cluster.objects.remote_store import RemoteStore
    from scaler_cluster.objects.segments import Segments


class ClientStore:
    """Maps the segments of this machine, and sends to and fetches from the storages of others.

    ``home`` is the address of the scheduler's storage, ``connect`` makes a connection to one.
    """

    def __init__(
        self, place: Place, peer: bytes, home: str, connect: Callable[[str], RemoteStore]
    ) -> None:
        self._home = home
        self._connect = connect
        self._names = segment_names(peer)
        self._remote: dict[str, RemoteStore] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._segments: Segments | None = None
        if place.is_here:
            # Only where there are such files: it needs more of the system than a client has.
            from scaler_cluster.objects.segments import Segments

            self._segments = Segments(place, peer)

    def write_new(
        self, data: memoryview, known: Container[bytes], *, likely: bool = False
    ) -> tuple[bytes, bytes]:
        """Store bytes unless their digest is known; return their segment, or b"", and the digest.

        If it is ``likely`` known, that is looked at first. Raises StorageFull, StorageUnreachable.
        """
        if self._segments is not None:
            return self._segments.write_new(data, known, likely=likely)
        digest = digest_of(data)
        if digest in known:
            return b"", digest
        segment = next(self._names).encode()
        self._remote_store(self._home).push(segment, data)
        return segment, digest

    def remove(self, segment: bytes) -> None:
        """Remove a segment that nobody was told of; one that was sent goes with this client."""
        if self._segments is not None:
            self._segments.remove(segment)

    def open(self, segment: bytes, address: str) -> memoryview:
        """Return the bytes of a segment, which are this process's own.

        Without an address they are on the scheduler's machine. Raises MissingObjects,
        StorageUnreachable.
        """
        if self._segments is not None and not address:
            return self._segments.open(segment, writable=True)
        if not address and not self._home:
            raise MissingObjects("this client cannot see the machine that holds this object")
        return self._remote_store(address or self._home).fetch(segment)

    def close(self) -> None:
        """Leave the storages of other machines."""
        with self._lock:
            self._is_closed = True
            remote, self._remote = self._remote, {}
        for store in remote.values():
            store.close()

    def _remote_store(self, address: str) -> RemoteStore:
        with self._lock:
            if self._is_closed:
                raise MissingObjects("this client was closed before the object was fetched")
            if address not in self._remote:
                self._remote[address] = self._connect(address)
            return self._remote[address]

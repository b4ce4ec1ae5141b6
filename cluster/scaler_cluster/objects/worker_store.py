"""What a worker maps for the tasks it runs, and stores of what they return."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from scaler_cluster.errors import MissingObjectsError
from scaler_cluster.ids import claim_of
from scaler_cluster.objects.reported_names import ReportedNames
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.wire.batch import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.objects.segments import Segments
    from scaler_cluster.objects.storage_dirs import StorageDirs

MAPPED_MAX = 4096
"""Segments that stay mapped for the next task; a process may have 65,530 mappings."""


class WorkerStore:
    """The objects of one worker.

    ``mapped`` and ``missing`` are the core's: it takes out what the scheduler released, and notes
    what will not come. ``is_home`` is true where clients store objects: these are not waited for.
    """

    def __init__(
        self,
        peer: bytes,
        place: StorageDirs,
        mapped: dict[bytes, memoryview],
        missing: dict[bytes, str],
        *,
        is_home: bool,
    ) -> None:
        self._peer = peer
        self._place = place
        self._mapped = mapped
        self._missing = missing
        self._is_home = is_home
        self.names = ReportedNames(peer)
        """Of the segments that this worker writes; the threads that report them tell it so."""
        self._segments: Segments | None = None
        self._has_claim = False
        self._opening = threading.Lock()
        has_place = bool(place.disk)
        self.keep = payloads.keep_small if has_place else None
        """Raises where a large buffer is pickled, if it can be stored; then :meth:`pickle` does."""
        self._collector = payloads.Collector()
        self.buffers = self._collector.buffers
        """Those of the result that was pickled last, and was not written."""
        self.large = payloads.OBJECT_BYTES if has_place else BATCH_BYTES_MAX
        """A result whose pickle has so many bytes is pickled by :meth:`pickle`."""

    def awaitable(self, stored: tuple[bytes, ...], made: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the segments that may still be on their way to this machine.

        Clients stored the first ones, workers made the others.
        """
        return made if self._is_home else stored + made

    def is_here(self, segment: bytes) -> bool:
        """Map a segment; return False if it is not on this machine."""
        if segment not in self._mapped:
            try:
                self._map(segment)
            except MissingObjectsError:
                return False
        return True

    def map(self, segments: tuple[bytes, ...]) -> list[memoryview]:
        """Return segments as buffers that cannot be written to; raises MissingObjectsError."""
        views = []
        for segment in segments:
            view = self._mapped.get(segment)
            if view is None:
                try:
                    view = self._map(segment)
                except MissingObjectsError:
                    if segment in self._missing:
                        raise MissingObjectsError(self._missing[segment]) from None
                    raise
            views.append(view)
        return views

    def map_once(self, segments: tuple[bytes, ...]) -> list[memoryview]:
        """Return segments that the scheduler did not name: it will not say when to unmap them."""
        mapped, files = self._mapped, self._opened()
        return [mapped.get(segment) or files.open(segment) for segment in segments]

    def _map(self, segment: bytes) -> memoryview:
        view = self._opened().open(segment)
        if len(self._mapped) >= MAPPED_MAX:
            # Whoever uses it keeps it. At once, as another thread may take something out.
            self._mapped.pop(list(self._mapped)[0], None)  # noqa: RUF015
        self._mapped[segment] = view
        return view

    def pickle(self, value: object, stream: bytes | None = None) -> bytes:
        """Pickle a result by all means; its large buffers wait for :meth:`write`.

        A ``stream`` is its pickle, which turned out to be large. Raises PayloadError.
        """
        if not self._place.disk:
            return payloads.dumps(value)
        return payloads.dumps_result(payloads.contiguous(value), self._collector, stream)

    def write(self, payload: bytes) -> tuple[bytes, dict[bytes, int]]:
        """Store the buffers of the result that was pickled; see :meth:`store`.

        Raises StorageFullError. Not to be interrupted: nobody would know what was written.
        """
        try:
            return self._write(payload, self.buffers)
        finally:
            self.buffers.clear()

    def store(self, value: object) -> tuple[bytes, dict[bytes, int]]:
        """Pickle a value and store its large buffers; return pickle and the bytes in each segment.

        Any thread may call it. Raises PayloadError, StorageFullError.
        """
        if not self._place.disk:
            return payloads.dumps(value), {}
        collector = payloads.Collector()
        payload = payloads.dumps_result(payloads.contiguous(value), collector, None)
        return self._write(payload, collector.buffers)

    def claim(self, nbytes: int) -> int:
        """Take so much room for results that live in this worker; return how much it has now."""
        self._has_claim = True
        try:
            return self._opened().claim(claim_of(self._peer), nbytes)
        except FileNotFoundError:
            # The cluster has ended, and its directories are gone.
            return nbytes
        except OSError:
            # Shared memory is so full that not even an empty file fits: the disk is left.
            return 0

    def remove(self, segments: Sequence[bytes]) -> None:
        """Remove results that nobody wants."""
        for segment in segments:
            self._opened().remove(segment)

    def give_up_claim(self) -> None:
        """Give back what room there is for results that live in this worker: it is about to end."""
        if self._has_claim:
            self.claim(0)

    def _write(
        self, payload: bytes, buffers: Sequence[memoryview]
    ) -> tuple[bytes, dict[bytes, int]]:
        payload, packs = payloads.pack(payload, buffers)
        segments: dict[bytes, int] = {}
        try:
            for parts in packs:
                start, last = parts[-1]
                segments[self._opened().write_parts(parts)] = start + last.nbytes
        except BaseException:
            for segment in segments:
                self._opened().remove(segment)
            self.names.reported()
            raise
        return payload, segments

    def _opened(self) -> Segments:
        if self._segments is None:
            # Not at the start: most workers never see an object.
            from scaler_cluster.objects.segments import Segments

            with self._opening:
                if self._segments is None:
                    self._segments = Segments(self._place, self.names)
        return self._segments

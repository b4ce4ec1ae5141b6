"""What a worker maps for the tasks it runs, and stores of what they return."""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING

from scaler_cluster import payload as payloads
from scaler_cluster.errors import MissingObjects
from scaler_cluster.ids import segment_names
from scaler_cluster.wire.batch import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.objects.segments import Segments
    from scaler_cluster.objects.storage_dirs import StorageDirs

MAPPED_MAX = 4096
"""Segments that stay mapped for the next task; a process may have 65,530 mappings."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.0005, 0.02
"""How often it is looked whether a segment has come."""


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
        self._segments: Segments | None = None
        has_place = bool(place.disk)
        self.keep = payloads.keep_small if has_place else None
        """Raises where a large buffer is pickled, if it can be stored; then :meth:`pickle` does."""
        self._collector = payloads.Collector()
        self.buffers = self._collector.buffers
        """Those of the result that was pickled last, and was not written."""
        self.large = payloads.OBJECT_BYTES if has_place else BATCH_BYTES_MAX
        """A result whose pickle has so many bytes is pickled by :meth:`pickle`."""

    def wait_for(
        self,
        stored: tuple[bytes, ...],
        made: tuple[bytes, ...],
        is_wanted: Callable[[], bool],
    ) -> None:
        """Map segments as they come to this machine, as long as somebody wants them.

        Clients stored the first ones, workers made the others. Those that will not come are left
        to :meth:`map`.
        """
        for segment in made if self._is_home else stored + made:
            pause = PAUSE_MIN_S
            while segment not in self._mapped and segment not in self._missing and is_wanted():
                try:
                    self._map(segment)
                except MissingObjects:
                    sleep(pause)
                    pause = min(2 * pause, PAUSE_MAX_S)

    def map(self, segments: tuple[bytes, ...]) -> list[memoryview]:
        """Return segments as buffers that cannot be written to; raises MissingObjects."""
        views = []
        for segment in segments:
            view = self._mapped.get(segment)
            if view is None:
                try:
                    view = self._map(segment)
                except MissingObjects:
                    if segment in self._missing:
                        raise MissingObjects(self._missing[segment]) from None
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
        return payloads.dumps_result(value, self._collector, stream)

    def write(self) -> dict[bytes, int]:
        """Store the buffers of the result that was pickled; return the bytes in each segment.

        Raises StorageFull. Not to be interrupted: nobody would know what was written.
        """
        segments: dict[bytes, int] = {}
        try:
            for buffer in self.buffers:
                segments[self._opened().write(buffer)] = buffer.nbytes
        except BaseException:
            for segment in segments:
                self._opened().remove(segment)
            raise
        finally:
            self.buffers.clear()
        return segments

    def _opened(self) -> Segments:
        if self._segments is None:
            # Not at the start: most workers never see an object.
            from scaler_cluster.objects.segments import Segments

            self._segments = Segments(self._place, segment_names(self._peer))
        return self._segments

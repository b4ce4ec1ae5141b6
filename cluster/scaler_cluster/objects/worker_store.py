"""What a worker maps for the tasks it runs, and stores of what they return."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scaler_cluster import payload as payloads
from scaler_cluster.wire.batch import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from scaler_cluster.objects.segments import Segments
    from scaler_cluster.wire.messages import Welcome


class WorkerStore:
    """The objects of one worker.

    ``mapped`` is the core's: it takes out of it what the scheduler released.
    """

    def __init__(self, peer: bytes, welcome: Welcome, mapped: dict[bytes, memoryview]) -> None:
        self._peer = peer
        self.welcome = welcome
        self._mapped = mapped
        self._segments: Segments | None = None
        is_local = bool(welcome.disk) and Path(welcome.disk).is_dir()
        self.collector = payloads.Collector() if is_local else None
        """Takes the large buffers of results, where they can be stored."""
        self.buffers = self.collector.buffers if self.collector is not None else []
        """Those of the result that was pickled last, and was not written."""
        self.large = payloads.OBJECT_BYTES if is_local else BATCH_BYTES_MAX
        """A result whose pickle has so many bytes is pickled by :meth:`pickle`."""

    def map(self, segments: tuple[bytes, ...]) -> list[memoryview]:
        """Return segments as buffers that cannot be written to; raises MissingObjects."""
        views = []
        for segment in segments:
            view = self._mapped.get(segment)
            if view is None:
                view = self._mapped[segment] = self._place().open(segment)
            views.append(view)
        return views

    def pickle(self, value: object) -> bytes:
        """Pickle a result by all means; its large buffers wait for :meth:`write`.

        Raises PayloadError.
        """
        if self.collector is None:
            return payloads.dumps(value)
        return payloads.dumps_result(value, self.collector)

    def write(self) -> tuple[bytes, ...]:
        """Store the buffers of the result that was pickled; return their segments.

        Raises StorageFull. Not to be interrupted: nobody would know what was written.
        """
        segments: list[bytes] = []
        try:
            for buffer in self.buffers:
                segments.append(self._place().write(buffer))  # noqa: PERF401 - it may raise
        except BaseException:
            for segment in segments:
                self._place().remove(segment)
            raise
        finally:
            self.buffers.clear()
        return tuple(segments)

    def _place(self) -> Segments:
        if self._segments is None:
            # Not at the start: most workers never see an object.
            from scaler_cluster.objects.segments import Segments

            where = self.welcome
            self._segments = Segments(where.memory, where.disk, where.memory_limit, self._peer)
        return self._segments

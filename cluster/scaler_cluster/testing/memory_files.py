"""The segments of a simulated machine, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.errors import MissingObjectsError
from scaler_cluster.ids import DRAFT

if TYPE_CHECKING:
    from scaler_cluster.wire import messages as m


class MemoryFiles:
    """The segments of a machine."""

    def __init__(self, place: m.StorageEndpoint) -> None:
        self.place = place
        self.segments: dict[bytes, bytes] = {}
        """Those that are whole, and drafts."""
        self.is_there = True
        """False once the machine is gone."""

    def write(self, name: bytes, data: bytes) -> None:
        """Write a segment at once, as a process of this machine does."""
        self.segments[name] = data

    def draft(self, name: bytes, nbytes: int) -> MemoryDraft:
        return MemoryDraft(self, name, nbytes)

    def open(self, name: bytes) -> memoryview:
        try:
            return memoryview(self.segments[name])
        except KeyError:
            raise MissingObjectsError(f"there is no segment {name!r}") from None

    def has(self, name: bytes) -> bool:
        return name in self.segments

    def remove(self, name: bytes) -> None:
        self.segments.pop(name, None)
        self.segments.pop(DRAFT + name, None)

    def recycle(self, name: bytes) -> None:
        self.remove(name)

    def drop_recycled(self) -> int:
        # Nothing is kept of them.
        return 0

    def purge(self, prefix: bytes, keep: tuple[bytes, ...]) -> None:
        for name in list(self.segments):
            whole = name.removeprefix(DRAFT)
            if whole.startswith(prefix) and whole not in keep:
                del self.segments[name]

    def inventory(self) -> tuple[bytes, ...]:
        return tuple(self.segments)


class MemoryDraft:
    """A segment that is being written."""

    def __init__(self, files: MemoryFiles, name: bytes, nbytes: int) -> None:
        self._files = files
        self._name = name
        self._data = bytearray(nbytes)
        files.segments[DRAFT + name] = b""

    def write(self, data: memoryview, offset: int) -> None:
        self._data[offset : offset + len(data)] = data

    def finish(self) -> bytes:
        if DRAFT + self._name not in self._files.segments:
            raise FileNotFoundError(f"somebody has removed the draft of {self._name!r}")
        self.discard()
        self._files.segments[self._name] = bytes(self._data)
        return self._name

    def discard(self) -> None:
        self._files.segments.pop(DRAFT + self._name, None)

"""How a segment that comes from elsewhere is written, and what it is written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scaler_cluster.core.storage.transfer import Download
from scaler_cluster.ids import DRAFT

if TYPE_CHECKING:
    from scaler_cluster.wire import messages as m


class Draft(Protocol):
    """A segment that is being written; raises StorageFullError, OSError."""

    def write(self, data: memoryview, offset: int) -> None:
        """Put bytes where they belong."""

    def finish(self) -> bytes:
        """Give the segment its name."""

    def discard(self) -> None:
        """Remove what was written."""


class Files(Protocol):
    """The segments of a machine."""

    def draft(self, name: bytes, nbytes: int) -> Draft:
        """Begin a segment; raises StorageFullError, OSError."""

    def open(self, name: bytes) -> memoryview:
        """Return the bytes of a segment; raises MissingObjectsError."""

    def has(self, name: bytes) -> bool:
        """Return True if there is such a segment."""

    def remove(self, name: bytes) -> None:
        """Remove a segment or draft, if it is there."""

    def recycle(self, name: bytes) -> None:
        """Remove a segment, if it is there; its memory is for the next, until drop_recycled."""

    def drop_recycled(self) -> int:
        """Give the memory of recycled segments back; return its bytes."""

    def purge(self, prefix: bytes, keep: tuple[bytes, ...]) -> None:
        """Remove every segment whose name begins so, whole or draft, but for those to ``keep``."""

    def inventory(self) -> tuple[bytes, ...]:
        """Return the names of all segments and drafts."""


class Intake(Download):
    """A segment that comes from elsewhere, and is written."""

    def __init__(self, files: Files, segment: bytes) -> None:
        super().__init__(segment)
        self._files = files
        self._draft: Draft | None = None

    def write(self, part: m.Part) -> bool:
        """Write a part that the flow has taken in; return True if that was the last one.

        Raises StorageFullError, OSError.
        """
        if self._draft is None:
            # A transfer that was cut off may have left a part of it.
            self._files.remove(DRAFT + part.segment)
            self._draft = self._files.draft(part.segment, part.total)
        self._draft.write(memoryview(part.data), part.offset)
        if self.is_whole:
            self._draft.finish()
            self._draft = None
        return self.is_whole

    def discard(self) -> None:
        """Remove what has come so far; what is still under way is for nobody."""
        self.is_abandoned = True
        if self._draft is not None:
            self._draft.discard()
            self._draft = None

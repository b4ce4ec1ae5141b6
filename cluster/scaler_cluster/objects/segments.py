"""The segments of one machine: each object is a file that every process here maps.

They lie in shared memory as long as there is room (``limit`` bytes for all processes together),
else on disk. A segment is written once, has its name only when it is whole, and never changes, so
nobody waits for a lock to read it. Whoever has mapped one keeps it, removed or not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import TYPE_CHECKING

from scaler_cluster.errors import MissingObjectsError, StorageFullError
from scaler_cluster.ids import DRAFT, is_segment
from scaler_cluster.objects import recycled
from scaler_cluster.objects.mapping import map_file
from scaler_cluster.objects.shared_memory import FULL, SharedMemory

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from scaler_cluster.objects.storage_dirs import StorageDirs

log = logging.getLogger("scaler.objects")

DRAFT_TEXT = DRAFT.decode()
PART_BYTES = 8 << 20
"""Written at once: a signal is answered between two parts."""
PARALLEL_BYTES = 1 << 20
"""From here on the digest is computed by another thread while the data is written."""


class Draft:
    """A segment that is being written: in memory, or on disk once there is no room for it."""

    def __init__(self, segments: Segments, name: str, nbytes: int) -> None:
        self._segments = segments
        self._name = name
        self._nbytes = nbytes
        self._end = 0
        """Where what was written ends."""
        memory = segments.memory
        fd = memory.create(DRAFT_TEXT + name, nbytes) if memory is not None else None
        self._is_in_memory = fd is not None
        if fd is None:
            if _free_bytes(segments.disk) < nbytes:
                # Better now than after gigabytes.
                raise self._full()
            fd = self._open_on_disk()
        self._fd = fd

    def write(self, data: memoryview, offset: int) -> None:
        """Put bytes where they belong; raises StorageFullError."""
        done = 0
        while done < len(data):
            self._end = max(self._end, offset + done)
            try:
                # Not through a mapping: where the memory ends, that would end the process.
                done += os.pwrite(self._fd, data[done : done + PART_BYTES], offset + done)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                if not (self._is_in_memory and self._segments.drop_recycled()):
                    self._move_to_disk(error)

    def finish(self) -> bytes:
        """Give the segment its name, and return that.

        Raises OSError, for example if somebody has removed the draft; then discard it.
        """
        self._close()
        memory, directory = self._segments.memory, self._segments.disk
        if memory is not None and self._is_in_memory:
            directory = memory.directory
        os.rename(f"{directory}/{DRAFT_TEXT}{self._name}", f"{directory}/{self._name}")
        return self._name.encode()

    def discard(self) -> None:
        """Remove what was written."""
        self._close()
        self._segments.remove((DRAFT_TEXT + self._name).encode())

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _full(self) -> StorageFullError:
        segments = self._segments
        return StorageFullError(
            f"no room for an object of {self._nbytes / 1e6:.1f} MB: the {segments.limit / 1e6:.0f} "
            f"MB of memory for objects are in use and {segments.disk} is full"
        )

    def _open_on_disk(self) -> int:
        path = f"{self._segments.disk}/{DRAFT_TEXT}{self._name}"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise self._full() from error

    def _move_to_disk(self, error: OSError) -> None:
        """Go on where there is room; what was written so far is copied."""
        segments = self._segments
        memory = segments.memory
        if memory is None or not self._is_in_memory:
            raise self._full() from error
        segments.warn_of_small_memory()
        memory_fd, self._is_in_memory = self._fd, False
        self._fd = self._open_on_disk()
        try:
            for offset in range(0, self._end, PART_BYTES):
                data = os.pread(memory_fd, min(PART_BYTES, self._end - offset), offset)
                self.write(memoryview(data), offset)
        finally:
            os.close(memory_fd)
            memory.remove(DRAFT_TEXT + self._name, may_recycle=False)


class Segments:
    """Makes, maps and removes segments in two directories, which other processes share.

    ``names`` are for the segments that are made here. The directories are made and removed by the
    cluster.
    """

    def __init__(self, place: StorageDirs, names: Iterator[str]) -> None:
        self.limit = place.memory_limit
        self.memory = SharedMemory(place.memory, self.limit) if place.memory else None
        """None: there is no shared memory."""
        self.disk = place.disk
        """The directory."""
        self._names = names
        self._has_warned = False

    # -- making ------------------------------------------------------------------------------

    def draft(self, name: bytes, nbytes: int) -> Draft:
        """Begin a segment of that name, whose bytes come in parts.

        Raises StorageFullError, OSError.
        """
        return Draft(self, name.decode("ascii"), nbytes)

    def write(self, data: memoryview) -> bytes:
        """Store bytes; return the name of their segment.

        Raises StorageFullError if neither memory nor disk has room for them.
        """
        return self.write_parts([(0, data)])

    def write_parts(self, parts: Sequence[tuple[int, memoryview]]) -> bytes:
        """Store bytes in one segment, each part where it is to begin; see :meth:`write`."""
        start, last = parts[-1]
        draft = Draft(self, next(self._names), start + last.nbytes)
        try:
            end = 0
            for start, data in parts:
                # What is recycled still holds what others wrote.
                draft.write(memoryview(bytes(start - end)), end)
                draft.write(data.cast("B"), start)
                end = start + data.nbytes
            return draft.finish()
        except BaseException:
            draft.discard()
            raise

    def write_new(
        self, data: memoryview, known: Container[bytes], *, likely: bool = False
    ) -> tuple[bytes, bytes]:
        """Store bytes unless their digest is known; return their segment, or b"", and the digest.

        If it is ``likely`` known, that is looked at first. Raises StorageFullError.
        """
        # Workers map segments, and few ever store what may be known: this import takes 5 ms.
        from scaler_cluster.objects.digest import digest_of

        if likely or data.nbytes < PARALLEL_BYTES:
            digest = digest_of(data)
            return (b"" if digest in known else self.write(data)), digest
        # Both let go of the interpreter: together they take as long as the slower one.
        digests: list[bytes] = []
        other = threading.Thread(target=lambda: digests.append(digest_of(data)))
        other.start()
        try:
            name = self.write(data)
        finally:
            other.join()
        if digests[0] in known:
            self.remove(name)
            name = b""
        return name, digests[0]

    def claim(self, name: bytes, nbytes: int) -> int:
        """Count in so much of a process's own memory; return as much of it as there is room for.

        It takes the place of what was claimed under this name before. An empty draft stands for
        it, so it is counted out like all that a dead process leaves.
        """
        return (
            nbytes if self.memory is None else self.memory.claim(DRAFT_TEXT + name.decode(), nbytes)
        )

    def warn_of_small_memory(self) -> None:
        """Say once that there is less shared memory than objects may use."""
        if not self._has_warned and self.memory is not None:
            self._has_warned = True
            log.warning(
                "%s has less room than the %d MB that objects may use: more go to %s",
                self.memory.directory,
                self.limit // 1_000_000,
                self.disk,
            )

    # -- reading -----------------------------------------------------------------------------

    def open(self, name: bytes, *, writable: bool = False) -> memoryview:
        """Map a segment; what is written to a ``writable`` mapping stays in this process.

        Raises MissingObjectsError if there is no such segment.
        """
        fd = self._find(name)
        try:
            return map_file(fd, writable=writable)
        finally:
            os.close(fd)

    def _find(self, name: bytes) -> int:
        text = name.decode("ascii", "replace")
        if is_segment(name):
            if self.memory is not None:
                path = f"{self.memory.directory}/{text}"
                with contextlib.suppress(FileNotFoundError):
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    if recycled.hold(fd, path):
                        return fd
                    os.close(fd)
            with contextlib.suppress(FileNotFoundError):
                return os.open(f"{self.disk}/{text}", os.O_RDONLY | os.O_CLOEXEC)
        raise MissingObjectsError(f"there is no object {text!r:.100} on this machine (any more)")

    def has(self, name: bytes) -> bool:
        """Return True if there is such a segment."""
        try:
            os.close(self._find(name))
        except MissingObjectsError:
            return False
        return True

    # -- removing ----------------------------------------------------------------------------

    def remove(self, name: bytes) -> None:
        """Remove a segment or draft, if it is there."""
        self._remove(name, may_recycle=False)

    def recycle(self, name: bytes) -> None:
        """Remove a segment, and keep its memory for others, until :meth:`drop_recycled`."""
        self._remove(name, may_recycle=True)

    def drop_recycled(self) -> int:
        """Give back the memory of segments that were recycled; return its bytes."""
        return 0 if self.memory is None else self.memory.drop_recycled()

    def _remove(self, name: bytes, *, may_recycle: bool) -> None:
        if not is_segment(name.removeprefix(DRAFT)):
            return
        text = name.decode("ascii")
        if self.memory is None or not self.memory.remove(text, may_recycle=may_recycle):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.disk}/{text}")

    def purge(self, prefix: bytes, keep: tuple[bytes, ...]) -> None:
        """Remove every segment whose name begins so, whole or draft, but for those to ``keep``."""
        for name in self.inventory():
            whole = name.removeprefix(DRAFT)
            if whole.startswith(prefix) and whole not in keep:
                self.remove(name)

    def recount(self) -> None:
        """Count anew what is in memory: a process may have died between a file and its count."""
        if self.memory is not None:
            self.memory.recount()

    def inventory(self) -> tuple[bytes, ...]:
        """Return the names of all segments and drafts."""
        in_memory = [] if self.memory is None else self.memory.names()
        return tuple(name.encode() for name in (*in_memory, *os.listdir(self.disk)))


def _free_bytes(directory: str) -> int:
    """Return how much a file there may take."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize

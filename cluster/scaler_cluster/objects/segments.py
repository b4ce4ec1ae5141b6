"""The segments of one machine: each object is a file that every process here maps.

They lie in shared memory as long as there is room (``limit`` bytes for all processes together),
else on disk. A segment is written once, has its name only when it is whole, and never changes, so
nobody waits for a lock to read it. Whoever has mapped one keeps it, removed or not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import math
import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from scaler_cluster.errors import MissingObjectsError, StorageFullError
from scaler_cluster.ids import DRAFT, is_segment
from scaler_cluster.objects import recycled
from scaler_cluster.objects.digest import digest_of
from scaler_cluster.objects.mapping import map_file

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from scaler_cluster.objects.storage_dirs import StorageDirs

log = logging.getLogger("scaler.objects")

DRAFT_TEXT = DRAFT.decode()
USAGE = "usage"
"""The file that holds the number of bytes in memory, and whose lock guards it."""
PART_BYTES = 8 << 20
"""Written at once: a signal is answered between two parts."""
PARALLEL_BYTES = 1 << 20
"""From here on the digest is computed by another thread while the data is written."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Draft:
    """A segment that is being written: in memory, or on disk once there is no room for it."""

    def __init__(self, segments: Segments, name: str, nbytes: int) -> None:
        self._segments = segments
        self._name = name
        self._nbytes = nbytes
        self._end = 0
        """Where what was written ends."""
        memory = segments.memory
        self._directory = segments.disk
        if memory is not None and segments.reserve(memory, name, nbytes):
            self._directory = memory
        elif shutil.disk_usage(segments.disk).free < nbytes:
            # Better now than after gigabytes.
            raise self._full()
        self._fd = self._open()

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
                in_memory = self._directory == self._segments.memory
                if not (in_memory and self._segments.drop_recycled()):
                    self._move_to_disk(error)

    def finish(self) -> bytes:
        """Give the segment its name, and return that."""
        os.close(self._fd)
        (self._directory / (DRAFT_TEXT + self._name)).rename(self._directory / self._name)
        return self._name.encode()

    def discard(self) -> None:
        """Remove what was written."""
        os.close(self._fd)
        self._segments.remove((DRAFT_TEXT + self._name).encode())

    def _full(self) -> StorageFullError:
        segments = self._segments
        return StorageFullError(
            f"no room for an object of {self._nbytes / 1e6:.1f} MB: the {segments.limit / 1e6:.0f} "
            f"MB of memory for objects are in use and {segments.disk} is full"
        )

    def _open(self) -> int:
        path = self._directory / (DRAFT_TEXT + self._name)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _move_to_disk(self, error: OSError) -> None:
        """Go on where there is room; what was written so far is copied."""
        segments = self._segments
        if self._directory == segments.disk:
            raise self._full() from error
        segments.warn_of_small_memory()
        memory_fd, self._directory = self._fd, segments.disk
        self._fd = self._open()
        try:
            for offset in range(0, self._end, PART_BYTES):
                data = os.pread(memory_fd, min(PART_BYTES, self._end - offset), offset)
                self.write(memoryview(data), offset)
        finally:
            os.close(memory_fd)
            segments.remove((DRAFT_TEXT + self._name).encode(), only_memory=True)


class Segments:
    """Makes, maps and removes segments in two directories, which other processes share.

    ``names`` are for the segments that are made here. The directories are made and removed by the
    cluster.
    """

    def __init__(self, place: StorageDirs, names: Iterator[str]) -> None:
        self.limit = place.memory_limit
        self.memory = Path(place.memory) if place.memory else None
        """Directory in shared memory; None: there is none."""
        self.disk = Path(place.disk)
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
        data = data.cast("B")
        draft = Draft(self, next(self._names), len(data))
        try:
            draft.write(data, 0)
        except BaseException:
            draft.discard()
            raise
        return draft.finish()

    def write_new(
        self, data: memoryview, known: Container[bytes], *, likely: bool = False
    ) -> tuple[bytes, bytes]:
        """Store bytes unless their digest is known; return their segment, or b"", and the digest.

        If it is ``likely`` known, that is looked at first. Raises StorageFullError.
        """
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

    def reserve(self, memory: Path, name: str, nbytes: int) -> bool:
        """Make a draft in memory, and count it in; return False if there is no room for it."""
        path = memory / (DRAFT_TEXT + name)
        with _locked_usage(memory) as usage:
            if path.exists():
                raise FileExistsError(path)
            _put(usage, _get(usage) - recycled.Recycled(memory).take(nbytes, path))
            used = self._make_room(memory, usage, nbytes) + nbytes
            has_room = used <= self.limit
            if has_room:
                path.touch(0o600)
                # Its size tells what is to be counted out, whoever removes it.
                os.truncate(path, nbytes)
                _put(usage, used)
            else:
                path.unlink(missing_ok=True)
        return has_room

    def claim(self, name: bytes, nbytes: int) -> int:
        """Count in so much of a process's own memory; return as much of it as there is room for.

        It takes the place of what was claimed under this name before. An empty draft stands for
        it, so it is counted out like all that a dead process leaves.
        """
        if self.memory is None:
            return nbytes
        path = self.memory / (DRAFT + name).decode("ascii")
        with _locked_usage(self.memory) as usage:
            before = path.stat().st_size if path.exists() else 0
            used = self._make_room(self.memory, usage, nbytes - before) - before
            granted = min(nbytes, max(self.limit - used, 0))
            if granted:
                path.touch(0o600)
                os.truncate(path, granted)
            else:
                path.unlink(missing_ok=True)
            _put(usage, used + granted)
        return granted

    def _make_room(self, memory: Path, usage: int, nbytes: int) -> int:
        """Give recycled memory back until so many bytes have room; return the bytes in use."""
        used = _get(usage)
        used -= recycled.Recycled(memory).drop(used + nbytes - self.limit)
        _put(usage, used)
        return used

    def warn_of_small_memory(self) -> None:
        """Say once that there is less shared memory than objects may use."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s has less room than the %d MB that objects may use: more go to %s",
                self.memory,
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
            for directory in (self.memory, self.disk):
                if directory is not None:
                    with contextlib.suppress(FileNotFoundError):
                        fd = os.open(directory / text, os.O_RDONLY | os.O_CLOEXEC)
                        if directory is self.disk or recycled.hold(fd, directory / text):
                            return fd
                        os.close(fd)
        raise MissingObjectsError(f"there is no object {text!r:.100} on this machine (any more)")

    # -- removing ----------------------------------------------------------------------------

    def remove(self, name: bytes, *, only_memory: bool = False) -> None:
        """Remove a segment or draft, if it is there."""
        self._remove(name, only_memory=only_memory, may_recycle=False)

    def recycle(self, name: bytes) -> None:
        """Remove a segment, and keep its memory for others, until :meth:`drop_recycled`."""
        self._remove(name, only_memory=False, may_recycle=True)

    def drop_recycled(self) -> int:
        """Give back the memory of segments that were recycled; return its bytes."""
        if self.memory is None:
            return 0
        with _locked_usage(self.memory) as usage:
            nbytes = recycled.Recycled(self.memory).drop(math.inf)
            _put(usage, _get(usage) - nbytes)
        return nbytes

    def _remove(self, name: bytes, *, only_memory: bool, may_recycle: bool) -> None:
        if not is_segment(name.removeprefix(DRAFT)):
            return
        text = name.decode("ascii")
        in_memory = self.memory is not None and _remove_from_memory(
            self.memory, text, may_recycle=may_recycle
        )
        if not in_memory and not only_memory:
            (self.disk / text).unlink(missing_ok=True)

    def purge(self, prefix: bytes, keep: tuple[bytes, ...]) -> None:
        """Remove every segment and draft whose name begins so, but for some."""
        text = prefix.decode("ascii")
        spared = {name.decode("ascii") for name in keep}
        for name in self._find_names():
            if name.removeprefix(DRAFT_TEXT).startswith(text) and name not in spared:
                self.remove(name.encode())

    def has(self, name: bytes) -> bool:
        """Return True if there is such a segment."""
        try:
            os.close(self._find(name))
        except MissingObjectsError:
            return False
        return True

    def recount(self) -> None:
        """Count anew what is in memory: a process may have died between a file and its count."""
        if self.memory is None:
            return
        with _locked_usage(self.memory) as usage:
            while True:
                try:
                    nbytes = sum(path.stat().st_size for path in _files(self.memory))
                    nbytes += recycled.Recycled(self.memory).nbytes
                except FileNotFoundError:
                    # A draft got its name meanwhile.
                    continue
                _put(usage, nbytes)
                return

    def inventory(self) -> tuple[bytes, ...]:
        """Return the names of all segments and drafts."""
        return tuple(name.encode() for name in self._find_names())

    def _find_names(self) -> list[str]:
        directories = [one for one in (self.memory, self.disk) if one is not None]
        return [path.name for one in directories for path in _files(one)]


def _remove_from_memory(directory: Path, name: str, *, may_recycle: bool) -> bool:
    """Remove a file, and count it out unless its memory is kept; return False: it is not there."""
    with _locked_usage(directory) as usage:
        path = directory / name
        try:
            nbytes = path.stat().st_size
        except FileNotFoundError:
            return False
        if not (may_recycle and recycled.Recycled(directory).add(path)):
            path.unlink()
            _put(usage, _get(usage) - nbytes)
    return True


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name not in (USAGE, recycled.DIRECTORY)]


@contextlib.contextmanager
def _locked_usage(directory: Path) -> Iterator[int]:
    fd = os.open(directory / USAGE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def _get(usage: int) -> int:
    return int.from_bytes(os.pread(usage, 8, 0), "little")


def _put(usage: int, nbytes: int) -> None:
    os.pwrite(usage, max(nbytes, 0).to_bytes(8, "little"), 0)

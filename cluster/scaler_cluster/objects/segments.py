"""The segments of one machine: each object is a file that every process here maps.

They lie in shared memory as long as there is room (``limit`` bytes for all processes together),
else on disk. A segment is written once, has its name only when it is whole, and never changes, so
nobody needs a lock to read it. Whoever has mapped one keeps it, removed or not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import logging
import mmap
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from scaler_cluster.errors import MissingObjects, StorageFull
from scaler_cluster.ids import OBJECT_ID_BYTES, segment_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("scaler.objects")

USAGE = "usage"
"""The file that holds the number of bytes in memory, and whose lock guards it."""
DRAFT = "draft-"
"""The name of what is being written begins so."""
PART_BYTES = 8 << 20
"""Written at once: a signal is answered between two parts."""
PARALLEL_BYTES = 1 << 20
"""From here on the digest is computed by another thread while the data is written."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Segments:
    """Makes, maps and removes segments in two directories, which other processes share.

    ``memory`` is empty where there is no shared memory. ``owner`` begins the name of each segment
    that is made here. The directories are made and removed by the cluster.
    """

    def __init__(self, memory: str, disk: str, limit: int, owner: bytes) -> None:
        self.limit = limit
        self._memory = Path(memory) if memory else None
        self._disk = Path(disk)
        self._prefix = segment_prefix(owner).decode()
        self._numbers = itertools.count()
        self._has_warned = False

    # -- making ------------------------------------------------------------------------------

    def write(self, data: memoryview) -> bytes:
        """Store bytes; return the name of their segment.

        Raises StorageFull if neither memory nor disk has room for them.
        """
        name = f"{self._prefix}{next(self._numbers):x}"
        data = data.cast("B")
        if not self._write_to_memory(name, data):
            self._write_to_disk(name, data)
        return name.encode()

    def write_hashed(self, data: memoryview) -> tuple[bytes, bytes]:
        """Store bytes as :meth:`write` does; return the segment's name and the bytes' digest."""
        if data.nbytes < PARALLEL_BYTES:
            return self.write(data), digest_of(data)
        # Both let go of the interpreter: together they take as long as the slower one.
        digests: list[bytes] = []
        other = threading.Thread(target=lambda: digests.append(digest_of(data)))
        other.start()
        try:
            name = self.write(data)
        finally:
            other.join()
        return name, digests[0]

    def _write_to_memory(self, name: str, data: memoryview) -> bool:
        """Return False if there is no room."""
        directory = self._memory
        if directory is None or not self._reserve(directory, name, len(data)):
            return False
        try:
            _fill(directory, name, data)
        except BaseException as error:
            self._remove_from_memory(directory, DRAFT + name)
            if not _is_full(error):
                raise
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "%s has less room than the %d MB that objects may use: more go to %s",
                    directory,
                    self.limit // 1_000_000,
                    self._disk,
                )
            return False
        return True

    def _write_to_disk(self, name: str, data: memoryview) -> None:
        try:
            _fill(self._disk, name, data)
        except BaseException as error:
            (self._disk / (DRAFT + name)).unlink(missing_ok=True)
            if not _is_full(error):
                raise
            raise StorageFull(
                f"no room for an object of {len(data) / 1e6:.1f} MB: the {self.limit / 1e6:.0f} MB "
                f"of memory for objects are in use and {self._disk} is full"
            ) from error

    # -- reading -----------------------------------------------------------------------------

    def open(self, name: bytes, *, writable: bool = False) -> memoryview:
        """Map a segment; what is written to a ``writable`` mapping stays in this process.

        Raises MissingObjects if there is no such segment.
        """
        fd = self._find(name)
        try:
            kind = mmap.ACCESS_COPY if writable else mmap.ACCESS_READ
            return memoryview(mmap.mmap(fd, 0, access=kind))
        finally:
            os.close(fd)

    def _find(self, name: bytes) -> int:
        text = name.decode("ascii", "replace")
        if text and "/" not in text and not text.startswith((DRAFT, USAGE)):
            for directory in (self._memory, self._disk):
                if directory is not None:
                    with contextlib.suppress(FileNotFoundError):
                        return os.open(directory / text, os.O_RDONLY | os.O_CLOEXEC)
        raise MissingObjects(f"there is no object {text!r:.100} on this machine (any more)")

    # -- removing ----------------------------------------------------------------------------

    def remove(self, name: bytes) -> None:
        """Remove a segment, if it is there."""
        text = name.decode("ascii")
        if self._memory is None or not self._remove_from_memory(self._memory, text):
            (self._disk / text).unlink(missing_ok=True)

    def purge(self, prefix: bytes, keep: tuple[bytes, ...]) -> None:
        """Remove every segment and draft whose name begins so, but for some."""
        text = prefix.decode("ascii")
        spared = {name.decode("ascii") for name in keep}
        for name in self._names():
            if name.removeprefix(DRAFT).startswith(text) and name not in spared:
                self.remove(name.encode())

    def inventory(self) -> tuple[bytes, ...]:
        """Return the names of all segments and drafts."""
        return tuple(name.encode() for name in self._names())

    def _names(self) -> list[str]:
        directories = [one for one in (self._memory, self._disk) if one is not None]
        names = [path.name for one in directories for path in one.iterdir()]
        return [name for name in names if name != USAGE]

    def _remove_from_memory(self, directory: Path, name: str) -> bool:
        with _locked_usage(directory) as usage:
            path = directory / name
            try:
                nbytes = path.stat().st_size
            except FileNotFoundError:
                return False
            path.unlink()
            _put(usage, _get(usage) - nbytes)
        return True

    # -- counting ----------------------------------------------------------------------------

    @property
    def nbytes_in_memory(self) -> int:
        """Return how much memory all segments of this machine take together."""
        if self._memory is None:
            return 0
        with _locked_usage(self._memory) as usage:
            return _get(usage)

    def _reserve(self, directory: Path, name: str, nbytes: int) -> bool:
        """Make a draft in memory, and count it in, if there is room for it."""
        with _locked_usage(directory) as usage:
            used = _get(usage) + nbytes
            if used > self.limit:
                return False
            fd = os.open(directory / (DRAFT + name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                # Its size tells what is to be counted out, whoever removes it.
                os.ftruncate(fd, nbytes)
            finally:
                os.close(fd)
            _put(usage, used)
        return True


def digest_of(data: memoryview) -> bytes:
    """Return the digest that names this content."""
    return blake3(data, max_threads=blake3.AUTO).digest(OBJECT_ID_BYTES)


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in FULL


def _fill(directory: Path, name: str, data: memoryview) -> None:
    draft = directory / (DRAFT + name)
    # Not through a mapping: where the memory ends, that would end the process.
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done : done + PART_BYTES], done)
    finally:
        os.close(fd)
    draft.rename(directory / name)


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
    os.pwrite(usage, nbytes.to_bytes(8, "little"), 0)

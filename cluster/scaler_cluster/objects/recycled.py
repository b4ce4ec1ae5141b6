"""Segments of shared memory that nobody needs any more, kept for the next ones of their size.

Their pages are there already: to write to them takes a third of the time that new pages take, and
they need not be given back. A segment must not change for those that still map it, so whoever maps
one holds a shared lock of its file, and only who gets the exclusive one may use it again. Linux
gives a lock up when the last descriptor is closed and the last mapping is gone, also if a process
is killed. Where it is otherwise, nothing is kept.

All is called under the lock of the count of the memory.
"""

from __future__ import annotations

import fcntl
import os
from functools import cache
from typing import TYPE_CHECKING

from scaler_cluster.objects.mapping import map_file

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY = "recycled"
"""Beside the segments."""
NBYTES_MIN = 256 * 1024
"""Smaller ones are not worth the search."""
COUNT_MAX = 64
"""More are not kept: each search reads their names."""
NEAR = 4
"""A file serves if its size differs from the wanted one by one part in so many at most."""


def hold(fd: int, path: Path) -> bool:
    """Keep an open segment from being used again; return False if this is not its name any more."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


class Recycled:
    """The files of removed segments that one directory of segments keeps."""

    def __init__(self, memory: Path) -> None:
        self._directory = memory / DIRECTORY

    def add(self, path: Path) -> bool:
        """Keep a segment that is to be removed, unless it is not worth it."""
        status = path.stat()
        if status.st_size < NBYTES_MIN:
            return False
        try:
            self._directory.mkdir(0o700, exist_ok=True)
            if not _mapping_holds_lock(self._directory) or len(self._sizes()) >= COUNT_MAX:
                return False
            # Whatever else bore the number of this file is gone.
            path.rename(self._directory / f"{status.st_size}-{status.st_ino}")
        except OSError:
            # Shared memory is so full that no name fits.
            return False
        return True

    def take(self, nbytes: int, path: Path) -> int:
        """Let a file of about so many bytes be there, if possible; return bytes to count out."""
        out = 0
        if nbytes < NBYTES_MIN:
            return out
        near = [one for one in self._sizes() if NEAR * abs(one[0] - nbytes) <= nbytes]
        for size, file in sorted(near, key=lambda one: abs(one[0] - nbytes)):
            out += size
            if _is_free(file):
                file.rename(path)
                break
            file.unlink()
        return out

    def drop(self, nbytes: float) -> int:
        """Remove files of so many bytes together, or all; return bytes to count out."""
        out = 0
        if nbytes <= 0:
            return out
        for size, file in self._sizes():
            if out >= nbytes:
                break
            file.unlink()
            out += size
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(size for size, _ in self._sizes())

    def _sizes(self) -> list[tuple[int, Path]]:
        try:
            files = list(self._directory.iterdir())
        except FileNotFoundError:
            return []
        return [(int(path.name.partition("-")[0]), path) for path in files]


def _is_free(path: Path) -> bool:
    """Return True if no process has mapped a file."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@cache
def _mapping_holds_lock(directory: Path) -> bool:
    """Return True if a lock of a file lasts as long as a mapping, as it does on Linux."""
    # Should it be left behind, it counts as empty.
    path = directory / "0-probe"
    path.write_bytes(b"x")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            is_held = hold(fd, path)
            view = map_file(fd, writable=False)
        finally:
            os.close(fd)
        is_held &= not _is_free(path)
        view.release()
        return is_held
    finally:
        path.unlink()

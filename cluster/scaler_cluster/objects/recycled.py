"""Segments of shared memory that nobody needs any more, kept for the next ones of their size.

Their pages are there already: to write to them takes a third of the time that new pages take, and
they need not be given back. A segment must not change for those that still map it, so whoever maps
one holds a shared lock of its file, and only who gets the exclusive one may use it again. Linux
gives a lock up when the last descriptor is closed and the last mapping is gone, also if a process
is killed. Where it is otherwise, nothing is kept.

All is called under the lock of the count of the memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from functools import cache

from scaler_cluster.objects.mapping import map_file

DIRECTORY = "recycled"
"""Beside the segments."""
NBYTES_MIN = 256 * 1024
"""Smaller ones are not worth the search."""
COUNT_MAX = 64
"""More are not kept: each search reads their names."""
NEAR = 4
"""A file serves if its size differs from the wanted one by one part in so many at most."""


def hold(fd: int, path: str) -> bool:
    """Keep an open segment from being used again; return False if this is not its name any more."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


class Recycled:
    """The files of removed segments that one directory of segments keeps."""

    def __init__(self, memory: str) -> None:
        self._directory = os.path.join(memory, DIRECTORY)

    def add(self, path: str) -> bool:
        """Keep a segment that is to be removed, unless it is not worth it."""
        status = os.stat(path)
        if status.st_size < NBYTES_MIN:
            return False
        try:
            if not _mapping_holds_lock(self._directory) or len(self._sizes()) >= COUNT_MAX:
                return False
            # Whatever else bore the number of this file is gone.
            os.rename(path, f"{self._directory}/{status.st_size}-{status.st_ino}")
        except OSError:
            # Shared memory is so full that no name fits.
            return False
        return True

    def take(self, nbytes: int, path: str) -> int:
        """Let a file of about so many bytes be there, if possible; return bytes to count out."""
        out = 0
        if nbytes < NBYTES_MIN:
            return out
        near = [one for one in self._sizes() if NEAR * abs(one[0] - nbytes) <= nbytes]
        for size, file in sorted(near, key=lambda one: abs(one[0] - nbytes)):
            try:
                os.rename(file, path)
            except FileNotFoundError:
                # A process that was stopped under the lock is not alone.
                continue
            out += size
            # Not before: from now on nobody else takes it.
            if _is_free(path):
                break
            os.unlink(path)
        return out

    def drop(self, nbytes: float) -> int:
        """Remove files of so many bytes together, or all; return bytes to count out."""
        out = 0
        if nbytes <= 0:
            return out
        for size, file in self._sizes():
            if out >= nbytes:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)
                out += size
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(size for size, _ in self._sizes())

    def _sizes(self) -> list[tuple[int, str]]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return [(int(name.partition("-")[0]), f"{self._directory}/{name}") for name in names]


def _is_free(path: str) -> bool:
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
def _mapping_holds_lock(directory: str) -> bool:
    """Make a directory; return True if a lock lasts as long as a mapping there, as on Linux."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    # Should it be left behind, it counts as empty.
    path = f"{directory}/0-probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b"x")
        is_held = hold(fd, path)
        view = map_file(fd, writable=False)
    finally:
        os.close(fd)
    try:
        is_held &= not _is_free(path)
        view.release()
        return is_held
    finally:
        os.unlink(path)

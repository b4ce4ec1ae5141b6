"""The files of one machine's segments that lie in shared memory, and the count of their bytes.

All processes that share the directory count in it together, under one lock. Paths are plain text:
a graph may make and remove ten thousand files a second.

A process may be stopped while it has the lock. Then another one puts a copy of the file of the
count in its place, and everybody goes on with that. What is done to files is right without the lock
as well: each has one owner, and each step is one call of the system. Only the count may be wrong
then, so who finds at the end that its file was replaced counts anew.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import math
import os
import threading
import time
from dataclasses import dataclass
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.objects import recycled
from scaler_cluster.objects.recycled import Recycled

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("scaler.objects")

LOCK_WAIT_S = 1.0
"""Who holds the lock for longer is stopped: it is needed for microseconds."""
PAUSE_MIN_S, PAUSE_MAX_S = 20e-6, 1e-3
"""How long who waits for the lock sleeps between two looks."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The system's numbers of the errors that say that there is no room."""
USAGE = "usage"
"""The file that holds the number of bytes in use, and whose lock guards it."""


@dataclass
class _Count:
    """What is written back to the file of the count."""

    used: int


class SharedMemory:
    """Makes and removes files in a directory of shared memory, up to ``limit`` bytes together."""

    def __init__(self, directory: str, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self._usage = os.path.join(directory, USAGE)
        self._recycled = Recycled(directory)

    def create(self, name: str, nbytes: int) -> int | None:
        """Make a file, and count it in; return its descriptor, None if there is no room for it."""
        path = os.path.join(self.directory, name)
        with self._locked() as count:
            if os.path.exists(path):
                raise FileExistsError(path)
            count.used -= self._recycled.take(nbytes, path)
            self._make_room(count, nbytes)
            if count.used + nbytes > self.limit:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                return None
            fd = _make(path, nbytes)
            if fd is None:
                # There may be as many files as the file system holds.
                count.used -= self._recycled.drop(math.inf)
                fd = _make(path, nbytes)
            if fd is not None:
                count.used += nbytes
        return fd

    def claim(self, name: str, nbytes: int) -> int:
        """Let an empty file stand for so many bytes of a process's own memory; return its size.

        That is less if there is less room. It takes the place of the file of this name.
        """
        path = os.path.join(self.directory, name)
        with self._locked() as count:
            before = _size(path) or 0
            self._make_room(count, nbytes - before)
            granted = min(nbytes, max(self.limit - count.used + before, 0))
            fd = _make(path, granted) if granted else None
            if fd is not None:
                os.close(fd)
            else:
                granted = 0
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            count.used += granted - before
        return granted

    def remove(self, name: str, *, may_recycle: bool) -> bool:
        """Remove a file, and count it out unless its memory is kept; return False: not there."""
        path = os.path.join(self.directory, name)
        with self._locked() as count:
            nbytes = _size(path)
            if nbytes is None:
                return False
            try:
                if not (may_recycle and self._recycled.add(path)):
                    os.unlink(path)
                    count.used -= nbytes
            except FileNotFoundError:
                return False
        return True

    def drop_recycled(self) -> int:
        """Give back the memory of what was recycled; return its bytes."""
        with self._locked() as count:
            nbytes = self._recycled.drop(math.inf)
            count.used -= nbytes
        return nbytes

    def recount(self) -> None:
        """Count anew: a process may have died between a file and its count."""
        with self._locked() as count:
            while True:
                sizes = [_size(os.path.join(self.directory, name)) for name in self.names()]
                if None not in sizes:
                    break
                # A draft got its name meanwhile.
            count.used = sum(filter(None, sizes)) + self._recycled.nbytes

    def names(self) -> list[str]:
        """Return the names of all files that were made here."""
        found = os.listdir(self.directory)
        return [one for one in found if one != recycled.DIRECTORY and not one.startswith(USAGE)]

    def _make_room(self, count: _Count, nbytes: int) -> None:
        """Give recycled memory back until so many bytes more have room, if that is enough."""
        count.used -= self._recycled.drop(count.used + nbytes - self.limit)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[_Count]:
        fd = self._lock()
        try:
            before = int.from_bytes(os.pread(fd, 8, 0), "little")
            count = _Count(before)
            try:
                yield count
            finally:
                if count.used != before:
                    os.pwrite(fd, max(count.used, 0).to_bytes(8, "little"), 0)
        finally:
            was_replaced = not os.fstat(fd).st_nlink
            os.close(fd)
            if was_replaced and os.path.isdir(self.directory):
                self.recount()

    def _lock(self) -> int:
        """Open the file of the count, and lock it; return its descriptor."""
        inode, until, pause_s = -1, 0.0, PAUSE_MIN_S
        while True:
            fd = os.open(self._usage, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                now, found = clock(), os.fstat(fd).st_ino
                if found != inode:
                    inode, until = found, now + LOCK_WAIT_S
                elif now >= until:
                    self._replace(fd)
                os.close(fd)
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            else:
                return fd

    def _replace(self, held: int) -> None:
        """Put a copy in the place of the file of the count, which a stopped process has locked."""
        copy = f"{self._usage}.{os.getpid()}.{threading.get_ident()}"
        fd = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, os.pread(held, 8, 0), 0)
        finally:
            os.close(fd)
        # Another one may have done it just now. If two do it, the first counts anew.
        if os.stat(self._usage).st_ino == os.fstat(held).st_ino:
            os.rename(copy, self._usage)
            log.warning(
                "the count of %s was locked for %g s, by a process that is stopped: the others go "
                "on without it",
                self.directory,
                LOCK_WAIT_S,
            )
        else:
            os.unlink(copy)


def _make(path: str, nbytes: int) -> int | None:
    """Let a file of so many bytes be there; return its descriptor, None if no file has room.

    The size tells what is to be counted out, whoever removes the file.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return None
    try:
        os.ftruncate(fd, nbytes)
    except OSError:
        os.close(fd)
        raise
    return fd


def _size(path: str) -> int | None:
    """Return the bytes of a file, None if it is not there."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None

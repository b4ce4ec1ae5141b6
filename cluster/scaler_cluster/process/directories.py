"""The private directories of a cluster on one machine: made, held, removed, also after a crash.

There is one for sockets and for objects on disk, and one of the same name in shared memory. Every
process that looks after them locks a file in the first. If nobody has the lock, the cluster died
with all its processes, or with the machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from scaler_cluster.errors import ConfigError
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.process.process import need_linux

PREFIX = "scaler-"
HELD = "held"
"""Name of the file that is locked as long as one of the cluster's processes lives."""
DYING_S = 1.0
"""A process that was killed has released its locks within this time."""
LOOK_S = 0.02
_parent = os.getppid()
_held: dict[str, int] = {}
"""Locks of this process by directory: its end releases them."""


@dataclass(frozen=True)
class ClusterDirs:
    """The names of a cluster's directories, whether they have been made yet or not."""

    directory: str
    """For sockets."""
    storage: StorageDirs
    """For objects: in ``directory``, and in shared memory."""

    @classmethod
    def named(cls, memory_limit: int | None = None, name: str = "") -> ClusterDirs:
        """Return directories of that name, by default a new one.

        Raises ConfigError where there can be no cluster.
        """
        need_linux()
        # A child does not need these imports: its parent has named the directories.
        import secrets
        import tempfile

        directory = str(Path(tempfile.gettempdir()) / f"{PREFIX}{name or secrets.token_hex(8)}")
        return cls(directory, StorageDirs.in_directory(directory, memory_limit))

    def make(self) -> None:
        """Make the directories, which no other user can read, and hold them.

        Raises ConfigError if one cannot be made, or is there already.
        """
        for directory in (self.directory, self.storage.memory, self.storage.disk):
            if directory:
                try:
                    Path(directory).mkdir(mode=0o700)
                except OSError as error:
                    raise ConfigError(f"cannot make {directory}: {error.strerror}") from error
        self.hold()

    def hold(self) -> None:
        """Keep the directories as long as this process lives; no effect if they are not there."""
        import fcntl

        with contextlib.suppress(FileNotFoundError):
            held = Path(self.directory) / HELD
            fd = os.open(held, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_SH)
            before = _held.pop(self.directory, -1)
            _held[self.directory] = fd
            if before >= 0:
                os.close(before)

    def remove(self) -> None:
        """Remove the directories: the process that made them may have died before."""
        _remove(self.storage.memory, self.directory)
        self.release()

    def release(self) -> None:
        """Hold the directories no longer: a child that ends may remove them."""
        fd = _held.pop(self.directory, -1)
        if fd >= 0:
            os.close(fd)

    def let_go(self, *, is_last: bool = False) -> None:
        """Remove the directories unless another process holds them.

        Waits a moment for the other processes if they are about to end as well. That is so if the
        parent has died, and for the process that ``is_last`` where all end in order.
        """
        import fcntl

        # They may not have been there when this process began.
        self.hold()
        until = time.monotonic() + DYING_S
        while (fd := _held.get(self.directory)) is not None:
            with contextlib.suppress(BlockingIOError):
                # A lock that cannot be changed is lost: so the last holder finds no other one.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.remove()
                return
            are_ending = is_last or os.getppid() != _parent
            if not are_ending or time.monotonic() > until:
                return
            # A process that was killed may still have its lock, and still be a parent.
            time.sleep(LOOK_S)

    def remove_stale(self) -> None:
        """Remove the directories of other clusters here that have no living process."""
        import fcntl

        memory = self.storage.memory
        for held in Path(self.directory).parent.glob(f"{PREFIX}*/{HELD}"):
            stale = held.parent
            with contextlib.suppress(OSError):
                if stale.stat().st_uid != os.getuid():
                    continue
                fd = os.open(held, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    name = stale.name.removesuffix(".removed")
                    _remove(str(Path(memory).with_name(name)) if memory else "", str(stale))
                finally:
                    os.close(fd)


def _remove(*directories: str) -> None:
    import shutil  # at the end of a process, not at its start

    for path in filter(None, directories):
        # Moved away first: a worker that is about to end must not put anything in any more.
        removed = Path(path.removesuffix(".removed") + ".removed")
        with contextlib.suppress(OSError):
            Path(path).rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


def _release_all() -> None:
    """Close the locks of a process that forked this one: the child looks after nothing."""
    while _held:
        os.close(_held.popitem()[1])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_all)

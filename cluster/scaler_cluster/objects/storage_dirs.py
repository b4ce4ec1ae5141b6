"""Where the objects of a machine lie."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from scaler_cluster.wire.messages import StorageEndpoint

SHARED_MEMORY_VARIABLE = "SCALER_SHARED_MEMORY"
"""Names another tmpfs than /dev/shm, which is tiny in some containers."""
MEMORY_SHARE = 0.8
"""What of the machine's shared memory objects may take, unless it is said otherwise."""


@dataclass(frozen=True)
class StorageDirs:
    """Two directories of a machine: who can see them maps what is in them."""

    memory: str = ""
    """In shared memory; empty: there is none."""
    disk: str = ""
    """For what finds no room in memory; empty: no objects are kept."""
    memory_limit: int = 0
    """Bytes that all objects may take in memory together."""

    @classmethod
    def in_directory(cls, directory: str, memory_limit: int | None = None) -> StorageDirs:
        """Return a new place: its disk in a process's private directory, its memory beside it."""
        shared = Path(os.environ.get(SHARED_MEMORY_VARIABLE, "/dev/shm"))  # noqa: S108
        memory, limit = "", 0
        if shared.is_dir():
            memory = str(shared / Path(directory).name)
            if shared.resolve() == Path(directory).parent.resolve():
                # Who sets TMPDIR=/dev/shm, or shared memory to a temporary directory, has only one.
                memory = str(Path(directory) / "memory")
            room = os.statvfs(shared)
            limit = int(room.f_blocks * room.f_frsize * MEMORY_SHARE)
            limit = limit if memory_limit is None else memory_limit
        return cls(memory, str(Path(directory) / "objects"), limit)

    @classmethod
    def of(cls, home: StorageEndpoint) -> StorageDirs:
        """Return where a storage keeps its objects."""
        return cls(home.memory, home.disk, home.memory_limit)

    def served_at(self, address: str) -> StorageEndpoint:
        """Return what others are told of this place; an empty address: nobody serves it."""
        return StorageEndpoint(address, self.memory, self.disk, self.memory_limit)

    @property
    def exists(self) -> bool:
        """Return True if the directories are there, as they are until their cluster has ended."""
        directories = filter(None, (self.disk, self.memory))
        return bool(self.disk) and all(os.access(one, os.F_OK) for one in directories)

    @property
    def is_here(self) -> bool:
        """Return True if this process maps what is there: on this machine, as the same user.

        Root could write there, but the storage could not use what root has made. Machines that do
        not run Linux have clients only, whose objects go through the socket.
        """
        return (
            sys.platform == "linux"
            and self.exists
            and all(map(_is_own, filter(None, (self.disk, self.memory))))
        )


def _is_own(directory: str) -> bool:
    try:
        is_ours = Path(directory).stat().st_uid == os.geteuid()
    except OSError:
        return False
    return is_ours and os.access(directory, os.R_OK | os.W_OK | os.X_OK)

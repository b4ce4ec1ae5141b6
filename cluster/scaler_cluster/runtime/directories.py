"""The private directories of a cluster on one machine: made, held, removed, also after a crash.

There is one for sockets and for objects on disk, and one of the same name in shared memory. A file
in the first is locked by every process that looks after them: if nobody has the lock, a cluster
died with all its processes, or with the machine.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from scaler_cluster.errors import ConfigError
from scaler_cluster.objects.storage_dirs import StorageDirs

PREFIX = "scaler-"
HELD = "held"
"""Name of the file whose lock tells that somebody is there."""
_held: list[int] = []
"""Locks of this process: the end of it lets them go."""


def name_directories(memory_limit: int | None = None, name: str = "") -> dict[str, Any]:
    """Return settings that name directories which are to be made; by default new ones."""
    # Not at the start of those whose parent has named them.
    import secrets
    import tempfile
    from dataclasses import asdict

    directory = str(Path(tempfile.gettempdir()) / f"{PREFIX}{name or secrets.token_hex(8)}")
    place = StorageDirs.in_directory(directory, memory_limit)
    return {"directory": directory, "place": asdict(place)}


def make_directories(settings: dict[str, Any]) -> None:
    """Make the directories, which nobody else can read, and hold them.

    Raises ConfigError if one cannot be made, or is there already.
    """
    place = settings["place"]
    for directory in (settings["directory"], place["memory"], place["disk"]):
        if directory:
            try:
                Path(directory).mkdir(mode=0o700)
            except OSError as error:
                raise ConfigError(f"cannot make {directory}: {error.strerror}") from error
    hold_directories(settings)


def hold_directories(settings: dict[str, Any]) -> None:
    """Let them live as long as this process does, whoever else dies; if they are there yet."""
    import fcntl

    with contextlib.suppress(FileNotFoundError):
        held = Path(settings["directory"]) / HELD
        fd = os.open(held, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_SH)
        _held.append(fd)


def remove_directories(settings: dict[str, Any]) -> None:
    """Remove them: the parent of this process may have died before."""
    _remove(settings["place"]["memory"], settings["directory"])


def remove_stale_directories(settings: dict[str, Any]) -> None:
    """Remove what clusters left here of which no process is left."""
    import fcntl

    memory = settings["place"]["memory"]
    for held in Path(settings["directory"]).parent.glob(f"{PREFIX}*/{HELD}"):
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


def _remove(memory: str, directory: str) -> None:
    import shutil  # at the end of a process, not at its start

    for path in filter(None, (memory, directory)):
        # Moved away first: a worker that is about to end must not put anything in any more.
        removed = Path(path.removesuffix(".removed") + ".removed")
        with contextlib.suppress(OSError):
            Path(path).rename(removed)
        shutil.rmtree(removed, ignore_errors=True)

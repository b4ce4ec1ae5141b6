"""What every process of a cluster does at its birth: settings, lifeline, address, death."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from scaler_cluster.errors import ConfigError

PYTHON_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PR_SET_PDEATHSIG = 1
LIFELINE_FD = 0
"""Standard input: one line of settings, then nothing, until the parent is gone."""
READY_FD_VARIABLE = "SCALER_READY_FD"
"""Names the pipe on which a child says that it is ready, or why it is not."""


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def make_peer_id(role: str) -> bytes:
    """Return a new peer id; ``role`` is its letter."""
    return role.encode() + os.urandom(12)


def read_settings() -> dict[str, Any]:
    """Return the settings that the parent wrote to standard input.

    Unbuffered and to the end of the line only: the rest of the pipe is the lifeline. Ends the
    process if the parent is gone already.
    """
    line = bytearray()
    while (byte := os.read(LIFELINE_FD, 1)) != b"\n":
        if not byte:
            raise SystemExit(1)
        line += byte
    settings: dict[str, Any] = json.loads(line)
    return settings


def say_ready(**news: object) -> None:
    """Tell the parent that this process is ready (``address=``) or cannot be (``error=``).

    A parent that is gone is told nothing: the lifeline ends this process soon.
    """
    fd = int(os.environ.pop(READY_FD_VARIABLE))
    with contextlib.suppress(BrokenPipeError), os.fdopen(fd, "wb") as pipe:
        pipe.write(json.dumps(news).encode() + b"\n")


def make_directories(settings: dict[str, Any]) -> None:
    """Make the private directories of a cluster, which nobody else can read.

    Raises ConfigError if one cannot be made, or is there already.
    """
    place = settings.get("place") or {}
    for directory in (settings.get("directory"), place.get("memory"), place.get("disk")):
        if directory:
            try:
                Path(directory).mkdir(mode=0o700)
            except OSError as error:
                raise ConfigError(f"cannot make {directory}: {error.strerror}") from error


def remove_directories(settings: dict[str, Any]) -> None:
    """Remove the private directories of a cluster: its parent may have died before."""
    import shutil  # at the end of a process, not at its start

    place = settings.get("place") or {}
    for directory in (place.get("memory"), settings.get("directory")):
        if directory:
            # Moved away first: a worker that is about to end must not put anything in any more.
            removed = Path(directory + ".removed")
            with contextlib.suppress(OSError):
                Path(directory).rename(removed)
            shutil.rmtree(removed, ignore_errors=True)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; it ends now if that has happened.

    Linux only, elsewhere without effect.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

"""What every process of a cluster does at its birth: settings, lifeline, address, death."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

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


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; it ends now if that has happened.

    Linux only, elsewhere without effect.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

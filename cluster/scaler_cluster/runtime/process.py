"""What every process of a cluster does at its birth: settings, lifeline, address, death."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

PYTHON_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PR_SET_PDEATHSIG = 1
LIFELINE_FD = 0
"""Standard input: one line of settings, then nothing, until the parent is gone."""
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
PORT_MAX = 65535
READY_FD_VARIABLE = "SCALER_READY_FD"
"""Names the pipe on which a child says that it is ready, or why it is not."""


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def address_after(address: str, steps: int, suffix: str = "") -> str:
    """Return the address that stands ``steps`` ports after another, or ``suffix`` after a path.

    Port 0, any free one, if there is none.
    """
    if address.startswith("ipc://"):
        return f"{address}{suffix}"
    host, _, port = address.rpartition(":")
    number = int(port) + steps
    return f"{host}:{number if int(port) and number <= PORT_MAX else 0}"


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


def lifeline_of_signals() -> int:
    """Return a descriptor that comes to its end with the first SIGINT or SIGTERM.

    For a process that nobody else started; another signal ends it at once. Whoever started it with
    SIGINT ignored wants that. Until then each signal that has a handler sends a byte.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    # A signal that comes just before a wait would else be handled only after it.
    signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)

    def end(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        # Not closed: children may have a copy.
        ours.shutdown(socket.SHUT_RDWR)

    for number in numbers:
        signal.signal(number, end)
    return theirs.detach()


def log_as_told(settings: dict[str, Any], level: str = "WARNING", *, suffix: str = "") -> None:
    """Let the engine's log go where the settings say; if they do not, to stderr from a level on.

    The root logger is left alone: in a worker it is the tasks'. ``suffix`` makes the names of files
    this process's own.
    """
    told = settings.get("logging")
    if told is not None:
        from scaler_cluster.logs import setup_logger  # embedded clusters log nothing

        setup_logger(told["paths"], told["config_file"], told["level"], suffix=suffix)
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        logger = logging.getLogger("scaler")
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False


def allow_many_files() -> None:
    """Let this process open as many files as it may: each worker and each client is one or two."""
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def pid_space() -> str:
    """Name the system and the namespace that this process's pid counts in; empty: unknown."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    return ""


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; it ends now if that has happened.

    Linux only, elsewhere without effect.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

"""What every process of a cluster does when it starts: configuration, lifeline, addresses."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from scaler_cluster.errors import ConfigError
from scaler_cluster.ids import PEER_RANDOM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

C = TypeVar("C")
PYTHON_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PR_SET_PDEATHSIG = 1
LIFELINE_FD = 0
"""Standard input: the record that says what to do, then nothing, until the parent is gone."""
LENGTH_BYTES = 4
"""The length of the record comes first, in so many bytes."""
PORT_MAX = 65535
READY_FD_VARIABLE = "SCALER_READY_FD"
"""The environment variable with the pipe on which a child says whether it is ready."""


def need_linux() -> None:
    """Raise ConfigError where no process of a cluster runs; clients run everywhere."""
    if sys.platform != "linux":
        raise ConfigError(
            f"a cluster runs on Linux, and this system is {sys.platform!r}: start one there, and "
            'pass its address, as in ScalerExecutor(address="tcp://host:8516"), or '
            'Client("tcp://host:8516")'
        )


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def address_after(address: str, steps: int, suffix: str = "") -> str:
    """Return the address that is ``steps`` ports after another, or the path with a ``suffix``.

    The port is 0, for any free one, if there is no such port.
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
    return role.encode() + os.urandom(PEER_RANDOM_BYTES)


def write_config(stream: IO[bytes], config: object) -> None:
    """Tell a child what to do: a record of ``process_config.py`` on its standard input."""
    data = pickle.dumps(config)
    stream.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    stream.flush()


def read_config(kind: type[C]) -> C:
    """Return the record that the parent wrote to standard input.

    Reads no byte more: the rest of the pipe is the lifeline. Ends the process if the parent is gone
    already.
    """
    length = int.from_bytes(_read(LENGTH_BYTES), "big")
    config = pickle.loads(_read(length))
    if not isinstance(config, kind):
        raise TypeError(f"this process needs a {kind.__name__}, not a {type(config).__name__}")
    return config


def _read(length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = os.read(LIFELINE_FD, length - len(data))
        if not part:
            raise SystemExit(1)
        data += part
    return data


@dataclass(frozen=True)
class Ready:
    """What a process reports once it is ready: where others reach it."""

    address: str = ""
    """Of a dashboard it is the link."""
    monitor_address: str = ""
    storage_address: str = ""
    """Of the storage beside a scheduler; empty: there is none, or nobody has to reach it."""


def say_ready(ready: Ready) -> None:
    """Tell the parent that this process is ready."""
    _report(asdict(ready))


def say_error(text: str) -> None:
    """Tell the parent why this process cannot work."""
    _report({"error": text})


def _report(news: dict[str, str]) -> None:
    # A parent that is gone hears nothing: the lifeline ends this process soon.
    fd = int(os.environ.pop(READY_FD_VARIABLE))
    with contextlib.suppress(BrokenPipeError), os.fdopen(fd, "wb") as pipe:
        pipe.write(json.dumps(news).encode() + b"\n")


def lifeline_of_signals() -> int:
    """Return a descriptor that comes to its end with the first SIGINT or SIGTERM.

    For a process that no other one looks after. A second signal ends it at once. If the process was
    started with SIGINT ignored, it ignores SIGINT. Each signal that has a handler sends a byte.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    # Without it, a signal that comes just before a wait would be handled only after the wait.
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


def allow_many_files(reserve: int = 0) -> None:
    """Let this process open as many files as the system allows: each peer needs one or two.

    A ``reserve`` of them can be opened only :func:`with_the_last_files`.
    """
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        kept = reserve if most != resource.RLIM_INFINITY and reserve < most // 2 else 0
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most - kept, most))


@contextlib.contextmanager
def with_the_last_files() -> Iterator[None]:
    """Let all threads of this process open also those files that were kept back."""
    if sys.platform == "win32":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def pid_space() -> str:
    """Name the system and the namespace that this process's pid counts in; empty: unknown."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    return ""


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; end now if the parent has died.

    Linux only, elsewhere without effect.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

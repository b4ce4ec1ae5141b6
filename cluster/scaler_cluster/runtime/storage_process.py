"""The object storage of a machine, as a child of its scheduler or supervisor."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

from scaler_cluster.errors import ConfigError

LOOK_S = 1.0
"""How often it is looked whether the storage runs."""
BACKLOG = 128
STOP_S = 2.0
"""A storage that has not ended by itself after this is killed."""


class StorageProcess:
    """Starts the storage, again if it died, and ends it.

    ``listener`` is what it listens on, if anybody else needs it: this process keeps it open, so the
    next storage has the same address, and whoever connects meanwhile waits.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        listener: socket.socket | None,
        supervisor: bytes = b"",
        known_as: str = "",
    ) -> None:
        self.look_at = 0.0
        """When :meth:`look_after` is next due."""
        self.listener = listener
        names = ("address", "directory", "place")
        self._settings = {name: settings.get(name) for name in names} | {
            "serve": address_of(listener),
            "known_as": known_as,
            "listener": listener.fileno() if listener is not None else -1,
            "supervisor": supervisor.hex(),
        }
        self._child: subprocess.Popen[bytes] | None = None

    def look_after(self, now: float) -> bool:
        """Start it unless it runs; return True if it had died."""
        self.look_at = now + LOOK_S
        if self._child is not None and self._child.poll() is None:
            return False
        had_died = self._child is not None
        self._child = subprocess.Popen(
            [sys.executable, "-m", "scaler_cluster.runtime.storage"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(self.listener.fileno(),) if self.listener is not None else (),
        )
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(self._settings).encode() + b"\n")
        self._child.stdin.flush()
        return had_died

    def stop(self) -> None:
        """End it."""
        if self.listener is not None:
            self.listener.close()
        if self._child is not None:
            assert self._child.stdin is not None
            self._child.stdin.close()
            try:
                self._child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


def listen_beside(scheduler: str) -> socket.socket | None:
    """Return what the storage beside a scheduler listens on, at any free port of its address.

    None if only processes that see its files can reach the scheduler.
    """
    if not scheduler.startswith("tcp://"):
        return None
    return _listen(scheduler.rpartition(":")[0].removeprefix("tcp://").strip("[]"))


def listen_at(address: str) -> socket.socket | None:
    """Return what listens at an address, or None if it is somebody else's, or elsewhere.

    Raises ConfigError if it is no address of TCP.
    """
    host, port = check_address(address)
    try:
        return _listen(host, port)
    except OSError:
        return None


def check_address(address: str) -> tuple[str, int]:
    """Return host and port of a storage's address; raises ConfigError if it has none."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not address.startswith("tcp://") or not host or not port.isdecimal():
        raise ConfigError(f"an object storage's address is tcp://host:port, not {address!r}")
    return host.strip("[]"), int(port)


def listen_towards(scheduler: str) -> socket.socket:
    """Return what a storage listens on that is to be reached from where the scheduler is."""
    host, _, port = scheduler.removeprefix("tcp://").rpartition(":")
    with socket.socket(_family(host), socket.SOCK_DGRAM) as probe:
        # Sends nothing: it only chooses the way, and with it this machine's address on it.
        probe.connect((host.strip("[]"), int(port)))
        return _listen(probe.getsockname()[0])


def address_of(listener: socket.socket | None) -> str:
    """Return the address of a listener; empty without one."""
    if listener is None:
        return ""
    host, port = listener.getsockname()[:2]
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _listen(host: str, port: int = 0) -> socket.socket:
    listener = socket.socket(_family(host))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET

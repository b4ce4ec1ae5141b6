"""The object storage of a machine, as a child of its scheduler or supervisor."""

from __future__ import annotations

import ipaddress
import json
import socket
import subprocess
import sys
from typing import Any

LOOK_S = 1.0
"""How often it is looked whether the storage runs."""
STOP_S = 2.0
"""A storage that has not ended by itself after this is killed."""


class StorageProcess:
    """Starts the storage, again if it died, and ends it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.look_at = 0.0
        """When :meth:`look_after` is next due."""
        self._settings = settings
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
        )
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(self._settings).encode() + b"\n")
        self._child.stdin.flush()
        return had_died

    def stop(self) -> None:
        """End it."""
        if self._child is not None:
            assert self._child.stdin is not None
            self._child.stdin.close()
            try:
                self._child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


def storage_address(scheduler: str) -> str:
    """Return where the storage beside a scheduler is to listen.

    Empty if only this machine reaches the scheduler: here nobody needs to ask for segments.
    """
    host = scheduler.rpartition(":")[0].removeprefix("tcp://")
    if not scheduler.startswith("tcp://") or ipaddress.ip_address(host.strip("[]")).is_loopback:
        return ""
    return _free_address(host)


def serving_address(scheduler: str) -> str:
    """Return where a storage on this machine can be reached by those who reach a scheduler."""
    host, _, port = scheduler.removeprefix("tcp://").rpartition(":")
    kind = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        # Sends nothing: it only chooses the way, and with it this machine's address on it.
        probe.connect((host.strip("[]"), int(port)))
        name = probe.getsockname()[0]
    return _free_address(f"[{name}]" if kind == socket.AF_INET6 else name)


def _free_address(host: str) -> str:
    kind = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(kind) as probe:
        probe.bind((host.strip("[]"), 0))
        return f"tcp://{host}:{probe.getsockname()[1]}"

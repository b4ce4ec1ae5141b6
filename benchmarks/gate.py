"""Holds workers at a known point, so that what is submitted meanwhile stays queued."""

from __future__ import annotations

import socket

from benchmarks.tasks import HELD

HOLD_TIMEOUT_S = 30.0
"""A worker that is free but has not begun a task by then never will."""


class Gate:
    """A listening socket to which :func:`benchmarks.tasks.hold` connects, one worker each."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(HOLD_TIMEOUT_S)
        self._held: list[socket.socket] = []

    @property
    def address(self) -> tuple[str, int]:
        """What to pass to the task."""
        host, port = self._server.getsockname()
        return host, port

    def await_one(self) -> None:
        """Return when one more worker is held; raises TimeoutError."""
        connection, _ = self._server.accept()
        self._held.append(connection)
        if connection.recv(len(HELD)) != HELD:
            raise ConnectionError("somebody else connected to the gate")

    def release(self) -> None:
        """Let all held workers go; idempotent."""
        while self._held:
            self._held.pop().close()

    def close(self) -> None:
        """Let all go and listen no more; for :func:`contextlib.closing`."""
        self.release()
        self._server.close()

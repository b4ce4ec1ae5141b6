"""What a task prints, on its way to the client."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from scaler_cluster.payload import sendable

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_CHARS = 8192
"""Text is sent in pieces of about this, or when the task ends."""


class TaskOutput:
    """A context in which ``sys.stdout`` and ``sys.stderr`` go to a callback."""

    def __init__(self, send: Callable[[str, str], None]) -> None:
        self._streams = {name: _Stream(name, send) for name in ("stdout", "stderr")}

    def __enter__(self) -> None:
        """Divert the streams."""
        self._saved = sys.stdout, sys.stderr
        sys.stdout = self._streams["stdout"]
        sys.stderr = self._streams["stderr"]

    def __exit__(self, *_: object) -> None:
        """Send the rest and put the streams back."""
        sys.stdout, sys.stderr = self._saved
        for stream in self._streams.values():
            stream.flush()


class _Stream(io.TextIOBase):
    """Text that is collected and sent in pieces."""

    def __init__(self, name: str, send: Callable[[str, str], None]) -> None:
        self._name = name
        self._send = send
        self._parts: list[str] = []
        self._chars = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for start in range(0, len(text), CHUNK_CHARS):
            part = text[start : start + CHUNK_CHARS]
            self._parts.append(part)
            self._chars += len(part)
            if self._chars >= CHUNK_CHARS:
                self.flush()
        return len(text)

    def flush(self) -> None:
        if self._parts:
            text = "".join(self._parts)
            self._parts.clear()
            self._chars = 0
            self._send(self._name, sendable(text))

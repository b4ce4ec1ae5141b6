"""What a task prints, on its way to the client."""

from __future__ import annotations

import codecs
import io
import sys
from typing import TYPE_CHECKING, TextIO

from scaler_cluster.texts import sendable

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES = 64 * 1024
"""Text is sent in pieces of at most this; small prints are collected until they make 8 KiB, or
the task ends."""


class TaskOutput:
    """A context in which ``sys.stdout`` and ``sys.stderr`` go to a callback."""

    def __init__(self, send: Callable[[str, str], None]) -> None:
        self._send = send

    def __enter__(self) -> None:
        """Divert the streams."""
        self._saved = sys.stdout, sys.stderr
        self._streams = [DivertedStream(name, self._send) for name in ("stdout", "stderr")]
        sys.stdout, sys.stderr = self._streams

    def __exit__(self, *_: object) -> None:
        """Send the rest and put the streams back."""
        sys.stdout, sys.stderr = self._saved
        for stream in self._streams:
            stream.flush()
            stream.sink.send = None


class DivertedStream(io.TextIOWrapper):
    """A text stream like any other, whose bytes go to a callback as text."""

    def __init__(self, name: str, send: Callable[[str, str], None]) -> None:
        self.sink = _Sink(name, send)
        raw = io.BufferedWriter(self.sink)  # type: ignore[type-var]
        super().__init__(raw, encoding="utf-8", errors="backslashreplace", newline="\n")


class _Sink(io.RawIOBase):
    def __init__(self, name: str, send: Callable[[str, str], None]) -> None:
        self.send: Callable[[str, str], None] | None = send
        """Takes the text; None once the task is over: then it goes to the worker's own stream."""
        self._name = name
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]
        piece = bytes(data[:PIECE_BYTES])
        text = self._decode(piece)
        if self.send is not None:
            self.send(self._name, sendable(text))
        elif own := getattr(sys, f"__{self._name}__"):
            own.write(text)
        return len(piece)


def undivert() -> None:
    """Let a forked child of a task print to the worker's own streams."""
    if isinstance(sys.stdout, DivertedStream):
        sys.stdout = _own(sys.__stdout__)
    if isinstance(sys.stderr, DivertedStream):
        sys.stderr = _own(sys.__stderr__)


def _own(stream: TextIO | None) -> TextIO:
    assert stream is not None
    return stream

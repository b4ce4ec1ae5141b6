"""What a task prints and logs, on its way to the client."""

from __future__ import annotations

import codecs
import io
import sys
import threading
from collections import deque
from time import sleep
from typing import TYPE_CHECKING, Any, TextIO

from scaler_cluster.process import log_records
from scaler_cluster.process.log_records import RecordSender
from scaler_cluster.texts import sendable

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

PIECE_BYTES = 64 * 1024
"""Text is sent in pieces of at most this size. Small prints are collected until they make 8 KiB,
or until the task ends."""
PAUSE_S = 0.004
"""A task whose output finds no room tries again after this time."""
listeners: list[Callable[[str, TextIO], None]] = []
"""Are told of each stream, and its name, to which tasks print from now on."""
_senders: list[Sender] = []
"""What sends the output of the task that runs; empty: it goes to the worker's own streams."""


class Sender:
    """Sends texts in order, whichever thread they come from.

    ``try_send`` sends one, or returns False if there is no room for it now. ``lock`` is held by the
    thread that uses the worker's core. A finalizer may be called in that thread just then, and
    print or log: its text is sent with the next one, or by :meth:`flush`.
    """

    def __init__(self, try_send: Callable[[str, str], bool], lock: Any) -> None:
        self._try_send = try_send
        self._waiting: deque[tuple[str, str]] = deque()
        self._turn: Any = threading.RLock()
        self._lock = lock

    def __call__(self, stream: str, text: str) -> None:
        """Send a text; waits until there is room."""
        self._waiting.append((stream, text))
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
        if self._turn._is_owned() or self._lock._is_owned():
            return
        with self._turn:
            while self._waiting:
                stream, text = self._waiting.popleft()
                while not self._try_send(stream, text):
                    sleep(PAUSE_S)


class TaskOutput:
    """A context in which what is printed, and logged from a level on, goes to the client.

    ``streams`` says whether ``sys.stdout`` and ``sys.stderr`` do; ``log_level`` is 0 if no record
    does.
    """

    def __init__(self, sender: Sender, *, streams: bool, log_level: int) -> None:
        self._sender = sender
        self._diverts = streams
        self._streams: list[DivertedStream] = []
        self._saved = sys.stdout, sys.stderr
        self._records = RecordSender(sender, log_level) if log_level else None

    def __enter__(self) -> None:
        """Divert the streams, and listen to the root logger."""
        _senders[:] = [self._sender]
        if self._diverts:
            self._streams = [DivertedStream("stdout"), DivertedStream("stderr")]
            sys.stdout, sys.stderr = self._streams
            for listen in listeners:
                listen("stdout", sys.stdout)
                listen("stderr", sys.stderr)
        if self._records is not None:
            self._records.__enter__()

    def __exit__(self, *_: object) -> None:
        """Send the rest and put everything back.

        May be called again, as this or the beginning may have been interrupted.
        """
        if self._records is not None:
            self._records.__exit__()
        sys.stdout, sys.stderr = self._saved
        for stream in self._streams:
            # Who listens to it has hidden its method, in a circle of references.
            vars(stream).pop("write", None)
            stream.flush()
        self._sender.flush()
        _senders.clear()


class DivertedStream(io.TextIOWrapper):
    """A text stream like any other, whose bytes go to the client of the task that runs, as text.

    Code that keeps it, such as a handler of logging, prints to the client of the next task when
    that runs.
    """

    def __init__(self, name: str) -> None:
        raw = io.BufferedWriter(_Sink(name))
        super().__init__(raw, encoding="utf-8", errors="backslashreplace", newline="\n")


class _Sink(io.RawIOBase):
    def __init__(self, name: str) -> None:
        self._name = name
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        piece = bytes(memoryview(data)[:PIECE_BYTES])
        text = self._decode(piece)
        if _senders:
            _senders[0](self._name, sendable(text))
        elif own := getattr(sys, f"__{self._name}__"):
            own.write(text)
        return len(piece)


def undivert() -> None:
    """Let a forked child of a task print and log to the worker's own streams."""
    _senders.clear()
    log_records.stop()
    if isinstance(sys.stdout, DivertedStream):
        sys.stdout = _own(sys.__stdout__)
    if isinstance(sys.stderr, DivertedStream):
        sys.stderr = _own(sys.__stderr__)


def _own(stream: TextIO | None) -> TextIO:
    assert stream is not None
    return stream

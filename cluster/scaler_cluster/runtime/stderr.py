"""The workers' stderr: passed on to the supervisor's own, and its end kept for error messages."""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import threading

TAIL_BYTES = 8192
"""How much is kept of each worker's stderr: enough for a faulthandler dump or a long traceback."""
READ_BYTES = 65536
PIECES_MAX = 256
"""How many reads may wait to be passed on: 16 MiB of text."""
LAST_WRITE_S = 4.0
"""On a machine that is full, a second is not enough. A supervisor has five for its end."""
LAST_READS_MAX = 64
"""A process that the worker started may write for ever, so reading ends after this many reads."""


class Passage:
    """Writes to this process's own stderr, in a thread: the reader of that may not keep up."""

    def __init__(self) -> None:
        self._pieces: queue.Queue[bytes] = queue.Queue(PIECES_MAX)
        self._thread: threading.Thread | None = None

    def send(self, data: bytes) -> None:
        """Pass data on; if the reader does not keep up for long, data is dropped."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="scaler-stderr", daemon=True)
            self._thread.start()
        with contextlib.suppress(queue.Full):
            self._pieces.put_nowait(data)

    def close(self) -> None:
        """Wait, but not for long, until all data is passed on."""
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._pieces.put_nowait(b"")
            self._thread.join(LAST_WRITE_S)

    def _work(self) -> None:
        while data := self._pieces.get():
            with contextlib.suppress(OSError):
                while data:
                    data = data[os.write(2, data) :]


class WorkerStderr:
    """Reads one worker's stderr until :meth:`close`; a keeper of one end of a pipe."""

    def __init__(self, fd: int, selector: selectors.BaseSelector, passage: Passage) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._passage = passage
        self._selector = selector
        self._tail = b""
        self._open = True
        selector.register(fd, selectors.EVENT_READ, self.read)

    def read(self) -> None:
        """Pass on what the worker has written."""
        if self._open:
            self._read_once()

    def _read_once(self) -> bool:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(self._fd)
            os.close(self._fd)
            self._open = False
            return False
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        self._passage.send(data)
        return True

    def close(self) -> str:
        """Pass on the worker's last words, close the pipe, and return the end of the text."""
        for _ in range(LAST_READS_MAX):
            if not self._open or not self._read_once():
                break
        if self._open:
            # A process that the worker started still has the other end.
            self._selector.unregister(self._fd)
            os.close(self._fd)
            self._open = False
        return self._tail.decode(errors="replace")

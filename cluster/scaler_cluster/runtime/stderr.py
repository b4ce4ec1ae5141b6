"""The workers' stderr: passed on to the supervisor's own, its end kept for a diagnosis."""

from __future__ import annotations

import contextlib
import os
import selectors

TAIL_BYTES = 8192
"""What is kept of each worker's stderr: room for a faulthandler dump or a long traceback."""
READ_BYTES = 65536
LAST_READS_MAX = 64
"""A process that the worker started may write on for ever."""


class WorkerStderr:
    """Reads one worker's stderr until :meth:`close`; a keeper of one end of a pipe."""

    def __init__(self, fd: int, selector: selectors.BaseSelector) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._selector = selector
        self._tail = b""
        self._open = True
        selector.register(fd, selectors.EVENT_READ, self.read)

    def read(self) -> None:
        """Pass on what is there."""
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
        with contextlib.suppress(OSError):
            os.write(2, data)
        return True

    def close(self) -> str:
        """Pass on the worker's last words, let go of the pipe, and return the end of the text."""
        for _ in range(LAST_READS_MAX):
            if not self._open or not self._read_once():
                break
        if self._open:
            # A process that the worker started has the other end still.
            self._selector.unregister(self._fd)
            os.close(self._fd)
            self._open = False
        return self._tail.decode(errors="replace")

"""What tasks printed and logged comes out at the client, in order, whoever takes it in."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque

from scaler_cluster.process import log_records
from scaler_cluster.wire import messages as m

WAITING_CHARS_MAX = 1 << 26
"""What tasks printed and nobody has shown yet: a slow terminal must not fill the memory."""


class TaskPrinter:
    """Writes to the ``sys.stdout`` and ``sys.stderr`` of the moment, or hands on to loggers."""

    def __init__(self) -> None:
        self._waiting: deque[m.Output] = deque()
        self._chars = 0
        self._dropped_chars = 0
        self._counting = threading.Lock()
        self._printing = threading.Lock()

    def add(self, output: m.Output) -> None:
        """Take in what a task printed, after what came before it."""
        with self._counting:
            if self._chars > WAITING_CHARS_MAX:
                self._dropped_chars += len(output.text)
            else:
                self._chars += len(output.text)
                self._waiting.append(output)

    def print_all(self) -> None:
        """Write what was taken in; no lock must be held."""
        # Another thread that prints will come to this as well: do not wait for its terminal.
        while self._waiting and self._printing.acquire(blocking=False):
            try:
                for one in self._take():
                    # A stream that is closed or broken here must not cost a result.
                    with contextlib.suppress(Exception):
                        _show(one)
            finally:
                self._printing.release()

    def _take(self) -> list[m.Output]:
        with self._counting:
            outputs, dropped = list(self._waiting), self._dropped_chars
            self._waiting.clear()
            self._chars = self._dropped_chars = 0
        if dropped:
            text = f"\n[scaler: {dropped} characters came too fast to be shown]\n"
            outputs.append(m.Output(0, "stderr", text))
        return outputs


def _show(output: m.Output) -> None:
    if output.stream == log_records.STREAM:
        log_records.handle(output.text)
        return
    stream = sys.stdout if output.stream == "stdout" else sys.stderr
    stream.write(output.text)
    stream.flush()

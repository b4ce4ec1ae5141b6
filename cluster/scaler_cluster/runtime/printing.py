"""What tasks printed and logged comes out at the client, in order, whoever takes it in."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING

from scaler_cluster.runtime import records
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.client import ClientCore


class TaskPrinter:
    """Writes to the ``sys.stdout`` and ``sys.stderr`` of the moment, or hands on to loggers."""

    def __init__(self, core: ClientCore, lock: threading.Lock) -> None:
        self._core = core
        self._lock = lock
        self._printing = threading.Lock()

    def print_all(self) -> None:
        """Write what has come; the lock must not be held."""
        # Another thread that prints will come to this as well: do not wait for its terminal.
        while self._core.printed and self._printing.acquire(blocking=False):
            try:
                with self._lock:
                    outputs, dropped = self._core.take_printed()
                if dropped:
                    text = f"\n[scaler: {dropped} characters came too fast to be shown]\n"
                    outputs.append(m.Output(0, "stderr", text))
                for output in outputs:
                    # A stream that is closed or broken here must not cost a result.
                    with contextlib.suppress(Exception):
                        _show(output)
            finally:
                self._printing.release()


def _show(output: m.Output) -> None:
    if output.stream == records.STREAM:
        records.handle(output.text)
        return
    stream = sys.stdout if output.stream == "stdout" else sys.stderr
    stream.write(output.text)
    stream.flush()

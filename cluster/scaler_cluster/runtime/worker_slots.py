"""Memory that a supervisor shares with its workers: what each of them runs, whatever it becomes.

It is mapped before the first worker is forked. A worker writes into its own slot, and only the
supervisor reads it: also after the worker was killed, or while it is stuck in C code.
"""

from __future__ import annotations

import mmap

from scaler_cluster.core.worker.slot import (
    SLOT_READY,
    SLOT_SESSION,
    SLOT_TASK,
    SLOT_TRACE,
    SLOT_WORDS,
    SLOT_WORK,
)
from scaler_cluster.runtime.stderr import TAIL_BYTES

WORD_BYTES = 8


class WorkerSlots:
    """A slot for each worker that a machine may have at once."""

    def __init__(self, count: int) -> None:
        # At least one: no mapping is empty.
        count = max(count, 1)
        self._words = memoryview(mmap.mmap(-1, count * SLOT_WORDS * WORD_BYTES)).cast("Q")
        # The traceback of each worker whose initializer fails: what a worker writes to stderr is
        # passed on at once, and all of them fail alike. Takes no memory before it is written.
        self._traces = mmap.mmap(-1, count * TAIL_BYTES)

    def of(self, slot: int) -> memoryview:
        """Return the words of a slot, for the worker that writes them."""
        base = slot * SLOT_WORDS
        return self._words[base : base + SLOT_WORDS]

    def clear(self, slot: int) -> None:
        """Forget what the worker before wrote here."""
        self.of(slot)[:] = memoryview(bytes(SLOT_WORDS * WORD_BYTES)).cast("Q")

    def is_ready(self, slot: int) -> bool:
        """Return True if the worker was ever ready for tasks."""
        return bool(self.of(slot)[SLOT_READY])

    def ran(self, slot: int) -> tuple[int, int, int]:
        """Return session, task and number of the work that the worker runs, or ran last."""
        words = self.of(slot)
        return words[SLOT_SESSION], words[SLOT_TASK], words[SLOT_WORK]

    def keep_trace(self, slot: int, text: str) -> None:
        """Keep the traceback of an initializer that failed; called by the worker."""
        trace = text.encode(errors="replace")[-TAIL_BYTES:]
        start = slot * TAIL_BYTES
        self._traces[start : start + len(trace)] = trace
        self.of(slot)[SLOT_TRACE] = len(trace)

    def trace(self, slot: int) -> str:
        """Return the traceback of the worker's initializer; empty if that did not fail."""
        start = slot * TAIL_BYTES
        end = start + self.of(slot)[SLOT_TRACE]
        return self._traces[start:end].decode(errors="replace")

"""Names for the segments of a worker or client, and which of them the scheduler was told of."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from scaler_cluster.ids import segment_names

if TYPE_CHECKING:
    from typing_extensions import Self


class ReportedNames:
    """An iterator over names for segments; each thread says when those that it took are reported.

    Threads may share it.
    """

    def __init__(self, owner: bytes) -> None:
        self._names = segment_names(owner)
        self._next = 0
        """Number of the next name."""
        self._first: dict[int, int] = {}
        """Number of the first name that each thread has taken and not reported yet."""
        self._lock = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        with self._lock:
            self._first.setdefault(threading.get_ident(), self._next)
            self._next += 1
            return next(self._names)

    def reported(self, thread: int | None = None) -> None:
        """All that a thread has taken was reported, or never will be; None: this thread."""
        with self._lock:
            self._first.pop(threading.get_ident() if thread is None else thread, None)

    @property
    def first(self) -> int:
        """Number of the first name that may still be reported."""
        with self._lock:
            return min([self._next, *self._first.values()])

"""Futures with callbacks, which may be what the task that submitted them waits for."""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future

LOOK_S = 0.05
"""A callback that has not been called for so long may be what its task waits for, in a way that
nobody can see: an event loop, or an event."""


class CallbackWatch:
    """Tells whether a task waits for callbacks, for all we know."""

    def __init__(self) -> None:
        self.look_at = math.inf
        """When :meth:`look` has something to do."""
        self._lock = threading.Lock()
        self._tracked: deque[tuple[float, Future[Any]]] = deque()
        """Futures with a callback, and when to look whether it was called."""
        self._awaited: list[Future[Any]] = []
        """Those whose callbacks have not been called for long."""

    def track(self, future: Future[Any], now: float) -> bool:
        """Look after a future that is to call somebody; return True if that is sooner than all."""
        look_at = now + LOOK_S
        with self._lock:
            self._tracked.append((look_at, future))
            is_first = look_at < self.look_at
            self.look_at = min(self.look_at, look_at)
            return is_first

    def look(self, now: float) -> int:
        """Return 1 if a task waits for callbacks from now on, -1 if no more, 0 if all is as it was.

        Called by one thread.
        """
        if now < self.look_at:
            return 0
        with self._lock:
            before = bool(self._awaited)
            while self._tracked and self._tracked[0][0] <= now:
                self._awaited.append(self._tracked.popleft()[1])
            self._awaited = [future for future in self._awaited if not future.done()]
            is_idle = not (self._awaited or self._tracked)
            self.look_at = math.inf if is_idle else now + LOOK_S
            return bool(self._awaited) - before

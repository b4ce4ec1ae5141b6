"""Who reads a client's socket: the thread that waits for a result, else the I/O thread.

The one that waits *leads*: that saves the hand-off from the I/O thread, which is switched off
meanwhile. Other threads that wait follow: the leader wakes them.
"""

from __future__ import annotations

import threading
from threading import get_ident
from typing import TYPE_CHECKING

from scaler_cluster.process.readiness import Readiness, close_pipe, notify, signal_pipe

if TYPE_CHECKING:
    from collections.abc import Callable

CLOSED = (ValueError, OSError)
"""What a leader may meet when the session has ended meanwhile."""


class LeaderFollower:
    """Held by one thread at a time; both it and the I/O thread can be woken by others."""

    def __init__(self, fd: int) -> None:
        self._lock = threading.Lock()
        self._leader = 0
        self._wake_read, self._wake_write = signal_pipe()
        self._nudge_read, self.nudge_pipe = signal_pipe()
        self._io_ready = Readiness(self._wake_read, fd)
        self._leader_ready = Readiness(self._nudge_read, fd)
        self._following = 0
        self._arrivals = threading.Condition()

    def acquire(self) -> bool:
        """Take the lead if nobody has it; return True if this thread has it now."""
        return self._lock.acquire(blocking=False)

    @property
    def is_mine(self) -> bool:
        """Return True if this thread leads: it sends what it submits by itself."""
        return self._leader == get_ident()

    def release(self) -> None:
        """Give the lead back."""
        self._lock.release()

    def begin(self) -> None:
        """Switch the I/O thread off."""
        self._leader = get_ident()
        try:
            self._io_ready.switch(on=False)
        except CLOSED:
            return

    def end(self) -> None:
        """Switch the I/O thread on again: what comes now is signalled to it.

        The last thing a leader does with the link must be to find it empty.
        """
        self._leader = 0
        try:
            self._io_ready.switch(on=True)
        except CLOSED:
            return

    def wait(self, timeout_s: float) -> None:
        """Sleep as the leader until something may have arrived, or it is nudged."""
        try:
            self._leader_ready.wait(timeout_s)
        except CLOSED:
            return

    def wait_as_io(self, timeout_s: float) -> None:
        """Sleep as the I/O thread until it is woken, or nobody leads and something has arrived."""
        self._io_ready.wait(timeout_s)

    def wake_io(self) -> None:
        """Let the I/O thread look."""
        notify(self._wake_write)

    def follow(
        self, done: Callable[[], bool], own: threading.Condition | None, timeout_s: float | None
    ) -> None:
        """Sleep while another thread leads, unless ``done()``.

        Until that thread has taken something in, or notifies the condition of the one future that
        this thread waits for.
        """
        condition = self._arrivals if own is None else own
        with condition:
            self._following += own is None
            try:
                if not done():
                    condition.wait(timeout_s)
            finally:
                self._following -= own is None

    def wake_others(self) -> None:
        """Let whoever waits, other than this thread, look whether what it waits for is there."""
        if self._leader and self._leader != get_ident():
            notify(self.nudge_pipe)
        if self._following:
            with self._arrivals:
                self._arrivals.notify_all()

    def close(self) -> None:
        """Let go of everything."""
        self._io_ready.close()
        self._leader_ready.close()
        fds = self._wake_read, self._wake_write, self._nudge_read, self.nudge_pipe
        # Whoever calls too late must not write into a file that got the same number.
        self._wake_read = self._wake_write = self._nudge_read = self.nudge_pipe = -1
        for fd in fds:
            close_pipe(fd)

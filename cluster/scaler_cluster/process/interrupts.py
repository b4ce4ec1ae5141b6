"""Ctrl-C at the right moment: raised in the middle of an exchange, it would break the protocol."""

from __future__ import annotations

import os
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import TaskInterrupted
from scaler_cluster.process.readiness import notify

if TYPE_CHECKING:
    from collections.abc import Callable
    from signal import SIGINT, getsignal
    from signal import signal as set_handler
else:
    # Not ``signal``: its wrappers make enumerations, which takes nine of ten microseconds.
    from _signal import SIGINT, getsignal
    from _signal import signal as set_handler


class TaskExpired(TaskInterrupted):
    """Raised inside a task that runs on the stack of another, when its time is over."""


class Deferral:
    """A context in which the main thread's KeyboardInterrupt waits until it is left.

    Reentrant; without effect in other threads. Any other handler of SIGINT is deferred as well.
    """

    def __init__(self) -> None:
        self.came: tuple[Any, ...] | None = None
        """Arguments of the deferred handler, once SIGINT has come: leave soon then."""
        self._postponed: Callable[[], object] | None = None
        self._wake = -1
        self._depth = 0
        self._handler: Any = None
        self.find_main_thread()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.find_main_thread)

    def find_main_thread(self) -> None:
        """Note which thread is the main one: in a forked child another thread may be."""
        self._main = threading.main_thread().ident

    def __enter__(self) -> None:
        """Begin to defer."""
        if get_ident() != self._main:
            return
        if not self._depth:
            handler = getsignal(SIGINT)
            # Otherwise SIGINT is ignored, ends the process, or is handled outside of Python.
            if callable(handler):
                set_handler(SIGINT, self._on_signal)
                self._handler = handler
        self._depth += 1

    def tell(self, pipe: int) -> None:
        """Write to a signal pipe when SIGINT comes, so that code that waits for the pipe leaves."""
        if get_ident() == self._main:
            self._wake = pipe

    def __exit__(self, *_: object) -> None:
        """Call the handler now if SIGINT came meanwhile."""
        if get_ident() != self._main:
            return
        self._depth -= 1
        if self._depth:
            return
        self._wake = -1
        handler, self._handler = self._handler, None
        if handler is not None:
            # First: a signal between this and the look below would be forgotten.
            set_handler(SIGINT, handler)
        if self.came is not None or self._postponed is not None:
            self._call_deferred(handler)

    def _call_deferred(self, handler: Any) -> None:
        came, self.came = self.came, None
        postponed, self._postponed = self._postponed, None
        if handler is not None and came is not None:
            handler(*came)
        if postponed is not None:
            postponed()

    @property
    def is_awaited(self) -> bool:
        """Return True if a handler or an action waits until this is left."""
        return self.came is not None or self._postponed is not None

    def postpone(self, action: Callable[[], object]) -> bool:
        """Do something when this is left; return False, and do nothing, if no code is inside.

        For signal handlers, which run in the main thread.
        """
        if not self._depth:
            return False
        self._postponed = action
        notify(self._wake)
        return True

    def _on_signal(self, *details: Any) -> None:
        self.came = details
        notify(self._wake)


deferred = Deferral()
"""The one Deferral of the process, which has one main thread."""

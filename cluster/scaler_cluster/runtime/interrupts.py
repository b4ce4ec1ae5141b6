"""Ctrl-C at the right moment: raised in the middle of an exchange, it would tear it."""

from __future__ import annotations

import os
import threading

# Not ``signal``: what that wraps around these makes enumerations, nine of ten microseconds.
from _signal import SIGINT, getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from threading import get_ident
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import TaskInterrupted
from scaler_cluster.runtime.readiness import notify

if TYPE_CHECKING:
    from collections.abc import Callable


class TaskExpired(TaskInterrupted):
    """Raised inside a task that runs on the stack of another, when its time is over."""


class Deferral:
    """A context in which the main thread's KeyboardInterrupt waits until it is left.

    Reentrant; without effect in other threads. Whatever else handles SIGINT is deferred as well.
    """

    def __init__(self) -> None:
        self.came: tuple[Any, ...] | None = None
        """What the handler is to be called with, once SIGINT has come: leave soon."""
        self._postponed: Callable[[], object] | None = None
        self._wake = -1
        self._depth = 0
        self._handler: Any = None
        self.find_main_thread()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.find_main_thread)

    def find_main_thread(self) -> None:
        """Note which thread is the main one: in a forked child it may be another."""
        self._main = threading.main_thread().ident

    def __enter__(self) -> None:
        """Defer."""
        if get_ident() != self._main:
            return
        if self._depth == 0:
            handler = getsignal(SIGINT)
            # Otherwise it is ignored, ends the process, or is none of Python's business.
            if callable(handler):
                set_handler(SIGINT, self._on_signal)
                self._handler = handler
        self._depth += 1

    def tell(self, pipe: int) -> None:
        """Write to a signal pipe when SIGINT comes: what waits for that pipe is to leave."""
        if get_ident() == self._main:
            self._wake = pipe

    def __exit__(self, *_: object) -> None:
        """Let it happen, if it came."""
        if get_ident() != self._main:
            return
        self._depth -= 1
        if self._depth == 0:
            handler, self._handler = self._handler, None
            came, self.came = self.came, None
            postponed, self._postponed = self._postponed, None
            self._wake = -1
            if handler is not None:
                set_handler(SIGINT, handler)
                if came is not None:
                    handler(*came)
            if postponed is not None:
                postponed()

    @property
    def is_awaited(self) -> bool:
        """Return True if something has come that waits until this is left."""
        return self.came is not None or self._postponed is not None

    def postpone(self, action: Callable[[], object]) -> bool:
        """Do something when this is left; return False, and do nothing, if nobody is in it.

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
"""One for the process: it has one main thread."""

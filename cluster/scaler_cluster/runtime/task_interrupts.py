"""How a task is interrupted: by a signal, whose handler raises in the main thread."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Protocol

from scaler_cluster.errors import TaskInterrupted
from scaler_cluster.process.interrupts import deferred

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

    from scaler_cluster.core.worker.worker import WorkerCore

INTERRUPT_SIGNAL = signal.SIGUSR2
"""Sent to the main thread of a worker."""
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
"""The file that the code of import statements is said to be in."""

kept_whole: set[CodeType] = set()
"""The code of functions that no interrupt may cut short, nor what they call."""


class LimitedTasks(Protocol):
    """Tasks with a time limit that run on the stack of the task that the worker was given."""

    @property
    def has_expired(self) -> bool:
        """Return True if the time of one of them is over."""

    def raise_expired(self) -> None:
        """Raise what interrupts the task whose time is over."""


class TaskInterrupts:
    """Interrupts the task that runs in the main thread, but nothing else that runs there."""

    def __init__(self, core: WorkerCore) -> None:
        self.in_task = False
        """The main thread is in a task; only then the handler raises."""
        self.limited: LimitedTasks | None = None
        """Set once tasks submit tasks."""
        self._core = core
        self._main = threading.get_ident()
        signal.signal(INTERRUPT_SIGNAL, self._on_signal)

    def send(self) -> None:
        """Have the handler called in the main thread."""
        signal.pthread_kill(self._main, INTERRUPT_SIGNAL)

    @contextlib.contextmanager
    def held_off(self) -> Iterator[None]:
        """Let no interrupt tear what the task's own thread sends; the next one comes soon."""
        in_task = self.in_task
        is_main = threading.get_ident() == self._main
        if is_main:
            self.in_task = False
        try:
            yield
        finally:
            if is_main:
                self.in_task = in_task

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Stop the running task if it is the one that was aborted; in the main thread."""
        if _is_untimely(frame):
            # The signal comes again.
            return
        core = self._core
        if self.in_task and self.limited is not None and self.limited.has_expired:
            if not deferred.postpone(lambda: self._on_signal(signum, frame)):
                self.limited.raise_expired()
        elif self.in_task and core.interrupt is not None and core.queue:
            work = core.queue[0]
            if core.interrupt == (work.session, work.task):
                if deferred.postpone(lambda: self._on_signal(signum, frame)):
                    return
                core.interrupt = None
                raise TaskInterrupted


def _is_untimely(frame: FrameType | None) -> bool:
    """Return True if an exception must not be raised where this thread is.

    A module that is cut short may be one that no process can import twice, as numpy's are; and in
    a finalizer the exception would be lost.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_filename == IMPORT_SYSTEM or code.co_name == "__del__" or code in kept_whole:
            return True
        frame = frame.f_back
    return False

"""The thread of a worker that acts while a task sleeps or computes outside of Python."""

from __future__ import annotations

import os
import sys
import threading
from time import perf_counter as clock
from typing import TYPE_CHECKING, Protocol

from scaler_cluster.core.worker.reports import FLUSH_S

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.runtime.task_interrupts import TaskInterrupts

TICK_MIN_S, TICK_MAX_S = 0.0005, 0.02
"""How late at most the control thread looks at the socket while a long task runs."""
TICK_KEPT_S = 0.004
"""The same where there are results of nodes, which other workers may be waiting for."""


class Controlled(Protocol):
    """The worker as its control thread sees it."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held by the thread that uses the core and the link."""

    @property
    def is_busy(self) -> bool:
        """Return True as long as the main thread runs tasks."""

    @property
    def pumped_at(self) -> float:
        """When :meth:`pump` was called last."""

    def pump(self) -> None:
        """Send what is to be sent, and take in what has arrived; the lock is held."""

    def share(self) -> None:
        """Send results that workers elsewhere need."""


class ControlThread:
    """Reports, takes in and interrupts for a worker whose main thread is inside a task."""

    def __init__(self, worker: Controlled, core: WorkerCore, interrupts: TaskInterrupts) -> None:
        self._worker = worker
        self._core = core
        self._interrupts = interrupts
        self._wake = threading.Event()
        self._is_ticking = False

    def start(self) -> None:
        """Start the thread; it ends with the process."""
        threading.Thread(target=self._guard, name="scaler-control", daemon=True).start()

    def keep_ticking(self) -> None:
        """Wake the thread up, if it sleeps; the main thread calls this before it runs tasks."""
        if not self._is_ticking:
            self._is_ticking = True
            self._wake.set()

    def _guard(self) -> None:
        try:
            self._control()
        except BaseException:
            # Without this thread tasks could not be stopped: let another process take over.
            sys.excepthook(*sys.exc_info())
            os._exit(1)

    def _control(self) -> None:
        """Act for the main thread while it is inside a task; sleep when no task has run lately."""
        core, worker = self._core, self._worker
        seen = 0.0
        pause_s: float | None = None
        while True:
            if self._wake.wait(pause_s):
                self._wake.clear()
            with worker.lock:
                last_end = core.reports.last_end
                if not worker.is_busy and last_end == seen:
                    self._is_ticking = False
                    pause_s = None
                    continue
                seen = last_end
                now = clock()
                if worker.is_busy and now - worker.pumped_at >= FLUSH_S:
                    core.reports.flush()
                    worker.pump()
                pause_s = max(worker.pumped_at + FLUSH_S - now, (now - seen) / 2, TICK_MIN_S)
                pause_s = min(pause_s, TICK_KEPT_S if core.kept.graphs else TICK_MAX_S)
                if core.interrupt_due():
                    self._interrupts.send()
                has_to_share = worker.is_busy and bool(core.kept.to_share)
            if has_to_share:
                worker.share()
                with worker.lock:
                    # Else the main thread is about to, and only it may: see ZmqLink.wait.
                    if worker.is_busy:
                        worker.pump()

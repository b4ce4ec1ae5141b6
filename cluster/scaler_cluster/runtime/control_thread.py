"""The thread of a worker that acts while a task sleeps or computes outside of Python."""

from __future__ import annotations

import os
import sys
import threading
from time import perf_counter as clock
from typing import TYPE_CHECKING, Protocol

from scaler_cluster.core.worker.lookout import Lookout
from scaler_cluster.core.worker.work import has_more
from scaler_cluster.process.readiness import Readiness, notify, signal_pipe

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.runtime.sampler import Sampler
    from scaler_cluster.runtime.task_interrupts import TaskInterrupts
    from scaler_cluster.wire import messages as m

SLEEP_MAX_S = 3600.0


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

    def pump(self) -> bool:
        """Send what is to be sent, and take in what has arrived; the lock is held.

        Return True if more may have arrived.
        """

    def share(self) -> None:
        """Send results that workers elsewhere need."""


class ControlThread:
    """Reports, takes in and interrupts for a worker whose main thread is inside a task.

    What arrives at the descriptor ``fd`` is for the worker.
    """

    def __init__(
        self, worker: Controlled, core: WorkerCore, interrupts: TaskInterrupts, fd: int
    ) -> None:
        self._worker = worker
        self._core = core
        self._interrupts = interrupts
        self._lookout = Lookout()
        self._sampler: Sampler | None = None
        """Made when somebody first wants to know what tasks do."""
        self._called, self._call = signal_pipe()
        self._ready = Readiness(self._called, fd)
        self._listens = False
        self._main = threading.get_ident()
        self._ready.switch(on=False)

    def start(self) -> None:
        """Start the thread; it ends with the process."""
        threading.Thread(target=self._guard, name="scaler-control", daemon=True).start()

    def expect_results(self, by: float) -> None:
        """See that results that wait are reported by then."""
        with self._worker.lock:
            if self._lookout.look_by(by):
                notify(self._call)

    def sample(self, question: m.Sample) -> None:
        """Look what tasks do, for a while, and answer soon; the worker's lock is held."""
        now = clock()
        if self._sampler is None:
            # Most workers are never asked, and need no such import.
            from scaler_cluster.runtime.sampler import Sampler

            self._sampler = Sampler(self._worker, self._core, self._main)
        self._sampler.ask(question, now)
        notify(self._call)

    def turn(self, now: float, took_s: float) -> None:
        """The main thread goes on to tasks, or it has none; the worker's lock is held.

        The last task took so long, and the next one may as well.
        """
        lookout = self._lookout
        if not self._worker.is_busy:
            lookout.listens = False
        elif lookout.begin(now, took_s):
            notify(self._call)
        self._listen(on=lookout.listens)

    def stop_listening(self) -> None:
        """The main thread is to read what arrives from now on; the worker's lock is held.

        Before it reports that it has nothing to do: the answer must not wake both threads.
        """
        self._listen(on=False)

    def _listen(self, *, on: bool) -> None:
        if self._listens != on:
            self._listens = on
            self._ready.switch(on=on)

    # -- the thread ----------------------------------------------------------------------------

    def _guard(self) -> None:
        try:
            while True:
                sampler = self._sampler
                if sampler is None:
                    sleep_s = max(self._lookout.look_at - clock(), 0.0)
                    self._look(has_come=self._ready.wait(min(sleep_s, SLEEP_MAX_S)))
                else:
                    self._look_and_sample(sampler)
        except BaseException:
            # Without this thread tasks could not be stopped: let another process take over.
            sys.excepthook(*sys.exc_info())
            os._exit(1)

    def _look_and_sample(self, sampler: Sampler) -> None:
        look_at = self._lookout.look_at
        sleep_s = max(min(look_at, sampler.due) - clock(), 0.0)
        has_come = self._ready.wait(min(sleep_s, SLEEP_MAX_S))
        is_due = clock() >= sampler.due
        if is_due:
            # Before anything else, and without the lock: the main thread must not wait for it.
            sampler.look()
        if has_come or not is_due or clock() >= look_at:
            self._look(has_come=has_come)
        if sampler.question is not None:
            stack = sampler.stack()
            with self._worker.lock:
                sampler.answer(stack)
                # Else the main thread is about to: see _look.
                if self._worker.is_busy:
                    self._worker.pump()

    def _look(self, *, has_come: bool) -> None:
        """Do what the main thread leaves undone while it is inside a task."""
        core, worker = self._core, self._worker
        reports = core.reports
        with worker.lock:
            now = clock()
            if worker.is_busy and (has_come or now >= reports.due(worker.pumped_at)):
                reports.flush()
                while worker.pump():
                    pass
                if core.interrupt_due():
                    self._interrupts.send()
            self._lookout.expect_requests(is_on=bool(core.kept.graphs))
            self._lookout.looked(
                now,
                reports.last_end,
                reports.took_s,
                reports.due(worker.pumped_at),
                is_busy=worker.is_busy,
                results_wait=reports.are_waiting,
                may_wait=has_more(core.queue),
                interrupts=core.interrupt is not None,
            )
            self._listen(on=self._lookout.listens)
            has_to_share = worker.is_busy and bool(core.kept.to_share)
        if has_to_share:
            worker.share()
            with worker.lock:
                # Else the main thread is about to, and only it may: see ZmqLink.wait.
                if worker.is_busy:
                    worker.pump()

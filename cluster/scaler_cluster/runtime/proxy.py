"""The process of a proxy: workers to the scheduler, whose tasks another system runs.

It runs in the foreground of a command, or as a child of another process: then as
``python -m scaler_cluster.runtime.proxy``, with a ProxyProcessConfig on standard input. All of its
workers are in one thread (``proxy_worker.py``), with the conversation of a machine's supervisor
(``machine.py``). If the system loses what it was given, the proxy comes anew to the scheduler: as
the tasks of a lost machine, they run again, as far as they may.
"""

from __future__ import annotations

import logging
import os
import select
import selectors
import signal
import socket
from collections import deque
from functools import partial
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.core.supervisor.supervisor import Exit
from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.errors import ClusterUnreachableError
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import LINGER_MS
from scaler_cluster.objects.worker_store import WorkerStore
from scaler_cluster.process.process import PYTHON_VERSION, make_peer_id
from scaler_cluster.provision.runners import ProxyProcessConfig, make_runner
from scaler_cluster.runtime.child_main import run_child
from scaler_cluster.runtime.machine import MachineShell
from scaler_cluster.runtime.proxy_worker import ProxyWorker
from scaler_cluster.runtime.supervisor import Supervisor
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.supervisor.supervisor import Kill
    from scaler_cluster.process.process_config import SupervisorProcessConfig
    from scaler_cluster.runtime.forkserver import WorkerOrder

log = logging.getLogger("scaler.proxy")

AGAIN_S = 2.0
"""How often a system is asked again that has lost what it was given."""
CLOSE_S = 5.0
"""So long the tasks have together to be stopped in the other system when the proxy ends."""


class ProxyShell(MachineShell):
    """A machine whose workers are proxies; see :class:`MachineShell`.

    Raises ConfigError or ClusterUnreachableError if the other system does not let it in.
    """

    def __init__(
        self, proxy: ProxyProcessConfig, config: SupervisorProcessConfig, lifeline: int
    ) -> None:
        self._proxy = proxy
        self._workers: dict[int, ProxyWorker] = {}
        """By slot."""
        self._woken: deque[ProxyWorker] = deque()
        """Workers whose tasks have ended; other threads put them here."""
        # Closed once no thread can ring any more, which is not known before.
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._lost = ""
        """Why the other system has lost what it was given; other threads set it."""
        self._runner = make_runner(proxy.settings, self._lose)
        try:
            super().__init__(config, make_peer_id("S"), lifeline)
        except BaseException:
            self._runner.close()
            raise
        self._selector.register(self._bell, selectors.EVENT_READ, self._on_woken)
        log.info("ProxyWorker: up to %s tasks at once in %s", config.places, proxy.settings.where)

    def _lose(self, reason: str) -> None:
        self._lost = reason
        self._ring()

    def _wake(self, worker: ProxyWorker) -> None:
        self._woken.append(worker)
        self._ring()

    def _ring(self) -> None:
        try:
            self._ringer.send(b"\0")
        except BlockingIOError:
            # It is full, so it wakes.
            return

    def _on_woken(self) -> None:
        try:
            self._bell.recv(65536)
        except BlockingIOError:
            return
        while self._woken:
            worker = self._woken.popleft()
            if not worker.is_over:
                worker.turn()

    # -- the machine ---------------------------------------------------------------------------

    def _deadline(self) -> float:
        return min([super()._deadline(), *(one.deadline for one in self._workers.values())])

    def _watch(self, now: float) -> None:
        super()._watch(now)
        for slot, worker in list(self._workers.items()):
            if not worker.is_over and worker.deadline <= now:
                worker.turn()
            if worker.is_over:
                self._forget(slot, _end_of(worker, exit_code=0))
        if self._lost and self._leave is None:
            log.warning("ProxyWorker: %s: its tasks run again", self._lost)
            self.starts_over = True
            self._leave = ""

    def _start_worker(self, order: WorkerOrder) -> None:
        config, options = self.config, self.config.options
        dirs = order.storage.dirs
        hello = m.Hello(
            m.WORKER,
            m.PROTOCOL_VERSION,
            PYTHON_VERSION,
            os.getpid(),
            self._host,
            self._peer,
            place=dirs.served_at(order.storage.address),
            spare=order.slot >= config.places,
            name=config.name_of(order.slot),
            capabilities=options.capabilities,
            queue=options.queue,
        )
        passport = self._keys.passport(config.address)
        link = zmq_link.connect(config.address, order.peer, passport=passport, beside=self._link)
        core = WorkerCore()
        home = order.storage.is_home
        store = WorkerStore(order.peer, dirs, core.mapped, core.missing, is_home=home)
        settings = self._proxy.settings
        reach = self._runner, settings.workers_address, settings.where
        worker = ProxyWorker(link, store, core, hello, order.peer, *reach, self._wake)
        self._workers[order.slot] = worker
        self._selector.register(link.fd, selectors.EVENT_READ, partial(self._on_worker, worker))
        self._core.spawned(order.slot, os.getpid())

    def _on_worker(self, worker: ProxyWorker) -> None:
        if not worker.is_over:
            worker.turn()

    def _kill_worker(self, action: Kill) -> None:
        worker = self._workers[action.slot]
        worker.drop()
        self._forget(action.slot, _end_of(worker, exit_code=None))

    def _forget(self, slot: int, end: Exit) -> None:
        link = self._workers.pop(slot).link
        self._selector.unregister(link.fd)
        # One that has left was to say so.
        link.close(LINGER_MS if end.exit_code == 0 else 0)
        self._core.died(slot, end, clock())

    def _ran(self, slot: int) -> tuple[int, int, int]:
        return self._workers[slot].ran()

    def _processes(self) -> dict[bytes, int]:
        return {}

    def _end_workers(self) -> None:
        threads = [one.drop() for one in self._workers.values()]
        until = clock() + CLOSE_S
        for thread in threads:
            if thread is not None:
                thread.join(max(until - clock(), 0.0))
        for worker in self._workers.values():
            worker.link.close(0)
        self._runner.close()


class _Over(Exception):
    """The lifeline has come to its end while the other system let nobody in."""


def _end_of(worker: ProxyWorker, exit_code: int | None) -> Exit:
    """Return what a process would have come to in the place of a worker; None: it was killed."""
    number = None if exit_code == 0 else int(signal.SIGKILL)
    session, task, _ = worker.ran()
    is_ready, has_failed = True, False
    return Exit(os.getpid(), exit_code, number, 0, "", is_ready, has_failed, session, task)


def run_proxy(proxy: ProxyProcessConfig, lifeline: int) -> None:
    """Run a proxy to its end.

    Raises ConfigError if the other system's library is missing, ClusterUnreachableError if nobody
    has asked for the end.
    """
    is_first = True

    def make_shell(config: SupervisorProcessConfig, lifeline: int) -> ProxyShell:
        nonlocal is_first
        while True:
            try:
                shell = ProxyShell(proxy, config, lifeline)
            except ClusterUnreachableError as error:
                if is_first:
                    raise
                log.warning("ProxyWorker: %s", error)
                has_news = select.select([lifeline], (), (), AGAIN_S)[0]
                if has_news and not os.read(lifeline, 4096):
                    raise _Over from None
            else:
                is_first = False
                return shell

    try:
        reason = Supervisor(proxy.machine, lifeline, make_shell).run()
    except _Over:
        return
    if reason:
        raise ClusterUnreachableError(reason)


if __name__ == "__main__":
    raise SystemExit(
        run_child(
            ProxyProcessConfig,
            lambda one: one.machine.options.logging,
            run_proxy,
            "a proxy",
            "CRITICAL",
        )
    )

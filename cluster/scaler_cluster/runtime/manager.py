"""The manager process: tells the scheduler of its units, and has its backend start and end them.

It runs in the foreground of ``scaler_worker_manager``, or as a child of ``scaler``: then as
``python -m scaler_cluster.runtime.manager``, with its settings on standard input. The backend may
block for as long as its system takes, so a thread of its own calls it, one call after another.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import selectors
import sys
import threading
from dataclasses import dataclass
from time import perf_counter as clock
from typing import TYPE_CHECKING, TypeAlias

from scaler_cluster.config.manager_settings import ManagerSettings
from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.manager.manager import (
    ComeBack,
    Look,
    ManagerCore,
    Send,
    Start,
    Stop,
)
from scaler_cluster.core.manager.units import Listed
from scaler_cluster.errors import ClusterUnreachableError
from scaler_cluster.ids import HUB
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import LINGER_MS, new_incarnation
from scaler_cluster.process.log_config import LogConfig
from scaler_cluster.process.process import PYTHON_VERSION, host_name, make_peer_id
from scaler_cluster.provision.backend import BackendError
from scaler_cluster.provision.manager_process import (
    manager_config,
    manager_id_of,
    offer_of,
    offer_that_fits,
)
from scaler_cluster.provision.managers import make_backend
from scaler_cluster.provision.unit_command import UnitCommand
from scaler_cluster.runtime.child_main import run_child
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import WORKER
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.core.manager.config import ManagerConfig
    from scaler_cluster.provision.backend import ManagerBackend

log = logging.getLogger("scaler.manager")

IMPATIENT_S = 5.0
"""A scheduler answers much sooner than this: a user who mistyped its address wants to know."""
NAME_BYTES = 4
"""Random bytes of a unit's name."""
CLOSE_S = 5.0
"""The backend's thread has so long to end what it is at when the manager ends."""

Job: TypeAlias = "Start | Look | Stop"


@dataclass(frozen=True)
class _Answer:
    """What became of a call of the backend."""

    job: Job
    listed: Mapping[str, Listed] | None = None
    error: str = ""
    offer: m.Offer | None = None
    """What the system offers, if that was not known before."""


class _BackendThread:
    """Calls a backend in a thread; ``fd`` is readable while answers wait to be taken.

    ``awaited`` is what the settings offer, if the backend is yet to say what its system has of it:
    it is then asked for that before it is asked for anything else.
    """

    def __init__(self, backend: ManagerBackend, awaited: m.Offer | None) -> None:
        self._backend = backend
        self.awaited = awaited
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self.fd, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._work, name="backend", daemon=True)
        self._thread.start()

    def do(self, job: Job) -> None:
        """Have a call made after those that were asked for before."""
        self._jobs.put(job)

    def take(self) -> list[_Answer]:
        """Return the answers that have come since; called when ``fd`` is readable."""
        count = len(os.read(self.fd, 4096))
        return [self._answers.get() for _ in range(count)]

    def close(self) -> None:
        """Let the thread end after the call that it is in, and close the backend."""
        self._jobs.put(None)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            os.close(self.fd)
            os.close(self._wake)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                answer = self._call(job)
            except BackendError as error:
                answer = _Answer(job, None, str(error))
            except Exception as error:
                log.exception("WorkerManager: the backend failed")
                answer = _Answer(job, None, f"{type(error).__name__}: {error}")
            self._answers.put(answer)
            os.write(self._wake, b"\0")
        self._backend.close()

    def _call(self, job: Job) -> _Answer:
        if self.awaited is not None:
            offer, self.awaited = self._backend.offered(self.awaited), None
            return _Answer(job, offer=offer)
        if isinstance(job, Start):
            self._backend.start(job.units)
        elif isinstance(job, Stop):
            self._backend.stop(job.units)
        else:
            found = self._backend.look()
            listed = {name: Listed(one.reason, one.is_over) for name, one in found.items()}
            return _Answer(job, listed)
        return _Answer(job)


class ManagerShell:
    """Moves messages between the core of a manager, the scheduler and the backend.

    It works until ``lifeline`` comes to its end, until the scheduler ends the cluster, or until
    another manager takes its place. As long as the system does not say what it has, for which
    ``error`` is the reason, the scheduler is offered what the settings do, and hears the reason.
    """

    def __init__(
        self,
        settings: ManagerSettings,
        offer: m.Offer,
        error: str,
        backend: ManagerBackend,
        lifeline: int,
    ) -> None:
        self._settings = settings
        self._lifetime_s = backend.lifetime_s
        self._config = manager_config(settings, offer, self._lifetime_s)
        self._lifeline = lifeline
        config, credentials = self._config, Credentials.of(WORKER, settings.given_keys)
        passport = credentials.passport(config.address)
        peer = make_peer_id("M")
        who = m.PROTOCOL_VERSION, PYTHON_VERSION, os.getpid(), host_name()
        self._hello = m.Hello(m.MANAGER, *who, name=config.name)
        self._core = self._core_of(config, offer)
        if error:
            self._core.looked(None, error, clock())
        else:
            log.info("WorkerManager: %s manages up to %s workers", config.name, config.most)
        self._exchange = Exchange(new_incarnation())
        self._link = zmq_link.connect(config.address, peer, passport=passport)
        self._backend = _BackendThread(backend, offer if error else None)
        self._leave: str | None = None
        """Why to leave; empty: it was asked to; None: stay."""
        self._reason = ""
        """What was logged last of what goes wrong."""
        self._impatient_at = clock() + IMPATIENT_S
        self._selector = selectors.DefaultSelector()
        self._selector.register(lifeline, selectors.EVENT_READ, self._on_lifeline)
        self._selector.register(self._backend.fd, selectors.EVENT_READ, self._on_backend)
        self._selector.register(self._link.fd, selectors.EVENT_READ, self._on_link)
        self._send([self._hello])

    @staticmethod
    def _core_of(config: ManagerConfig, offer: m.Offer) -> ManagerCore:
        return ManagerCore(config, offer, lambda: secrets.token_hex(NAME_BYTES), clock())

    def run(self) -> None:
        """Work to the end; raises ClusterUnreachableError if nobody has asked for that."""
        try:
            while self._leave is None:
                self._on_link()
                now = clock()
                self._core.tick(now)
                self._act(now)
                if self._leave is None:
                    timeout = max(min(self._core.deadline, self._exchange.deadline) - clock(), 0.0)
                    for key, _ in self._selector.select(min(timeout, IMPATIENT_S)):
                        key.data()
                self._watch(now)
        finally:
            self._close()
        if self._leave:
            raise ClusterUnreachableError(self._leave)

    def _watch(self, now: float) -> None:
        """Say in the log what goes wrong, once."""
        if now >= self._impatient_at:
            self._impatient_at = float("inf")
            why = f": {self._link.refusal}" if self._link.refusal else ""
            log.warning("WorkerManager: %s does not answer yet%s", self._config.address, why)
        reason = self._core.reason
        if reason != self._reason:
            self._reason = reason
            if reason:
                log.warning("WorkerManager: %s", reason)

    def _act(self, now: float) -> None:
        messages: list[m.Message] = []
        for action in self._core.take_actions():
            if isinstance(action, Send):
                messages.append(action.message)
            elif isinstance(action, Start | Look | Stop):
                self._backend.do(action)
                if not isinstance(action, Look):
                    what = "starts" if isinstance(action, Start) else "ends"
                    log.info("WorkerManager: %s %s", what, ", ".join(action.units))
            elif isinstance(action, ComeBack):
                log.warning("WorkerManager: %s does not know this manager", self._config.address)
                self._exchange = Exchange(new_incarnation())
                messages = [self._hello, action.message]
            else:
                self._leave = action.reason
        if messages:
            self._send(messages)
        for _, frames in self._exchange.tick(now):
            self._link.send(HUB, frames)
        self._link.tend()

    def _send(self, messages: Sequence[m.Message]) -> None:
        for frames in self._exchange.send(HUB, messages, clock()):
            self._link.send(HUB, frames)

    def _on_link(self) -> None:
        while received := self._link.receive(64):
            self._impatient_at = float("inf")
            self._core.heard(clock())
            for _, frames in received:
                self._core.receive(self._exchange.receive(HUB, frames, clock()), clock())

    def _on_backend(self) -> None:
        for answer in self._backend.take():
            job, now = answer.job, clock()
            if answer.offer is not None:
                self._offered(offer_that_fits(self._settings, answer.offer))
            elif isinstance(job, Start):
                self._core.started(job.units, answer.error, now)
            elif isinstance(job, Stop):
                self._core.stopped(answer.error, now)
            else:
                self._core.looked(answer.listed, answer.error, now)

    def _offered(self, offer: m.Offer) -> None:
        """Begin anew, as nothing could be started so far: the system says what it has."""
        self._config = config = manager_config(self._settings, offer, self._lifetime_s)
        log.info("WorkerManager: %s manages up to %s workers", config.name, config.most)
        self._core = self._core_of(config, offer)

    def _on_lifeline(self) -> None:
        if os.read(self._lifeline, 4096):
            return
        self._selector.unregister(self._lifeline)
        if self._backend.awaited is not None:
            self._leave = ""
        else:
            self._core.leave(clock())

    def _close(self) -> None:
        self._backend.close()
        self._selector.close()
        self._send([m.Goodbye()])
        self._link.close(LINGER_MS)


def run_manager(settings: ManagerSettings, lifeline: int) -> None:
    """Run a manager until ``lifeline`` comes to its end, or the cluster does.

    With ``dry_run`` it prints what would be started for a unit. Raises ConfigError if something is
    not installed or set that its system needs, ClusterUnreachableError if there is no scheduler.
    """
    name = manager_id_of(settings)
    backend = make_backend(settings, UnitCommand(settings, name))
    if settings.dry_run:
        sys.stdout.write(f"{backend.dry_run(f'{name}-00000000')}\n")
        backend.close()
        return
    offer, error = offer_of(settings), ""
    try:
        offer = offer_that_fits(settings, backend.offered(offer))
    except BackendError as refusal:
        error = str(refusal)
    ManagerShell(settings, offer, error, backend, lifeline).run()


if __name__ == "__main__":
    raise SystemExit(run_child(ManagerSettings, LogConfig.from_settings, run_manager, "a manager"))

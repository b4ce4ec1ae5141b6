"""What every machine of a cluster does, whatever its workers are: the shell of a supervisor.

It has the supervisor's core, its conversation with the scheduler, and the storage of the machine. A
subclass starts and ends the workers: processes (``supervisor.py``), or what stands for workers
(``proxy.py``).
"""

from __future__ import annotations

import logging
import math
import os
import selectors
from abc import ABC, abstractmethod
from dataclasses import replace
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.supervisor.supervisor import (
    ComeBack,
    Kill,
    Send,
    Spawn,
    SupervisorCore,
)
from scaler_cluster.errors import ConfigError
from scaler_cluster.ids import HUB
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import LINGER_MS, new_incarnation
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.process.bounds import BoundsReader
from scaler_cluster.process.process import PYTHON_VERSION, allow_many_files, host_name, pid_space
from scaler_cluster.runtime.forkserver import MachineStorage, WorkerOrder
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_cluster.process.process_config import SupervisorProcessConfig
    from scaler_cluster.runtime.storage_process import StorageProcess
    from scaler_cluster.runtime.vitals import Examiner

log = logging.getLogger("scaler.supervisor")

LOOKS = 20
"""How often tasks are looked at within the timeout, if there is one for all tasks."""
LOOK_MIN_S, LOOK_MAX_S = 0.02, 0.5
DRAIN_LIMIT = 64
IMPATIENT_S = 5.0
"""A scheduler answers much sooner than this: a user who mistyped its address wants to know."""


class MachineShell(ABC):
    """Moves messages between the core, the scheduler and the workers of a machine.

    It works until the scheduler tells it to leave, or has the objects of its workers elsewhere, or
    until ``lifeline`` comes to its end. ``peer`` is the peer id of the machine.
    """

    def __init__(self, config: SupervisorProcessConfig, peer: bytes, lifeline: int) -> None:
        options = config.options
        self.config = config
        """With the bounds that were told last."""
        self._bounds = BoundsReader()
        self._peer = peer
        self._host = host_name()
        allow_many_files()
        self._core = SupervisorCore(config.core, peer, self._host, clock())
        self.starts_over = False
        """Whether another shell is to take the place of this one."""
        self._leave: str | None = None
        """Why to leave; empty: because it was asked to; None: stay."""
        self._lifeline = lifeline
        self._objects: MachineStorage | None = None
        """Where objects lie; None until the scheduler has answered, which knows that."""
        self._homes: tuple[m.StorageEndpoint, ...] = ()
        """Where clients store objects, as the scheduler said."""
        self._storage: StorageProcess | None = None
        if config.is_home:
            config.dirs.hold()
        self._exchange = Exchange(new_incarnation())
        self._keys = options.credentials
        passport = self._keys.passport(config.address)
        self._link = zmq_link.connect(config.address, peer, passport=passport)
        self._is_dismissed = False
        """True if the scheduler ends the cluster, and waits until this machine has left."""
        timeout_s = options.task_timeout_s
        self._look_s = min(max(timeout_s / LOOKS, LOOK_MIN_S), LOOK_MAX_S)
        self._look_at = 0.0 if timeout_s < math.inf else math.inf
        self._impatient_at = clock() + IMPATIENT_S
        self._examiner: Examiner | None = None
        """Made when the scheduler first asks how this machine is."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(lifeline, selectors.EVENT_READ, self._on_lifeline)
        self._selector.register(self._link.fd, selectors.EVENT_READ, self._on_link)
        self._hello = _hello_of(config, self._host)
        self._send([self._hello, *self._core.headcount.bound(config.offer)])

    def run(self) -> str:
        """Work until the lifeline ends or the scheduler says so; then end every worker.

        Returns why, if neither was the reason.
        """
        try:
            while self._leave is None:
                self._turn()
                if self._leave is None:
                    for key, _ in self._selector.select(max(self._deadline() - clock(), 0.0)):
                        key.data()
        finally:
            self._close()
        return self._leave

    # -- what a subclass does ----------------------------------------------------------------

    @abstractmethod
    def _start_worker(self, order: WorkerOrder) -> None:
        """Start a worker; the core is then told that it was spawned."""

    @abstractmethod
    def _kill_worker(self, action: Kill) -> None:
        """Kill the worker of a slot; the core is then told that it died."""

    @abstractmethod
    def _ran(self, slot: int) -> tuple[int, int, int]:
        """Return session, task and number of the work that a worker runs, or ran last."""

    @abstractmethod
    def _processes(self) -> Mapping[bytes, int]:
        """Return the workers that are processes of their own, with their pids."""

    @abstractmethod
    def _end_workers(self) -> None:
        """End all workers."""

    # -- turns -------------------------------------------------------------------------------

    def _deadline(self) -> float:
        due = [self._core.deadline, self._exchange.deadline, self._look_at]
        if self._storage is not None:
            due.append(self._storage.look_at)
        if self._examiner is not None:
            due.append(self._examiner.due)
        return min(due)

    def _turn(self) -> None:
        """Take in what has arrived and act, until nothing more arrives."""
        self._on_link()
        while True:
            now = clock()
            self._watch(now)
            self._core.tick(now)
            self._act(now)
            if not self._on_link():
                break

    def _watch(self, now: float) -> None:
        """Look at what is due to be looked at."""
        if now >= self._impatient_at and self._objects is None:
            self._impatient_at = math.inf
            reason = self._link.refusal
            why = f": {reason}" if reason else ""
            log.warning("ClusterProcess: %s does not answer yet%s", self.config.address, why)
        if now >= self._look_at:
            self._look(now)
        if self._storage is not None and now >= self._storage.look_at:
            self._storage.look_after(now)

    def _act(self, now: float) -> None:
        """Do what the core has decided."""
        messages: list[m.Message] = []
        for action in self._core.take_actions():
            if isinstance(action, Send):
                messages.append(action.message)
            elif isinstance(action, Spawn):
                self._spawn(action)
            elif isinstance(action, Kill):
                # The worker may have ended meanwhile.
                if self._core.slots[action.slot].pid == action.pid:
                    self._kill_worker(action)
            elif isinstance(action, ComeBack):
                log.warning("ClusterProcess: %s does not know this machine", self.config.address)
                said = [*self._exchange.undelivered(HUB), *messages]
                self._exchange = Exchange(new_incarnation())
                messages = [replace(self._hello, resume=1), *action.words(said)]
            else:
                self._leave = action.reason
        if self._examiner is not None and now >= self._examiner.due:
            messages.append(self._examiner.answer(self._core.restarts))
        if messages:
            self._send(messages)
        for _, frames in self._exchange.tick(now):
            self._link.send(HUB, frames)
        self._link.tend()

    def _send(self, messages: list[m.Message]) -> None:
        for frames in self._exchange.send(HUB, messages, clock()):
            self._link.send(HUB, frames)

    def _spawn(self, action: Spawn) -> None:
        # The core starts workers only from then on.
        assert self._objects is not None
        wanted = self._core.headcount.wanted
        self._start_worker(WorkerOrder(action.slot, action.peer, self._objects, wanted))

    def _on_link(self) -> bool:
        """Take in what the scheduler sent; return True if there was anything."""
        has_news = False
        while received := self._link.receive(DRAIN_LIMIT):
            has_news = True
            self._core.heard(clock())
            for _, frames in received:
                messages = self._exchange.receive(HUB, frames, clock())
                self._core.receive(messages)
                for message in messages:
                    if type(message) is m.Welcome and self._objects is None:
                        self._settle_by(message)
                    elif type(message) is m.Welcome and not self._is_settled_by(message):
                        self.starts_over = True
                        self._leave = ""
                    elif type(message) is m.Goodbye:
                        self._is_dismissed = True
                        log.info("ClusterProcess: %s", message.reason)
                    elif type(message) is m.Examine:
                        self._examine(message, clock())
        return has_news

    def _examine(self, question: m.Examine, now: float) -> None:
        if self._examiner is None:
            # Most clusters are never monitored, and need not wait for this import.
            from scaler_cluster.runtime.vitals import Examiner

            self._examiner = Examiner(self._processes, self._core.config.memory_limit_bytes)
        self._examiner.ask(question, now)

    def _settle_by(self, welcome: m.Welcome) -> None:
        """Use the scheduler's objects if this is its machine; else keep copies of them here."""
        self._homes = welcome.homes
        if self.config.is_home:
            self._settle(MachineStorage(self.config.dirs.storage, is_home=True))
            return
        # Nearly all supervisors are on the scheduler's machine, and need no such import.
        from scaler_cluster.runtime.storage_process import storage_of_machine

        homes = welcome.homes
        here = [place for place in map(StorageDirs.of, homes) if place.is_here]
        if homes[0].disk and not here:
            try:
                self._storage, served_at = storage_of_machine(self.config, self._peer, homes)
            except ConfigError as error:
                self._leave = str(error)
                return
            self._settle(MachineStorage(self.config.dirs.storage, served_at))
        else:
            place = here[0] if here else StorageDirs()
            self._settle(MachineStorage(place, is_home=len(homes) == 1))

    def _is_settled_by(self, welcome: m.Welcome) -> bool:
        """Return True if the objects of the workers lie where this scheduler has them, too."""
        return self.config.is_home or self._storage is not None or welcome.homes == self._homes

    def _settle(self, objects: MachineStorage) -> None:
        self._objects = objects
        self._core.start(clock())

    def _look(self, now: float) -> None:
        """Tell the core which tasks the workers run."""
        self._look_at = now + self._look_s
        for index, slot in enumerate(self._core.slots):
            if slot.pid:
                self._core.seen(index, self._ran(index), now)

    # -- the end -----------------------------------------------------------------------------

    def _on_lifeline(self) -> None:
        data = os.read(self._lifeline, 4096)
        if not data:
            self._leave = ""
        for offer in self._bounds.read(data):
            self.config = replace(self.config, offer=offer)
            self._send([*self._core.headcount.bound(offer)])

    def terminate(self) -> None:
        """Leave; may be called from a handler of signals."""
        self._leave = ""

    def _close(self) -> None:
        self._end_workers()
        if self._storage is not None:
            self._storage.stop()
        self._selector.close()
        linger_ms = 0
        if self._is_dismissed or not self.config.is_home:
            # The scheduler then gives the tasks of this machine to others at once. An embedded
            # cluster ends with its program as a whole: there, the supervisor would wait in vain.
            actions = self._core.take_actions()
            words = [one.message for one in actions if isinstance(one, Send)]
            words.append(m.Goodbye())
            self._send(words)
            linger_ms = LINGER_MS
        self._link.close(linger_ms)


def _hello_of(config: SupervisorProcessConfig, host: str) -> m.Hello:
    """Return what a supervisor says first."""
    return m.Hello(
        m.SUPERVISOR,
        m.PROTOCOL_VERSION,
        PYTHON_VERSION,
        os.getpid(),
        host,
        workers=config.workers,
        capabilities=config.options.shared,
        pid_space=pid_space(),
        manager=config.manager,
        unit=config.unit,
        name=config.name,
    )

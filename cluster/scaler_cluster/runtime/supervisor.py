"""The supervisor process of a machine: starts workers, watches them, kills them, reports them.

Run as ``python -m scaler_cluster.runtime.supervisor``, with a SupervisorProcessConfig on standard
input. It runs no user code, so nothing a task does keeps it from its heartbeat.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pickle
import select
import selectors
import signal
import socket
import sys
from dataclasses import replace
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.supervisor.headcount import spares_max
from scaler_cluster.core.supervisor.supervisor import (
    ComeBack,
    Exit,
    Kill,
    Send,
    Spawn,
    SupervisorCore,
)
from scaler_cluster.errors import ConfigError
from scaler_cluster.ids import HUB
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import new_incarnation
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.process.bounds import BoundsReader
from scaler_cluster.process.log_config import set_up_logging
from scaler_cluster.process.process import (
    LIFELINE_FD,
    PYTHON_VERSION,
    allow_many_files,
    host_name,
    make_peer_id,
    pid_space,
    read_config,
)
from scaler_cluster.process.process_config import SupervisorProcessConfig
from scaler_cluster.runtime import forkserver
from scaler_cluster.runtime.forkserver import MachineStorage, WorkerEnded, WorkerOrder
from scaler_cluster.runtime.late_ends import LateEnds
from scaler_cluster.runtime.oom import OomWatch
from scaler_cluster.runtime.stderr import Passage, WorkerStderr
from scaler_cluster.runtime.stuck import StuckWatch
from scaler_cluster.runtime.thread_limits import thread_limits
from scaler_cluster.runtime.worker_log import WorkerLog
from scaler_cluster.runtime.worker_process import INITIALIZER_EXIT_CODE, WorkerProcess
from scaler_cluster.runtime.worker_slots import WorkerSlots
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.runtime.storage_process import StorageProcess
    from scaler_cluster.runtime.vitals import Examiner

log = logging.getLogger("scaler.supervisor")

LOOKS = 20
"""How often tasks are looked at within the timeout, if there is one for all tasks."""
LOOK_MIN_S, LOOK_MAX_S = 0.02, 0.5
DRAIN_LIMIT = 64
PAUSE_S = 1.0
"""A supervisor that was sent away sooner than this waits so long before it starts over."""
IMPATIENT_S = 5.0
"""A scheduler answers much sooner than this: a user who mistyped its address wants to know."""


class SupervisorShell:
    """Moves bytes and signals between the core, the scheduler and the workers.

    It works until the scheduler tells it to leave, or has the objects of its workers elsewhere, or
    until ``lifeline`` comes to its end.
    """

    def __init__(self, config: SupervisorProcessConfig, lifeline: int = LIFELINE_FD) -> None:
        options, core_config = config.options, config.core
        self.config = config
        """With the bounds that were told last."""
        self._bounds, self._late_ends = BoundsReader(), LateEnds()
        self._slots = WorkerSlots(core_config.places + spares_max(core_config.places))
        self._log = WorkerLog(config.name_of)
        self._peer = make_peer_id("S")
        self._host = host_name()
        pace = f"heartbeat_interval_seconds={options.heartbeat_s}"
        log.info("ClusterProcess: starting %s workers, %s", config.workers, pace)
        # Before there are threads or sockets: the fork server is a copy of this process.
        limits = thread_limits(os.environ, options.threads_per_worker)
        worker_main = WorkerProcess(config, self._slots, self._peer, self._host)
        self._server_pid, self._server = forkserver.start(worker_main, limits, config.inherited)
        allow_many_files()
        self._core = SupervisorCore(core_config, self._peer, self._host, clock())
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
        self._link = zmq_link.connect(config.address, self._peer, passport=passport)
        self._stderr: dict[int, WorkerStderr] = {}
        self._passage = Passage()
        self._is_dismissed = False
        """True if the scheduler ends the cluster, and waits until this supervisor has left."""
        # Not sooner: no worker has memory yet, and the import of psutil would keep them waiting.
        self._sample_at = clock() + self._core.sample_after_s(0)
        timeout_s = options.task_timeout_s
        self._look_s = min(max(timeout_s / LOOKS, LOOK_MIN_S), LOOK_MAX_S)
        self._look_at = 0.0 if timeout_s < math.inf else math.inf
        self._oom = OomWatch(clock())
        self._stuck = StuckWatch(self._core, self._slots, self._oom, clock())
        self._impatient_at = clock() + IMPATIENT_S
        self._examiner: Examiner | None = None
        """Made when the scheduler first asks how this machine is."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(lifeline, selectors.EVENT_READ, self._on_lifeline)
        self._selector.register(self._server, selectors.EVENT_READ, self._on_server)
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

    def _deadline(self) -> float:
        due = [self._core.deadline, self._exchange.deadline]
        due += [self._next_sample(), self._look_at, self._stuck.due, self._late_ends.deadline]
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
        for report in self._late_ends.take(now):
            self._on_end(report)
        if now >= self._next_sample():
            self._sample(now)
        if now >= self._look_at:
            self._look(now)
        if now >= self._stuck.due:
            self._stuck.look(now)
        if self._storage is not None and now >= self._storage.look_at:
            self._storage.look_after(now)

    def _act(self, now: float) -> None:
        """Do what the core has decided."""
        messages: list[m.Message] = []
        for action in self._core.take_actions():
            if isinstance(action, Send):
                messages.append(action.message)
                if type(action.message) is m.Stuck:
                    self._stuck.log(action.message)
            elif isinstance(action, Spawn):
                self._spawn(action)
            elif isinstance(action, Kill):
                # The worker may have ended meanwhile.
                if self._core.slots[action.slot].pid == action.pid:
                    forkserver.kill_group(action.pid)
            elif isinstance(action, ComeBack):
                log.warning("ClusterProcess: %s does not know this machine", self.config.address)
                said = [*self._exchange.undelivered(HUB), *messages]
                self._exchange = Exchange(new_incarnation())
                messages = [replace(self._hello, resume=1), *action.words(said)]
            else:
                self._leave = action.reason
        if self._examiner is not None and now >= self._examiner.due:
            messages.append(self._examiner.answer(now, self._core.restarts))
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
        self._slots.clear(action.slot)
        order = WorkerOrder(action.slot, action.peer, self._objects, self._core.headcount.wanted)
        with contextlib.suppress(ConnectionError):
            # If the fork server is gone, its socket says so next.
            self._server.send(pickle.dumps(order))

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

            self._examiner = Examiner(
                lambda: {slot.peer: slot.pid for slot in self._core.slots if slot.pid},
                self._core.config.memory_limit_bytes,
            )
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

    # -- workers -----------------------------------------------------------------------------

    def _on_server(self) -> None:
        """Take in a report of the fork server."""
        try:
            data, fds, _, _ = socket.recv_fds(self._server, 65536, 1)
        except ConnectionError:
            data = b""
        if not data:
            self._leave = "its fork server died"
            return
        report = forkserver.read_report(data)
        if isinstance(report, WorkerEnded):
            is_ours = self._core.slots[report.slot].reason or self._leave is not None
            if is_ours or not self._late_ends.hold(report, clock()):
                self._on_end(report)
            else:
                # Another process may have that pid by now.
                self._core.slots[report.slot].pid = 0
            return
        self._core.spawned(report.slot, report.pid)
        if not fds:
            self._leave = "too many files are open: see ulimit -n"
            return
        self._log.started(report.slot)
        self._stderr[report.slot] = WorkerStderr(fds[0], self._selector, self._passage)

    def _on_end(self, report: WorkerEnded) -> None:
        slot, slots = report.slot, self._slots
        session, task, _ = slots.ran(slot)
        end = Exit(
            report.pid,
            report.exit_code,
            report.signal,
            report.peak_rss_bytes,
            self._stderr.pop(slot).close() + slots.trace(slot),
            slots.is_ready(slot),
            report.exit_code == INITIALIZER_EXIT_CODE,
            session,
            task,
            "" if self._core.slots[slot].reason else self._oom.reason(report.signal),
        )
        self._log.ended(slot, end, self._core.slots[slot].reason or end.oom)
        self._core.died(slot, end, clock())

    def _next_sample(self) -> float:
        return self._sample_at if self._core.config.memory_limit_bytes else float("inf")

    def _sample(self, now: float) -> None:
        from scaler_cluster.runtime.vitals import rss_bytes

        largest = 0
        for index, slot in enumerate(self._core.slots):
            if slot.pid:
                nbytes = rss_bytes(slot.pid)
                self._core.sampled(index, nbytes)
                largest = max(largest, nbytes)
        self._sample_at = now + self._core.sample_after_s(largest)

    def _look(self, now: float) -> None:
        """Tell the core which tasks the workers run."""
        self._look_at = now + self._look_s
        for index, slot in enumerate(self._core.slots):
            if slot.pid:
                self._core.seen(index, self._slots.ran(index), now)

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

    def _let_finish(self) -> None:
        """Let workers that have inherited queues write what tasks have put into them."""
        from scaler_cluster.process.inheritance import FINISH_S

        for slot in self._core.slots:
            if slot.pid:
                # The worker may have ended just now.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(slot.pid, signal.SIGTERM)
        until = clock() + FINISH_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            # Without a fork server there are no workers left.
            while not self._leave and any(slot.pid for slot in self._core.slots):
                if clock() >= until:
                    return
                if selector.select(max(until - clock(), 0.0)):
                    self._on_server()

    def _close(self) -> None:
        if self.config.inherited:
            self._let_finish()
        for slot in self._core.slots:
            if slot.pid:
                forkserver.kill_group(slot.pid)
        forkserver.end(self._server_pid, self._server)
        for stderr in self._stderr.values():
            stderr.close()
        self._passage.close()
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
            linger_ms = zmq_link.LINGER_MS
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
        pid_space=pid_space(),
        manager=config.manager,
        unit=config.unit,
        name=config.name,
    )


class Supervisor:
    """A machine's supervisor: it starts over if its workers cannot serve the next scheduler."""

    def __init__(self, config: SupervisorProcessConfig, lifeline: int = LIFELINE_FD) -> None:
        self._config = config
        self._lifeline = lifeline
        self._shell = SupervisorShell(config, lifeline)
        self._is_over = False

    def run(self) -> str:
        """Work to the end; return the reason for it, empty if it was asked for."""
        config, reason = self._config, ""
        try:
            while not self._is_over:
                started_at = clock()
                reason = self._shell.run()
                if not self._shell.starts_over:
                    break
                if not config.is_home:
                    config.dirs.let_go()
                if clock() - started_at < PAUSE_S:
                    select.select([self._lifeline], (), (), PAUSE_S)
                self._shell = SupervisorShell(self._shell.config, self._lifeline)
        finally:
            config.dirs.let_go()
        return reason

    def terminate(self) -> None:
        """Leave; may be called from a handler of signals."""
        self._is_over = True
        self._shell.terminate()


def main() -> int:
    """Run the supervisor process; return its exit status."""
    config = read_config(SupervisorProcessConfig)
    set_up_logging(config.options.logging, "CRITICAL")
    supervisor = Supervisor(config)
    signal.signal(signal.SIGTERM, lambda *_: supervisor.terminate())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reason = supervisor.run()
    if reason:
        sys.stderr.write(f"scaler_exec: the cluster ends: {reason}\n")
    return 1 if reason else 0


if __name__ == "__main__":
    raise SystemExit(main())

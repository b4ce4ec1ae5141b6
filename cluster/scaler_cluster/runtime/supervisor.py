"""The supervisor process of a machine: starts workers, watches them, kills them, reports them.

Run as ``python -m scaler_cluster.runtime.supervisor``, with a SupervisorProcessConfig on standard
input. It runs no user code, so nothing a task does keeps it from its heartbeat.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import selectors
import signal
import socket
import sys
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.core.supervisor.headcount import places_of
from scaler_cluster.core.supervisor.supervisor import (
    Exit,
    Kill,
)
from scaler_cluster.process.log_config import set_up_logging
from scaler_cluster.process.process import (
    LIFELINE_FD,
    host_name,
    make_peer_id,
    read_config,
)
from scaler_cluster.process.process_config import SupervisorProcessConfig
from scaler_cluster.runtime import forkserver
from scaler_cluster.runtime.forkserver import WorkerEnded, WorkerOrder
from scaler_cluster.runtime.late_ends import LateEnds
from scaler_cluster.runtime.machine import MachineShell
from scaler_cluster.runtime.oom import OomWatch
from scaler_cluster.runtime.stderr import Passage, WorkerStderr
from scaler_cluster.runtime.stuck import StuckWatch
from scaler_cluster.runtime.thread_limits import thread_limits
from scaler_cluster.runtime.worker_log import WorkerLog
from scaler_cluster.runtime.worker_process import INITIALIZER_EXIT_CODE, WorkerProcess
from scaler_cluster.runtime.worker_slots import WorkerSlots
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("scaler.supervisor")

PAUSE_S = 1.0
"""A supervisor that was sent away sooner than this waits so long before it starts over."""


class SupervisorShell(MachineShell):
    """A machine whose workers are processes; see :class:`MachineShell`."""

    def __init__(self, config: SupervisorProcessConfig, lifeline: int = LIFELINE_FD) -> None:
        options, places = config.options, config.core.places
        self._late_ends = LateEnds()
        self._slots = WorkerSlots(places_of(places))
        self._log = WorkerLog(config.name_of)
        peer = make_peer_id("S")
        pace = f"heartbeat_interval_seconds={options.heartbeat_s}"
        log.info("ClusterProcess: starting %s workers, %s", config.workers, pace)
        # Before there are threads or sockets: the fork server is a copy of this process.
        limits = thread_limits(os.environ, options.threads_per_worker)
        worker_main = WorkerProcess(config, self._slots, peer, host_name())
        self._server_pid, self._server = forkserver.start(worker_main, limits, config.inherited)
        self._stderr: dict[int, WorkerStderr] = {}
        self._passage = Passage()
        super().__init__(config, peer, lifeline)
        # Not sooner: no worker has memory yet, and the import of psutil would keep them waiting.
        self._sample_at = clock() + self._core.sample_after_s(0)
        self._oom = OomWatch(clock())
        self._stuck = StuckWatch(self._core, self._slots, self._oom, clock())
        self._selector.register(self._server, selectors.EVENT_READ, self._on_server)

    def _deadline(self) -> float:
        due = super()._deadline()
        return min(due, self._next_sample(), self._stuck.due, self._late_ends.deadline)

    def _watch(self, now: float) -> None:
        super()._watch(now)
        for report in self._late_ends.take(now):
            self._on_end(report)
        if now >= self._next_sample():
            self._sample(now)
        if now >= self._stuck.due:
            self._stuck.look(now)

    def _send(self, messages: list[m.Message]) -> None:
        for message in messages:
            if type(message) is m.Stuck:
                self._stuck.log(message)
        super()._send(messages)

    def _start_worker(self, order: WorkerOrder) -> None:
        self._slots.clear(order.slot)
        with contextlib.suppress(ConnectionError):
            # If the fork server is gone, its socket says so next.
            self._server.send(pickle.dumps(order))

    def _kill_worker(self, action: Kill) -> None:
        forkserver.kill_group(action.pid)

    def _ran(self, slot: int) -> tuple[int, int, int]:
        return self._slots.ran(slot)

    def _processes(self) -> dict[bytes, int]:
        return {slot.peer: slot.pid for slot in self._core.slots if slot.pid}

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

    # -- the end -----------------------------------------------------------------------------

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

    def _end_workers(self) -> None:
        if self.config.inherited:
            self._let_finish()
        for slot in self._core.slots:
            if slot.pid:
                forkserver.kill_group(slot.pid)
        late = forkserver.end(self._server_pid, self._server)
        for stderr in self._stderr.values():
            stderr.close()
        for fd in late:
            WorkerStderr(fd, self._selector, self._passage).close()
        self._passage.close()


class Supervisor:
    """A machine's supervisor: it starts over if its workers cannot serve the next scheduler."""

    def __init__(
        self,
        config: SupervisorProcessConfig,
        lifeline: int = LIFELINE_FD,
        make_shell: Callable[[SupervisorProcessConfig, int], MachineShell] = SupervisorShell,
    ) -> None:
        self._config = config
        self._lifeline = lifeline
        self._make_shell = make_shell
        self._shell = make_shell(config, lifeline)
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
                self._shell = self._make_shell(self._shell.config, self._lifeline)
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

"""The supervisor process of a machine: starts workers, watches them, kills them, reports them.

Run as ``python -m scaler_cluster.runtime.supervisor``, settings on standard input. It runs no
user code, so nothing a task does keeps it from its heartbeat.
"""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import io
import json
import logging
import math
import mmap
import multiprocessing
import os
import selectors
import signal
import socket
import sys
import traceback
from dataclasses import asdict, fields
from time import perf_counter as clock
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scaler_cluster import payload as payloads
from scaler_cluster.core.exchange import Exchange
from scaler_cluster.core.supervisor import Exit, SupervisorConfig, SupervisorCore, spares_max
from scaler_cluster.core.worker import WorkerCore
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import HUB
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.objects.worker_store import WorkerStore
from scaler_cluster.preload import parse_preload
from scaler_cluster.runtime import forkserver, pools
from scaler_cluster.runtime.directories import (
    hold_directories,
    make_directories,
    remove_directories,
)
from scaler_cluster.runtime.memory_maintenance import MemoryMaintenance
from scaler_cluster.runtime.process import (
    LIFELINE_FD,
    PYTHON_VERSION,
    allow_many_files,
    host_name,
    log_as_told,
    make_peer_id,
    pid_space,
    read_settings,
)
from scaler_cluster.runtime.stderr import TAIL_BYTES, Passage, WorkerStderr
from scaler_cluster.runtime.thread_limits import thread_limits
from scaler_cluster.runtime.worker import (
    SLOT_READY,
    SLOT_SESSION,
    SLOT_TASK,
    SLOT_TRACE,
    SLOT_WORDS,
    SLOT_WORK,
    WorkerShell,
)
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.runtime.storage_process import StorageProcess
    from scaler_cluster.runtime.vitals import Examiner

log = logging.getLogger("scaler.supervisor")

INITIALIZER_EXIT_CODE = 66
"""A worker exits with this when its initializer raised."""
LOOKS = 20
"""How often tasks are looked at within their timeout, where there is one for all."""
LOOK_MIN_S, LOOK_MAX_S = 0.02, 0.5
DRAIN_LIMIT = 64
CONFIGURED = [one.name for one in fields(SupervisorConfig)]
"""Settings that the core is given as they are."""
IMPATIENT_S = 5.0
"""A scheduler that is there answers much sooner: whoever mistyped its address wants to know."""


class SupervisorShell:
    """Moves bytes and signals between the core, the scheduler and the workers.

    Until it is told to leave, or ``lifeline`` comes to its end.
    """

    def __init__(self, settings: dict[str, Any], lifeline: int = LIFELINE_FD) -> None:
        workers = settings["workers"]
        # Shared with the workers; says what each runs, whatever becomes of it.
        slots = workers + spares_max(workers)
        self._memory = mmap.mmap(-1, max(slots, 1) * SLOT_WORDS * 8)
        self._words = memoryview(self._memory).cast("Q")
        # Of each worker whose initializer fails, the traceback: what a worker writes to stderr is
        # passed on at once, and all of them fail alike. Takes no memory before it is written.
        self._traces = mmap.mmap(-1, max(slots, 1) * TAIL_BYTES)
        self._is_failure_logged = False
        self._peer = make_peer_id("S")
        self._host = host_name()
        told = {name: settings[name] for name in CONFIGURED if name in settings}
        config = SupervisorConfig(**told)
        pace = f"heartbeat_interval_seconds={config.heartbeat_s}"
        log.info("ClusterProcess: starting %s workers, %s", workers, pace)
        # Before there are threads or sockets: the fork server is a copy of this process.
        limits = thread_limits(os.environ, settings.get("threads_per_worker", 1))
        self._server_pid, self._server = forkserver.start(self._worker_main(settings), limits)
        allow_many_files()
        self._core = SupervisorCore(config, self._peer, self._host, clock())
        self._settings = settings
        self._lifeline = lifeline
        self._place: StorageDirs | None = None
        self._storage: StorageProcess | None = None
        if settings.get("home"):
            hold_directories(settings)
            self._settle(StorageDirs(**settings["place"]), is_home=True)
        self._exchange = Exchange(os.getpid())
        self._link = zmq_link.connect(settings["address"], self._peer)
        self._stderr: dict[int, WorkerStderr] = {}
        self._passage = Passage()
        self._is_dismissed = False
        """True if the scheduler ends the cluster, and waits until this has left."""
        self._sample_at = 0.0
        timeout_s = config.task_timeout_s
        self._look_s = min(max(timeout_s / LOOKS, LOOK_MIN_S), LOOK_MAX_S)
        self._look_at = 0.0 if timeout_s < math.inf else math.inf
        self._impatient_at = clock() + IMPATIENT_S
        self._examiner: Examiner | None = None
        """Made when somebody first wants to know how this machine is."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(lifeline, selectors.EVENT_READ, self._on_lifeline)
        self._selector.register(self._server, selectors.EVENT_READ, self._on_server)
        self._selector.register(self._link.fd, selectors.EVENT_READ, self._on_link)
        hello = m.Hello(
            m.SUPERVISOR,
            m.PROTOCOL_VERSION,
            PYTHON_VERSION,
            os.getpid(),
            self._host,
            b"",
            0,
            workers,
            pid_space=pid_space(),
        )
        self._link.send(HUB, self._exchange.send(HUB, [hello], clock()))

    def run(self) -> str:
        """Work until the lifeline ends or the scheduler says so; then end every worker.

        Returns why, if nobody asked for it.
        """
        core = self._core
        try:
            while True:
                self._turn()
                if core.leave is not None:
                    break
                storage_at = self._storage.look_at if self._storage is not None else math.inf
                sample_at = min(self._next_sample(), self._look_at)
                due = min(core.deadline, self._exchange.deadline, sample_at, storage_at)
                if self._examiner is not None:
                    due = min(due, self._examiner.due)
                timeout = due - clock()
                for key, _ in self._selector.select(max(timeout, 0.0)):
                    key.data()
        finally:
            self._close()
        return core.leave

    def _turn(self) -> None:
        core, link, exchange = self._core, self._link, self._exchange
        self._on_link()
        now = clock()
        if now >= self._impatient_at and self._place is None:
            self._impatient_at = math.inf
            log.warning("ClusterProcess: %s does not answer yet", self._settings["address"])
        if now >= self._next_sample():
            self._sample(now)
        if now >= self._look_at:
            self._look(now)
        if self._storage is not None and now >= self._storage.look_at:
            self._storage.look_after(now)
        core.tick(now)
        for index, peer in core.to_spawn:
            base = index * SLOT_WORDS
            self._words[base : base + SLOT_WORDS] = memoryview(bytes(SLOT_WORDS * 8)).cast("Q")
            order = json.dumps(self._order | {"slot": index, "peer": peer.hex()}).encode()
            with contextlib.suppress(ConnectionError):
                # Of one that is gone, the socket tells next.
                self._server.send(order)
        core.to_spawn.clear()
        for index in core.to_kill:
            if core.slots[index].pid:
                forkserver.kill_group(core.slots[index].pid)
        core.to_kill.clear()
        actions = core.take_actions()
        if self._examiner is not None and now >= self._examiner.due:
            actions.append(self._examiner.answer(now, self._core.restarts))
        if actions:
            link.send(HUB, exchange.send(HUB, actions, now))
        for _, frames in exchange.tick(now):
            link.send(HUB, frames)
        self._on_link()

    def _on_link(self) -> None:
        while received := self._link.receive(DRAIN_LIMIT):
            self._core.heard(clock())
            for _, frames in received:
                messages = self._exchange.receive(HUB, frames, clock())
                self._core.receive(messages)
                for message in messages:
                    if type(message) is m.Welcome and self._place is None:
                        self._settle_by(message)
                    elif type(message) is m.Goodbye:
                        self._is_dismissed = True
                        log.info("ClusterProcess: %s", message.reason)
                    elif type(message) is m.Examine:
                        self._examine(message, clock())

    def _examine(self, question: m.Examine, now: float) -> None:
        if self._examiner is None:
            # Nearly always nobody watches: this is no part of the start.
            from scaler_cluster.runtime.vitals import Examiner

            self._examiner = Examiner(
                lambda: {slot.peer: slot.pid for slot in self._core.slots if slot.pid},
                self._core.config.memory_limit_bytes,
            )
        self._examiner.ask(question, now)

    def _settle_by(self, welcome: m.Welcome) -> None:
        """Use the scheduler's objects if this is its machine; else keep copies of them here."""
        # Not at the start: nearly all supervisors are beside their scheduler.
        from scaler_cluster.runtime.storage_process import (
            StorageProcess,
            address_of,
            listen_towards,
        )

        homes = welcome.homes
        here = [place for place in map(StorageDirs.of, homes) if place.is_here]
        if homes[0].disk and not here:
            settings = self._settings
            make_directories(settings)
            place = StorageDirs(**settings["place"])
            listener = listen_towards(settings["address"])
            self._storage = StorageProcess(settings, listener, self._peer)
            self._settle(place, address_of(listener))
        else:
            self._settle(here[0] if here else StorageDirs(), is_home=len(homes) == 1)

    def _settle(self, place: StorageDirs, address: str = "", *, is_home: bool = False) -> None:
        self._place = place
        self._order = {
            "place": asdict(place),
            "address": address,
            "is_home": is_home,
            "inherited": self._settings.get("inherited", []),
        }
        self._core.start(clock())

    # -- workers -----------------------------------------------------------------------------

    def _on_server(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._server, 65536, 1)
        except ConnectionError:
            data = b""
        if not data:
            self._core.leave = "its fork server died"
            return
        report = json.loads(data)
        index = report["slot"]
        if "peak_rss_bytes" not in report:
            self._core.spawned(index, report["pid"])
            if not fds:
                self._core.leave = "too many files are open: see ulimit -n"
                return
            log.info("Worker[%s] started", _name_of(self._settings, index) or index)
            self._stderr[index] = WorkerStderr(fds[0], self._selector, self._passage)
            return
        base = index * SLOT_WORDS
        words = self._words
        end = Exit(
            report["pid"],
            report.get("exit_code"),
            report.get("signal"),
            report["peak_rss_bytes"],
            self._stderr.pop(index).close() + self._trace(index),
            bool(words[base + SLOT_READY]),
            report.get("exit_code") == INITIALIZER_EXIT_CODE,
            words[base + SLOT_SESSION],
            words[base + SLOT_TASK],
        )
        self._log_end(index, end)
        self._core.died(index, end, clock())

    def _trace(self, index: int) -> str:
        """Return the traceback of a worker whose initializer failed; else nothing."""
        length = self._words[index * SLOT_WORDS + SLOT_TRACE]
        start = index * TAIL_BYTES
        return self._traces[start : start + length].decode(errors="replace")

    def _log_end(self, index: int, end: Exit) -> None:
        name, reason = _name_of(self._settings, index) or index, self._core.slots[index].reason
        if end.initializer_failed:
            if not self._is_failure_logged:
                log.error("Worker[%s] cannot start:\n%s", name, end.stderr_tail.rstrip())
            self._is_failure_logged = True
        elif reason:
            log.warning("Worker[%s] was killed: %s", name, reason)
        elif end.signal or end.exit_code:
            how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
            log.warning("Worker[%s] died: %s", name, how)
        else:
            log.info("Worker[%s] ended", name)

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
        """See what the workers run."""
        self._look_at = now + self._look_s
        words = self._words
        for index, slot in enumerate(self._core.slots):
            if slot.pid:
                base = index * SLOT_WORDS
                ran = words[base + SLOT_SESSION], words[base + SLOT_TASK], words[base + SLOT_WORK]
                self._core.seen(index, ran, now)

    # -- the end -----------------------------------------------------------------------------

    def _on_lifeline(self) -> None:
        if not os.read(self._lifeline, 4096):
            self._core.leave = ""

    def terminate(self) -> None:
        """Leave; may be called from a handler of signals."""
        self._core.leave = ""

    def _let_finish(self) -> None:
        """Let workers end in order that have inherited queues."""
        from scaler_cluster.runtime.inheritance import FINISH_S

        for slot in self._core.slots:
            if slot.pid:
                # It may have ended just now.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(slot.pid, signal.SIGTERM)
        until = clock() + FINISH_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            # Without a fork server there are no workers either.
            while not self._core.leave and any(slot.pid for slot in self._core.slots):
                if clock() >= until:
                    return
                if selector.select(max(until - clock(), 0.0)):
                    self._on_server()

    def _close(self) -> None:
        if self._settings.get("inherited"):
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
        linger_ms = 0
        if self._is_dismissed or not self._settings.get("home"):
            # What ran here goes elsewhere at once. An embedded cluster ends with its program as a
            # whole: there, whoever lingers waits in vain.
            words = [*self._core.take_actions(), m.Goodbye()]
            self._link.send(HUB, self._exchange.send(HUB, words, clock()))
            linger_ms = zmq_link.LINGER_MS
        self._link.close(linger_ms)

    # -- what a worker process does, after its fork ------------------------------------------

    def _worker_main(self, settings: dict[str, Any]) -> Callable[[dict[str, Any]], int]:
        words, host, supervisor = self._words, self._host, self._peer
        traces = self._traces

        def worker_main(order: dict[str, Any]) -> int:
            if "logging" in settings:
                log_as_told(settings, suffix=f"-{os.getpid()}")
            faulthandler.enable()
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(line_buffering=True)
            _become_process(settings, order)
            peer = bytes.fromhex(order["peer"])
            place = StorageDirs(**order["place"])
            base = order["slot"] * SLOT_WORDS
            mine = words[base : base + SLOT_WORDS]
            if "sys_path" in settings:
                sys.path[:] = settings["sys_path"]
            try:
                _initialize(settings)
            except BaseException:
                trace = traceback.format_exc().encode(errors="replace")[-TAIL_BYTES:]
                start = order["slot"] * TAIL_BYTES
                traces[start : start + len(trace)] = trace
                mine[SLOT_TRACE] = len(trace)
                return INITIALIZER_EXIT_CODE
            if settings.get("inherited"):
                # Not before: one that is still starting has nothing to finish.
                from scaler_cluster.runtime.inheritance import finish

                signal.signal(signal.SIGTERM, finish)
            hello = m.Hello(
                m.WORKER,
                m.PROTOCOL_VERSION,
                PYTHON_VERSION,
                os.getpid(),
                host,
                supervisor,
                settings.get("max_tasks_per_child", 0),
                place=place.served_at(order["address"]),
                spare=order["slot"] >= settings["workers"],
                name=_name_of(settings, order["slot"]),
                capabilities=tuple(sorted(settings.get("capabilities", {}).items())),
                queue=settings.get("queue", 0),
            )
            link = zmq_link.connect(settings["address"], peer, settings.get("io_threads", 1))
            mine[SLOT_READY] = 1
            core = WorkerCore()
            store = WorkerStore(peer, place, core.mapped, core.missing, is_home=order["is_home"])
            maintenance = MemoryMaintenance(
                settings.get("collect_interval_s", 0.0), settings.get("trim_above_bytes", 0)
            )
            WorkerShell(
                link, core, mine, store, hello, settings["address"], peer, maintenance
            ).run()
            link.close()
            if settings.get("inherited"):
                finish()
            return 0

        return worker_main


def _become_process(settings: dict[str, Any], order: dict[str, Any]) -> None:
    """Be one of a pool's processes, as ``multiprocessing`` knows them, and no program of its own.

    What tasks start shall not run this program's ``__main__`` again; and ``__main__`` is the
    module from which functions and classes come that travel by value.
    """
    sys.modules["__main__"] = ModuleType("__main__")
    process = multiprocessing.current_process()
    forkserver.name_semaphores()
    process.name = f"Worker-{_name_of(settings, order['slot']) or order['slot']}"
    if "authkey" in settings:
        process.authkey = bytes.fromhex(settings["authkey"])


def _initialize(settings: dict[str, Any]) -> None:
    """Call what a worker is to call before its first task."""
    if settings.get("initializer"):
        pools.call_initializer(*payloads.loads(base64.b64decode(settings["initializer"])))
    if settings.get("preload"):
        parse_preload(settings["preload"]).run()


def _name_of(settings: dict[str, Any], index: int) -> str:
    """Return what users call a worker; empty if they do not."""
    names: list[str] = settings.get("worker_names", [])
    name: str = names[index] if index < len(names) else settings.get("name", "")
    return name


def run(settings: dict[str, Any], lifeline: int) -> str:
    """Run a supervisor in this process; return why it ended, if nobody asked for it."""
    try:
        return SupervisorShell(settings, lifeline).run()
    finally:
        remove_directories(settings)


def main() -> int:
    """Run the supervisor process; return its exit status."""
    settings = read_settings()
    log_as_told(settings, "CRITICAL")
    shell = SupervisorShell(settings)
    signal.signal(signal.SIGTERM, lambda *_: shell.terminate())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reason = shell.run()
    remove_directories(settings)
    if reason:
        sys.stderr.write(f"scaler_exec: the cluster ends: {reason}\n")
    return 1 if reason else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Light stand-ins of machines: supervisors and workers that speak the protocol, and run nothing.

A task is a timer here: its payload says how many seconds it lasts.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from time import perf_counter as clock
from typing import TYPE_CHECKING

from benchmarks.scale.peers import HEARTBEAT_S, Peers
from scaler_cluster.process.process import PYTHON_VERSION
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

SECONDS = struct.Struct("<d")
RESULT = b"done"
SHORT_S = 0.0001
"""How long a task that lasts no time says it has taken."""
MANAGER = "stand-ins"
LINGER_S = 1.0
"""Who has left hears so long that this was heard."""


class Worker:
    """Runs one timer after another."""

    def __init__(self, peers: Peers, supervisor: Supervisor, name: str) -> None:
        self._peers = peers
        self._supervisor = supervisor
        self._waiting: deque[tuple[int, int, float]] = deque()
        """Tasks that have not started: session, id, seconds."""
        self._running: tuple[int, int, float] | None = None
        self._retires = False
        self.peer = peers.add(b"W", self._on_message)
        peers.say(
            self.peer,
            m.Hello(
                m.WORKER,
                m.PROTOCOL_VERSION,
                PYTHON_VERSION,
                os.getpid(),
                supervisor.host,
                supervisor=supervisor.peer,
                name=name,
            ),
        )

    def _on_message(self, _: bytes, message: m.Message) -> None:
        if isinstance(message, m.Assign):
            self._assigned(message)
        elif isinstance(message, m.Welcome):
            self._supervisor.has_come()
        elif isinstance(message, m.Revoke):
            mine = self._take_back(message.session, message.first, message.count)
            kept = message.count - mine
            self._peers.say(
                self.peer, m.Revoked(message.session, message.first, message.count, kept)
            )
        elif isinstance(message, m.Abort):
            self._abort(message)
        elif isinstance(message, (m.Retire, m.Goodbye)):
            self._retires = True
        if self._retires and self._running is None and not self._waiting:
            self._retires = False
            self._supervisor.has_left(self)

    def _assigned(self, message: m.Assign) -> None:
        seconds = [
            SECONDS.unpack(payload)[0] if len(payload) == SECONDS.size else 0.0
            for payload in message.batch
        ]
        if self._running is None and not any(seconds):
            results = Batch.of([RESULT] * len(seconds))
            done = m.Done(message.session, message.first, SHORT_S * len(seconds), results)
            self._peers.say(self.peer, done)
            return
        tasks = range(message.first, message.first + len(seconds))
        self._waiting.extend(
            (message.session, task, one) for task, one in zip(tasks, seconds, strict=True)
        )
        if self._running is None:
            self._start()

    def _start(self) -> None:
        self._running = running = self._waiting.popleft()
        self._peers.at(clock() + running[2], lambda: self._ended(running))

    def _ended(self, task: tuple[int, int, float]) -> None:
        if self._running is not task:
            return
        session, number, seconds = task
        self._running = None
        self._peers.say(self.peer, m.Done(session, number, seconds, Batch.single(RESULT)))
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting:
            self._start()
        elif self._retires:
            self._retires = False
            self._supervisor.has_left(self)

    def _take_back(self, session: int, first: int, count: int) -> int:
        before = len(self._waiting)
        self._waiting = deque(
            one for one in self._waiting if one[0] != session or not first <= one[1] < first + count
        )
        return before - len(self._waiting)

    def _abort(self, message: m.Abort) -> None:
        session, first, stop = message.session, message.first, message.first + message.count
        self._take_back(session, first, message.count)
        running = self._running
        if running is not None and running[0] == session and first <= running[1] < stop:
            self._running = None
        self._peers.say(self.peer, m.Aborted(session, first, message.count))
        if self._running is None:
            self._go_on()


class Supervisor:
    """Claims some workers, says that they live, and how they are."""

    def __init__(
        self, peers: Peers, host: str, unit: str, count: int, on_change: Callable[[int], None]
    ) -> None:
        self._peers = peers
        self._on_change = on_change
        self._count = count
        self._workers: dict[bytes, Worker] = {}
        self.host = host
        self.peer = peers.add(b"S", self._on_message)
        self._hello = m.Hello(
            m.SUPERVISOR,
            m.PROTOCOL_VERSION,
            PYTHON_VERSION,
            os.getpid(),
            host,
            workers=count,
            manager=MANAGER,
            unit=unit,
        )
        self._is_over = False
        peers.say(self.peer, self._hello)

    def _on_message(self, _: bytes, message: m.Message) -> None:
        if isinstance(message, m.Welcome) and not self._workers:
            self._beat()
            for number in range(self._count):
                worker = Worker(self._peers, self, f"{self.host}-{number}")
                self._workers[worker.peer] = worker
        elif isinstance(message, m.Examine):
            self._peers.say(self.peer, self._vitals(message))
        elif isinstance(message, m.Goodbye) and not self._is_over:
            self._peers.say(self.peer, m.Goodbye(""))
            self._leave()

    def _beat(self) -> None:
        if not self._is_over:
            self._peers.say(self.peer, m.Heartbeat())
            self._peers.at(clock() + HEARTBEAT_S, self._beat)

    def _vitals(self, message: m.Examine) -> m.Vitals:
        workers = tuple(self._workers)
        cpus, sizes = (500,) * len(workers), (60 << 20,) * len(workers)
        machine = len(workers), 500 * len(workers), 64 << 30, 32 << 30
        return m.Vitals(message.sent_at, 0.0, *machine, 10, 40 << 20, workers, cpus, sizes)

    def has_come(self) -> None:
        """One of the workers was welcomed."""
        self._on_change(1)

    def has_left(self, worker: Worker) -> None:
        """One of the workers leaves in order."""
        self._peers.say(worker.peer, m.Goodbye(""))
        self._peers.say(self.peer, m.WorkerLost(worker.peer, 0, 0, {"exit_code": 0}))
        del self._workers[worker.peer]
        self._peers.at(clock() + LINGER_S, lambda: self._peers.drop(worker.peer))
        self._on_change(-1)

    def _leave(self) -> None:
        self._is_over = True
        gone = [*self._workers, self.peer]
        self._on_change(-len(self._workers))
        self._workers.clear()
        self._peers.at(clock() + LINGER_S, lambda: self._peers.drop(*gone))


class Host:
    """Some machines in one process, which obeys commands."""

    def __init__(self, address: str, commands: Connection, number: int) -> None:
        self._peers = Peers(address)
        self._commands = commands
        self._number = number
        self._machines: list[Supervisor] = []
        self._manager = b""
        self._units: tuple[str, ...] = ()
        """All units of the manager, as the scheduler says."""
        self._drains = False
        """True until the manager has said that they are to go."""
        self._here = 0
        self._expected = 0

    def run(self) -> None:
        """Obey until told to end."""
        self._peers.serve(self._commands, self._obey)
        self._peers.close()

    def _obey(self, name: str, arguments: tuple[float, ...]) -> None:
        if name == "join":
            machines, workers = map(int, arguments)
            self._expected = self._here + machines * workers
            for _ in range(machines):
                unit = f"{self._number}-{len(self._machines)}"
                machine = Supervisor(self._peers, f"m{unit}", unit, workers, self._changed)
                self._machines.append(machine)
        elif name == "manage":
            self._manage()
        elif name == "drain":
            self._drains = True
            self._drain()
        elif name == "go":
            self._expected = 0

    def _manage(self) -> None:
        """Let a manager come whose units all machines are."""
        self._manager = self._peers.add(b"M", self._on_message)
        me = m.PROTOCOL_VERSION, PYTHON_VERSION, os.getpid(), "here"
        self._peers.say(
            self._manager,
            m.Hello(m.MANAGER, *me, name=MANAGER),
            m.Offer("stand-ins", 0, m.MOST_MAX, 16, 3600.0, ()),
        )
        self._report()

    def _report(self) -> None:
        self._peers.say(self._manager, m.Units(0, 0, 0, "", 0.0))
        self._peers.at(clock() + HEARTBEAT_S, self._report)

    def _on_message(self, _: bytes, message: m.Message) -> None:
        if isinstance(message, m.Wanted):
            self._units = message.units
            self._drain()

    def _drain(self) -> None:
        """Let all machines go, once it is known which there are."""
        if self._drains and self._units:
            self._drains = False
            self._peers.say(self._manager, m.Drain(self._units))

    def _changed(self, count: int) -> None:
        self._here += count
        # A machine whose workers have all gone before it changes nothing: nobody reads that.
        if count and self._here == self._expected:
            self._commands.send(clock())


def run_machines(address: str, commands: Connection, number: int) -> None:
    """Host machines in this process."""
    Host(address, commands, number).run()

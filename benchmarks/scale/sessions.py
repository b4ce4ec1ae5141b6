"""Light stand-ins of clients: each submits lone tasks, in an envelope of their own."""

from __future__ import annotations

import os
from collections import deque
from time import perf_counter as clock
from typing import TYPE_CHECKING

from benchmarks.scale.machines import SECONDS
from benchmarks.scale.peers import HEARTBEAT_S, Peers
from scaler_cluster.ids import function_id
from scaler_cluster.process.process import PYTHON_VERSION
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

FUNCTION = b"a timer"
DIGEST = function_id(FUNCTION)
PACE_S = 0.0005
"""How often the pace is looked at: what is due is sent, each task by itself."""
HELD_MAX = 5000
"""More tasks than this are not under way: a scheduler that does not follow is not flooded."""


class Session:
    """A client."""

    def __init__(self, peers: Peers, host: Clients) -> None:
        self.peer = peers.add(b"C", self._on_message)
        self._peers = peers
        self._host = host
        self.next = 0
        self.sent: dict[int, float] = {}
        """When each task was sent that has no result yet."""
        hello = m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON_VERSION, os.getpid(), "here")
        peers.say(self.peer, hello, m.Function(DIGEST, FUNCTION, name="timer"))
        self._beat()

    def _beat(self) -> None:
        self._peers.say(self.peer, m.Heartbeat())
        self._peers.at(clock() + HEARTBEAT_S, self._beat)

    def _on_message(self, _: bytes, message: m.Message) -> None:
        if isinstance(message, m.Results):
            now = clock()
            for task in range(message.first, message.first + len(message.batch)):
                self._host.took(now - self.sent.pop(task))
        elif isinstance(message, m.Welcome):
            self._host.came()
        elif isinstance(message, (m.Failed, m.FailedRange, m.Refused, m.Goodbye, m.Broken)):
            raise RuntimeError(f"a task or a client failed: {message}")  # noqa: TRY004

    def submit(self, batch: Batch, options: m.TaskOptions) -> None:
        """Submit one task by itself."""
        task, self.next = self.next, self.next + 1
        self.sent[task] = clock()
        submit = m.Submit(task, DIGEST, m.CALL_ARGS, options, batch, ())
        self._peers.say_alone(self.peer, submit)


class Clients:
    """Some clients in one process, which obeys commands."""

    def __init__(self, address: str, commands: Connection) -> None:
        self._peers = Peers(address)
        self._commands = commands
        self._sessions: deque[Session] = deque()
        self._missing = 0
        self._latencies: list[float] = []
        self._held = 0
        self._sent = 0
        self._begun = self._end = self._rate = 0.0
        self._batch = Batch.single(b"")
        self._options = m.DEFAULT_OPTIONS
        self._is_over = True

    def run(self) -> None:
        """Obey until told to end."""
        self._peers.serve(self._commands, self._obey)
        self._peers.close()

    def _obey(self, name: str, arguments: tuple[float, ...]) -> None:
        if name == "join":
            self._missing = int(arguments[0])
            for _ in range(self._missing):
                self._sessions.append(Session(self._peers, self))
        elif name == "run":
            self._start(*arguments)

    def _start(self, rate: float, window: float, duration_s: float, each_s: float) -> None:
        """Submit at a rate, or with a rate of 0 as many as keep ``window`` tasks under way."""
        self._batch = Batch.single(SECONDS.pack(each_s))
        self._latencies, self._sent, self._rate = [], 0, rate
        self._begun = clock()
        self._end, self._is_over = self._begun + duration_s, False
        if rate:
            self._pace()
        else:
            for _ in range(int(window)):
                self._submit()
        self._peers.at(self._end, self._check_over)

    def _submit(self) -> None:
        session = self._sessions[0]
        self._sessions.rotate(-1)
        self._held += 1
        self._sent += 1
        session.submit(self._batch, self._options)

    def _pace(self) -> None:
        now = clock()
        if now >= self._end:
            return
        due = int((now - self._begun) * self._rate) - self._sent
        for _ in range(min(due, HELD_MAX - self._held)):
            self._submit()
        self._peers.at(now + PACE_S, self._pace)

    def came(self) -> None:
        """A client was welcomed."""
        self._missing -= 1
        if not self._missing:
            self._commands.send(clock())

    def took(self, latency_s: float) -> None:
        """A result has come."""
        self._held -= 1
        self._latencies.append(latency_s)
        if not self._rate and clock() < self._end:
            # Not within the turn in which it reads.
            self._peers.at(0.0, self._submit)
        elif self._held == 0:
            self._check_over()

    def _check_over(self) -> None:
        if self._held == 0 and clock() >= self._end and not self._is_over:
            self._is_over = True
            self._commands.send((clock() - self._begun, self._latencies))


def run_clients(address: str, commands: Connection) -> None:
    """Host clients in this process."""
    Clients(address, commands).run()

"""A whole cluster in one thread: real cores and exchanges, a simulated network, one seed.

The seed decides every delay, drop, duplicate, crash, pause and task. After each step of the
scheduler its invariants are checked, and what workers and clients see is checked against the
promises; when the faults end, everything that live clients asked for has to come back.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.clients import ClientNode
from scaler_cluster.testing.nodes import HUB_NAME, Node, SchedulerNode, SupervisorNode, WorkerNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.wire.batch import Buffer

END_S = 600.0
"""Simulated seconds after which whatever is still pending will never come."""


@dataclass(frozen=True)
class Plan:
    """What a simulation consists of."""

    machines: int = 2
    workers: int = 3
    clients: int = 2
    tasks: int = 60
    """Tasks of each client."""
    faults_s: float = 8.0
    """Until when things go wrong, in simulated seconds."""
    drop: float = 0.03
    duplicate: float = 0.03
    worker_crashes: int = 4
    machine_crashes: int = 1
    pauses: int = 3
    tasks_waiting_max: int = -1
    """How many tasks wait in the scheduler; -1: no limit."""
    leavers: int = 0
    """Clients that vanish."""
    check_every: int = 1
    """Steps of the scheduler between two looks at its invariants."""


class Simulation:
    """Time, the network and everybody in it."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.plan = plan or Plan()
        self.random = random.Random(seed)  # noqa: S311 - it is to be repeated
        self.now = 0.0
        self.faulty = True
        self.digest = hashlib.blake2b()
        self.machines_lost = 0
        self.started: dict[tuple[int, int], int] = {}
        """How often each task of each session was started."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._arrives: dict[tuple[bytes, bytes], float] = {}
        self.nodes: dict[bytes, Node] = {}
        self.hub = SchedulerNode(self)
        self._names = itertools.count(1)
        for _ in range(self.plan.machines):
            self.add_machine()
        self.clients = [ClientNode(self, self.name("C")) for _ in range(self.plan.clients)]
        self._plan_faults()

    def name(self, letter: str) -> bytes:
        """Return a new peer id."""
        return letter.encode() + next(self._names).to_bytes(12, "big")

    def add_machine(self) -> None:
        """Start a supervisor."""
        SupervisorNode(self, self.name("S"), self.plan.workers)

    def _plan_faults(self) -> None:
        plan, moment = self.plan, self.random.uniform
        for _ in range(plan.worker_crashes):
            self.at(moment(0, plan.faults_s), lambda: self._crash(WorkerNode))
        for _ in range(plan.machine_crashes):
            self.at(moment(0, plan.faults_s), lambda: self._crash(SupervisorNode))
        for _ in range(plan.pauses):
            self.at(moment(0, plan.faults_s), self._pause)
        for client in self.clients[: plan.leavers]:
            self.at(moment(0, plan.faults_s), client.stop)
        self.at(plan.faults_s, self._heal)

    def _some(self, kind: type[Any]) -> Any:
        found = [node for node in self.nodes.values() if isinstance(node, kind)]
        return self.random.choice(found) if found else None

    def _crash(self, kind: type[Any]) -> None:
        victim = self._some(kind)
        if victim is not None:
            victim.crash(9)

    def _pause(self) -> None:
        victim = self._some(Node)
        victim.paused_until = self.now + self.random.uniform(0.01, 3.0)

    def _heal(self) -> None:
        self.faulty = False

    # -- time --------------------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call ``act`` then."""
        heapq.heappush(self._events, (max(when, self.now), next(self._count), act))

    def run(self) -> str:
        """Run until everything has come back; return a digest of all that was sent.

        Raises AssertionError if a promise is broken.
        """
        while self.faulty or not self._is_quiet():
            assert self._events, f"{self.now:.3f}: nothing will ever happen any more"
            self.now, _, act = heapq.heappop(self._events)
            assert self.now < END_S, f"never came back: {self._pending()}"
            act()
        for client in self.clients:
            client.check_all()
        return self.digest.hexdigest()

    def _is_quiet(self) -> bool:
        table = self.hub.core.table
        idle = not table.in_flight and not table.ready.count
        return idle and all(client.is_done for client in self.clients)

    def _pending(self) -> list[str]:
        table = self.hub.core.table
        runs = [str(run) for session in table.sessions.values() for run in session.runs.values()]
        waiting = [str(list(client.core.waiters)) for client in self.clients if not client.is_done]
        return runs[:5] + waiting[:5]

    # -- the network -------------------------------------------------------------------------

    def carry(self, source: bytes, target: bytes, frames: list[Buffer]) -> None:
        """Deliver an envelope after a while, in order, unless it is lost or repeated."""
        self.digest.update(source + target + b"".join(bytes(frame) for frame in frames))
        luck = self.random.random()
        copies = 1
        if self.faulty and luck < self.plan.drop:
            copies = 0
        elif self.faulty and luck > 1 - self.plan.duplicate:
            copies = 2
        copy: list[Buffer] = [bytes(frame) for frame in frames]
        for _ in range(copies):
            delay = self.random.choice((0.00005, 0.0002, 0.001, 0.02))
            arrives = max(self.now + delay, self._arrives.get((source, target), 0.0))
            self._arrives[source, target] = arrives
            self.at(arrives, lambda: self._deliver(source, target, copy))

    def _deliver(self, source: bytes, target: bytes, frames: list[Buffer]) -> None:
        node = self.hub if target == HUB_NAME else self.nodes.get(target)
        if node is None:
            return
        if node.paused_until > self.now:
            self.at(node.paused_until, lambda: self._deliver(source, target, frames))
        else:
            node.receive(source, frames)


def simulate(seed: int, plan: Plan | None = None) -> str:
    """Run one simulation; return its digest. A failure names the line that repeats it."""
    try:
        return Simulation(seed, plan).run()
    except (AssertionError, RemoteProtocolError) as error:
        raise AssertionError(
            f"{error}\nrepeat it: simulate({seed}, {plan}) of scaler_cluster.testing.simulation"
        ) from error

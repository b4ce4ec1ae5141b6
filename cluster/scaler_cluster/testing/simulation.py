"""A whole cluster in one thread: real cores and exchanges, a simulated network, one seed.

The seed decides every delay, drop, duplicate, crash, pause and task. After each step of the
scheduler its invariants are checked, and what workers and clients see is checked against the
promises; when the faults end, everything that live clients asked for has to come back.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.objects import HOME
from scaler_cluster.ids import HUB, segment_prefix
from scaler_cluster.testing.clients import ClientNode
from scaler_cluster.testing.contenders import Board, ContenderNode
from scaler_cluster.testing.faults import Faults
from scaler_cluster.testing.limits import limited
from scaler_cluster.testing.machines import SupervisorNode
from scaler_cluster.testing.memory_files import MemoryFiles
from scaler_cluster.testing.network import Network
from scaler_cluster.testing.nodes import SchedulerNode
from scaler_cluster.testing.plan import Plan
from scaler_cluster.testing.rogue import RogueNode
from scaler_cluster.testing.storages import StorageNode
from scaler_cluster.wire.messages import NOWHERE, StorageEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.testing.world import Process
    from scaler_cluster.wire.batch import Buffer

END_S = 400.0
"""Simulated seconds after which whatever is still pending will never come."""
SETTLE_S = 5.0
"""In simulated seconds, how long nothing is asked for before the end: longer than any process
keeps anything for a while, or waits for an acknowledgement."""
LOOK_S = 0.05
"""How often to see whether everything has come back."""
STORAGE_START_AFTER_S = 0.3
"""How long a scheduler runs before it starts its storage."""
FAR_BYTES = 150
"""What finds room in the memory of a machine that is not the scheduler's; a result has some 20."""


class Simulation:
    """Time, the network and all processes in it.

    ``log`` is called with a line for each message that is sent.
    """

    def __init__(
        self, seed: int, plan: Plan | None = None, log: Callable[[str], object] | None = None
    ) -> None:
        self.plan = plan or Plan()
        self.random = random.Random(seed)  # noqa: S311 - it is to be repeated
        self.now = 0.0
        self.network = Network(self, log)
        self.machines_lost = 0
        self.started: dict[tuple[int, int], int] = {}
        """How often each task of each session was started."""
        self.start_limits: dict[tuple[int, int], tuple[int, bytes]] = {}
        """How often tasks may have been started that a worker held, and its name."""
        self.actors: dict[str, list[tuple[bytes, tuple[int, int]]]] = {}
        """By actor: which worker has begun which call of it, as session and task, in turn."""
        self.died: set[bytes] = set()
        """Names of tasks that a worker ran, or had run last, when it died."""
        self.disturbed: set[bytes] = set()
        """What tasks raised because something went wrong with others that they waited for."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self.nodes: dict[bytes, Process] = {}
        self._look_at = 0.0
        self._names = itertools.count(1)
        self._machines = itertools.count(1)
        self.storages: dict[str, Process] = {}
        """By their address."""
        self.home = self._files("home")
        self._places = {self.home.place.address: self.home}
        self.hub = SchedulerNode(self)
        self._home_storage: StorageNode | None = None
        """The storage beside the scheduler."""
        if self.plan.has_objects:
            self._start_storage()
        for number in range(self.plan.machines):
            self.add_machine(number + 1)
        self.clients = self._make_clients()
        for _ in range(self.plan.rogues):
            RogueNode(self, self.name("R"))
        self._faults = Faults(self, self.network, self.clients)
        self.at(self.plan.faults_s, self._faults.heal)

    def _make_clients(self) -> list[ClientNode]:
        names = [self.name("C") for _ in range(self.plan.clients)]
        if not self.plan.rounds:
            return [ClientNode(self, name) for name in names]
        board = Board(self)
        return [ContenderNode(self, name, board) for name in names]

    def name(self, letter: str) -> bytes:
        """Return a new peer id."""
        return letter.encode() + next(self._names).to_bytes(12, "big")

    # -- machines ----------------------------------------------------------------------------

    def _files(self, address: str, limit: int = 0) -> MemoryFiles:
        if not self.plan.has_objects:
            return MemoryFiles(NOWHERE)
        return MemoryFiles(StorageEndpoint(address, disk=f"/{address}", memory_limit=limit))

    def add_machine(self, number: int) -> None:
        """Start a supervisor; those with even numbers are not beside the scheduler."""
        files = self.home
        if self.plan.has_objects and number % 2 == 0:
            files = self._files(f"far-{next(self._machines)}", FAR_BYTES)
            self._places[files.place.address] = files
        SupervisorNode(self, number, self.plan.workers, files)

    def _start_storage(self, before: StorageNode | None = None) -> None:
        """Let the scheduler start the storage beside it, at first or because one has died."""
        if before is not self._home_storage:
            return
        for peer, key in list(self.hub.core.table.objects.storages.items()):
            if key == HOME:
                self.hub.core.peer_lost(peer, self.now)
        self._home_storage = StorageNode(self, self.home, b"", self._start_storage)

    def read(self, segments: tuple[bytes, ...], address: str) -> bytes | None:
        """Return what is in segments of a machine, None if that is gone."""
        files = self._places[address]
        return b"".join(map(files.open, segments)) if files.is_there else None

    def crash_scheduler(self) -> None:
        """End the scheduler, and with it its storage; the next one has the same files."""
        self.hub.crash()
        if self._home_storage is not None:
            self._home_storage.stop()
            self.at(
                self.hub.paused_until + STORAGE_START_AFTER_S,
                partial(self._start_storage, self._home_storage),
            )

    def note_start(self, task: tuple[int, int]) -> None:
        """A task of a session is started."""
        count = self.started[task] = self.started.get(task, 0) + 1
        assert count <= self.start_limits.get(task, (count,))[0], (
            f"{task} starts again, which was held"
        )

    def note_call(self, actor: str, worker: bytes, task: tuple[int, int]) -> None:
        """A worker begins a call: always the same worker, in the order of each client."""
        calls = self.actors.setdefault(actor, [])
        assert not calls or calls[-1][0] == worker, f"{actor} is in two places"
        assert all(session != task[0] or one < task[1] for _, (session, one) in calls), (
            f"{actor}: {task} comes too late, or once more"
        )
        calls.append((worker, task))

    @property
    def is_faulty(self) -> bool:
        """See :class:`World`."""
        return self.network.is_faulty

    # -- time --------------------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call ``act`` then."""
        heapq.heappush(self._events, (max(when, self.now), next(self._count), act))

    def run(self) -> str:
        """Run until everything has come back and all processes have left.

        Returns a digest of all that was sent. Raises AssertionError if a promise is broken.
        """
        self._run_until(self._has_come_back)
        self._run_for(SETTLE_S)
        self._check_over()
        # What nobody has named since the scheduler crashed is removed.
        self._run_until(lambda: not self.hub.core.table.objects.adopts)
        self._run_for(SETTLE_S)
        self._check_no_segments()
        for client in self.clients:
            if client.is_alive():
                client.leave()
        sessions = self.hub.core.table.sessions
        self._run_until(lambda: all(session.worker for session in sessions.values()))
        for node in list(self.nodes.values()):
            if isinstance(node, SupervisorNode):
                node.leave()
        self._run_until(lambda: not self.hub.core.table.supervisors)
        self._run_for(SETTLE_S)
        self._check_empty()
        return self.network.digest.hexdigest()

    def _run_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            assert self._events, f"{self.now:.3f}: nothing will ever happen any more"
            self.now, _, act = heapq.heappop(self._events)
            assert self.now < END_S, f"never came back: {self._pending()}"
            act()

    def _run_for(self, duration_s: float) -> None:
        over: list[bool] = []
        self.at(self.now + duration_s, lambda: over.append(True))
        self._run_until(lambda: bool(over))

    def _has_come_back(self) -> bool:
        """Return True once everything has; looks now and then, as that takes a while."""
        if self.network.is_faulty or self.now < max(self._look_at, self.network.cut_until):
            return False
        self._look_at = self.now + LOOK_S
        return self._is_quiet()

    def _is_quiet(self) -> bool:
        table = self.hub.core.table
        if table.in_flight or table.backlog.count:
            return False
        if not all(one.is_done for one in self.clients):
            return False
        ends = ((peer, session.worker) for peer, session in table.sessions.items())
        if not all(peer in self.nodes or worker in self.nodes for peer, worker in ends):
            # A client has vanished, and the scheduler has not noticed yet. A session that a task
            # gave up before it was welcome stays until the worker has another one, or ends.
            return False
        if any(session.graphs or session.runs for session in table.sessions.values()):
            return False
        known = [peer for peer, one in table.supervisors.items() if peer in self.nodes]
        if len(known) < self.plan.machines:
            # A machine is about to come, or does not know yet that it was given up.
            return False
        if any(node.paused_until > self.now for node in self.nodes.values()):
            return False
        return all(node.is_idle for node in self.nodes.values()) and self._is_delivered()

    def _is_delivered(self) -> bool:
        """Return True if the scheduler and all that it knows have acknowledged everything."""
        hub = self.hub.exchange
        return not any(
            hub.backlog(name) or node.exchange.backlog(HUB)
            for name, node in self.nodes.items()
            if hub.knows(name)
        )

    def _pending(self) -> list[str]:
        table = self.hub.core.table
        sessions = table.sessions.values()
        runs = [str(run) for session in sessions for run in session.runs.values()]
        graphs = [str(graph) for session in sessions for graph in session.graphs.values()]
        waiting = [str(list(client.core.waiters)) for client in self.clients if not client.is_done]
        busy = [str(node) for node in self.nodes.values() if not node.is_idle]
        return runs[:5] + graphs[:5] + waiting[:5] + busy[:5]

    def _check_over(self) -> None:
        """Check, when everything has come back, that no process holds anything any more."""
        table = self.hub.core.table
        self.hub.check()
        for node in self.nodes.values():
            node.check_over()
        for session in table.sessions.values():
            assert not session.watched, f"waits for inputs: {session.watched}"
            assert not session.objects, f"names objects: {session.objects}"
        assert not table.objects.records, f"keeps objects: {table.objects.records}"
        blocked = [one for one in table.workers.values() if one.blocked and not one.actor]
        assert not blocked, f"blocked for ever: {blocked}"

    def _check_empty(self) -> None:
        """Check, when all processes have left, that the scheduler knows nothing any more."""
        table = self.hub.core.table
        left = table.sessions, table.session_by_number, table.workers, table.functions
        assert not any(left), f"the scheduler remembers {left}"
        objects = table.objects
        assert not [*objects.records, *objects.copying], "the scheduler remembers objects"
        assert list(objects.stores) == [HOME], f"the scheduler remembers {objects.stores}"
        assert not objects.stores[HOME].nbytes, "the scheduler counts bytes of nothing"
        self._check_no_segments()

    def _check_no_segments(self) -> None:
        """Check, when nobody names anything, that nothing is stored any more."""
        # What a worker stores after it was given up stays until the scheduler ends.
        strangers = tuple(map(segment_prefix, self.hub.strangers))
        for address, files in self._places.items():
            left = [one for one in files.segments if not one.startswith(strangers)]
            assert not left or not files.is_there, f"left behind at {address}: {left}"

    def carry(self, source: bytes, target: bytes, frames: list[Buffer]) -> None:
        """See :class:`Network`."""
        self.network.carry(source, target, frames)


def simulate(
    seed: int, plan: Plan | None = None, log: Callable[[str], object] | None = None
) -> str:
    """Run one simulation; return its digest. A failure names the line that repeats it.

    ``log`` is called with a line for each message that is sent.
    """
    plan = plan or Plan()
    try:
        return _play(seed, plan, log)
    except Exception as error:
        # The same, with a look at the invariants after each step, may fail earlier.
        plan = replace(plan, check_every=1)
        first = _failure(seed, plan) or error
        raise AssertionError(
            f"{type(first).__name__}: {first}\n"
            f"repeat it: simulate({seed}, {plan}) of scaler_cluster.testing.simulation"
        ) from first


def _play(seed: int, plan: Plan, log: Callable[[str], object] | None = None) -> str:
    with limited(plan.limits):
        return Simulation(seed, plan, log).run()


def _failure(seed: int, plan: Plan) -> Exception | None:
    try:
        _play(seed, plan)
    except Exception as error:
        return error
    return None

"""A peer that says anything: every message there is, with ids that may be somebody's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import HUB, function_id
from scaler_cluster.objects.digest import digest_of
from scaler_cluster.testing.bench import PYTHON, segment
from scaler_cluster.testing.graphs import SimulatedGraph
from scaler_cluster.testing.nodes import Node
from scaler_cluster.testing.tasks import Task, object_of
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.testing.world import World
    from scaler_cluster.wire.batch import Buffer

FUNCTION = function_id(b"function")
ROLES = (m.CLIENT, m.CLIENT, m.CLIENT, m.SUPERVISOR)
"""What it says it is. What a worker or a storage says is believed: it must be neither. So is
what a supervisor says of its initializer: it never says that."""
CALLS = 3
"""Of how many calls tasks are named."""


class RogueNode(Node):
    """Says anything, as a client, as a supervisor or as nobody, until the faults end."""

    def __init__(self, simulation: World, name: bytes) -> None:
        super().__init__(simulation, name)
        self._tellers: tuple[Callable[[], m.Message], ...] = (
            *(self._hello, self._submit, self._submit, self._graph, self._cancel, self._of_client),
            self._coordinate,
            *(self._of_worker, self._of_worker, self._of_supervisor, self._of_storage),
        )
        self._say()

    # -- the process -------------------------------------------------------------------------

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        if self.simulation.random.random() < 0.1:
            return
        try:
            self.exchange.receive(HUB, frames, self.simulation.now)
        except RemoteProtocolError:
            self._begin_anew()
        self.turn()

    def turn(self) -> None:
        self.tell_hub([])

    def _begin_anew(self) -> None:
        self.exchange = Exchange(self.simulation.random.getrandbits(31) + 1)
        self.tell_hub([self._hello()])

    def _say(self) -> None:
        simulation, dice = self.simulation, self.simulation.random
        if not self.is_alive():
            return
        if not simulation.is_faulty:
            self.tell_hub([m.Goodbye()])
            self.stop()
            return
        if dice.random() < 0.3:
            self._begin_anew()
        self.tell_hub([dice.choice(self._tellers)() for _ in range(dice.randint(1, 3))])
        simulation.at(simulation.now + dice.uniform(0, 0.4), self._say)

    # -- ids that may be somebody's ------------------------------------------------------------

    def _session(self) -> int:
        known = list(self.simulation.hub.core.table.session_by_number)
        return self.simulation.random.choice([*known, 0, 1, 2])

    def _task(self) -> int:
        """Return a single task, or one of a map or graph."""
        dice = self.simulation.random
        runs: list[int] = [
            first
            for session in self.simulation.hub.core.table.sessions.values()
            for first in session.runs
        ]
        return dice.choice([*runs, dice.randrange(30)])

    def _own_task(self) -> int:
        dice = self.simulation.random
        return dice.choice((dice.randrange(30), (dice.randint(1, CALLS) << 32) + dice.randrange(9)))

    def _peer(self) -> bytes:
        return self.simulation.random.choice(list(self.simulation.nodes))

    def _segment(self) -> bytes:
        dice, own = self.simulation.random, segment(self.name, 1)
        known = [*self.simulation.home.segments, own]
        return dice.choice(known)

    def _object(self) -> bytes:
        """Return the id of an object that clients store, or of a segment."""
        dice = self.simulation.random
        content = object_of(dice.randrange(6))
        return dice.choice((digest_of(memoryview(content)), self._segment()))

    def _numbers(self) -> bytes:
        return bytes(4 * self.simulation.random.randrange(3))

    def _payload(self) -> bytes:
        """Return the payload of a task of its own; whatever such a task does is no harm."""
        number = self.simulation.random.randrange(1000)
        return Task(b"tR%s.%d" % (self.name[-1:].hex().encode(), number)).payload

    # -- the alphabet ------------------------------------------------------------------------

    def _hello(self) -> m.Message:
        role = self.simulation.random.choice(ROLES)
        workers = self.simulation.random.choice((0, 0, 3))
        return m.Hello(role, m.PROTOCOL_VERSION, PYTHON, 1, "simulated", workers=workers)

    def _submit(self) -> m.Message:
        dice = self.simulation.random
        if dice.random() < 0.3:
            return m.Function(FUNCTION, b"function", (), "rogue")
        payloads = Batch.of([self._payload() for _ in range(dice.randint(1, 4))])
        options = m.TaskOptions(priority=dice.randint(-1, 1), depth=dice.randint(0, 1))
        return m.Submit(self._own_task(), FUNCTION, m.CALL_ARGS, options, payloads)

    def _graph(self) -> m.Message:
        dice = self.simulation.random
        inputs = dice.randint(0, 1)
        graph = SimulatedGraph.draw(
            dice, self._payload().split(b" ")[0], inputs + dice.randint(1, 5), inputs, 0,
            [m.DEFAULT_OPTIONS], is_large=False,
        )  # fmt: skip
        parts = list(graph.messages(self._own_task(), FUNCTION, [self._task()] * inputs, {}, 2))
        return dice.choice(parts)

    def _cancel(self) -> m.Message:
        dice = self.simulation.random
        return m.Cancel(self._task(), dice.choice((1, 5, 1 << 40)), dice.random() < 0.3)

    def _coordinate(self) -> m.Message:
        dice = self.simulation.random
        number = dice.randint(1, 9)
        if dice.random() < 0.3:
            return m.Withdraw(number, dice.random() < 0.5)
        kind, act = dice.choice(
            (
                (m.LOCK, m.ACQUIRE),
                (m.QUEUE, m.PUT),
                (m.QUEUE, m.TAKE),
                (m.VARIABLE, m.SET),
                (m.VARIABLE, m.GET),
                (m.EVENT, m.CLEAR),
                (m.SEMAPHORE, m.LOOK),
            )
        )
        names = tuple(dice.choices("abc", k=dice.choice((1, 1, 1, 2))))
        most, order = dice.choice((0, 0, 1)), dice.choice((0, 0, 0, 5, 1 << 61))
        return m.Coordinate(
            number, kind, act, names, 1, most, may_wait=dice.random() < 0.8, order=order
        )

    def _of_client(self) -> m.Message:
        return self.simulation.random.choice(
            (
                m.Forget(FUNCTION),
                m.Object(self._segment(), self._segment(), 10),
                m.Release((self._object(),)),
                m.ProvideInputs(self._task(), "", b"wrong"),
                m.RequestCredit(3, 1),
                m.Blocked(is_blocked=True),
                m.Inlined("f", 3, 2, 1, 4),
                m.Shutdown(),
                m.Heartbeat(),
            )
        )

    def _of_worker(self) -> m.Message:
        session, task = self._session(), self._task()
        return self.simulation.random.choice(
            (
                m.Done(session, task, 0.001, Batch.of([b"wrong"])),
                m.Erred(session, task, 0.001, m.FAILED_EXCEPTION, b"wrong", {}),
                m.Stored(session, task, 0.001, b"wrong", (self._segment(),), (10,)),
                m.Skipped(session, task),
                m.Started(session, task),
                m.Revoked(session, task, 3, 0),
                m.Aborted(session, task, 3),
                m.Shared(session, task, "", b"wrong", (self._segment(),), (10,), {}),
            )
        )

    def _of_supervisor(self) -> m.Message:
        return self.simulation.random.choice(
            (
                m.WorkerLost(self._peer(), self._session(), self._task(), {"signal": 9}),
                m.Overdue(self._peer(), self._session(), self._task(), 0.1),
                m.Spares(2),
            )
        )

    def _of_storage(self) -> m.Message:
        return self.simulation.random.choice(
            (
                m.Inventory((self._segment(),)),
                m.Arrived((self._segment(),)),
                m.Missing((self._segment(),), "wrong"),
                m.Put(self._segment()),
                m.Transferred(self._segment(), ""),
                m.Unknown(),
            )
        )

"""Simulated clients that contend for locks and semaphores, and pass values on in queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.client.coordination import Asked
from scaler_cluster.testing.clients import ClientNode
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.testing.world import World

LOCKS = ("a", "b", "c")
LEASES = 2
"""How many may hold the semaphore."""
ROOM = 4
"""How many values the queue may have."""
WATCHED_S = 0.05
"""So long it takes until the scheduler hears that a process has ended."""


class Board:
    """What all contenders know together."""

    def __init__(self, simulation: World) -> None:
        plan = simulation.plan
        self._simulation = simulation
        touch = plan.silences, plan.stops, plan.partitions, plan.overtakings
        late = plan.scheduler_crashes and (plan.drop or plan.pauses)
        self._is_strict = not (any(touch) or late)
        """Whether everybody hears in time that it holds something no more."""
        self._holders: dict[tuple[str, str], list[tuple[ContenderNode, Asked]]] = {}
        self.put: dict[bytes, ContenderNode] = {}
        """Who was told that a value is in the queue."""
        self.got: dict[bytes, list[ContenderNode]] = {}

    def acquired(self, node: ContenderNode, asked: Asked) -> None:
        """Somebody holds something; nobody else may, of those who believe that they do."""
        kind = asked.message.kind
        for name in asked.message.names:
            holders = self._holders.setdefault((kind, name), [])
            holders[:] = [(one, lease) for one, lease in holders if one.believes(lease)]
            holders.append((node, asked))
            most = LEASES if kind == m.SEMAPHORE else 1
            assert len(holders) <= most or not self._is_strict, f"{len(holders)} hold {kind} {name}"

    def received(self, node: ContenderNode, value: bytes) -> None:
        """Somebody took a value; once only, unless it was told so by two schedulers."""
        takers = self.got.setdefault(value, [])
        takers[:] = [one for one in takers if one.is_alive()]
        is_twice = bool(takers) and not self._simulation.plan.loses_touch
        assert not is_twice, f"{value!r} was taken twice"
        takers.append(node)

    def check_over(self) -> None:
        """Check that no value was lost which somebody who is still there has put."""
        coordination = self._simulation.hub.core._coordinating.coordination
        place = coordination.places.get(m.QUEUE, "queue")
        left = {stake.value for stake in place.stakes.values()} if place is not None else set()
        for value, node in self.put.items():
            is_lost = value not in self.got and value not in left
            is_kept = node.is_alive() or not self._simulation.plan.loses_touch
            assert not (is_lost and is_kept), f"{value!r} was lost"


class ContenderNode(ClientNode):
    """A client that acquires, waits for and gives back what others want as well."""

    def __init__(self, simulation: World, name: bytes, board: Board) -> None:
        self._board = board
        self._rounds = simulation.plan.rounds
        self._current: Asked | None = None
        self._number = 0
        super().__init__(simulation, name)

    @property
    def is_done(self) -> bool:
        """Return True if it is gone, or has done all its rounds."""
        return not self.is_alive() or not (self._rounds or self._current)

    def believes(self, asked: Asked) -> bool:
        """Return True if it takes something for its own."""
        return self.is_alive() and self.core.coordination.keeps(asked)

    def stop(self) -> None:
        """Vanish; the scheduler watches its process."""
        super().stop()
        simulation = self.simulation
        when = simulation.now + WATCHED_S
        simulation.at(when, lambda: simulation.hub.core.process_over(self.name, when))

    def turn(self) -> None:
        """Act on what was answered."""
        super().turn()
        asked = self._current
        if asked is not None and asked.answer is not None:
            self._answered(asked, asked.answer)

    def _act(self) -> None:
        """Ask for something, and give up after a while if it does not come."""
        if not self.is_alive() or not self._rounds:
            return
        self._rounds -= 1
        dice = self.simulation.random
        asked = self._current = Asked(self._draw())
        self.core.coordination.ask(asked)
        if asked.message.act in (m.PUT, m.TAKE) or dice.random() < 0.2:
            self._then(dice.uniform(0.0, 3.0), lambda: self._give_up(asked))
        self.turn()

    def _draw(self) -> m.Coordinate:
        dice = self.simulation.random
        kind = dice.choice((m.LOCK, m.LOCK, m.SEMAPHORE, m.QUEUE, m.QUEUE))
        if kind == m.LOCK:
            names = tuple(dice.sample(LOCKS, dice.choice((1, 1, 1, 2, 3))))
            return m.Coordinate(0, kind, m.ACQUIRE, names, dice.randint(1, len(names)))
        if kind == m.SEMAPHORE:
            return m.Coordinate(0, kind, m.ACQUIRE, ("semaphore",), most=LEASES)
        if dice.random() < 0.5:
            count = dice.choice((0, 1, 1, 2))
            return m.Coordinate(0, kind, m.TAKE, ("queue",), count, most=ROOM)
        self._number += 1
        value = b"%s:%d" % (self.name, self._number)
        return m.Coordinate(0, kind, m.PUT, ("queue",), most=ROOM, value=value)

    def _answered(self, asked: Asked, answer: m.Coordinated) -> None:
        assert not answer.refused, answer.refused
        assert answer.order, "nobody asked for an answer at once"
        act = asked.message.act
        if act == m.ACQUIRE:
            self._current = Asked(asked.message)
            # As somebody that is busy until it gives this back.
            self._board.acquired(self, asked)
            dice = self.simulation.random
            # Sometimes for longer than it takes until another scheduler gives anything out.
            is_long = self.simulation.plan.loses_touch and dice.random() < 0.1
            held_s = dice.uniform(0, 8.0 if is_long else 0.2)
            self._then(held_s, lambda: self._release(asked))
            return
        if act == m.PUT:
            self._board.put[asked.message.value] = self  # type: ignore[index]
        elif answer.orders:
            for value in answer.values:
                self._board.received(self, bytes(value))
            self.core.coordination.withdraw(asked, has_values=True)
        self._go_on()

    def _release(self, asked: Asked) -> None:
        self.core.coordination.withdraw(asked)
        self._go_on()

    def _give_up(self, asked: Asked) -> None:
        if asked is self._current and asked.answer is None:
            self.core.coordination.withdraw(asked)
            self._go_on()

    def _go_on(self) -> None:
        self._current = None
        self.set_timer(self.simulation.now)
        self._then(self.simulation.random.uniform(0, 0.1), self._act)

    def _then(self, later_s: float, act: Callable[[], object]) -> None:
        def do() -> None:
            if self.paused_until > self.simulation.now:
                self._then(self.paused_until - self.simulation.now, act)
            elif self.is_alive():
                act()
                self.set_timer(self.simulation.now)

        self.simulation.at(self.simulation.now + later_s, do)

    def check_over(self) -> None:
        """See :class:`ClientNode`."""
        super().check_over()
        assert self.core.coordination.is_idle, "it waits for something, or holds something"
        self._board.check_over()

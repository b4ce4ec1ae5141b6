"""What all processes of a simulated cluster are, and the scheduler: real cores, simulated time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.scheduler import invariants
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.scheduler import SchedulerCore
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import HUB
from scaler_cluster.testing.bench import PYTHON
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.testing.world import World
    from scaler_cluster.wire.batch import Buffer

HUB_NAME = b"hub"
ROGUE = b"R"
"""The letter of peers that say anything."""


class Node:
    """A simulated process: it has an exchange and a timer."""

    def __init__(self, simulation: World, name: bytes, host: bytes = b"") -> None:
        self.simulation = simulation
        self.name = name
        self.host = host or name
        self.paused_until = 0.0
        self.exchange = Exchange(simulation.random.getrandbits(31) + 1)
        self._timer_at = float("inf")
        if name != HUB_NAME:
            simulation.nodes[name] = self

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        """An envelope arrived."""
        raise NotImplementedError

    def turn(self) -> None:
        """Act on what is due, and send what is to be sent."""
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Return True if it has nothing to do."""
        return True

    def check_over(self) -> None:
        """Check that nothing is left here, once everything has come back."""

    def is_alive(self) -> bool:
        """Return True unless it crashed or left."""
        return self.name == HUB_NAME or self.simulation.nodes.get(self.name) is self

    def stop(self) -> None:
        """Vanish."""
        self.simulation.nodes.pop(self.name, None)

    def pause(self, until: float) -> None:
        """Do nothing until then, as a process that was stopped."""
        self.paused_until = max(self.paused_until, until)

    def tell_hub(self, messages: list[m.Message]) -> None:
        """Send messages and what the exchange has due, and set the timer for the next time."""
        now, carry = self.simulation.now, self.simulation.carry
        if messages:
            for frames in self.exchange.send(HUB, messages, now):
                carry(self.name, HUB_NAME, frames)
        for _, frames in self.exchange.tick(now):
            carry(self.name, HUB_NAME, frames)
        self.set_timer(self.exchange.deadline)

    def set_timer(self, when: float) -> None:
        """Have a turn then, unless one comes before."""
        if when < self._timer_at:
            self._timer_at = max(when, self.simulation.now)
            self.simulation.at(self._timer_at, self._on_timer)

    def _on_timer(self) -> None:
        if not self.is_alive() or self.simulation.now < self._timer_at:
            return
        if self.paused_until > self.simulation.now:
            self._timer_at = self.paused_until
            self.simulation.at(self.paused_until, self._on_timer)
            return
        self._timer_at = float("inf")
        self.turn()


class SchedulerNode(Node):
    """The scheduler."""

    def __init__(self, simulation: World) -> None:
        super().__init__(simulation, HUB_NAME)
        self._config = SchedulerConfig(
            PYTHON,
            client_timeout_s=simulation.plan.client_timeout_s,
            supervisor_timeout_s=10.0,
            tasks_waiting_max=simulation.plan.tasks_waiting_max,
            object_retention_s=simulation.plan.object_retention_s,
            idle_s=simulation.plan.idle_s,
            homes=(simulation.home.place,),
        )
        self.core = SchedulerCore(self._config, 0.0)
        self._steps = 0
        """In how many turns something happened since the last look at the invariants."""
        self._lives = 1
        self.strangers: dict[bytes, None] = {}
        """Who spoke and was not known any more."""

    def crash(self) -> None:
        """Forget everything; what is under way reaches the scheduler that follows."""
        now = self.simulation.now
        self.exchange = Exchange(self.simulation.random.getrandbits(31) + 1)
        self.pause(now + self.simulation.random.uniform(0.01, 3.0))
        config = replace(self._config, epoch=self._lives, adopts=True, predecessor=self.core.roster)
        self.core = SchedulerCore(config, self.paused_until)
        self._lives += 1
        self._watch_claims()
        self.set_timer(self.paused_until)

    def _watch_claims(self) -> None:
        """See that no task starts again that a worker holds and that is asked for."""
        settle, started = self.core._resumption._claims.settle, self.simulation.started
        limits = self.simulation.start_limits
        limits.clear()

        def settle_and_note(worker: WorkerRecord, holding: m.Holding, now: float) -> None:
            settle(worker, holding, now)
            for run in worker.runs if worker.peer in self.simulation.nodes else ():
                if run.session == holding.session and not run.options.retries:
                    first, stop = max(run.first, holding.first), holding.first + holding.count
                    for task in range(first, min(run.stop, stop)):
                        key = holding.session, task
                        is_new = task >= holding.first + holding.started
                        limits[key] = started.get(key, 0) + is_new, worker.peer

        self.core._resumption._claims.settle = settle_and_note  # type: ignore[method-assign]

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        now = self.simulation.now
        try:
            messages = self.exchange.receive(source, frames, now)
        except RemoteProtocolError:
            # The network repeats the Hello of a peer that has been given up since: what the peer
            # says next does not follow that. Nobody else may break the protocol.
            assert self.simulation.plan.loses_touch or self._is_rogue(source)
            self._drop(source)
            messages = []
        if messages and type(messages[0]) is m.Unknown:
            self.strangers[source] = None
            self.simulation.carry(HUB_NAME, source, self.exchange.unknown())
        else:
            try:
                self.core.receive(source, messages, now)
            except RemoteProtocolError:
                if not self._is_rogue(source):
                    raise
                self._drop(source)
        self._steps += any(type(message) is not m.Heartbeat for message in messages)
        self.turn()

    def _is_rogue(self, peer: bytes) -> bool:
        return peer.startswith(ROGUE)

    def _drop(self, peer: bytes) -> None:
        self.core.peer_lost(peer, self.simulation.now)
        self.exchange.drop(peer)

    def check(self) -> None:
        """Look at the invariants."""
        self._steps = 0
        invariants.check(self.core)

    def turn(self) -> None:
        now, carry = self.simulation.now, self.simulation.carry
        if now >= self.core.deadline:
            self.core.tick(now)
        actions = self.core.take_actions(now)
        self._steps += bool(actions)
        for peer, messages in actions.items():
            for frames in self.exchange.send(peer, messages, now):
                carry(HUB_NAME, peer, frames)
        for peer in self.core.take_gone():
            self.exchange.drop(peer)
        for peer in self.core.to_nudge:
            carry(HUB_NAME, peer, self.exchange.unknown())
        self.core.to_nudge.clear()
        for peer, frames in self.exchange.tick(now):
            carry(HUB_NAME, peer, frames)
        if self._steps >= self.simulation.plan.check_every:
            self.check()
        self.set_timer(min(self.core.deadline, self.exchange.deadline))

"""What goes wrong in a simulation besides lost envelopes, at moments that the seed decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.testing.machines import SupervisorNode, WorkerNode
from scaler_cluster.testing.network import ANYBODY
from scaler_cluster.testing.nodes import HUB_NAME
from scaler_cluster.testing.storages import StorageNode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.testing.clients import ClientNode
    from scaler_cluster.testing.network import Network
    from scaler_cluster.testing.world import Process, World

CUTS_S = ((0.05, 3.0), (3.0, 12.0), (10.5, 45.0))
"""How long links are cut: shorter and longer than every timeout."""
OVERTAKEN_S = (0.01, 0.1, 1.0, 15.0)
"""How much later than a new connection an old one may bring what it still has."""


class Faults:
    """The faults of a plan."""

    def __init__(self, simulation: World, network: Network, clients: Sequence[ClientNode]) -> None:
        self._simulation = simulation
        self._network = network
        self._clients = clients
        plan = simulation.plan
        self._at_moments(plan.worker_crashes, lambda: self._crash(WorkerNode, 9))
        self._at_moments(plan.machine_crashes, lambda: self._crash(SupervisorNode, 9))
        self._at_moments(plan.storage_crashes, lambda: self._crash(StorageNode))
        self._at_moments(plan.pauses, self._pause)
        self._at_moments(plan.silences, self._silence)
        self._at_moments(plan.stops, self._stop)
        self._at_moments(plan.scheduler_crashes, simulation.crash_scheduler)
        self._at_moments(plan.partitions, self._cut)
        self._at_moments(plan.overtakings, self._overtake)
        for client in clients[: plan.leavers]:
            self._at_moments(1, client.stop)

    def heal(self) -> None:
        """Nothing goes wrong any more; machines have what they always had."""
        self._network.is_faulty = False
        for node in list(self._simulation.nodes.values()):
            if isinstance(node, SupervisorNode) and node.is_changed:
                node.crash(15)

    def _at_moments(self, count: int, act: Callable[[], None]) -> None:
        simulation = self._simulation
        for _ in range(count):
            simulation.at(simulation.random.uniform(0, simulation.plan.faults_s), act)

    def _some(self, kind: type[Any]) -> Any:
        found = [node for node in self._simulation.nodes.values() if isinstance(node, kind)]
        return self._simulation.random.choice(found) if found else None

    def _crash(self, kind: type[Any], *how: int) -> None:
        victim = self._some(kind)
        if victim is not None:
            victim.crash(*how)

    def _until(self, least_s: float, most_s: float) -> float:
        return self._simulation.now + self._simulation.random.uniform(least_s, most_s)

    def _anybody(self) -> Process:
        victims = [self._simulation.hub, *self._simulation.nodes.values()]
        return self._simulation.random.choice(victims)

    # -- processes that are stopped ----------------------------------------------------------

    def _pause(self) -> None:
        self._anybody().pause(self._until(0.01, 3.0))

    def _stop(self) -> None:
        """Stop anybody for up to a minute, as SIGSTOP does."""
        victim, until = self._anybody(), self._until(3.0, 60.0)
        if isinstance(victim, SupervisorNode):
            victim.silence(until)
        else:
            victim.pause(until)

    def _silence(self) -> None:
        """Pause a client or a supervisor until the scheduler has given it up."""
        if self._simulation.random.random() < 0.3:
            self._simulation.random.choice(self._clients).pause(self._until(31.0, 40.0))
            return
        victim = self._some(SupervisorNode)
        if victim is not None:
            victim.silence(self._until(10.5, 20.0))

    # -- links -------------------------------------------------------------------------------

    def _link(self) -> tuple[bytes, bytes]:
        """Return two ends: a node or its whole host, and the scheduler, anybody or another one."""
        dice = self._simulation.random
        # A client that vanished may have been the last node.
        nodes = list(self._simulation.nodes.values()) or [self._simulation.hub]
        one, other = dice.choice(nodes), dice.choice(nodes)
        if dice.random() < 0.5:
            return one.host, dice.choice((HUB_NAME, ANYBODY, other.host))
        return one.name, dice.choice((HUB_NAME, ANYBODY, other.name))

    def _cut(self) -> None:
        """Cut a link, in both directions or in one."""
        one, other = self._link()
        until = self._until(*self._simulation.random.choice(CUTS_S))
        dice = self._simulation.random.random()
        if dice < 0.8:
            self._network.cut(one, other, until)
        if dice > 0.2:
            self._network.cut(other, one, until)
        # The scheduler gives up whom it does not hear, if that lasts.
        self._simulation.machines_lost += 1

    def _overtake(self) -> None:
        """Let a new connection of a link be faster than the old one, in one direction."""
        one, other = self._link()
        if self._simulation.random.random() < 0.5:
            one, other = other, one
        since = self._until(0.05, 1.0)
        later = self._simulation.random.choice(OVERTAKEN_S) * self._simulation.random.random()
        self._network.connect_anew(one, other, since, since + later)

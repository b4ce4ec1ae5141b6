"""The network of a simulation: envelopes take a while, and come in order, or not at all."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from scaler_cluster.testing.describe import describe
from scaler_cluster.testing.nodes import HUB_NAME
from scaler_cluster.wire.codec import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.testing.world import World
    from scaler_cluster.wire.batch import Buffer

DELAYS_S = (0.00005, 0.0002, 0.001, 0.02)
"""How long an envelope may take."""
RATES = (1e3, 1e4, 1e5)
"""How many bytes a second may get through a slow link; an envelope has about a hundred."""
ANYBODY = b""
"""In the place of a host: any other one."""


class Network:
    """Carries envelopes between the nodes of a simulation.

    A link is named by two hosts, or by two nodes, or one of them is anybody. ``log`` is called with
    a line for each envelope that is sent.
    """

    def __init__(self, simulation: World, log: Callable[[str], object] | None) -> None:
        self.is_faulty = True
        self.digest = hashlib.blake2b()
        """Of all that was sent."""
        self.cut_until = 0.0
        """When the last link that is cut is whole again."""
        self._simulation = simulation
        self._log = log
        self._arrives: dict[tuple[bytes, bytes], float] = {}
        self._cuts: dict[tuple[bytes, bytes], float] = {}
        """Until when nothing gets from one to another."""
        self._stuck: dict[tuple[bytes, bytes], tuple[float, float]] = {}
        """What is sent until the first moment arrives at the second one."""
        self._rates: dict[tuple[bytes, bytes], float] = {}
        """Bytes a second between two hosts; 0: as fast as any."""
        self._free_at: dict[tuple[bytes, bytes], float] = {}
        """When a slow link has carried what was sent so far."""

    # -- what goes wrong ---------------------------------------------------------------------

    def cut(self, source: bytes, target: bytes, until: float) -> None:
        """Lose everything from one to another, until then."""
        self._cuts[source, target] = max(until, self._cuts.get((source, target), 0.0))
        self.cut_until = max(until, self.cut_until)

    def connect_anew(self, source: bytes, target: bytes, since: float, arrives: float) -> None:
        """Use another connection since then: what was sent before that arrives later on."""
        self._stuck[source, target] = (since, arrives)

    # -- envelopes ---------------------------------------------------------------------------

    def carry(self, source: bytes, target: bytes, frames: list[Buffer]) -> None:
        """Deliver an envelope after a while, in order, unless it is lost or repeated."""
        simulation = self._simulation
        copy: list[Buffer] = [bytes(frame) for frame in frames]
        self.digest.update(b"".join((source, target, *copy)))
        luck = simulation.random.random()
        copies = 1
        if self.is_faulty and luck < simulation.plan.drop:
            copies = 0
        elif self.is_faulty and luck > 1 - simulation.plan.duplicate:
            copies = 2
        if self._cuts and self._is_cut(source, target):
            copies = 0
        if self._log is not None:
            self._log(self._line(source, target, frames, copies))
        for _ in range(copies):
            arrives = self._arrival(source, target, sum(map(len, copy)))
            simulation.at(arrives, lambda: self._deliver(source, target, copy))

    def _is_cut(self, source: bytes, target: bytes) -> bool:
        now = self._simulation.now
        return any(self._cuts.get(link, 0.0) > now for link in self._links(source, target))

    def _arrival(self, source: bytes, target: bytes, nbytes: int) -> float:
        simulation = self._simulation
        link, now = (source, target), simulation.now
        for stuck in self._links(source, target) if self._stuck else ():
            since, arrives = self._stuck.get(stuck, (0.0, 0.0))
            if now < since:
                return arrives
        earliest = now + simulation.random.choice(DELAYS_S)
        if simulation.plan.slow and self.is_faulty:
            earliest = max(earliest, self._carried_at(source, target, nbytes))
        self._arrives[link] = arrives = max(earliest, self._arrives.get(link, 0.0))
        return arrives

    def _carried_at(self, source: bytes, target: bytes, nbytes: int) -> float:
        """Return when a slow link has carried so many bytes more."""
        simulation = self._simulation
        link = self._host(source), self._host(target)
        rate = self._rates.get(link)
        if rate is None:
            is_slow = simulation.random.random() < simulation.plan.slow
            rate = self._rates[link] = simulation.random.choice(RATES) if is_slow else 0.0
        if not rate:
            return simulation.now
        begins = max(simulation.now, self._free_at.get(link, 0.0))
        self._free_at[link] = begins + nbytes / rate
        return self._free_at[link]

    def _links(self, source: bytes, target: bytes) -> tuple[tuple[bytes, bytes], ...]:
        """Return the names of the link between two nodes."""
        here, there = self._host(source), self._host(target)
        within = () if here == there else ((here, there), (here, ANYBODY), (ANYBODY, there))
        return (source, target), (source, ANYBODY), (ANYBODY, target), *within

    def _host(self, name: bytes) -> bytes:
        node = self._simulation.nodes.get(name)
        return name if node is None else node.host

    def _deliver(self, source: bytes, target: bytes, frames: list[Buffer]) -> None:
        simulation = self._simulation
        node = simulation.hub if target == HUB_NAME else simulation.nodes.get(target)
        if node is None:
            return
        if node.paused_until > simulation.now:
            simulation.at(node.paused_until, lambda: self._deliver(source, target, frames))
        else:
            node.receive(source, frames)

    def _line(self, source: bytes, target: bytes, frames: list[Buffer], copies: int) -> str:
        said = ", ".join(map(describe, decode(frames).messages))
        fate = ("LOST ", "", "TWICE ")[copies]
        return f"{self._simulation.now:.6f} {fate}{_label(source)} to {_label(target)}: {said}"


def _label(peer: bytes) -> str:
    """Return a peer id as text: its letter and what is not zero after that."""
    if peer == HUB_NAME:
        return peer.decode()
    return peer[:1].decode() + peer[1:].replace(b"\0", b"").hex()

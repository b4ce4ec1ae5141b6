"""A connection to who answers requests: a storage, or a scheduler that an operator speaks to."""

from __future__ import annotations

import os
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.ids import HUB
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import LINGER_MS, as_reached, new_incarnation
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.links.curve import Passport

DRAIN_LIMIT = 64
BEAT_S = 2.0
"""After this silence the storage is spoken to: one that was started anew then says so, and need not
be waited for."""


class Source:
    """Sends requests to a storage or a scheduler, as ``peer``, and takes in what it answers.

    ``scheduler`` is the address by which this process reaches the scheduler: a storage that
    listens everywhere is where that is. It may be reached by a ``detour``. The ``passport`` is
    shown to the storage. A scheduler has a ``name``.
    """

    def __init__(
        self,
        address: str,
        scheduler: str,
        peer: bytes,
        passport: Passport | None,
        role: str = m.CLIENT,
        name: str = "",
        detour: str = "",
    ) -> None:
        self.address = address
        who = role, m.PROTOCOL_VERSION, "", os.getpid(), ""
        self._hello = m.Hello(*who, name=name)
        self._exchange = Exchange(new_incarnation())
        reached_at = as_reached(detour or address, scheduler)
        self._link = zmq_link.connect(reached_at, peer, passport=passport)
        self.fd = self._link.fd
        self._has_answered = False
        self._beat_at = clock() + BEAT_S
        self._greet()

    @property
    def refusal(self) -> str:
        """Why nobody there listens to this process; empty: nobody said so."""
        return self._link.refusal

    @property
    def deadline(self) -> float:
        """When :meth:`turn` has something to send again."""
        return min(self._exchange.deadline, self._beat_at)

    def send(self, messages: Sequence[m.Message]) -> None:
        """Send messages, if there are any."""
        if messages:
            for frames in self._exchange.send(HUB, messages, clock()):
                self._link.send(HUB, frames)

    def turn(self) -> list[m.Message]:
        """Return what has arrived; Unknown if the storage has forgotten everything."""
        arrived: list[m.Message] = []
        now = clock()
        if now >= self._beat_at:
            self._beat_at = now + BEAT_S
            self.tend()
            for frames in self._exchange.send(HUB, (), now):
                self._link.send(HUB, frames)
        for _, frames in self._exchange.tick(now):
            self._link.send(HUB, frames)
        while received := self._link.receive(DRAIN_LIMIT):
            self._has_answered = True
            self._beat_at = now + BEAT_S
            for _, frames in received:
                messages = self._exchange.receive(HUB, frames, now)
                if messages and type(messages[0]) is m.Unknown:
                    self._exchange.drop(HUB)
                    self._greet()
                arrived += messages
        return arrived

    def tend(self) -> None:
        """Take note of what has become of the connection: what is not looked at piles up."""
        self._link.tend()

    def readable(self) -> bool:
        """Return True if something has arrived; to be asked before waiting for :attr:`fd`."""
        return self._link.readable()

    def wait(self, timeout_s: float) -> None:
        """Sleep until something has arrived, at most so long."""
        until = min(timeout_s, self.deadline - clock())
        self._link.wait(max(until, 0.0))

    def close(self, reason: str = "") -> None:
        """Leave."""
        self.send([m.Goodbye(reason)])
        self._link.close(LINGER_MS if self._has_answered else 0)

    def _greet(self) -> None:
        self.send([self._hello])

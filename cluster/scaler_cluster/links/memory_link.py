"""Links within one thread, for tests and the simulation."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from scaler_cluster.ids import HUB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.wire.batch import Buffer


class MemoryHub:
    """The hub; spokes are made with :meth:`connect`."""

    def __init__(self) -> None:
        self._inbox: deque[tuple[bytes, list[Buffer]]] = deque()
        self._spokes: dict[bytes, MemorySpoke] = {}

    def connect(self, peer: bytes) -> MemorySpoke:
        """Return a new spoke; an older one of the same name is cut off."""
        spoke = self._spokes[peer] = MemorySpoke(self, peer)
        return spoke

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        """Send frames to a spoke, or drop them if it is gone."""
        spoke = self._spokes.get(peer)
        if spoke is not None:
            spoke.deliver(list(frames))

    def receive(self, limit: int) -> list[tuple[bytes, list[Buffer]]]:
        """Return up to ``limit`` envelopes that have arrived, with who sent them."""
        inbox = self._inbox
        return [inbox.popleft() for _ in range(min(limit, len(inbox)))]

    def deliver(self, peer: bytes, frames: list[Buffer]) -> None:
        """Put an envelope into the inbox."""
        self._inbox.append((peer, frames))

    def drop(self, spoke: MemorySpoke) -> None:
        """Forget a spoke that closed."""
        if self._spokes.get(spoke.peer) is spoke:
            del self._spokes[spoke.peer]

    def close(self) -> None:
        """Cut all spokes off."""
        self._spokes.clear()
        self._inbox.clear()


class MemorySpoke:
    """A spoke of a memory link."""

    def __init__(self, hub: MemoryHub, peer: bytes) -> None:
        self.peer = peer
        self._hub: MemoryHub | None = hub
        self._inbox: deque[list[Buffer]] = deque()

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        """Send frames to the hub."""
        if self._hub is not None:
            self._hub.deliver(self.peer, list(frames))

    def receive(self, limit: int) -> list[tuple[bytes, list[Buffer]]]:
        """Return up to ``limit`` envelopes that have arrived."""
        inbox = self._inbox
        return [(HUB, inbox.popleft()) for _ in range(min(limit, len(inbox)))]

    def deliver(self, frames: list[Buffer]) -> None:
        """Put an envelope into the inbox."""
        self._inbox.append(frames)

    def close(self) -> None:
        """Leave the hub."""
        if self._hub is not None:
            self._hub.drop(self)
            self._hub = None

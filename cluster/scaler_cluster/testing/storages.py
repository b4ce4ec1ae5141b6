"""The object storages of a simulated cluster: real cores, files in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.storage.storage import UPSTREAM, StorageCore
from scaler_cluster.ids import HUB
from scaler_cluster.objects.source import BEAT_S
from scaler_cluster.testing.bench import PYTHON
from scaler_cluster.testing.nodes import HUB_NAME, Node
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.testing.memory_files import MemoryFiles
    from scaler_cluster.testing.world import World
    from scaler_cluster.wire.batch import Buffer

LOOK_S = 1.0
"""How often the process that started a storage looks whether it runs."""


class StorageNode(Node):
    """The storage of a machine, as ``runtime/storage.py`` moves it."""

    def __init__(
        self,
        simulation: World,
        files: MemoryFiles,
        supervisor: bytes,
        on_end: Callable[[StorageNode], None],
    ) -> None:
        super().__init__(simulation, simulation.name("O"), supervisor or HUB_NAME)
        hello = m.Hello(
            m.STORAGE, m.PROTOCOL_VERSION, PYTHON, 1, "simulated", supervisor, place=files.place
        )
        self.core = StorageCore(files, hello, waits=False)
        self._on_end = on_end
        self._sources: dict[str, SourceNode] = {}
        simulation.storages[files.place.address] = self
        self.turn()

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        now = self.simulation.now
        peer = UPSTREAM if source == HUB_NAME else source
        messages = self.exchange.receive(peer, frames, now)
        if peer != UPSTREAM and messages and type(messages[0]) is m.Unknown:
            self.simulation.carry(self.name, source, self.exchange.unknown())
        else:
            self.core.receive(peer, messages, now)
        self.turn()

    def turn(self) -> None:
        core, now = self.core, self.simulation.now
        core.tick(now)
        for address, messages in core.take_requests().items():
            if address not in self._sources:
                self._sources[address] = SourceNode(self, address)
            self._sources[address].send(messages)
        for peer, messages in core.take_actions().items():
            for frames in self.exchange.send(peer, messages, now):
                self._carry(peer, frames)
        for peer in core.take_gone():
            self.exchange.drop(peer)
        for peer, frames in self.exchange.tick(now):
            self._carry(peer, frames)
        for address in list(self._sources):
            if address not in core.sources:
                self._sources.pop(address).leave()
        if core.leave:
            self.crash()
        else:
            self.set_timer(min(core.deadline, self.exchange.deadline))

    def _carry(self, peer: bytes, frames: list[Buffer]) -> None:
        self.simulation.carry(self.name, HUB_NAME if peer == UPSTREAM else peer, frames)

    def crash(self) -> None:
        """End the process; the one that started it notices that after a while."""
        if self.is_alive():
            self.stop()
            self.simulation.at(self.simulation.now + LOOK_S, lambda: self._on_end(self))

    def stop(self) -> None:
        """See :class:`Node`."""
        super().stop()
        for source in self._sources.values():
            source.stop()


class SourceNode(Node):
    """The connection of a storage to another one."""

    def __init__(self, storage: StorageNode, address: str) -> None:
        super().__init__(storage.simulation, storage.simulation.name("F"), storage.host)
        self._storage = storage
        self._address = address
        self._beat_at = self.simulation.now + BEAT_S
        self._greet()

    def _greet(self) -> None:
        self.send([m.Hello(m.CLIENT, m.PROTOCOL_VERSION, "", 1, "")])

    def send(self, messages: list[m.Message]) -> None:
        """Send messages to the storage, whichever it is by now."""
        for frames in self.exchange.send(HUB, messages, self.simulation.now):
            self._carry(frames)
        self.set_timer(min(self.exchange.deadline, self._beat_at))

    def _carry(self, frames: list[Buffer]) -> None:
        there = self.simulation.storages.get(self._address)
        if there is not None:
            self.simulation.carry(self.name, there.name, frames)

    def leave(self) -> None:
        """Nothing is to be fetched any more."""
        self.send([m.Goodbye()])
        self.stop()

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        messages = self.exchange.receive(HUB, frames, self.simulation.now)
        self._beat_at = self.simulation.now + BEAT_S
        if messages and type(messages[0]) is m.Unknown:
            self.exchange.drop(HUB)
            self._greet()
        self._storage.core.receive_from(self._address, messages, self.simulation.now)
        self._storage.turn()
        if self.is_alive():
            self.turn()

    def turn(self) -> None:
        now = self.simulation.now
        if now >= self._beat_at:
            self._beat_at = now + BEAT_S
            self.send([])
        for _, frames in self.exchange.tick(now):
            self._carry(frames)
        self.set_timer(min(self.exchange.deadline, self._beat_at))

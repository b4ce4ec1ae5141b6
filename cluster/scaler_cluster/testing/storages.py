"""The object storages of a simulated cluster: real cores, files in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.storage import UPSTREAM, StorageCore
from scaler_cluster.errors import MissingObjects
from scaler_cluster.ids import DRAFT
from scaler_cluster.links.link import HUB
from scaler_cluster.testing.bench import PYTHON
from scaler_cluster.testing.nodes import HUB_NAME, Node
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.testing.simulation import Simulation
    from scaler_cluster.wire.batch import Buffer

LOOK_S = 1.0
"""How often whoever started a storage looks whether it runs."""


class MemoryFiles:
    """The segments of a machine."""

    def __init__(self, place: m.StorageEndpoint) -> None:
        self.place = place
        self.segments: dict[bytes, bytes] = {}
        """Those that are whole, and drafts."""
        self.is_there = True
        """False once the machine is gone."""

    def write(self, name: bytes, data: bytes) -> None:
        """Write a segment at once, as who is on this machine does."""
        self.segments[name] = data

    def draft(self, name: bytes, nbytes: int) -> MemoryDraft:
        return MemoryDraft(self, name, nbytes)

    def open(self, name: bytes) -> memoryview:
        try:
            return memoryview(self.segments[name])
        except KeyError:
            raise MissingObjects(f"there is no segment {name!r}") from None

    def has(self, name: bytes) -> bool:
        return name in self.segments

    def remove(self, name: bytes) -> None:
        self.segments.pop(name, None)
        self.segments.pop(DRAFT + name, None)

    def purge(self, prefix: bytes, keep: tuple[bytes, ...]) -> None:
        for name in list(self.segments):
            if name.removeprefix(DRAFT).startswith(prefix) and name not in keep:
                del self.segments[name]

    def inventory(self) -> tuple[bytes, ...]:
        return tuple(self.segments)


class MemoryDraft:
    """A segment that is being written."""

    def __init__(self, files: MemoryFiles, name: bytes, nbytes: int) -> None:
        self._files = files
        self._name = name
        self._data = bytearray(nbytes)
        files.segments[DRAFT + name] = b""

    def write(self, data: memoryview, offset: int) -> None:
        self._data[offset : offset + len(data)] = data

    def finish(self) -> bytes:
        self.discard()
        self._files.segments[self._name] = bytes(self._data)
        return self._name

    def discard(self) -> None:
        self._files.segments.pop(DRAFT + self._name, None)


class StorageNode(Node):
    """The storage of a machine, as ``runtime/storage.py`` moves it."""

    def __init__(
        self,
        simulation: Simulation,
        files: MemoryFiles,
        supervisor: bytes,
        on_end: Callable[[StorageNode], None],
    ) -> None:
        super().__init__(simulation, simulation.name("O"))
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
            self._carry(peer, self.exchange.send(peer, messages, now))
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
        """The process ends; whoever started it looks after it."""
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
        super().__init__(storage.simulation, storage.simulation.name("F"))
        self._storage = storage
        self._address = address
        self._greet()

    def _greet(self) -> None:
        self.send([m.Hello(m.CLIENT, m.PROTOCOL_VERSION, "", 1, "")])

    def send(self, messages: list[m.Message]) -> None:
        """Send messages to the storage, whichever it is by now."""
        self._carry(self.exchange.send(HUB, messages, self.simulation.now))
        self.set_timer(self.exchange.deadline)

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
        if messages and type(messages[0]) is m.Unknown:
            self.exchange.drop(HUB)
            self._greet()
        self._storage.core.receive_from(self._address, messages, self.simulation.now)
        self._storage.turn()
        if self.is_alive():
            self.turn()

    def turn(self) -> None:
        for _, frames in self.exchange.tick(self.simulation.now):
            self._carry(frames)
        self.set_timer(self.exchange.deadline)

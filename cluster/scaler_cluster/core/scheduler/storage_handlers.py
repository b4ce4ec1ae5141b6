"""What object storages tell the scheduler, and what it does when they come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler_cluster.core.scheduler.adoption import Adoption
    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.graph_moves import Graphs
    from scaler_cluster.core.scheduler.inventories import Inventories
    from scaler_cluster.core.scheduler.table import Table


class StorageHandlers:
    """Handles the messages of object storages."""

    def __init__(
        self,
        table: Table,
        config: SchedulerConfig,
        graphs: Graphs,
        adoption: Adoption,
        inventories: Inventories,
    ) -> None:
        self._table = table
        self._inventories = inventories
        self._adoption = adoption
        self._config = config
        self._graphs = graphs
        self.own: bytes | None = None
        """Peer id of the storage that this scheduler started; None: it is not known."""
        self._users: dict[str, str] = {}
        """Who is let in, by their public keys; none: nobody needs a key."""
        self.handlers: dict[type[m.Message], Callable[[bytes, Any, float], None]] = {
            m.Inventory: self._on_inventory,
            m.Transferred: self._on_transferred,
        }

    def welcome(self, peer: bytes, hello: m.Hello, now: float) -> None:
        """A storage came: of a machine, or one that runs by itself."""
        table = self._table
        key = hello.supervisor
        if peer in table.objects.homes:
            key = peer
            table.objects.stores[peer].last_seen = now
        elif not hello.supervisor and self.own not in (None, peer):
            raise RemoteProtocolError("this scheduler did not start that storage")
        if hello.supervisor and hello.supervisor not in table.supervisors:
            table.send(peer, m.Goodbye("its supervisor is not here"))
            table.outbox.part_with(peer)
            return
        table.send(peer, self._config.welcome())
        if self._users:
            table.send(peer, m.LetIn(self._users))
        before = table.objects.add_storage(peer, key, hello.place)
        self._adoption.storage_came(key)
        if before is not None:
            table.outbox.part_with(before)

    def let_in(self, users: Mapping[str, str]) -> None:
        """Tell the storages whom to let in."""
        self._users = dict(users)
        for peer in self._table.objects.storages:
            self._table.send(peer, m.LetIn(self._users))

    def lose(self, peer: bytes) -> None:
        """A storage has ended; another one may come in its place."""
        self._table.objects.drop_storage(peer)
        self._graphs.machine_lost()

    def heard(self, peer: bytes, now: float) -> None:
        """A storage says that it lives; it is given up for silence only if it runs by itself."""
        key = self._key(peer)
        if key is not None and key in self._table.objects.homes:
            self._table.objects.stores[key].last_seen = now

    def _key(self, peer: bytes) -> bytes | None:
        """Return the key of a storage's store; None: it was given up, so what it says is late."""
        table = self._table
        key = table.objects.storages.get(peer)
        if key is None and not table.has_parted(peer):
            raise RemoteProtocolError("only a storage says this")
        return key

    def _on_inventory(self, peer: bytes, message: m.Inventory, now: float) -> None:
        key = self._key(peer)
        if key is not None:
            self._inventories.take(key, message.objects)

    def _on_transferred(self, peer: bytes, message: m.Transferred, now: float) -> None:
        key = self._key(peer)
        if key is not None:
            self._table.objects.transferred(key, message.segment, message.error)

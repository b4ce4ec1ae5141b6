"""What storages find on their machines, and which of that is of no use any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.records.announced import Announced
from scaler_cluster.ids import DRAFT, segment_number, segment_prefix
from scaler_cluster.wire.codec import in_pieces

if TYPE_CHECKING:
    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.table import Table


class Inventories:
    """Has storages say which segments they have, and remove what nobody names."""

    def __init__(self, table: Table, config: SchedulerConfig) -> None:
        self._table = table
        self._config = config

    def ask(self, key: bytes) -> None:
        """Have the storage of a machine say what it has, if one is there."""
        store = self._table.objects.stores.get(key)
        if store is not None and store.peer is not None:
            self._table.send(store.peer, self._config.welcome())

    def take(self, key: bytes, segments: tuple[bytes, ...]) -> None:
        """A storage found these segments: remove those of no use."""
        objects = self._table.objects
        store, known = objects.stores[key], objects.found(key, segments)
        garbage, store.garbage = store.garbage, []
        if not objects.adopts:
            owners = self._owners(key)
            # A draft of something known is a copy that is being made.
            strange = [one for one in segments if one.removeprefix(DRAFT) not in known]
            garbage += [one for one in strange if _is_garbage(one, owners)]
        for piece in in_pieces(list(dict.fromkeys(garbage))):
            objects.garbage.remove(key, piece)

    def _owners(self, key: bytes) -> dict[bytes, Announced]:
        """Return what each peer that writes on a machine has announced, by the prefix of its names.

        Whatever has another prefix is a copy there.
        """
        table = self._table
        owners = {it.peer: it.announced for it in table.workers.values() if it.store == key}
        is_home = key in table.objects.homes
        if is_home:
            owners |= {it.peer: it.announced for it in table.sessions.values()}
        # A worker that comes back has not said yet what it may still report.
        coming = [
            peer for peer, it in table.returning.items() if table.objects.key_of(it.hello) == key
        ]
        for supervisor in table.supervisors.values():
            if is_home or supervisor.peer == key:
                coming += [peer for peer in supervisor.roll or () if peer not in table.workers]
        owners |= dict.fromkeys(coming, Announced())
        return {segment_prefix(peer): announced for peer, announced in owners.items()}


def _is_garbage(segment: bytes, owners: dict[bytes, Announced]) -> bool:
    """Return True for a segment that nobody will announce."""
    name = segment.removeprefix(DRAFT)
    owner, dash, _ = name.partition(b"-")
    announced = owners.get(owner + dash)
    return announced is None or segment_number(name) in announced

"""What clients stored before this scheduler was started, and still name.

The storages keep it for a while. Each client that comes back says what it names; what nobody has
named by then is removed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.objects import join
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import is_segment

if TYPE_CHECKING:
    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.inventories import Inventories
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.wire import messages as m

ADOPTION_S = 60.0
"""How long clients have time to come back: as long as one may be silent by default."""


class Adoption:
    """Takes in what clients still name, for a while."""

    def __init__(
        self, table: Table, config: SchedulerConfig, inventories: Inventories, now: float
    ) -> None:
        self._table = table
        self._config = config
        self._inventories = inventories
        self.deadline = now + ADOPTION_S if config.adopts else math.inf
        """When :meth:`tick` is next due."""
        self._awaited: dict[str, list[bytes]] = {}
        """Objects in storages that have not come yet, by their address."""
        table.objects.adopts = config.adopts

    def keep(self, session: SessionRecord, message: m.Keep) -> None:
        """A client names what it stored; raises RemoteProtocolError if it must not."""
        objects, address = self._table.objects, message.address
        if not self._config.adopts:
            raise RemoteProtocolError("names what another scheduler knew")
        if not len(message.objects) == len(message.segments) == len(message.sizes):
            raise RemoteProtocolError("objects without segments")
        stores = objects.stores.items()
        key = next((key for key, store in stores if store.place.address == address), None)
        for one, segment, nbytes in zip(
            message.objects, message.segments, message.sizes, strict=True
        ):
            if not is_segment(segment):
                raise RemoteProtocolError("an object in no segment")
            if one in session.objects:
                continue
            record = objects.records.get(one)
            if record is None:
                record = objects.owners.made(segment, nbytes, session.number)
                objects.records[one] = record
                if key is not None:
                    objects.lay(record, key)
                else:
                    self._awaited.setdefault(address, []).append(one)
            elif record.segment != segment and key is not None:
                # Two clients stored the same, and one was not told in time.
                told = join(objects, session, one, segment, key, is_old=True)
                self._table.send(session.peer, told)
            session.objects[one] = None
            record.is_clients = True
            # A result is one client's.
            record.is_adopted |= one != record.segment
            record.users += 1

    def storage_came(self, key: bytes) -> None:
        """A storage is here: what clients named of it can be had."""
        objects = self._table.objects
        for one in self._awaited.pop(objects.stores[key].place.address, ()):
            record = objects.records.get(one)
            if record is not None and not record.stores:
                objects.lay(record, key)

    def tick(self, now: float) -> None:
        """Once the time is over, have everything removed that nobody has named."""
        if now < self.deadline:
            return
        self.deadline = math.inf
        self._awaited.clear()
        objects = self._table.objects
        objects.adopts = False
        left, objects.left = objects.left, []
        known = {record.segment for record in objects.records.values()}
        for key, segment in left:
            if segment not in known:
                objects.garbage.remove(key, (segment,))
        for key in objects.storages.values():
            self._inventories.ask(key)

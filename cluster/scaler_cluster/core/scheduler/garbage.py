"""Segments that nobody names any more, until their machine has been told to remove them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import in_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler_cluster.core.records.objects import StoreRecord

WAIT_S = 0.01
"""Segments wait so long for others: to be told of each by itself takes a storage 0.3 ms of CPU
time, just when the next task begins."""
WAIT_BYTES = 16 << 20
"""What is more does not wait, as its room may be wanted."""


class Garbage:
    """Has the segments of machines removed."""

    def __init__(
        self, stores: Mapping[bytes, StoreRecord], send: Callable[[bytes, m.Message], None]
    ) -> None:
        self._stores = stores
        self._send = send
        self._waiting: dict[bytes, int] = {}
        """Bytes of segments that wait for others, by the key of their machine."""
        self._swept_at = -math.inf

    @property
    def deadline(self) -> float:
        """When :meth:`tell` is next due."""
        return self._swept_at + WAIT_S if self._waiting else math.inf

    def add(self, key: bytes, segment: bytes, nbytes: int) -> None:
        """Have a segment removed from a machine soon, together with others."""
        self._stores[key].garbage.append(segment)
        waiting = self._waiting.get(key, 0) + nbytes
        self._waiting[key] = waiting
        if waiting > WAIT_BYTES:
            self.sweep(key)

    def remove(self, key: bytes, segments: tuple[bytes, ...]) -> None:
        """Have segments removed from a machine, if it is still known."""
        store = self._stores.get(key)
        if store is not None:
            store.garbage += segments
            self.sweep(key)

    def sweep(self, key: bytes) -> None:
        """Tell a machine what waits. If it has no storage, the next one is told when it comes."""
        self._waiting.pop(key, None)
        store = self._stores.get(key)
        if store is None or store.peer is None or not store.garbage:
            return
        garbage, store.garbage = store.garbage, []
        for piece in in_pieces(garbage):
            self._send(store.peer, m.Release(piece))

    def tell(self, now: float) -> None:
        """Tell all machines what waits."""
        self._swept_at = now
        for key in list(self._waiting):
            self.sweep(key)

"""What the connection of a client knows of a map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.core.client.client import MapSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.client.future import ScalerFuture


class ClientMap(MapSink, Protocol):
    """A map that a client has asked for."""

    first: int
    """Id of its first task."""

    @property
    def linked(self) -> Sequence[ScalerFuture[Any]]:
        """Futures of calls that take other futures: tasks of their own."""

    def put_next(self, result: object) -> None:
        """The next call, which is not one of this map's tasks, came back with this."""

    def leave(self) -> bool:
        """Nobody will take results; return True if the map is over, else its tasks go on."""

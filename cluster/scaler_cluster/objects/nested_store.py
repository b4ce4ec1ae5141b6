"""Where the tasks of a worker keep what they pass to tasks of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.objects.client_store import ClientStore

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from scaler_cluster.objects.remote_store import RemoteStore
    from scaler_cluster.objects.reported_names import ReportedNames
    from scaler_cluster.wire.messages import StorageEndpoint


class NestedStore(ClientStore):
    """A client's store that keeps what was written in ``views``: by digest, not to be written to.

    A task that runs where it was submitted finds it there.
    """

    def __init__(
        self,
        homes: Sequence[StorageEndpoint],
        names: ReportedNames,
        connect: Callable[[str], RemoteStore],
        views: dict[bytes, memoryview],
    ) -> None:
        super().__init__(homes, names, connect)
        self._views = views

    def write_new(
        self, data: memoryview, known: Container[bytes], *, likely: bool = False
    ) -> tuple[bytes, bytes]:
        """Store bytes; see :class:`ClientStore`."""
        segment, digest = super().write_new(data, known, likely=likely)
        if segment:
            here = self._segments.get(self._home_of(digest))
            self._views[digest] = here.open(segment) if here else memoryview(bytes(data))
        return segment, digest

"""A scheduler and workers on this machine, for clients to connect to."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from scaler_cluster.core.placement import to_capabilities
from scaler_cluster.errors import ConfigError
from scaler_cluster.runtime.spawn import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self


class SchedulerClusterCombo:
    """Starts a scheduler and ``n_workers`` workers, which end with this object or this process.

    Args:
        n_workers: Number of worker processes, 0 or more.
        address: Where the scheduler listens, as ``tcp://127.0.0.1:8516``; port 0 takes a free
            one. Default: a socket file in a private directory.
        object_storage_address: Where the object storage listens. If something listens there
            already, it is taken to be ``scaler_object_storage_server``; with several addresses all
            are, and each object is kept by the one that its id chooses. Default: a free port
            beside the scheduler.
        per_worker_capabilities: What each worker offers to tasks that demand it, as
            ``{"gpu": 1}``; -1: it is never used up.

    Raises:
        ConfigError: ``n_workers`` is negative, the address cannot be bound, or no object storage
            answers.

    """

    def __init__(
        self,
        n_workers: int,
        address: str | None = None,
        object_storage_address: str | Sequence[str] | None = None,
        *,
        per_worker_capabilities: Mapping[str, float] | None = None,
    ) -> None:
        if n_workers < 0:
            raise ConfigError(f"n_workers must be 0 or more, not {n_workers}")
        storages = object_storage_address or ()
        if isinstance(storages, str):
            storages = (storages,)
        capabilities = dict(to_capabilities(per_worker_capabilities))
        self._cluster = EmbeddedCluster(
            n_workers, address, storages=storages, capabilities=capabilities
        )
        self._stop = weakref.finalize(self, self._cluster.stop)

    def get_address(self) -> str:
        """Return the address to give to clients."""
        return self._cluster.address

    def shutdown(self) -> None:
        """End the scheduler and the workers, whatever they run; idempotent."""
        self._stop()

    def __enter__(self) -> Self:
        """Return the cluster."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down."""
        self.shutdown()

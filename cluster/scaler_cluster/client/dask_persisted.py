"""Values of Dask's collections that are on the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dask import _task_spec as spec

if TYPE_CHECKING:
    from collections.abc import Hashable

    from scaler_cluster.client.future import ScalerFuture


class Persisted(spec.DataNode):  # type: ignore[misc]
    """A value on the cluster, as data in the graph of a collection.

    The collections that have it keep it: it is no name that somebody else must know. Dask's own
    schedulers fetch the value, as does whoever pickles it. To libraries that look for a future
    of Dask in a graph it is one.
    """

    block_fusion = True
    """Dask must not put it inside of another node: it would travel through this process."""

    def __init__(self, key: Hashable, future: ScalerFuture[Any], token: str | None = None) -> None:
        # Not the parent's, which wants the value.
        self.key = key
        self._dependencies: frozenset[Hashable] = frozenset()
        self.future = future
        self.token = token or uuid4().hex

    @property
    def value(self) -> Any:
        """The value itself, once it is there; raises what its task raised."""
        return self.future.result()

    @property
    def status(self) -> str:
        """What became of it: "pending", "finished", "error" or "cancelled"."""
        future = self.future
        if not future.done():
            return "pending"
        if future.cancelled():
            return "cancelled"
        return "error" if future._has_failed() else "finished"

    def result(self, timeout: float | None = None) -> Any:
        """Return the value, as :meth:`ScalerFuture.result` does."""
        return self.future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what its task raised, as :meth:`ScalerFuture.exception` does."""
        return self.future.exception(timeout)

    def done(self) -> bool:
        """Return True if its task came back or was cancelled."""
        return self.future.done()

    def cancelled(self) -> bool:
        """Return True if its task was cancelled."""
        return self.future.cancelled()

    def copy(self) -> Persisted:
        """Return the same under the same key; Dask may change that."""
        return Persisted(self.key, self.future, self.token)

    def substitute(self, subs: dict[Any, Any], key: Hashable | None = None) -> Persisted:
        """Return the same under another key."""
        if key is None or key == self.key:
            return self
        return Persisted(key, self.future, self.token)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return type(self).__name__, self.token

    def __repr__(self) -> str:
        return f"Persisted({self.key!r}, {self.status})"

    def __sizeof__(self) -> int:
        return object.__sizeof__(self)

    def __reduce__(self) -> Any:
        return spec.DataNode, (self.key, self.value)

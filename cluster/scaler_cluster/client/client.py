"""The client: submits single tasks and maps to a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from scaler_cluster.client.map import map_calls
from scaler_cluster.runtime.session import CONNECT_TIMEOUT_S, Session
from scaler_cluster.wire.messages import TaskOptions, intern_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from typing_extensions import Self

    from scaler_cluster.client.future import ScalerFuture

T = TypeVar("T")


class Client:
    """A connection to a scheduler; usable from several threads, and as a context manager.

    Args:
        address: Address of the scheduler, as :meth:`SchedulerClusterCombo.get_address` gives it.
        timeout_seconds: How long to wait for it.
        stream_output: Whether what tasks print is printed here.

    Raises:
        ClusterUnreachable: Nobody answers at ``address`` in time.

    """

    def __init__(
        self,
        address: str,
        *,
        timeout_seconds: float = CONNECT_TIMEOUT_S,
        stream_output: bool = False,
    ) -> None:
        self._options = intern_options(TaskOptions(stream_output=stream_output))
        self._session = Session(address, timeout=timeout_seconds)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> ScalerFuture[T]:
        """Schedule ``fn(*args, **kwargs)`` and return its future.

        Raises SessionClosed after :meth:`disconnect`. What cannot be pickled fails its own future.
        """
        return self._session.submit(fn, args, kwargs, self._options)

    def map(self, fn: Callable[..., T], /, *iterables: Iterable[Any]) -> list[T]:
        """Return ``fn`` over ``iterables`` as the builtin ``map`` would, as a list.

        The first exception, in order, is raised; the rest of this map is then cancelled, and the
        client goes on.
        """
        if not iterables:
            raise TypeError("map() must have at least one iterable")
        return self.starmap(fn, zip(*iterables, strict=False))

    def starmap(self, fn: Callable[..., T], iterable: Iterable[Iterable[Any]], /) -> list[T]:
        """Return ``[fn(*args) for args in iterable]``; exceptions as for :meth:`map`."""
        return list(map_calls(self._session, fn, iter(iterable), options=self._options))

    def clear(self) -> None:
        """Cancel everything that has not come back; the client can go on."""
        self._session.give_up()

    def disconnect(self) -> None:
        """Cancel everything that has not come back and leave the cluster; idempotent."""
        self._session.close("the client was disconnected", abandon=True)

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect."""
        self.disconnect()

    def __del__(self) -> None:
        """Disconnect, without waiting for it."""
        if hasattr(self, "_session"):
            self._session.close("the client was deleted", abandon=True, wait=False)

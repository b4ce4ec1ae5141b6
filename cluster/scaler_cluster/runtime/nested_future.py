"""The future of a task that a task submitted: who waits for it may have to run it."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from scaler_cluster.client.future import ScalerFuture
from scaler_cluster.client.named_calls import NamedFuture

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

T = TypeVar("T")


class NestedFuture(ScalerFuture[T]):
    """A future whose session hears also of those who wait for several at once."""

    __slots__ = ()

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call ``fn`` with this future when it is done; somebody may wait for that."""
        if not self.done():
            self._session.track_callback(self)  # type: ignore[attr-defined]
        super().add_done_callback(fn)

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        waiters = self._wait
        if waiters is None:
            waiters = self._wait = _Waiters(self._session.wait, self._task)
        return waiters


class NestedNamedFuture(NamedFuture[T], NestedFuture[T]):
    """The same for a call of a named function."""

    __slots__ = ()


class _Waiters(list[Any]):
    """Those of ``concurrent.futures.wait`` and ``as_completed`` that wait for one future."""

    def __init__(self, wait: Callable[..., bool], task: int) -> None:
        super().__init__()
        self._session_wait = wait
        self._task = task

    def append(self, waiter: Any) -> None:
        if not isinstance(waiter.event, _NestedEvent):
            waiter.event = _NestedEvent(self._session_wait)
        waiter.event.tasks.append(self._task)
        super().append(waiter)


class _NestedEvent(threading.Event):
    """What such a waiter sleeps on: here it runs what it waits for."""

    def __init__(self, wait: Callable[..., bool]) -> None:
        super().__init__()
        self._session_wait = wait
        self.tasks: deque[int] = deque()
        """Those it waits for, or has waited for."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait as the session does."""
        return self._session_wait(self.is_set, None, timeout, self.tasks)

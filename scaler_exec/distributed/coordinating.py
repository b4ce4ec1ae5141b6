"""Locks, queues and the like, through the default client; times may be texts as "10s"."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scaler_cluster.client import coordination, worker_context
from scaler_exec.distributed.current import find_current
from scaler_exec.distributed.timing import TooLateError, seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def _engine_of(client: Any) -> Any:
    """Return the engine's client; None inside of a task, where none is needed."""
    if client is None and worker_context.nested_session() is None:
        client = find_current()
    return getattr(client, "_engine", client)


@contextmanager
def _as_ours() -> Iterator[None]:
    """Raise the TimeoutError of this package, which before Python 3.11 is another class."""
    try:
        yield
    except TimeoutError as error:
        raise TooLateError(str(error)) from error.__cause__


class Lock(coordination.Lock):
    """See :class:`scaler_exec.Lock`. ``scheduler_rpc`` and ``loop`` are ignored."""

    def __init__(
        self,
        name: str | None = None,
        client: Any = None,
        scheduler_rpc: object = None,
        loop: object = None,
    ) -> None:
        super().__init__(name, _engine_of(client))

    def acquire(self, blocking: bool = True, timeout: float | str | None = None) -> bool:
        """Acquire it; return False if that was not possible in time."""
        return super().acquire(blocking, seconds_of("timeout", timeout))


class MultiLock(coordination.MultiLock):
    """See :class:`scaler_exec.MultiLock`."""

    def __init__(self, names: Sequence[str] = (), client: Any = None) -> None:
        super().__init__(names, _engine_of(client))


class Semaphore(coordination.Semaphore):
    """See :class:`scaler_exec.Semaphore`. ``scheduler_rpc`` and ``loop`` are ignored."""

    def __init__(
        self,
        max_leases: int = 1,
        name: str | None = None,
        scheduler_rpc: object = None,
        loop: object = None,
        client: Any = None,
    ) -> None:
        super().__init__(max_leases, name, _engine_of(client))

    def acquire(self, timeout: float | str | None = None) -> bool:
        """Acquire one of the leases; return False if that was not possible in time."""
        return super().acquire(seconds_of("timeout", timeout))


class Event(coordination.Event):
    """See :class:`scaler_exec.Event`."""

    def __init__(self, name: str | None = None, client: Any = None) -> None:
        super().__init__(name, _engine_of(client))

    def wait(self, timeout: float | str | None = None) -> bool:
        """Wait until it is set; return False if it was not in time."""
        return super().wait(seconds_of("timeout", timeout))


class Queue(coordination.Queue):
    """See :class:`scaler_exec.Queue`."""

    def __init__(self, name: str | None = None, client: Any = None, maxsize: int = 0) -> None:
        super().__init__(name, _engine_of(client), maxsize)

    def put(self, value: object, timeout: float | str | None = None) -> None:
        """Put a value into the queue; raises TimeoutError if there is no room in time."""
        with _as_ours():
            super().put(value, seconds_of("timeout", timeout))

    def get(self, timeout: float | str | None = None, batch: bool | int = False) -> Any:
        """Take a value, or a list of several; raises TimeoutError if there are none in time."""
        with _as_ours():
            return super().get(seconds_of("timeout", timeout), batch)


class Variable(coordination.Variable):
    """See :class:`scaler_exec.Variable`."""

    def __init__(self, name: str | None = None, client: Any = None) -> None:
        super().__init__(name, _engine_of(client))

    def set(self, value: object, timeout: float | str | None = "30 s") -> None:
        """Set the value; raises TimeoutError if the scheduler does not answer in time."""
        with _as_ours():
            super().set(value, seconds_of("timeout", timeout))

    def get(self, timeout: float | str | None = None) -> Any:
        """Return the value, once there is one; raises TimeoutError."""
        with _as_ours():
            return super().get(seconds_of("timeout", timeout))

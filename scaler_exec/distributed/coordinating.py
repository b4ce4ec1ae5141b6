"""Locks, queues and the like, through the default client; times may be texts as "10s"."""

from __future__ import annotations

import contextlib
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from scaler_cluster.client import coordination, worker_context
from scaler_cluster.wire import messages as m
from scaler_exec.distributed.awaiting import (
    AsyncEntered,
    as_long_as_awaited,
    awaited,
    once_taken,
)
from scaler_exec.distributed.current import find_current
from scaler_exec.distributed.finding import get_client
from scaler_exec.distributed.sharing import receiving, sendable
from scaler_exec.distributed.timing import Duration, TooLateError, seconds_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from typing_extensions import Self

    from scaler_cluster.core.client.coordination import Asked


@contextmanager
def _as_ours() -> Iterator[None]:
    """Raise the TimeoutError of this package, which before Python 3.11 is another class."""
    try:
        yield
    except TimeoutError as error:
        raise TooLateError(str(error)) from error.__cause__


class _Shared(coordination._Named):
    """Its calls are awaited in the event loop of an asynchronous client."""

    client: Any = None
    """The client that leads to it; None: that of the task that uses it."""

    @property
    def asynchronous(self) -> bool:
        """Whether its calls are awaited in event loops."""
        return getattr(self.client, "asynchronous", False)

    def _find(self, client: Any) -> Any:
        """Return the engine's client; None inside of a task, where none is needed."""
        if client is None and worker_context.nested_session() is None:
            client = find_current()
        self.client = client
        return getattr(client, "_engine", client)

    def _receiver(self) -> Any:
        """Return the client that has the futures which come."""
        return self.client or get_client()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        engine = self._find(None)
        self._given = getattr(engine, "_session", None)

    def __await__(self) -> Generator[Any, None, Self]:
        """Return it: nothing is to be waited for."""
        return self
        yield

    def _answer_to(self, asked: Asked, timeout: float | None = None) -> m.Coordinated | None:
        # What has been given to a coroutine that was cancelled meanwhile goes back.
        brings = asked.message.act in {m.ACQUIRE, m.TAKE}
        with as_long_as_awaited(partial(self._session.withdraw, asked), brings=brings):
            return super()._answer_to(asked, timeout)


class _Held(AsyncEntered, _Shared, coordination._Leased):
    """What is held in the body of ``with`` or of ``async with``."""

    @awaited
    def release(self) -> bool:
        """Give it back; return True. Raises RuntimeError if this object does not hold it."""
        super().release()
        return True


class Lock(_Held, coordination.Lock):
    """See :class:`scaler_exec.Lock`. ``scheduler_rpc`` and ``loop`` are ignored."""

    locked = awaited(coordination.Lock.locked)

    def __init__(
        self,
        name: str | None = None,
        client: Any = None,
        scheduler_rpc: object = None,
        loop: object = None,
    ) -> None:
        super().__init__(name, self._find(client))

    def acquire(self, blocking: bool = True, timeout: Duration = None) -> Any:
        """Acquire it; return False if that was not possible in time.

        Raises ValueError if it is not to block, and has a timeout.
        """
        if not blocking and timeout is not None:
            raise ValueError("a call that is not to block takes no timeout")
        return self._acquired(blocking, timeout)

    @awaited
    def _acquired(self, blocking: bool, timeout: Duration) -> bool:
        return super().acquire(blocking, seconds_of("timeout", timeout))


class MultiLock(_Held, coordination.MultiLock):
    """See :class:`scaler_exec.MultiLock`."""

    acquire = awaited(coordination.MultiLock.acquire)

    def __init__(self, names: Sequence[str] = (), client: Any = None) -> None:
        super().__init__(names, self._find(client))


class Semaphore(_Held, coordination.Semaphore):
    """See :class:`scaler_exec.Semaphore`. ``scheduler_rpc`` and ``loop`` are ignored."""

    get_value = awaited(coordination.Semaphore.get_value)
    _is_closed = False

    def __init__(
        self,
        max_leases: int = 1,
        name: str | None = None,
        scheduler_rpc: object = None,
        loop: object = None,
        client: Any = None,
    ) -> None:
        super().__init__(max_leases, name, self._find(client))

    def __getstate__(self) -> dict[str, Any]:
        """Take along that it was closed, as well."""
        return super().__getstate__() | {"_is_closed": self._is_closed}

    @awaited
    def acquire(self, timeout: Duration = None) -> bool:
        """Acquire one of the leases; return False if that was not possible in time.

        Raises RuntimeError if this object was closed.
        """
        return super().acquire(seconds_of("timeout", timeout))

    def _acquire(self, timeout: float | None, count: int = 1) -> bool:
        if self._is_closed:
            raise RuntimeError(f"Semaphore {self.name!r} is not known or already closed.")
        return super()._acquire(timeout, count)

    def release(self) -> Any:
        """Give a lease back; return True. Raises RuntimeError at once if this object has none."""
        if not self._leases:
            raise RuntimeError(f"Released too often: {self!r} holds no lease that it acquired")
        return super().release()

    @awaited
    def close(self) -> None:
        """Give back what this object holds; it, and copies made of it later, acquire no more.

        Idempotent. Other objects of the name can go on: the scheduler keeps nothing that nobody
        holds.
        """
        self._is_closed = True
        while self._leases:
            # A lease may have ended before.
            with contextlib.suppress(RuntimeError):
                coordination.Semaphore.release(self)


class Event(_Shared, coordination.Event):
    """See :class:`scaler_exec.Event`."""

    set = awaited(coordination.Event.set)
    clear = awaited(coordination.Event.clear)
    is_set = awaited(coordination.Event.is_set)

    def __init__(self, name: str | None = None, client: Any = None) -> None:
        super().__init__(name, self._find(client))

    @awaited
    def wait(self, timeout: Duration = None) -> bool:
        """Wait until it is set; return False if it was not in time."""
        return super().wait(seconds_of("timeout", timeout))


class Queue(_Shared, coordination.Queue):
    """See :class:`scaler_exec.Queue`. Of futures it has what their tasks returned or raised."""

    qsize = awaited(coordination.Queue.qsize)

    def __init__(self, name: str | None = None, client: Any = None, maxsize: int = 0) -> None:
        super().__init__(name, self._find(client), maxsize)

    @awaited
    def put(self, value: object, timeout: Duration = None) -> None:
        """Put a value into the queue; raises TimeoutError if there is no room in time."""
        with _as_ours():
            super().put(sendable(value), seconds_of("timeout", timeout))

    def _took(self, asked: Asked) -> None:
        once_taken(partial(super()._took, asked))

    @awaited
    def get(self, timeout: Duration = None, batch: bool | int = False) -> Any:
        """Take a value, or a list of several; raises TimeoutError if there are none in time."""
        with _as_ours(), receiving(self._receiver):
            return super().get(seconds_of("timeout", timeout), batch)


class Variable(_Shared, coordination.Variable):
    """See :class:`scaler_exec.Variable`. Of futures it has what their tasks returned or raised."""

    def __init__(self, name: str | None = None, client: Any = None) -> None:
        super().__init__(name, self._find(client))

    @awaited
    def set(self, value: object, timeout: Duration = "30 s") -> None:
        """Set the value; raises TimeoutError if the scheduler does not answer in time."""
        with _as_ours():
            super().set(sendable(value), seconds_of("timeout", timeout))

    @awaited
    def get(self, timeout: Duration = None) -> Any:
        """Return the value, once there is one; raises TimeoutError."""
        with _as_ours(), receiving(self._receiver):
            return super().get(seconds_of("timeout", timeout))

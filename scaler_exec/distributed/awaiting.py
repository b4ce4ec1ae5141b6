"""Calls that wait: in the event loop of an asynchronous client, they return what can be awaited."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from scaler_cluster.client.event_loops import arrival

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from types import TracebackType

    from typing_extensions import Self

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Awaiter:
    """The coroutine for which a thread makes a call."""

    def __init__(self) -> None:
        self.has_left = False
        """It was cancelled: it awaits the call no more."""
        self.give_up: Callable[[], object] | None = None
        """Ends what the call waits for now, or gives back what it has brought."""
        self.take: Callable[[], object] | None = None
        """Says that what the call has brought is with the coroutine."""


_awaiter: ContextVar[_Awaiter | None] = ContextVar("scaler_distributed_awaiter", default=None)


def is_in_loop() -> bool:
    """Return True in a coroutine, or whatever else an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def soon(call: Callable[[], T]) -> T:
    """Make a call that may wait, in a thread of its own, and return what it returns.

    Not in one of the loop's threads: these are few, and a call may wait for what another does.
    If who awaits it is cancelled, the call goes on, unless it waits inside of
    :func:`as_long_as_awaited`: then it is given up. So is what the thread has brought, if it was
    done already and the coroutine had not gone on.
    """
    awaiter = _Awaiter()
    context = copy_context()
    context.run(_awaiter.set, awaiter)
    done: Future[T] = Future()
    threading.Thread(
        target=context.run, args=(_make, call, done), name="scaler-await", daemon=True
    ).start()
    try:
        await arrival(done)
    except asyncio.CancelledError:
        awaiter.has_left = True
        # Read once: the thread may go on just now.
        give_up = awaiter.give_up
        if give_up is not None:
            give_up()
        raise
    if awaiter.take is not None:
        awaiter.take()
    return done.result()


def _make(call: Callable[[], T], done: Future[T]) -> None:
    try:
        value = call()
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(value)


@contextmanager
def as_long_as_awaited(give_up: Callable[[], object], *, brings: bool) -> Iterator[None]:
    """Call ``give_up`` as soon as a coroutine awaits this call no more; see :func:`soon`.

    It is called in the event loop's thread, before the coroutine goes on: what that asks for next
    comes later. If the body ``brings`` what can be given back, that is so until the coroutine goes
    on with it. Raises CancelledError before and after the body if the coroutine has left.
    """
    awaiter = _awaiter.get()
    if awaiter is None:
        yield
        return
    awaiter.give_up = give_up
    try:
        _check(awaiter)
        yield
        _check(awaiter)
    finally:
        if not brings:
            awaiter.give_up = None


def once_taken(take: Callable[[], object]) -> None:
    """Call this once the coroutine has what this call brings; at once if no coroutine awaits it."""
    awaiter = _awaiter.get()
    if awaiter is None:
        take()
    else:
        awaiter.take = take


def _check(awaiter: _Awaiter) -> None:
    if awaiter.has_left:
        raise CancelledError("nobody awaits this any more")


def awaited(method: Callable[P, object]) -> Callable[P, Any]:
    """Let a method that may wait return a coroutine, in an event loop.

    It does so if its object is ``asynchronous``, or is called with ``asynchronous=True``.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        wanted = kwargs.get("asynchronous")
        if wanted is None:
            owner: Any = args[0]
            wanted = owner.asynchronous and is_in_loop()
        return soon(partial(method, *args, **kwargs)) if wanted else method(*args, **kwargs)

    return call


class Entered(Protocol[T_co]):
    """What is entered by ``with``."""

    def __enter__(self) -> T_co:
        """Enter it."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> object:
        """Leave it."""


class AsyncEntered:
    """What is entered by ``with``, which may wait, is entered by ``async with`` as well."""

    async def __aenter__(self: Entered[T]) -> T:
        """Enter it."""
        return await soon(self.__enter__)

    async def __aexit__(
        self: Entered[object],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave it."""
        await soon(partial(self.__exit__, kind, error, trace))


class Opened(AsyncEntered):
    """What is open until it is closed; if it is ``asynchronous``, from when it is awaited on."""

    asynchronous: bool

    def _start(self) -> None:
        """Open it, if it has not been opened."""
        raise NotImplementedError

    def close(self) -> Any:
        """Close it; awaited in an event loop, if it is asynchronous."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Open it; raises TypeError in an event loop, if it is asynchronous."""
        if self.asynchronous and is_in_loop():
            raise TypeError(f"an asynchronous {type(self).__name__} is opened by `async with`")
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        """Open it."""
        return soon(self.__enter__).__await__()

"""How results come to event loops of asyncio: with one wake-up for many."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from concurrent.futures import CancelledError, Future
from functools import partial
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, ref

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable


T = TypeVar("T")
F = TypeVar("F", bound=Future[Any])
SLICE_S = 0.002
"""An event loop is kept about this long at a time: others that use it have their turn between.

A timer may wait for four times as long: a map feeds and takes in two coroutines, and each of them
may have two turns before the timer's.
"""


class Turn:
    """What a coroutine has of its event loop until it lets others have theirs."""

    def __init__(self) -> None:
        self._end = clock() + SLICE_S

    async def give(self) -> None:
        """Let others have their turn if this one's is over."""
        if clock() > self._end:
            await asyncio.sleep(0)
            self._end = clock() + SLICE_S


class Mailbox:
    """Has an event loop call what other threads post, in order; it does not keep the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._posted: deque[Callable[[], object]] = deque()
        self._is_called = False

    def post(self, call: Callable[[], object]) -> None:
        """Have the loop call this; any thread may. A loop that was closed calls nothing."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            # Also what was posted before the end: it refers to the loop.
            self._posted.clear()
            return
        self._posted.append(call)
        if not self._is_called:
            self._is_called = True
            # It may be closed just now.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # First: who posts from now on calls this again.
        self._is_called = False
        end = clock() + SLICE_S
        while self._posted:
            self._posted.popleft()()
            if clock() > end and self._posted:
                self._is_called = True
                asyncio.get_running_loop().call_soon(self._deliver)
                return


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()


def mailbox() -> Mailbox:
    """Return that of the event loop that runs in this thread."""
    loop = asyncio.get_running_loop()
    found = _mailboxes.get(loop)
    if found is None:
        found = _mailboxes[loop] = Mailbox(loop)
    return found


async def arrival(future: Future[Any]) -> None:
    """Wait until a future is done; it goes on if who waits is cancelled."""
    box = mailbox()
    has_come = asyncio.Event()
    future.add_done_callback(lambda _: box.post(has_come.set))
    await has_come.wait()


def awaited(future: Future[T]) -> asyncio.Future[T]:
    """Return what becomes done in the running event loop when a future does.

    If that is cancelled, so is the future.
    """
    box = mailbox()
    waiting: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    waiting.add_done_callback(partial(_pass_on, future))
    future.add_done_callback(lambda _: box.post(partial(_settle, waiting, future)))
    return waiting


def _pass_on(future: Any, waiting: asyncio.Future[Any]) -> None:
    if waiting.cancelled():
        future.cancel()


def _settle(waiting: asyncio.Future[Any], future: Any) -> None:
    if waiting.done():
        return
    if future._is_elsewhere:
        # To fetch it may take long: not in the loop's thread.
        fetching = waiting.get_loop().run_in_executor(None, _look, future)
        fetching.add_done_callback(lambda _: _take(waiting, future))
    else:
        _take(waiting, future)


def _look(future: Any) -> None:
    """Have the result of a future here, or the exception; it is done."""
    if not future.cancelled():
        future.exception()


def _take(waiting: asyncio.Future[Any], future: Any) -> None:
    if waiting.done():
        return
    try:
        error = future.exception()
    except CancelledError:
        waiting.cancel()
        return
    if error is None:
        waiting.set_result(future.result())
    elif isinstance(error, StopIteration):
        # It would end whoever waits.
        waiting.set_exception(RuntimeError(f"the task raised {error!r}"))
    else:
        waiting.set_exception(error)


async def as_completed(futures: Iterable[F]) -> AsyncIterator[F]:
    """Yield futures as they become done; they may already be."""
    box = mailbox()
    done: deque[Any] = deque()
    has_come = asyncio.Event()
    is_awaited = False

    def arrive(future: Future[Any]) -> None:
        # In any thread. Afterwards: who waits says so before it looks for the last time.
        nonlocal is_awaited
        done.append(future)
        if is_awaited:
            is_awaited = False
            box.post(has_come.set)

    turn = Turn()
    wanted: set[Any] = set()
    # The list first: whoever has its turn between may change what was given.
    for future in list(futures):
        if future not in wanted:
            wanted.add(future)
            future.add_done_callback(arrive)
        await turn.give()
    for _ in range(len(wanted)):
        while not done:
            has_come.clear()
            is_awaited = True
            if not done:
                await has_come.wait()
        yield done.popleft()
        await turn.give()

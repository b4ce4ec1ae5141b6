"""Maps for asyncio: the event loop submits calls ahead, and takes results as they come."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterable
from functools import partial
from typing import TYPE_CHECKING, Any

from scaler_cluster.client.event_loops import Turn, mailbox
from scaler_cluster.client.future import load
from scaler_cluster.client.items import zipped
from scaler_cluster.client.map import Linked, MapCall, load_all
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from scaler_cluster.client.call_options import CallOptions
    from scaler_cluster.client.session import Session

AHEAD = 10_000
"""Calls that are submitted ahead of the results that were taken, unless the user says how many."""
PIECE = 256
"""Items that are pickled, and results that are unpickled, without a look at the clock."""


class _AsyncCall(MapCall):
    """A map that tells an event loop when something comes back."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self._box = mailbox()
        self._has_come = asyncio.Event()
        self._is_awaited = False
        super().__init__(*args, **named)

    def _put(self, index: int, result: object, count: int = 1) -> None:
        super()._put(index, result, count)
        self._tell()

    def abort(self, error: BaseException) -> None:
        """Nothing more will come back."""
        super().abort(error)
        self._tell()

    def _tell(self) -> None:
        # Afterwards: who waits says so before it looks for the last time.
        if self._is_awaited:
            self._is_awaited = False
            self._box.post(self._has_come.set)

    def wake(self) -> None:
        """Let who waits look again; only in the loop's thread."""
        self._has_come.set()

    async def until(self, is_there: Callable[[], bool]) -> None:
        """Wait until this is so, in the one coroutine that takes results."""
        while True:
            self._has_come.clear()
            self._is_awaited = True
            if is_there():
                return
            await self._has_come.wait()


class _Feed:
    """Submits the calls of a map, but no more than so many ahead of what was taken."""

    def __init__(self, call: _AsyncCall, ahead: int) -> None:
        self._call = call
        self._ahead = ahead
        self._taken = 0
        self._has_room = asyncio.Event()

    def took(self, count: int) -> None:
        """Results were taken."""
        self._taken += count
        self._has_room.set()

    async def _room(self) -> int:
        """Wait until there is room for calls; return for how many."""
        while self._call.asked - self._taken >= self._ahead:
            self._has_room.clear()
            await self._has_room.wait()
        return self._ahead - (self._call.asked - self._taken)

    async def run(self, items: Iterator[Any]) -> None:
        """Submit a call for each item."""
        turn = Turn()
        while True:
            count = min(await self._room(), PIECE)
            if self._call.ask(itertools.islice(items, count)) < count:
                return
            await turn.give()

    async def run_async(self, items: AsyncIterator[Any]) -> None:
        """Submit a call for each item, as soon as it is there."""
        turn = Turn()
        await self._room()
        async for item in items:
            self._call.ask(iter([item]))
            await self._room()
            # What is there already is given without a turn for others.
            await turn.give()


async def async_map(
    session: Session,
    function: Callable[..., Any],
    iterables: Iterable[Any],
    asked: CallOptions,
    *,
    value: Callable[[Any], Any] | None,
    buffersize: int | None,
) -> AsyncIterator[Any]:
    """Yield the results of ``function`` over ``iterables``, in order, as they come.

    Iterables may be asynchronous. ``value`` is what becomes of each argument before it is pickled.
    """
    options, again = asked.unmeasured, asked.reserialize
    iterables = list(iterables)
    is_async = any(isinstance(one, AsyncIterable) for one in iterables)
    items, steady = (iter(()), False) if is_async else zipped(iterables)
    call = _AsyncCall(session, function, m.CALL_ARGS, options, again=again, steady=steady)
    feed = _Feed(call, buffersize or AHEAD)
    if is_async:
        feeding = asyncio.ensure_future(feed.run_async(_prepared(_zip(iterables), value)))
    else:
        given = items if value is None else (tuple(map(value, args)) for args in items)
        feeding = asyncio.ensure_future(feed.run(given))
    feeding.add_done_callback(partial(_fed, call))
    try:
        index, turn = 0, Turn()
        while True:
            if index not in call.segments:
                await call.until(partial(_is_there, call, index, feeding))
            if index not in call.segments:
                if call.error is not None:
                    raise call.error
                # It raises what came instead of an item.
                await feeding
                return
            segment = call.segments.pop(index)
            count = len(segment) if isinstance(segment, Batch) else 1
            for start in range(0, count, PIECE):
                stop = min(start + PIECE, count)
                async for result in _values(segment, start, stop):
                    yield result
                feed.took(stop - start)
                await turn.give()
            index += count
    finally:
        feeding.cancel()
        call.all_asked()
        session.drop_call(call, cancel=True)


def _fed(call: _AsyncCall, feeding: asyncio.Future[None]) -> None:
    """Let who takes results look again; it may have left, and then nobody hears of an error."""
    if not feeding.cancelled():
        feeding.exception()
    call.wake()


def _is_there(call: _AsyncCall, index: int, feeding: asyncio.Future[None]) -> bool:
    """Return True if a result is there, or no more will come."""
    is_over = feeding.done() and index >= call.asked
    return index in call.segments or call.error is not None or is_over


async def _values(segment: Any, start: int, stop: int) -> AsyncIterator[Any]:
    """Yield the results of a part of a segment; raises what a call raised."""
    if isinstance(segment, Batch):
        for one in load_all(segment.cut(start, stop)):
            yield one
    elif isinstance(segment, Linked):
        for future in segment.futures:
            yield await future
    else:
        value, error = None, None
        if hasattr(segment, "fetch"):
            loop = asyncio.get_running_loop()
            value, error = await loop.run_in_executor(None, load, segment)
        else:
            value, error = load(segment)
        if error is not None:
            raise error
        yield value


async def _prepared(
    items: AsyncIterator[tuple[Any, ...]], value: Callable[[Any], Any] | None
) -> AsyncIterator[tuple[Any, ...]]:
    async for args in items:
        yield args if value is None else tuple(map(value, args))


async def _zip(iterables: list[Any]) -> AsyncIterator[tuple[Any, ...]]:
    """Yield what ``zip`` does, of iterables some of which are asynchronous."""
    iterators = [
        one.__aiter__() if isinstance(one, AsyncIterable) else _each(one) for one in iterables
    ]
    while True:
        try:
            args = [await anext(one) for one in iterators]
        except StopAsyncIteration:
            return
        yield tuple(args)


async def _each(iterable: Iterable[Any]) -> AsyncIterator[Any]:
    for item in iterable:
        yield item

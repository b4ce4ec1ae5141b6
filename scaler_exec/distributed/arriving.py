"""Waiting for futures: all of them, the first ones, or each as it comes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, CancelledError
from functools import partial
from time import monotonic as clock
from typing import TYPE_CHECKING, Any, NamedTuple

from scaler_cluster.client.event_loops import Mailbox, mailbox
from scaler_cluster.client.future import ScalerFuture
from scaler_exec.distributed.awaiting import is_in_loop, soon
from scaler_exec.distributed.future import Future, Task, futures_in, replaced
from scaler_exec.distributed.futures_of import futures_of
from scaler_exec.distributed.refused import refused_of
from scaler_exec.distributed.timing import TooLateError, seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scaler_cluster.client.future import FutureOwner

    AnyFuture = Future[Any] | ScalerFuture[Any]


class DoneAndNotDoneFutures(NamedTuple):
    """What :func:`wait` returns."""

    done: set[Future[Any]]
    not_done: set[Future[Any]]


def wait(fs: Any, timeout: float | str | None = None, return_when: str = ALL_COMPLETED) -> Any:
    """Wait until all of these futures are done, or the first one; return sets of both kinds.

    Of an asynchronous client's, in its event loop, this is to be awaited.

    Args:
        fs: Futures, in lists, tuples, sets and dicts, or in collections that were persisted.
        timeout: Seconds, or text as "10s".
        return_when: ``ALL_COMPLETED`` or ``FIRST_COMPLETED``.

    Raises:
        TimeoutError: It took longer than ``timeout``.
        TypeError: The ``timeout`` is a future.
        CancelledError: One of them was cancelled.
        NotImplementedError: ``return_when`` is something else.

    """
    if return_when not in {ALL_COMPLETED, FIRST_COMPLETED}:
        raise NotImplementedError("return_when must be ALL_COMPLETED or FIRST_COMPLETED")
    if isinstance(timeout, Future):
        raise TypeError("the timeout of wait is a future: pass several futures as a list")
    futures = futures_of(fs)
    call = partial(_wait, futures, seconds_of("timeout", timeout), return_when)
    is_awaited = is_in_loop() and any(one.asynchronous for one in futures)
    return soon(call) if is_awaited else call()


def _wait(
    futures: list[Future[Any]], timeout_s: float | None, return_when: str
) -> DoneAndNotDoneFutures:
    engines = {one.future for one in futures}
    _, pending = concurrent.futures.wait(engines, timeout_s, return_when)
    is_late = bool(pending) and (return_when == ALL_COMPLETED or len(pending) == len(engines))
    if is_late:
        raise TooLateError(f"{len(pending)} futures have not come back in time")
    for one in futures:
        if one.cancelled():
            raise CancelledError(f"{one.key!r} was cancelled")
    done = {one for one in futures if one.future not in pending}
    return DoneAndNotDoneFutures(done, set(futures) - done)


class _Event(threading.Event):
    """What is set when something has come: who waits for it reads the socket of the session."""

    def __init__(self, session: FutureOwner) -> None:
        super().__init__()
        self._session = session

    def wait(self, timeout: float | None = None) -> bool:
        return self._session.wait(self.is_set, None, timeout)


class _Arrivals:
    """Is told by the engine's futures that they are done, as ``concurrent.futures`` would be.

    ``event`` has the name by which the futures of a task's tasks put their own in its place, which
    runs those tasks.
    """

    def __init__(self) -> None:
        self.event: threading.Event | None = None
        self.came: deque[ScalerFuture[Any]] = deque()
        self._sleepers: dict[asyncio.Event, Mailbox] = {}
        """Coroutines that wait until something has come."""

    def expect(self, future: ScalerFuture[Any]) -> None:
        """Take a future in once it is done."""
        if self.event is None:
            self.event = _Event(future._session)
        if not future.done():
            with future._condition:
                if not future.done():
                    future._waiters.append(self)  # type: ignore[arg-type]
                    return
        self.add_result(future)

    def add_result(self, future: ScalerFuture[Any]) -> None:
        """A future is done."""
        self.came.append(future)
        assert self.event is not None
        self.event.set()
        if self._sleepers:
            for event, box in list(self._sleepers.items()):
                box.post(event.set)

    add_exception = add_cancelled = add_result

    def wait(self, timeout_s: float | None) -> None:
        """Wait until something has come; raises TimeoutError."""
        event = self.event
        assert event is not None
        event.clear()
        if not self.came and not event.wait(timeout_s):
            raise TooLateError("no future has come back in time")

    async def wait_async(self) -> None:
        """Wait until something has come."""
        event = asyncio.Event()
        self._sleepers[event] = mailbox()
        try:
            if not self.came:
                await event.wait()
        finally:
            del self._sleepers[event]


class as_completed:  # noqa: N801 - its name where programs have it from
    """Yields futures as they are done, also those of actors' calls; more may be added meanwhile.

    An iterator, also of ``async for``.

    Args:
        futures: The first ones.
        loop: Ignored.
        with_results: Yield pairs of a future and its result instead.
        raise_errors: With results, raise what a task raised; else its type, the exception and
            the traceback of this process stand in place of the result.
        timeout: Seconds from now, or text as "10s", after which the next one raises TimeoutError.

    """

    def __init__(
        self,
        futures: Iterable[AnyFuture] | None = None,
        loop: object = None,
        with_results: bool = False,
        raise_errors: bool = True,
        *,
        timeout: float | str | None = None,
    ) -> None:
        self._with_results = with_results
        self._raises = raise_errors
        timeout_s = seconds_of("timeout", timeout)
        self._end = None if timeout_s is None else clock() + timeout_s
        self._arrivals = _Arrivals()
        self._expected: dict[ScalerFuture[Any], list[tuple[AnyFuture, Task | None]]] = {}
        """The tasks are kept: a future that is released meanwhile is yielded all the same.

        The call of an actor has none.
        """
        self.update(futures or ())

    def update(self, futures: Iterable[AnyFuture]) -> None:
        """Add futures; raises TypeError if one is none."""
        for one in futures:
            if isinstance(one, Future):
                engine, task = one.future, one.task
            elif isinstance(one, ScalerFuture):
                engine, task = one, None
            else:
                raise TypeError(f"as_completed takes futures of this package, not {one!r}")
            self._expected.setdefault(engine, []).append((one, task))
            self._arrivals.expect(engine)

    def add(self, future: AnyFuture) -> None:
        """Add one."""
        self.update((future,))

    def count(self) -> int:
        """Return how many have not been yielded."""
        return sum(map(len, list(self._expected.values())))

    def is_empty(self) -> bool:
        """Return True if all have been yielded."""
        return not self._expected

    def has_ready(self) -> bool:
        """Return True if the next one need not be waited for."""
        return bool(self._arrivals.came)

    def clear(self) -> None:
        """Forget all that have not been yielded."""
        self._expected.clear()
        self._arrivals = _Arrivals()

    def next_batch(self, block: bool = True) -> list[Any]:
        """Return all that are done; with ``block`` at least one."""
        batch = [next(self)] if block else []
        while self.has_ready():
            batch.append(next(self))
        return batch

    def batches(self) -> Iterator[list[Any]]:
        """Yield lists of all that are done by then."""
        while not self.is_empty():
            yield self.next_batch()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while not self.has_ready():
            if self.is_empty():
                raise StopIteration
            self._arrivals.wait(self._left())
        future, task, engine = self._take()
        if not self._with_results:
            return future
        came = _outcome_of(engine) if task is None else task.outcome(None, engine)
        return self._yielded(future, came)

    next = __next__

    def __aiter__(self) -> as_completed:
        return self

    async def __anext__(self) -> Any:
        while not self.has_ready():
            if self.is_empty():
                raise StopAsyncIteration
            try:
                await asyncio.wait_for(self._arrivals.wait_async(), self._left())
            except asyncio.TimeoutError:
                raise TooLateError("no future has come back in time") from None
        future, task, engine = self._take()
        if not self._with_results:
            return future
        came = _outcome_of(engine) if task is None else await task.outcome_soon(engine)
        return self._yielded(future, came)

    def _left(self) -> float | None:
        return None if self._end is None else max(self._end - clock(), 0.0)

    def _take(self) -> tuple[AnyFuture, Task | None, ScalerFuture[Any]]:
        engine = self._arrivals.came.popleft()
        waiting = self._expected[engine]
        future, task = waiting.pop(0)
        if not waiting:
            del self._expected[engine]
        return future, task, engine

    def _yielded(self, future: AnyFuture, outcome: tuple[Any, BaseException | None]) -> Any:
        """Return a future with its result, or what its task raised as ``sys.exc_info`` has it."""
        value, error = outcome
        if error is None:
            return future, value
        if self._raises and not isinstance(error, CancelledError):
            raise error
        if isinstance(error, CancelledError):
            return future, error
        return future, (type(error), error, error.__traceback__)

    def __getattr__(self, name: str) -> Any:
        return refused_of(self, "as_completed", name)

    def __repr__(self) -> str:
        """Show how many are done."""
        done = len(self._arrivals.came)
        return f"<as_completed: waiting={self.count() - done} done={done}>"


def _outcome_of(call: ScalerFuture[Any]) -> tuple[Any, BaseException | None]:
    """Return what the call of an actor returned, or what it raised; it is done."""
    error = CancelledError() if call.cancelled() else call.exception()
    return (None, error) if error is not None else (call.result(), None)


class Gathered:
    """What ``gather`` makes of the futures in containers, as they come.

    ``errors`` as of :meth:`Client.gather`. Raises ValueError if they are something else.
    """

    def __init__(self, given: Any, errors: str) -> None:
        if errors not in {"raise", "skip"}:
            raise ValueError(f"errors must be 'raise' or 'skip', not {errors!r}")
        self._given = given
        self._raises = errors == "raise"
        self._values: dict[int, Any] = {}
        self._failed: set[int] = set()
        self.pending: list[Future[Any]] = []
        """Those that are to be waited for."""
        for one in futures_in(given):
            if one._task is None:
                self.take(one, (None, CancelledError("a future was released")))
            else:
                self.pending.append(one)

    def take(self, future: Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
        """Note what became of one; raises that if it is to be raised."""
        value, error = outcome
        if error is not None:
            if self._raises:
                raise error
            self._failed.add(id(future))
        self._values[id(future)] = value

    def values(self) -> Any:
        """Return the containers with values in place of futures; all have come."""
        given = self._given
        if self._failed and isinstance(given, list):
            given = [one for one in given if id(one) not in self._failed]
        return replaced(given, self._values)

"""Futures by their keys: equal calls have one task, and futures of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from concurrent.futures import CancelledError
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from scaler_cluster.client.event_loops import arrival
from scaler_cluster.client.future import PLAIN, FutureHandle, ScalerFuture, load
from scaler_cluster.client.graph import FLAT, itself
from scaler_cluster.client.task_session import TaskSession
from scaler_cluster.errors import FutureInsideError
from scaler_exec.distributed.awaiting import awaited, is_in_loop
from scaler_exec.distributed.current import default_client
from scaler_exec.distributed.refused import refused_of
from scaler_exec.distributed.timing import TooLateError, seconds_of

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
    from types import TracebackType

    from scaler_cluster.client.session import Session
    from scaler_cluster.wire.messages import TaskOptions

T = TypeVar("T")
_serials = itertools.count()
INSIDE = (
    "a future can be an argument of a task, also in lists, tuples and dicts, but cannot be inside "
    "of other values, nor leave its process: pass its result"
)


class FutureClient(Protocol):
    """What a future needs of the client that made it."""

    asynchronous: bool
    """Whether calls that wait are awaited in event loops."""

    def detach(self, futures: Any) -> None:
        """Let tasks be run though nobody keeps futures of them."""

    def cancel(self, futures: Any, *, force: bool = ...) -> Any:
        """Cancel tasks."""

    def retry(self, futures: Any) -> Any:
        """Run tasks again that failed."""

    def task_of(self, key: Hashable) -> Task:
        """Return the task of a key; raises KeyError."""


class Task(FutureHandle):
    """What the futures of one key share. When the last of them goes, the task is cancelled.

    ``call`` is what it takes to run it again: function, args, kwargs, options, and the tasks that
    stand in args and kwargs for futures. It is emptied once the task has returned.
    """

    __slots__ = ("__weakref__", "call", "future", "is_kept", "key", "kind", "serial", "session")

    def __init__(
        self,
        key: Hashable,
        session: Any,
        future: ScalerFuture[Any],
        call: list[Any],
        *,
        is_kept: bool = False,
    ) -> None:
        self.key = key
        self.is_kept = is_kept
        """Somebody else has the engine's future as well: nothing is cancelled."""
        self.kind = type(call[1][0]) if call and call[0] is itself and not call[-1] else None
        """The type of a value that was scattered."""
        self.session = session
        self.future = future
        self.call = call
        self.serial = next(_serials)
        if call and not isinstance(session, TaskSession) and not _is_flat(call):
            # Of a task in a worker everything ends soon.
            future.add_done_callback(partial(_let_go, call))

    @classmethod
    def of_call(
        cls,
        key: Hashable,
        session: Session,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: TaskOptions,
    ) -> Task:
        """Submit a call."""
        below = {id(one): one.task for one in futures_in((args, kwargs))}
        if below:
            # A future may be released, but the task that it was of is needed.
            for one in below.values():
                if one.future.cancelled():
                    raise one.cancellation
            args, kwargs = replaced((args, kwargs), below)
        future = session.submit(function, args, kwargs, options)
        return cls(key, session, future, [function, args, kwargs, options, list(below.values())])

    def run_again(self) -> None:
        """Submit a call that failed again, after those that it takes and that failed as well.

        Raises ValueError if it is the end of a graph, which is asked for as a whole.
        """
        if not self.future.done() or not self.future._has_failed():
            return
        if not self.call:
            raise ValueError(f"{self.key!r} is of a graph: compute or persist that again")
        function, args, kwargs, options, below = self.call
        for one in below:
            one.run_again()
        self.future = self.session.submit(function, args, kwargs, options)

    @property
    def takes(self) -> list[Task]:
        """The tasks whose results it takes; empty once it has returned."""
        call = self.call[:]
        return list(call[-1]) if call else []

    @property
    def cancellation(self) -> CancelledError:
        """What says that it was cancelled."""
        return CancelledError(f"{self.key!r} was cancelled")

    def wait(self, future: ScalerFuture[Any], timeout_s: float | None) -> bool:
        """Wait for a future of it; return False if that was cancelled. Raises TimeoutError."""
        if not future.done() and not future._session.wait(future.done, future, timeout_s):
            raise TooLateError(f"{self.key!r} has not come back in time")
        return not future.cancelled()

    def outcome(
        self, timeout_s: float | None = None, of: ScalerFuture[Any] | None = None
    ) -> tuple[Any, BaseException | None]:
        """Return a value and None, or None and what was raised, or CancelledError.

        It is that of a future that it had before it was run again, if that is given.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        future = of or self.future
        if not self.wait(future, timeout_s):
            return None, self.cancellation
        left = None if end is None else max(end - time.monotonic(), 0.0)
        came = future._payload
        if came is None or future._has_failed():
            error = future.exception(left)
            return (None, error) if error is not None else (future.result(left), None)
        # Not the future's own: that keeps the value in place of what other tasks are to get.
        return load(came, left)

    async def outcome_soon(
        self, of: ScalerFuture[Any] | None = None
    ) -> tuple[Any, BaseException | None]:
        """Return the same, in asyncio."""
        future = of or self.future
        if not future.done():
            await arrival(future)
        if future._is_elsewhere:
            # To fetch it may take long: not in the loop's thread.
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, self.outcome, None, future)
        return self.outcome(None, future)

    def __reduce__(self) -> Any:
        raise FutureInsideError(INSIDE)

    def __del__(self) -> None:
        """Let the session cancel it, unless it has come back."""
        if not self.is_kept and not self.future.done():
            self.session.drop(self.future)


class Future(FutureHandle, Generic[T]):
    """The future of one key; a client makes it, and so does who knows the key of its task.

    It may be an argument of another task, also in lists, tuples and dicts. It cannot leave its
    process otherwise. Raises KeyError if the client, by default the default one, has no task of the
    key.
    """

    __slots__ = ("__weakref__", "_client", "_task")

    def __init__(self, key: Hashable | Task, client: FutureClient | None = None) -> None:
        self._client: FutureClient = client or default_client()
        self._task: Task | None = key if isinstance(key, Task) else self._client.task_of(key)

    @classmethod
    def beside(cls, key: Hashable, future: ScalerFuture[Any], client: FutureClient) -> Future[Any]:
        """Return one of an engine's future that somebody else has as well."""
        return cls(Task(key, future._session, future, [], is_kept=True), client)

    @property
    def task(self) -> Task:
        """What it shares with others of its key; raises CancelledError if it was released."""
        if self._task is None:
            raise CancelledError("this future was released")
        return self._task

    @property
    def future(self) -> ScalerFuture[Any]:  # type: ignore[override]
        """The engine's future."""
        return self.task.future

    @property
    def key(self) -> Hashable:
        """What it is known by; futures of equal calls have equal keys."""
        return self.task.key

    @property
    def client(self) -> FutureClient:
        """The client that made it."""
        return self._client

    @property
    def asynchronous(self) -> bool:
        """Whether :meth:`result` and the like are awaited in an event loop."""
        return self._client.asynchronous

    @property
    def executor(self) -> FutureClient:
        """The same."""
        return self._client

    @property
    def status(self) -> str:
        """What became of it: "pending", "finished", "error" or "cancelled"."""
        if self._task is None:
            return "cancelled"
        future = self._task.future
        if not future.done():
            return "pending"
        if future.cancelled():
            return "cancelled"
        return "error" if future._has_failed() else "finished"

    @property
    def type(self) -> builtins.type | None:
        """The type of the result, which is fetched for it, unless it was scattered.

        None: there is none.
        """
        status = self.status
        if status in {"pending", "finished"} and self.task.kind is not None:
            return self.task.kind
        return type(self.task.outcome()[0]) if status == "finished" else None

    def done(self) -> bool:
        """Return True if the task returned, failed or was cancelled."""
        return self._task is None or self._task.future.done()

    def cancelled(self) -> bool:
        """Return True if the task was cancelled."""
        return self.status == "cancelled"

    def result(self, timeout: float | str | None = None) -> T:
        """Return what the task returned, a new copy each time, or raise what it raised.

        Raises CancelledError, or TimeoutError after ``timeout``: seconds, or text as "10s".
        """
        if self.asynchronous and is_in_loop():
            return self._awaited(seconds_of("timeout", timeout))  # type: ignore[return-value]
        value, error = self.task.outcome(seconds_of("timeout", timeout))
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    @awaited
    def exception(self, timeout: float | str | None = None) -> BaseException | None:
        """Return what the task raised, or None; waits as :meth:`result` does."""
        task = self.task
        future = task.future
        if not task.wait(future, seconds_of("timeout", timeout)):
            raise task.cancellation
        # Not fetched: whether it failed is known without it.
        return future.exception() if future._has_failed() else None

    @awaited
    def traceback(self, timeout: float | str | None = None) -> TracebackType | None:
        """Return a traceback of what the task raised, or None; it is this process's.

        The worker's is a text, in the ``__cause__`` of the exception.
        """
        error = self.exception(timeout)
        with contextlib.suppress(BaseException):
            if error is not None:
                raise error
        return None if error is None else error.__traceback__

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call ``fn`` with this future when it is done, in another thread."""
        self.task.future.add_done_callback(lambda _: fn(self))

    def cancel(
        self, reason: str | None = None, msg: str | None = None, *, force: bool = False
    ) -> Any:
        """Cancel the task, queued or running, for all who have futures of its key."""
        return self._client.cancel([self], force=force)

    def retry(self) -> Any:
        """Run the task again if it failed."""
        return self._client.retry([self])

    def release(self) -> None:
        """Let go of the task: without other futures of its key it is cancelled, or forgotten."""
        self._task = None

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the result in asyncio; the task goes on if who waits is cancelled."""
        return self._awaited().__await__()

    async def _awaited(self, timeout_s: float | None = None) -> T:
        try:
            value, error = await asyncio.wait_for(self.task.outcome_soon(), timeout_s)
        except asyncio.TimeoutError:
            raise TooLateError(f"{self.key!r} has not come back in time") from None
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def __dask_tokenize__(self) -> tuple[str, Any, int]:
        # Another task may have this key later.
        return type(self).__name__, self.key, self.task.serial

    def __reduce__(self) -> Any:
        raise FutureInsideError(INSIDE)

    def __repr__(self) -> str:
        """Show the state, the type of a small result, and the key."""
        status = self.status
        if self._task is None:
            return "<Future: cancelled, released>"
        is_small = status == "finished" and type(self._task.future._payload) in PLAIN
        named = f"type: {getattr(self.type, '__name__', None)}, " if is_small else ""
        return f"<Future: {status}, {named}key: {self._task.key}>"

    def __getattr__(self, name: str) -> Any:
        return refused_of(self, "Future", name)


def _let_go(call: list[Any], future: ScalerFuture[Any]) -> None:
    """Let go of what a call took, unless it may be asked for again."""
    if not future.cancelled() and not future._has_failed():
        call.clear()


def _is_flat(call: list[Any]) -> bool:
    """Return True if a call takes nothing that is worth letting go of."""
    _, args, kwargs, _, _ = call
    return all(type(one) in FLAT for one in args) and all(
        type(one) in FLAT for one in kwargs.values()
    )


def futures_in(value: Any) -> Iterator[Future[Any]]:
    """Yield the futures in lists, tuples, sets and dicts, however deep, each once, in order."""
    # What was seen is kept: what comes after might be made where it was.
    seen: dict[int, Any] = {}
    stack: list[Any] = [value]
    while stack:
        one = stack.pop()
        kind = type(one)
        if kind in FLAT or id(one) in seen:
            continue
        if isinstance(one, Future):
            seen[id(one)] = one
            yield one
        elif kind is dict:
            seen[id(one)] = one
            stack.extend(reversed(list(one.values())))
        elif isinstance(one, (list, tuple, set, frozenset)):
            seen[id(one)] = one
            stack.extend(reversed(list(one)))


def replaced(value: Any, values: Mapping[int, Any], made: dict[int, Any] | None = None) -> Any:
    """Return a copy of lists, tuples, sets and dicts, with values in place of the futures in it.

    The values are by the identity of the futures. What was ``made`` of lists and dicts is known by
    their identities: a list may hold itself.
    """
    if isinstance(value, Future):
        return values[id(value)]
    kind = type(value)
    made = {} if made is None else made
    if id(value) in made:
        return made[id(value)]
    if kind is dict:
        copy = made[id(value)] = {}
        copy.update((name, replaced(one, values, made)) for name, one in value.items())
        return copy
    if kind is list:
        copied = made[id(value)] = []
        copied.extend(replaced(one, values, made) for one in value)
        return copied
    if kind in (tuple, set, frozenset):
        return kind(replaced(one, values, made) for one in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(replaced(one, values, made) for one in value))
    return value

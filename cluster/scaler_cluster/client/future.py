"""The future of one task."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from scaler_cluster.errors import FutureInsideError, ObjectStorageError, PayloadError
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.pickling.exceptions import failure_to_exception, lacking
from scaler_cluster.texts import show
from scaler_cluster.wire.messages import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

T = TypeVar("T")

PENDING, FINISHED = "PENDING", "FINISHED"
CANCELLED, CANCELLED_AND_NOTIFIED = "CANCELLED", "CANCELLED_AND_NOTIFIED"

PLAIN = (bytes, memoryview)
"""What a small result comes in; another has methods ``fetch`` and ``load``."""

_creation = threading.Lock()
"""Guards the moment in which a future either gets its condition or is settled without one, and in
which a callback is either noted or finds the future done. Taken last."""
log = logging.getLogger("concurrent.futures")
"""For what the standard library's futures log as well."""


@dataclass(frozen=True)
class ProfileResult:
    """What a task took in its worker: time, CPU time and memory of the call itself."""

    duration_s: float
    """Seconds from the start of the call to its end."""
    memory_peak: int
    """By how many bytes the memory of the worker grew at most during the call."""
    cpu_time_s: float
    """CPU seconds that the worker used during the call, and its child processes that ended."""

    @property
    def duration_us(self) -> int:
        """The duration in microseconds."""
        return round(self.duration_s * 1_000_000)

    @property
    def peak_memory(self) -> int:
        """The same as ``memory_peak``."""
        return self.memory_peak


class FutureOwner(Protocol):
    """What a future needs of the session that its task belongs to."""

    @property
    def connection(self) -> object:
        """What the result comes through."""

    @property
    def waits_as(self) -> str:
        """Why no worker can run some tasks now; empty: all are run in time."""

    def wait(
        self,
        done: Callable[[], bool],
        future: ScalerFuture[Any] | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Wait until ``done()``; return what it returned last."""

    def cancel(self, futures: Sequence[ScalerFuture[Any]]) -> int:
        """Give tasks up; return how many had not come back."""


class FutureHandle:
    """Stands for a future where that is an argument of a task: whatever else it is."""

    __slots__ = ()
    future: ScalerFuture[Any]


class ScalerFuture(Future[T], Generic[T]):
    """A :class:`concurrent.futures.Future` of one task; it can also be awaited in asyncio.

    The result is unpickled when a thread first asks for it, in that thread. ``cancel`` also stops
    a task that is running. A future may be an argument of another task.

    A future is small: it gets a condition only when a thread waits for it.
    """

    __slots__ = ("_call", "_cond", "_exception", "_keep", "_payload", "_profile", "_result",
                 "_session", "_state", "_task", "_wait")  # fmt: skip

    def __init__(self, session: FutureOwner) -> None:
        # Not the parent's: it would make a condition and two lists at once.
        self._state = PENDING
        self._session = session
        self._task = -1
        self._cond: threading.Condition | None = None
        self._payload: Any = None
        self._result: Any = None
        self._exception: BaseException | None = None
        self._wait: list[Any] | None = None
        self._call: list[Any] | None = None

    # The parent's methods use these; they come into being when they are used. To a type checker
    # they are the parent's attributes, as which ``as_completed`` asks for them.
    if not TYPE_CHECKING:

        @property
        def _condition(self) -> threading.Condition:
            condition = self._cond
            if condition is None:
                with _creation:
                    condition = self._cond
                    if condition is None:
                        condition = self._cond = threading.Condition()
            return condition

        @property
        def _waiters(self) -> list[Any]:
            waiters = self._wait
            if waiters is None:
                waiters = self._wait = []
            return waiters

        @property
        def _done_callbacks(self) -> list[Any]:
            callbacks = self._call
            if callbacks is None:
                callbacks = self._call = []
            return callbacks

    # -- public ------------------------------------------------------------------------------

    @property
    def task_id(self) -> int:
        """Number of the task, unique within its session."""
        return self._task

    def result(self, timeout: float | None = None) -> T:
        """Return what the task returned, or raise what it raised.

        Raises CancelledError if the task was cancelled, TimeoutError after ``timeout`` seconds,
        and WorkerDiedError, TaskTimeoutError or another ScalerError if the engine could not
        finish the task.
        """
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                # Break the cycle of the traceback with this frame.
                del error, self
        return self._result  # type: ignore[no-any-return]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the task raised, or None if it returned; waits as :meth:`result` does."""
        end = None if timeout is None else clock() + timeout
        pending = self._state == PENDING
        if pending and not self._session.wait(self.done, self, timeout):
            raise concurrent.futures.TimeoutError
        if self._state in (CANCELLED, CANCELLED_AND_NOTIFIED):
            raise CancelledError
        self._load(end)
        return self._exception

    def profiling_info(self) -> ProfileResult:
        """Return what the task took; if it ran more than once, the last time.

        Raises CancelledError if the task was cancelled, and ValueError if it is pending or was not
        measured: it was submitted without ``profiling=True``, or its call did not come to an end.
        """
        if not self.done():
            raise ValueError("the task has not come back: wait for its result first")
        if self.cancelled():
            raise CancelledError
        try:
            return self._profile
        except AttributeError:
            raise ValueError(
                "this task was not measured: ask for it with submit(..., profiling=True) or "
                "Client(..., profiling=True); one that died with its worker has no profile"
            ) from None

    def done(self) -> bool:
        """Return True if the task returned, failed or was cancelled."""
        return self._state is not PENDING and self._state != "RUNNING"

    def cancel(self, timeout: float | None = None) -> bool:
        """Cancel the task, queued or running; return False if it had ended before.

        This does not wait: ``timeout`` is accepted for programs that pass one, and ignored.
        """
        if self._state is PENDING and not self._session.cancel([self]):
            return self.cancelled()
        return self.cancelled()

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Have ``fn`` called with this future when it is done; at once, if it is."""
        with _creation:
            if not self.done():
                if self._call is None:
                    self._call = [fn]
                else:
                    self._call.append(fn)
                return
        self._call_back([fn])

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the result in asyncio; the task is cancelled if who waits is."""
        if self._state is not FINISHED or self._is_elsewhere:
            from scaler_cluster.client.event_loops import awaited

            return (yield from awaited(self))
        return self.result()

    def __repr__(self) -> str:
        """Show the state, the type of the result or exception, and the number of the task."""
        if self._state is FINISHED and self._is_elsewhere:
            text = f"<{type(self).__name__} at {id(self):#x} state=finished, not fetched>"
        else:
            if self._state is FINISHED:
                self._load()
            text = super().__repr__()
        return text if self._task < 0 else f"{text[:-1]} task={self._task}>"

    def __reduce__(self) -> Any:
        """Refuse to be pickled."""
        raise FutureInsideError(
            "a future can be an argument of a task, or an item of a list that is one, but cannot "
            "be inside of other values, nor leave its process: pass its result"
        )

    # -- for the session ---------------------------------------------------------------------

    def _profiled(self, duration_s: float, cpu_time_s: float, memory_peak: int) -> None:
        """The task took so much; what became of it follows."""
        self._profile = ProfileResult(duration_s, memory_peak, cpu_time_s)

    @property
    def _is_elsewhere(self) -> bool:
        """True if the result is to be fetched, which may take long."""
        return hasattr(self._payload, "fetch")

    def _has_failed(self) -> bool:
        """Return True if it came back with an exception, without making or fetching anything."""
        # The payload first: another thread may be making the exception of it.
        payload = self._payload
        return isinstance(payload, Failed | BaseException) or self._exception is not None

    def _load(self, end: float | None = None) -> None:
        """Make the result or exception of what came back; only the first caller's counts.

        Raises TimeoutError if it has to be fetched, and is not here by ``end``.
        """
        payload = self._payload
        if payload is None:
            return
        result, error = load(payload, None if end is None else max(end - clock(), 0.0))
        with _creation:
            if self._payload is not None:
                self._result, self._exception = result, error
                self._payload = None

    def _keep_by(self, keep: Callable[[Any], object]) -> None:
        """Call ``keep`` with the value of the task before anybody else has it, if it returns one.

        Called by who made this, which nobody else knows yet.
        """
        with _creation:
            if self._state is PENDING:
                self._keep = keep
                # A future with a condition is settled slowly.
                self._cond = self._cond or threading.Condition()
                return
        if self._state is FINISHED:
            self._load()
            if self._exception is None:
                keep(self._result)

    def _settle_slowly(self, payload: object) -> list[Callable[[Future[T]], object]]:
        """Settle a future that has a condition; return the callbacks to run."""
        keep = getattr(self, "_keep", None)
        if keep is not None and not isinstance(payload, Failed | BaseException):
            value, error = load(payload)
            if error is None:
                keep(value)
        with self._condition:
            with _creation:
                if self._state != PENDING:
                    return []
                self._payload = payload
                self._state = FINISHED
                callbacks, self._call = self._call or [], None
            failed = self._has_failed()
            for waiter in self._wait or ():
                if failed:
                    waiter.add_exception(self)
                else:
                    waiter.add_result(self)
            self._condition.notify_all()
        return callbacks

    def _cancel_here(self) -> None:
        """Become cancelled; the session has given the task up."""
        with self._condition:
            with _creation:
                if self._state != PENDING:
                    return
                self._state = CANCELLED_AND_NOTIFIED
                callbacks, self._call = self._call or [], None
            for waiter in self._wait or ():
                waiter.add_cancelled(self)
            self._condition.notify_all()
        self._call_back(callbacks)

    def _call_back(self, callbacks: list[Callable[[Future[T]], object]]) -> None:
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                log.exception("exception calling callback for %r", self)


def load(payload: Any, timeout: float | None = None) -> tuple[Any, BaseException | None]:
    """Return the result or the exception that a task came back with.

    Raises TimeoutError if it lies elsewhere, and is not here within ``timeout`` seconds.
    """
    if isinstance(payload, Failed):
        return None, failure_to_exception(payload)
    if isinstance(payload, BaseException):
        return None, payload
    try:
        if type(payload) in PLAIN:
            return payloads.loads(payload), None
        if payload.fetch(timeout):
            return payload.load(), None
    except KeyboardInterrupt:
        raise
    except ObjectStorageError as error:
        return None, error
    except BaseException as error:
        reason = f"{show(error)}{lacking(error)}"
        failure = PayloadError(f"the result cannot be unpickled here: {reason}")
        failure.__cause__ = error
        return None, failure
    raise concurrent.futures.TimeoutError


def settle_all(settled: list[tuple[Any, object]]) -> list[tuple[ScalerFuture[Any], list[Any]]]:
    """Settle futures; return those that have callbacks to be run, with them.

    Those that came back with None are cancelled. One lock for all: a waiting thread makes its
    condition before this looks, or after and then sees the result.
    """
    slow: list[tuple[Any, object]] = []
    called: list[tuple[ScalerFuture[Any], list[Any]]] = []
    with _creation:
        for future, payload in settled:
            if payload is None or future._cond is not None:
                slow.append((future, payload))
            elif future._state == PENDING:
                future._payload = payload
                future._state = FINISHED
                if future._call is not None:
                    called.append((future, future._call))
                    future._call = None
    for future, payload in slow:
        if payload is None:
            future._cancel_here()
            continue
        callbacks = future._settle_slowly(payload)
        if callbacks:
            called.append((future, callbacks))
    return called

"""Many calls of one function: no future each; results land in slots and come out in order."""

from __future__ import annotations

import concurrent.futures
import itertools
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from scaler_cluster.client.future import load
from scaler_cluster.core.client.requests import RUN_BYTES_MAX
from scaler_cluster.errors import (
    INTERRUPTS,
    FutureInsideError,
    PayloadError,
    StorageFullError,
    StorageUnreachableError,
)
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.pickling.by_value import PROTOCOL
from scaler_cluster.pickling.nodes import call_with
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.session import Session
    from scaler_cluster.objects.sent import CallObjects

RUN_TASKS_FIRST = 64
"""The first message of a map is small, so that workers start soon; the next ones grow."""
RUN_TASKS_MAX = 2048
NAMING_BYTES = 20
"""A shorter pickle names no module."""


class MapCall:
    """What is known of one map. The connection fills it under its lock."""

    def __init__(self, session: Session, function: Callable[..., Any], call: int,
                 options: m.TaskOptions, *, again: bool, steady: bool) -> None:  # fmt: skip
        session.check_usable()
        self._session = session
        self._held: list[bytes] = []
        self._called: Callable[..., Any] | None = function
        """Kept until everything is asked for: the objects of a heavy one live as long as it."""
        self._pickler = session.pickler
        self._function = self._pickler.function(function, self._held)
        self._call = call
        self._options = options
        self._again = again
        self.chunksize = 1
        """Number of items that a call is given, but for the last."""
        self._is_steady = steady
        self.asked = 0
        """Number of tasks asked for."""
        self.segments: dict[int, Any] = {}
        """What came back and was not taken yet, by the index of its first task."""
        self._arrived = 0
        self._run_tasks = RUN_TASKS_FIRST
        self.linked: list[ScalerFuture[Any]] = []
        """Futures of calls that take other futures: tasks of their own."""
        self._objects: CallObjects | None = None
        self._are_large = False
        """True if there was something large in the last group: then it is likely in the next."""
        self._is_unwatched = False
        self.error: BaseException | None = None
        self.first = session.open_call(self)

    # -- for the core ------------------------------------------------------------------------

    @property
    def outstanding(self) -> int:
        """Number of tasks that have not come back."""
        return self.asked - self._arrived

    def settle(self, index: int, batch: Batch) -> None:
        """Tasks from ``index`` on returned these."""
        self._put(index, batch, len(batch))

    def returned(self, index: int, result: object) -> None:
        """One task returned a value that lies in segments."""
        self._put(index, result)

    def fail(self, index: int, failure: m.Failed) -> None:
        """One task failed."""
        self._put(index, failure)

    def cancelled(self, index: int, count: int) -> None:
        """Tasks from ``index`` on will not run."""
        for task in range(index, index + count):
            self._put(task, concurrent.futures.CancelledError())

    def put_next(self, result: object) -> None:
        """The next call, which is not one of this map's tasks, came back with this."""
        index = self.asked
        self.asked += 1
        self._put(index, result)

    def _put(self, index: int, result: object, count: int = 1) -> None:
        self._arrived += count
        if not self._is_unwatched:
            self.segments[index] = result
        elif self._arrived == self.asked:
            self._session.drop_call(self, cancel=False)

    def leave(self) -> bool:
        """Nobody will take results; return True if the map is over, else its tasks go on."""
        self._is_unwatched = True
        self.segments.clear()
        return self._arrived == self.asked

    def abort(self, error: BaseException) -> None:
        """Nothing more will come back."""
        self.error = error
        self._arrived = self.asked

    # -- for the caller ----------------------------------------------------------------------

    def ask(self, items: Iterator[Any]) -> int:
        """Submit a call for each of ``items``; return how many there were.

        Each item is pickled when it is taken: who makes them may change one when it is asked for
        the next. An item that cannot be pickled fails by itself, when its turn comes.
        """
        begin = self.asked
        if self._objects is not None:
            self._objects.resume()
        while self._ask_run(itertools.islice(items, self._run_tasks)):
            pass
        return self.asked - begin

    def _ask_run(self, items: Iterator[Any]) -> bool:
        """Submit calls of a few items; return False if there were fewer than that."""
        room, begin = self._run_tasks, self.asked
        run: list[bytes] = []
        shared: tuple[bytes, ...] = ()
        nbytes = 0
        append, dumps, protocol = run.append, payloads.c_dumps, PROTOCOL
        keep = payloads.keep_small if self._pickler.stores else None
        is_slow, self._are_large = self._are_large, False
        try:
            for item in items:
                if not is_slow:
                    try:
                        payload = dumps(item, protocol, buffer_callback=keep)
                    except INTERRUPTS:
                        raise
                    except BaseException:  # noqa: S110 - the longer way says what is wrong
                        pass
                    else:
                        if len(payload) < NAMING_BYTES or payloads.is_plain(payload):
                            append(payload)
                            continue
                    is_slow = True
                try:
                    payload, objects = self._pack(item)
                except FutureInsideError:
                    self._send_run(run, shared)
                    self._session.put_here(self, self._submit_linked(item))
                    continue
                except (PayloadError, StorageFullError, StorageUnreachableError) as error:
                    self._send_run(run, shared)
                    self._session.put_here(self, self._blame(item, error))
                    continue
                self._are_large |= bool(objects)
                if objects != shared or nbytes + len(payload) > RUN_BYTES_MAX:
                    self._send_run(run, shared)
                    shared, nbytes = objects, 0
                append(payload)
                nbytes += len(payload)
        finally:
            # Also if the next item could not be made: what was taken before is asked for.
            nbytes = self._send_run(run, shared)
        if self._objects is not None:
            self._objects.end_group()
        if is_slow:
            self._run_tasks = RUN_TASKS_FIRST
        elif nbytes:
            fitting = RUN_BYTES_MAX * (self.asked - begin) // nbytes
            self._run_tasks = max(1, min(2 * room, RUN_TASKS_MAX, fitting))
        return self.asked - begin == room

    def _blame(self, item: Any, error: Exception) -> Exception:
        """Return the error of the next call, with the item's place if that cannot be pickled."""
        if self._called is None or not isinstance(error, PayloadError):
            return error
        is_chunk = self._call == m.CALL_CHUNK
        for index, args in enumerate(item if is_chunk else [item], self.asked * self.chunksize):
            try:
                if type(args) is not payloads.Whole:
                    payloads.check_call(self._called, args, {})
            except PayloadError as named:
                placed = PayloadError(f"item {index} of the map: {named}")
                placed.__cause__ = named.__cause__
                return placed
        return error

    def _submit_linked(self, item: Any) -> Linked:
        """Submit a call that takes the results of futures; of a chunk, each one by itself."""
        if self._called is None:
            raise AssertionError("everything was asked for")
        is_chunk = self._call == m.CALL_CHUNK
        futures = []
        for args in item if is_chunk else [item]:
            is_frozen = type(args) is payloads.Whole
            function, call = (
                (call_with, (self._called, args)) if is_frozen else (self._called, args)
            )
            futures.append(
                self._session.submit(function, tuple(call), {}, self._options, again=self._again)
            )
        self.linked += futures
        return Linked(futures, is_chunk=is_chunk)

    def _pack(self, item: Any) -> tuple[bytes, tuple[bytes, ...]]:
        """Pickle what a call is given; return also the objects that it refers to."""
        if not self._pickler.stores:
            return payloads.dumps(item), ()
        objects = self._call_objects()
        collector = payloads.Collector()
        if self._call == m.CALL_CHUNK:
            item = [one if type(one) is payloads.Whole else objects.shrink(one) for one in item]
        else:
            item = objects.shrink(item)
        payload = payloads.dumps(item, collector)
        return payload, objects.hold(collector.buffers)

    def freeze(self, args: tuple[Any, ...]) -> Any:
        """Return the arguments of one call of a chunk so that they stay as they are now."""
        if all(type(one) in payloads.SIMPLE for one in args):
            return args
        try:
            stores = self._pickler.stores
            return self._frozen(self._call_objects().shrink(args) if stores else args)
        except FutureInsideError:
            return tuple(map(self._frozen_alone, args))
        except (PayloadError, StorageFullError, StorageUnreachableError):
            # The chunk will meet it again.
            return args

    def _frozen_alone(self, value: Any) -> Any:
        """Return an argument beside a future so that it stays as it is, unless it holds one."""
        try:
            return self._frozen(value)
        except (FutureInsideError, PayloadError, StorageFullError, StorageUnreachableError):
            return value

    def _frozen(self, value: Any) -> payloads.Whole:
        collector = payloads.Collector() if self._pickler.stores else None
        payload = payloads.dumps(value, collector)
        objects = () if collector is None else self._call_objects().hold(collector.buffers)
        return payloads.Whole(payloads.load_parts, (payload, *map(payloads.Token, objects)))

    def _call_objects(self) -> CallObjects:
        if self._objects is None:
            self._objects = self._pickler.call_objects(again=self._again, steady=self._is_steady)
        return self._objects

    def _send_run(self, run: list[bytes], objects: tuple[bytes, ...]) -> int:
        """Submit what was pickled, and empty it; return how many bytes it was."""
        if not run:
            return 0
        batch = Batch.of(run)
        run.clear()
        for part in batch.split(RUN_BYTES_MAX):
            self._send(part, objects)
        return batch.nbytes

    def _send(self, batch: Batch, objects: tuple[bytes, ...] = ()) -> None:
        first = self.first + self.asked
        self.asked += len(batch)
        self._session.submit_run(self._function, first, self._call, self._options, objects, batch)

    def all_asked(self) -> None:
        """Nothing more will be asked for: let go of the objects that were stored for that."""
        self._pickler.release(self._held)
        self._held = []
        self._called = None
        if self._objects is not None:
            self._objects.close()

    def wait(self, index: int, timeout: float | None) -> Any:
        """Return the segment that begins with a task; raises TimeoutError."""
        segments = self.segments

        def there() -> bool:
            return index in segments or self.error is not None

        if not there() and not self._session.wait(there, None, timeout, self.first + index):
            raise concurrent.futures.TimeoutError
        if index in segments:
            return segments.pop(index)
        raise self.error if self.error is not None else AssertionError


class Linked:
    """Stands for the result of a call, or of a chunk of calls, that are tasks of their own."""

    __slots__ = ("_is_chunk", "futures")

    def __init__(self, futures: list[ScalerFuture[Any]], *, is_chunk: bool) -> None:
        self.futures = futures
        self._is_chunk = is_chunk

    def take(self, end: float | None) -> tuple[Any, BaseException | None]:
        """Return the result or the exception, as ``load`` does; waits until ``end``."""
        try:
            left = None if end is None else end - monotonic()
            values = [future.result(left) for future in self.futures]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return None, error
        return values if self._is_chunk else values[0], None


class _Owner:
    """Lives as long as a map's results may be asked for; its death drops the map."""

    __slots__ = ("_call", "_session", "is_begun")

    def __init__(self, session: Session, call: MapCall) -> None:
        self.is_begun = False
        """True once somebody has asked for a result: only then its death cancels the others."""
        self._session = session
        self._call = call

    def __del__(self) -> None:
        call = getattr(self, "_call", None)
        # None if it was interrupted before it had one.
        if call is not None:
            call.all_asked()
            self._session.drop_call(call, cancel=self.is_begun)


def map_calls(
    session: Session,
    function: Callable[..., Any],
    items: Iterator[Any],
    *,
    timeout: float | None = None,
    chunksize: int = 1,
    buffersize: int | None = None,
    options: m.TaskOptions = m.DEFAULT_OPTIONS,
    again: bool = False,
    steady: bool = False,
    make: Callable[..., MapCall] = MapCall,
) -> Iterator[Any]:
    """Return the results of ``function(*item)`` for ``items``, in order, as they come.

    The first calls (all of them without ``buffersize``) are submitted before this returns. With
    ``again`` also those large arguments are looked at that nobody may write to; ``steady`` as
    :func:`zipped` says it. Other parameters as :meth:`ScalerExecutor.map`.
    """
    kind = m.CALL_CHUNK if chunksize > 1 else m.CALL_ARGS
    end = None if timeout is None else monotonic() + timeout
    call = make(session, function, kind, options, again=again, steady=steady)
    call.chunksize = chunksize
    owner = _Owner(session, call)
    if chunksize > 1:
        items = _chunks(items if steady else map(call.freeze, items), chunksize)
    ahead = None if buffersize is None else max(1, -(-buffersize // chunksize))
    try:
        with session.leading():
            call.ask(itertools.islice(items, ahead))
    except BaseException:
        call.all_asked()
        raise
    if ahead is None:
        call.all_asked()
    # What is taken is made up for in pieces: one by one, each would be a message of its own, and
    # its result another, for ever.
    step = sys.maxsize if ahead is None else max(1, ahead // 4)
    more = None if ahead is None else items
    return _results(call, owner, more, step, end, chunked=chunksize > 1)


def _chunks(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def _results(
    call: MapCall, owner: _Owner, more: Iterator[Any] | None, step: int, end: float | None,
    *, chunked: bool,
) -> Iterator[Any]:  # fmt: skip
    owner.is_begun = True
    index = taken = 0
    try:
        while index < call.asked:
            segment = call.wait(index, None if end is None else end - monotonic())
            if isinstance(segment, Batch):
                index += len(segment)
                for start in range(0, len(segment), step):
                    piece = segment.cut(start, min(start + step, len(segment)))
                    taken += len(piece)
                    if more is not None and taken >= step:
                        call.ask(itertools.islice(more, taken))
                        taken = 0
                    values = load_all(piece)
                    if chunked:
                        for chunk in values:
                            yield from _give_away(chunk)
                            del chunk
                    else:
                        yield from values
                    del values
            else:
                left = None if end is None else max(end - monotonic(), 0.0)
                is_linked = isinstance(segment, Linked)
                value, error = segment.take(end) if is_linked else load(segment, left)
                del segment
                if error is not None:
                    try:
                        raise error
                    finally:
                        del error
                index += 1
                taken += 1
                if more is not None and taken >= step:
                    call.ask(itertools.islice(more, taken))
                    taken = 0
                if chunked:
                    yield from _give_away(value)
                else:
                    yield value
                del value
    finally:
        # At once, though the traceback of an exception may hold on to this frame for long.
        del owner


def load_all(segment: Batch) -> Iterator[Any]:
    """Return the values of a segment; what was taken from it is not referred to any more."""
    try:
        return _give_away(list(map(payloads.loads, segment)))
    except KeyboardInterrupt:
        raise
    except BaseException:
        # One of them cannot be unpickled here: those before it still count.
        return _values(segment)


def _give_away(values: list[Any]) -> Iterator[Any]:
    values.reverse()
    return map(list.pop, itertools.repeat(values, len(values)))


def _values(segment: Batch) -> Iterator[Any]:
    for payload in segment:
        value, error = load(payload)
        if error is not None:
            raise error from error.__cause__
        yield value

"""Objects to bytes and back. Exceptions have a module of their own: ``exceptions``.

C pickle first; cloudpickle for what it cannot do, and for what it would name as a member of
``__main__``, which is another module in another process.
"""

from __future__ import annotations

import functools
import pickle
import sys
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from scaler_cluster import errors
from scaler_cluster.pickling.by_value import PROTOCOL, REGISTERED, dumps_by_value, names_by_value
from scaler_cluster.pickling.constant import Constant
from scaler_cluster.pickling.unpicklable import why
from scaler_cluster.texts import named
from scaler_cluster.wire.batch import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scaler_cluster.wire.batch import Buffer

    Pack: TypeAlias = "list[tuple[int, memoryview]]"
    """Buffers that share a segment, each with where it begins there."""

SIMPLE = frozenset((type(None), bool, int, float, complex, str, bytes))
"""Types of values that never change, and refer to nothing."""
OBJECT_BYTES = 64 * 1024
"""From here on a buffer, or the pickle of one argument, is an object: stored once, then mapped."""
PACK_BYTES = 4 << 20
"""Buffers of one result lie in one segment up to so many bytes together: each segment costs as much
time as 300 KB, and whoever keeps one of the buffers keeps the segment."""
ALIGNMENT = 64
"""Where a buffer begins in a segment, which a vector of the CPU's may want."""

_copies: dict[int, tuple[ref[Any], ref[Any]]] = {}
"""Copies that :func:`contiguous` made, by their ids, each with its original."""

loads = pickle.loads
c_dumps = pickle.dumps


class Token(bytes):
    """The id of an object that is stored already; where a buffer is wanted it stands for it."""

    __slots__ = ()


class Collector:
    """Keeps the large buffers of what is pickled out of its stream: given to a pickler."""

    __slots__ = ("buffers",)

    def __init__(self) -> None:
        self.buffers: list[memoryview] = []
        """The buffers of the stream, in order: not copied, and not to be changed before use."""

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        """Return True if this buffer is to stay in the stream."""
        raw = buffer.raw()
        if raw.nbytes < OBJECT_BYTES and type(raw.obj) is not Token:
            return True
        self.buffers.append(raw)
        return False


class LargeBuffer(Exception):
    """There is a large buffer in what is pickled."""


def keep_small(buffer: pickle.PickleBuffer) -> bool:
    """Keep buffers in the stream: for a pickler, like a Collector, that is to find none."""
    raw = buffer.raw()
    if raw.nbytes >= OBJECT_BYTES or type(raw.obj) is Token:
        raise LargeBuffer
    return True


class Whole:
    """Stands for a value that is large in itself: what it is made from are buffers."""

    __slots__ = ("load", "parts")

    def __init__(self, load: Callable[..., Any], parts: Sequence[Buffer]) -> None:
        self.load = load
        self.parts = parts

    @classmethod
    def of(cls, value: Any, large: int = OBJECT_BYTES) -> object:
        """Return what to pickle in place of a value: itself unless it has ``large`` bytes.

        Raises PayloadError if it cannot be pickled.
        """
        if type(value) is ObjectReference:
            return value.whole
        if type(value) in {bytes, bytearray}:
            is_large = len(value) >= large
            return cls(type(value), (value,)) if is_large else value
        if is_array(value) and value.nbytes < large and not value.dtype.hasobject:
            return value
        collector = Collector()
        stream = dumps(value, collector)
        if len(stream) < large:
            return value
        return cls(load_parts, (stream, *collector.buffers))

    def __reduce__(self) -> Any:
        """Become the value itself, where it is unpickled."""
        return self.load, tuple(map(pickle.PickleBuffer, self.parts))


class ObjectReference:
    """A value that was sent ahead: a whole positional argument of a task may be this instead.

    The value stays on the cluster as long as this lives. Equal if they name the same object.
    """

    __slots__ = ("__weakref__", "name", "object_id", "release", "size", "whole")

    def __init__(self, name: str, size: int, whole: Whole) -> None:
        self.name = name
        """What the user calls it."""
        self.size = size
        """Bytes that it takes in the storage."""
        self.whole = whole
        """What stands for it where it is pickled."""
        self.object_id = b"".join(map(bytes, whole.parts))
        """Ids of its parts."""
        self.release: Callable[[], object] = lambda: None
        """Lets go of it, once; what stored it calls this at the end of the reference."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectReference):
            return NotImplemented
        return self.object_id == other.object_id

    def __hash__(self) -> int:
        return hash(self.object_id)

    def __repr__(self) -> str:
        return f"<ObjectReference {self.name!r}, {self.size} bytes>"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} can only be passed as a positional argument of its own, to a task of the "
            "client that made it, not inside of another value"
        )


def load_parts(stream: Buffer, *buffers: Buffer) -> Any:
    """Return the value that was pickled into a stream and buffers."""
    return pickle.loads(stream, buffers=buffers)


class Packed:
    """Stands for a value whose buffers share segments, where it is pickled."""

    __slots__ = ("packs", "stream")

    def __init__(self, stream: bytes, packs: Sequence[Pack]) -> None:
        self.stream = stream
        self.packs = packs

    def __reduce__(self) -> Any:
        """Become the value itself, where it is unpickled."""
        places = [[(start, start + one.nbytes) for start, one in pack] for pack in self.packs]
        # Each token is out of the stream: a segment takes its place.
        return load_packed, (self.stream, places, *(pickle.PickleBuffer(Token()) for _ in places))


def pack(stream: bytes, buffers: Sequence[memoryview]) -> tuple[bytes, Sequence[Pack]]:
    """Return a pickle whose buffers share segments, and what goes where in each of these."""
    packs: list[Pack] = []
    room = 0
    for buffer in buffers:
        if buffer.nbytes > room:
            packs.append([])
            room = PACK_BYTES
        packs[-1].append((PACK_BYTES - room, buffer))
        room -= -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
    if len(packs) < len(buffers):
        stream = pickle.dumps(Packed(stream, packs), PROTOCOL, buffer_callback=Collector())
    return stream, packs


def load_packed(stream: bytes, places: list[list[tuple[int, int]]], *segments: Buffer) -> Any:
    """Return the value that was pickled into a stream and buffers, which lie in segments."""
    buffers = [
        memoryview(segment)[start:stop]
        for segment, ranges in zip(segments, places, strict=True)
        for start, stop in ranges
    ]
    return pickle.loads(stream, buffers=buffers)


def dumps(value: object, collector: Collector | None = None) -> bytes:
    """Pickle a value; its large buffers go to the collector, if there is one.

    Raises PayloadError, with the original error as its cause, if it cannot be pickled or is
    larger than a message may be.
    """
    before = len(collector.buffers) if collector is not None else 0
    try:
        data = pickle.dumps(value, PROTOCOL, buffer_callback=collector)
        if not names_by_value(data):
            return _checked(data)
    except (errors.PayloadError, *errors.INTERRUPTS):
        raise
    except BaseException:  # noqa: S110 - whatever C pickle stumbles over, cloudpickle may not
        pass
    if collector is not None:
        del collector.buffers[before:]
    try:
        return _checked(dumps_by_value(value, collector))
    except (errors.PayloadError, *errors.INTERRUPTS):
        raise
    except BaseException as error:
        raise errors.PayloadError(f"cannot pickle {named(value)}: {why(value, error)}") from error


def is_plain(data: bytes) -> bool:
    """Return True if a C pickle is small, and names nothing that other processes do not have."""
    # In the path of every task: so the names are mostly not looked through.
    return len(data) < OBJECT_BYTES and (
        (not REGISTERED and b"__main__" not in data) or not names_by_value(data)
    )


def _checked(data: bytes) -> bytes:
    if len(data) >= BATCH_BYTES_MAX:
        raise errors.PayloadError(
            f"an object of {len(data)} pickled bytes is larger than a message may be "
            f"({BATCH_BYTES_MAX}): split it"
        )
    return data


def dumps_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, stores: bool
) -> tuple[bytes, Sequence[memoryview]]:
    """Pickle the arguments of one call; return also the buffers to be stored, if any are.

    Raises PayloadError, which names the argument at fault.
    """
    value = (args, kwargs) if kwargs else args
    if stores:
        for one in args:
            kind = type(one)
            if kind is bytes and len(one) >= OBJECT_BYTES:
                break
            # By its name first: numpy need not be there.
            if kind.__name__ == "ndarray" and is_array(one) and one.nbytes >= OBJECT_BYTES:
                break
        else:
            try:
                data = pickle.dumps(value, PROTOCOL, buffer_callback=keep_small)
                if is_plain(data):
                    return data, ()
            except (errors.FutureInsideError, *errors.INTERRUPTS):
                raise
            except BaseException:  # noqa: S110 - the longer way says what is wrong
                pass
    try:
        return _dumps_large(args, kwargs) if stores else (dumps(value), ())
    except errors.FutureInsideError:
        raise
    except errors.PayloadError as whole:
        check_call(function, args, kwargs)
        raise whole from whole.__cause__


def check_call(
    function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Raise PayloadError that names the argument, if there is one that cannot be pickled."""
    keyed = ((f"argument {name!r}", one) for name, one in kwargs.items())
    for name, one in (*((f"argument {i}", one) for i, one in enumerate(args)), *keyed):
        if type(one) is ObjectReference:
            # It is replaced before it would be pickled.
            continue
        try:
            dumps(one, Collector())
        except errors.PayloadError as error:
            raise errors.PayloadError(
                f"{name} of {function_name(function)}: {error}"
            ) from error.__cause__


def _dumps_large(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bytes, Sequence[memoryview]]:
    collector = Collector()
    # What is passed twice stays one.
    pieces = {id(one): contiguous(one) for one in (*args, *kwargs.values())}
    data = b""
    if not any(map(_is_whole, args)):
        data = dumps(_replaced(args, kwargs, pieces), collector)
        if len(data) < OBJECT_BYTES:
            return data, collector.buffers
    wholes = {key: Whole.of(one) for key, one in pieces.items()}
    if data and not any(type(one) is Whole for one in wholes.values()):
        # What is left in the stream are many small ones.
        return data, collector.buffers
    collector.buffers.clear()
    return dumps(_replaced(args, kwargs, wholes), collector), collector.buffers


def _replaced(
    args: tuple[Any, ...], kwargs: dict[str, Any], others: dict[int, Any]
) -> tuple[Any, ...]:
    """Return what is pickled of a call, with others in place of its arguments."""
    args = tuple(others[id(one)] for one in args)
    return (args, {name: others[id(one)] for name, one in kwargs.items()}) if kwargs else args


def _is_whole(value: Any) -> bool:
    kind = type(value)
    return kind is ObjectReference or (kind is bytes and len(value) >= OBJECT_BYTES)


def is_array(value: Any) -> bool:
    """Return True if this is an array of numpy, which need not be there."""
    return type(value) is getattr(sys.modules.get("numpy"), "ndarray", None)


def contiguous(value: Any) -> Any:
    """Return an array whose bytes lie in one piece: any other is copied twice to pickle it."""
    if not is_array(value):
        return value
    flags = value.flags
    if flags.c_contiguous or flags.f_contiguous:
        return value
    copy = value.copy()
    number = id(copy)
    _copies[number] = ref(copy, lambda _: _copies.pop(number, None)), ref(value)
    return copy


def original_of(value: Any) -> Any:
    """Return the array that :func:`contiguous` copied to make this; None: none, or it is gone."""
    known = _copies.get(id(value))
    return None if known is None else known[1]()


def dumps_result(value: object, collector: Collector, stream: bytes | None) -> bytes:
    """Pickle what a task returned, of which any part may be large; raises PayloadError.

    A ``stream`` is its pickle, which turned out to be large.
    """
    buffers = collector.buffers
    buffers.clear()
    if type(value) is ObjectReference:
        return dumps(value.whole, collector)
    if stream is None:
        if type(value) in {bytes, bytearray}:
            return dumps(Whole.of(value), collector)
        stream = dumps(value, collector)
        if len(stream) < OBJECT_BYTES:
            return stream
    parts: list[Buffer] = [stream, *buffers]
    buffers.clear()
    return dumps(Whole(load_parts, parts), collector)


def failing_argument(
    data: Buffer,
    buffers: Sequence[Buffer],
    passing: type[BaseException] | tuple[type[BaseException], ...] = (),
) -> int | None:
    """Return the index of the first item of a pickled tuple that cannot be unpickled, if any.

    A pickle is a program for a stack machine: cut off where an item is complete, it makes that.
    Exceptions that are ``passing`` are not the item's.
    """
    import pickletools  # not at the start: few workers ever fail so

    pieces: list[bytes] = []
    ends: dict[int, int] = {}
    marks: list[int] = []
    height = 0
    operations = list(pickletools.genops(bytes(data)))
    starts = [position for _, _, position in operations]
    tuples = [i for i, (code, _, _) in enumerate(operations) if code.name.startswith("TUPLE")]
    for (code, _, start), stop in zip(operations[: tuples[-1]], starts[1:], strict=False):
        before = code.stack_before
        if pickletools.markobject in before:
            # Down to the mark, and what it takes from below that.
            height = marks.pop() - before.index(pickletools.markobject)
        else:
            height -= len(before)
        if code.name == "MARK":
            marks.append(height)
        height += len(code.stack_after)
        if code.name != "FRAME":
            pieces.append(bytes(data[start:stop]))
        ends[height] = len(pieces)
    # More than three items stand behind a mark.
    base = 1 if marks else 0
    for index in range(height - base):
        stream = b"".join(pieces[: ends[base + index + 1]]) + pickle.STOP
        try:
            pickle.loads(stream, buffers=buffers)
        except BaseException as error:
            if isinstance(error, passing):
                raise
            return index
    return None


# -- functions -------------------------------------------------------------------------------


def function_name(function: Any) -> str:
    """Return a function's name for people."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, Constant):
        return function.label
    try:
        name = function.__qualname__
    except Exception:
        name = None
    return name if type(name) is str and name else type(function).__qualname__

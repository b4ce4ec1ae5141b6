"""Envelopes to ZeroMQ frames and back: msgpack, with large buffers as frames of their own.

An envelope is what one peer sends another in one turn: ``[incarnation, to, seq, ack, *messages]``
in the first frame, a message being ``[tag, *fields]``. A buffer of FRAME_BYTES or more stands in
the envelope as the number of the frame that holds it, and is never copied.

What arrives is checked here: whatever the bytes, decoding returns an envelope whose fields have
their types and whose batches are consistent, or raises :class:`RemoteProtocolError`.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgpack

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import (
    FUNCTION_ID_BYTES,
    SEGMENT_NAME_BYTES_MAX,
    TASK_ID_MAX,
)
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch
from scaler_cluster.wire.checks import CHECKS, SECONDS_MAX, is_name, is_path
from scaler_cluster.wire.parts import has_more_parts
from scaler_cluster.wire.versions import is_foreign, read_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scaler_cluster.wire.batch import Buffer

FRAME_BYTES = 8 * 1024
"""From here on a buffer is a frame: below, copying 8 KiB costs less than a frame does."""
HEADER_BYTES_MAX = 16 << 20
"""Senders split what is longer than 256 KiB, except a single message: one with all the objects that
it may have is 7 MB long."""
PLAIN_BYTES_MAX = 512 << 10
"""A longer header is looked at before it is read: one of nothing but empty lists takes 70 times its
length in memory meanwhile, and up to half a second for each MB."""
PARTS_MAX = 400_000
"""Values in such a header: a Keep with all the objects that it may have is three for each."""
HELLO_BYTES_MAX = 128 << 10
"""Bytes of the header of a peer that has not said Hello. The longest Hello, with as many
capabilities as there may be, has 70 KB."""
FRAMES_MAX = 100_000
NUMBERS = 4
"""Each envelope begins with so many numbers."""
OBJECTS_MAX = 100_000
"""Large buffers of one payload: as many as a list of arrays may have, each 64 KiB or more."""
HOMES_MAX = 256
"""The first byte of an object's id chooses among them."""
MESSAGES_MAX = 1_000_000
CAPABILITIES_MAX = 256
NAMES_MAX = 65_536
"""As many machines as a task may be allowed to run on."""
DEPTH_MAX = 1 << 32
"""No stack of tasks comes near."""
UNICODE_ERRORS = "surrogatepass"
"""A task may print or raise any text that Python can hold, also what is no valid Unicode."""


class Envelope:
    """What arrived in one piece from one peer."""

    __slots__ = ("_frames", "ack", "incarnation", "messages", "seq", "to")

    def __init__(
        self,
        incarnation: int,
        to: int,
        seq: int,
        ack: int,
        messages: list[m.Message],
        frames: Sequence[Buffer],
    ) -> None:
        self.incarnation = incarnation
        self.to = to
        self.seq = seq
        self.ack = ack
        self.messages = messages
        self._frames = frames

    @property
    def nbytes(self) -> int:
        """Its size."""
        return sum(map(len, self._frames))


_options_of = attrgetter(*(f.name for f in fields(m.TaskOptions)))
_packer = msgpack.Packer(use_bin_type=True, autoreset=True, unicode_errors=UNICODE_ERRORS)


def in_pieces(names: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Yield names in as many pieces as they need messages."""
    for start in range(0, len(names), OBJECTS_MAX):
        yield tuple(names[start : start + OBJECTS_MAX])


def encode(
    incarnation: int, seq: int, ack: int, messages: Sequence[m.Message], to: int = 0
) -> list[Buffer]:
    """Return the frames of an envelope; large buffers are passed on, not copied."""
    frames: list[Buffer] = [b""]
    body: list[object] = [incarnation, to, seq, ack]
    for message in messages:
        # Nearly always one: up to Python 3.11 a comprehension is a call more.
        body.append(_ENCODERS[type(message)](message, frames))  # noqa: PERF401
    frames[0] = _packer.pack(body)
    return frames


def decode(frames: Sequence[Buffer]) -> Envelope:
    """Return the envelope that these frames hold.

    Raises RemoteProtocolError, and nothing else, if they hold none.
    """
    try:
        return _decode(frames)
    except RemoteProtocolError:
        raise
    except Exception as error:
        raise RemoteProtocolError(f"undecodable message: {error!r:.200}") from None


def _decode(frames: Sequence[Buffer]) -> Envelope:
    if not frames or len(frames) > FRAMES_MAX or len(frames[0]) > HEADER_BYTES_MAX:
        raise RemoteProtocolError("no frames, too many frames, or too large a header")
    if len(frames[0]) > PLAIN_BYTES_MAX and has_more_parts(bytes(frames[0]), PARTS_MAX):
        raise RemoteProtocolError("a header of too many parts")
    body = msgpack.unpackb(
        frames[0], raw=False, use_list=True, strict_map_key=True, unicode_errors=UNICODE_ERRORS
    )
    if type(body) is not list or len(body) < NUMBERS or len(body) > MESSAGES_MAX:
        raise RemoteProtocolError(f"an envelope is a list of {NUMBERS} numbers and messages")
    incarnation, to, seq, ack = body[:NUMBERS]
    if (
        not (type(incarnation) is type(to) is type(seq) is type(ack) is int)
        or not 0 <= incarnation <= TASK_ID_MAX
        or not 0 <= to <= TASK_ID_MAX
        or not 0 <= seq <= TASK_ID_MAX
        or not 0 <= ack <= TASK_ID_MAX
    ):
        raise RemoteProtocolError(f"not numbers in range: {body[:NUMBERS]!r:.200}")
    items = body[NUMBERS:]
    if items and is_foreign(items[0]):
        # What else a peer of another version says, nobody here understands.
        return Envelope(incarnation, to, seq, ack, [read_foreign(items[0])], frames)
    messages = []
    for item in items:
        messages.append(_DECODERS[item[0]](item, frames))  # noqa: PERF401 - as in encode
    return Envelope(incarnation, to, seq, ack, messages, frames)


# -- fields ----------------------------------------------------------------------------------


def _put_buffer(buffer: Buffer, frames: list[Buffer]) -> Buffer | int:
    if len(buffer) < FRAME_BYTES:
        return buffer
    frames.append(buffer)
    return len(frames) - 1


def _get_buffer(value: object, frames: Sequence[Buffer]) -> Buffer:
    if type(value) is bytes:
        return value
    if type(value) is not int or not 0 < value < len(frames):
        raise RemoteProtocolError("a buffer is bytes or the number of a frame")
    return frames[value]


def _put_batch(batch: Batch, frames: list[Buffer]) -> list[object]:
    ends, data = batch.ends.tobytes(), batch.data
    if len(data) < FRAME_BYTES and len(ends) < FRAME_BYTES:
        return [ends, batch.base, data]
    return [_put_buffer(ends, frames), batch.base, _put_buffer(data, frames)]


def _get_batch(value: Any, frames: Sequence[Buffer]) -> Batch:
    packed, base, data = value
    if type(data) is not bytes:
        data = _get_buffer(data, frames)
    if type(packed) is not bytes:
        packed = _get_buffer(packed, frames)
    ends = memoryview(packed).cast("I")
    # Ends that decrease in the middle make an item look empty or too long: reading it fails on
    # the worker as that one task's own error, and no slice can leave the buffer.
    if type(base) is not int or len(ends) == 0 or base < 0 or ends[-1] - base != len(data):
        raise RemoteProtocolError("a batch whose ends do not fit its data")
    return Batch(data, ends, base)


def _put_options(options: m.TaskOptions) -> list[object] | None:
    if options is m.DEFAULT_OPTIONS:
        return None
    return list(_options_of(options))


def _get_options(value: Any) -> m.TaskOptions:
    if value is None:
        return m.DEFAULT_OPTIONS
    priority, timeout_s, retries, at_most_once, stream_output, profiling, depth, *demand = value
    capabilities, workers, log_level, cores, creates = demand
    flags = at_most_once, stream_output, profiling
    if (
        type(priority) is not int
        or not (timeout_s is None or (type(timeout_s) in (int, float) and timeout_s >= 0))
        or type(retries) is not int
        or retries < 0
        or any(type(one) is not bool for one in flags)
        or type(depth) is not int
        or not 0 <= depth <= DEPTH_MAX
        or not CHECKS["int"](log_level)
        or type(cores) is not int
        or not (1 <= cores <= TASK_ID_MAX or cores == m.WHOLE_MACHINE)
        or not is_name(creates)
    ):
        raise RemoteProtocolError("task options of the wrong type")
    place = _get_capabilities(capabilities), _get_names(workers)
    first = priority, timeout_s, retries, *flags, depth, *place, log_level
    return m.TaskOptions(*first, cores, creates)


def _get_many_options(value: Any) -> tuple[m.TaskOptions, ...]:
    if type(value) is not list:
        raise RemoteProtocolError("the options of a graph are a list")
    return tuple(map(_get_options, value))


def _get_capabilities(value: Any) -> m.Capabilities:
    if type(value) is not list or len(value) > CAPABILITIES_MAX:
        raise RemoteProtocolError("capabilities are a short list")
    capabilities = []
    for name, amount in value:
        if not is_name(name) or type(amount) not in (int, float) or not -1 <= amount <= TASK_ID_MAX:
            raise RemoteProtocolError("a capability is a name and an amount")
        capabilities.append((name, amount))
    return tuple(sorted(capabilities))


def _put_portion(portion: m.Portion) -> list[object]:
    return [portion.uses, portion.devices, portion.cores, portion.is_whole]


def _get_portion(value: Any) -> m.Portion:
    uses, devices, cores, is_whole = value
    if not CHECKS["int"](cores) or cores < 1 or type(is_whole) is not bool:
        raise RemoteProtocolError("a portion is of some cores, or of all")
    return m.Portion(_get_capabilities(uses), _get_sizes(devices), cores, is_whole)


def _get_names(value: Any) -> tuple[str, ...]:
    if type(value) is not list or len(value) > NAMES_MAX or not all(map(CHECKS["str"], value)):
        raise RemoteProtocolError("names are texts")
    return tuple(value)


def _put_home(home: m.StorageEndpoint) -> list[object]:
    return [home.address, home.memory, home.disk, home.memory_limit]


def _get_home(value: Any) -> m.StorageEndpoint:
    address, memory, disk, memory_limit = value
    if not all(map(is_path, (address, memory, disk))) or not CHECKS["int"](memory_limit):
        raise RemoteProtocolError("a home has an address, two directories and a limit")
    return m.StorageEndpoint(address, memory, disk, memory_limit)


def _get_homes(value: Any) -> tuple[m.StorageEndpoint, ...]:
    if type(value) is not list or not 0 < len(value) <= HOMES_MAX:
        raise RemoteProtocolError("objects have a home, or some")
    return tuple(map(_get_home, value))


def _get_sizes(value: Any) -> tuple[int, ...]:
    if type(value) is not list or len(value) > OBJECTS_MAX or not all(map(CHECKS["int"], value)):
        raise RemoteProtocolError("sizes are numbers of bytes")
    return tuple(value)


def _get_objects(value: Any) -> tuple[bytes, ...]:
    if value == []:
        return ()
    if (
        type(value) is not list
        or len(value) > OBJECTS_MAX
        or not all(type(one) is bytes and len(one) <= SEGMENT_NAME_BYTES_MAX for one in value)
    ):
        raise RemoteProtocolError("objects are named by short bytes")
    return tuple(value)


_KINDS: dict[
    str,
    tuple[Callable[[Any, list[Buffer]], object] | None, Callable[[Any, Sequence[Buffer]], object]],
] = {
    "Batch": (_put_batch, _get_batch),
    "Buffer": (_put_buffer, _get_buffer),
    "tuple[bytes, ...]": (None, lambda value, _: _get_objects(value)),
    "tuple[int, ...]": (None, lambda value, _: _get_sizes(value)),
    "tuple[str, ...]": (None, lambda value, _: _get_names(value)),
    "Capabilities": (None, lambda value, _: _get_capabilities(value)),
    "StorageEndpoint": (lambda value, _: _put_home(value), lambda value, _: _get_home(value)),
    "tuple[StorageEndpoint, ...]": (
        lambda value, _: list(map(_put_home, value)),
        lambda value, _: _get_homes(value),
    ),
    "TaskOptions": (lambda value, _: _put_options(value), lambda value, _: _get_options(value)),
    "tuple[TaskOptions, ...]": (
        lambda value, _: list(map(_put_options, value)),
        lambda value, _: _get_many_options(value),
    ),
    "Portion | None": (
        lambda value, _: None if value is None else _put_portion(value),
        lambda value, _: None if value is None else _get_portion(value),
    ),
}
"""How a field of each annotation is put (None: as it is) and read; others are in CHECKS."""


def _register(cls: type[m.Message]) -> None:
    """Make the encoder and decoder of a message class from its annotations."""
    tag = cls.tag
    # Any: the classes of messages are dataclasses, their base is none.
    kind_of_message: Any = cls
    plan = [(f.name, str(f.type)) for f in fields(kind_of_message)]
    puts: list[tuple[str, Callable[[Any, list[Buffer]], object] | None]] = []
    gets: list[tuple[str, Callable[[Any, Sequence[Buffer]], object]]] = []
    for name, kind in plan:
        put_one, get_one = _KINDS.get(kind) or (None, _checked(cls.__name__, name, kind))
        puts.append((name, put_one))
        gets.append((name, get_one))
    size = len(plan) + 1

    # Any: it is called only if there is more than one field.
    plain: Any = attrgetter(*(name for name, _ in plan)) if len(plan) > 1 else None

    def put_plain(message: m.Message, frames: list[Buffer]) -> list[object]:
        return [tag, *plain(message)]

    def put(message: m.Message, frames: list[Buffer]) -> list[object]:
        out: list[object] = [tag]
        for name, convert in puts:
            value = getattr(message, name)
            out.append(value if convert is None else convert(value, frames))
        return out

    def get(item: list[Any], frames: Sequence[Buffer]) -> m.Message:
        if len(item) != size:
            raise RemoteProtocolError(f"{cls.__name__} with {len(item) - 1} fields")
        return cls(*[read(value, frames) for (_, read), value in zip(gets, item[1:], strict=True)])

    all_plain = plain is not None and all(convert is None for _, convert in puts)
    _ENCODERS[cls] = put_plain if all_plain else put
    _DECODERS[tag] = get


def _checked(owner: str, name: str, kind: str) -> Callable[[Any, Sequence[Buffer]], object]:
    check = is_name if owner == "Hello" and kind == "str" else CHECKS[kind]
    exact = FUNCTION_ID_BYTES if name == "function" else None

    def read(value: Any, _: Sequence[Buffer]) -> object:
        if not check(value) or (exact is not None and len(value) != exact):
            raise RemoteProtocolError(f"{owner}.{name} is not a valid {kind}")
        return value

    return read


# -- the four messages of the hot path, written out: half of the time of the general way --------


def _put_submit(x: m.Submit, frames: list[Buffer]) -> list[object]:
    options, batch = _put_options(x.options), _put_batch(x.batch, frames)
    return [12, x.first, x.function, x.call, options, batch, x.objects]


def _put_results(x: m.Results, frames: list[Buffer]) -> list[object]:
    return [14, x.first, _put_batch(x.batch, frames)]


def _put_assign(x: m.Assign, frames: list[Buffer]) -> list[object]:
    return [
        20, x.session, x.first, x.function, x.call, x.report_start, x.stream_output,
        _put_batch(x.batch, frames), x.objects, x.depth, x.profiling, x.log_level, x.at_most_once,
        None if x.portion is None else _put_portion(x.portion),
    ]  # fmt: skip


def _put_done(x: m.Done, frames: list[Buffer]) -> list[object]:
    return [26, x.session, x.first, x.busy_s, _put_batch(x.batch, frames)]


def _get_submit(item: list[Any], frames: Sequence[Buffer]) -> m.Submit:
    _, first, function, call, options, batch, objects = item
    _check_run(0, first, function, call)
    options = m.DEFAULT_OPTIONS if options is None else _get_options(options)
    batch = _get_batch(batch, frames)
    objects = () if objects == [] else _get_objects(objects)
    return m.Submit(first, function, call, options, batch, objects)


def _get_results(item: list[Any], frames: Sequence[Buffer]) -> m.Results:
    _, first, batch = item
    if type(first) is not int or not 0 <= first <= TASK_ID_MAX:
        raise RemoteProtocolError("Results.first is a task")
    return m.Results(first, _get_batch(batch, frames))


def _get_assign(item: list[Any], frames: Sequence[Buffer]) -> m.Assign:
    (
        _, session, first, function, call, starts, streams, batch, objects,
        depth, profiles, log_level, once, portion,
    ) = item  # fmt: skip
    _check_run(session, first, function, call)
    is_right = type(starts) is type(streams) is type(profiles) is type(once) is bool
    if not (is_right and type(depth) is type(log_level) is int):
        raise RemoteProtocolError("the options of an Assign are booleans, a depth and a level")
    return m.Assign(
        session, first, function, call, starts, streams,
        _get_batch(batch, frames), () if objects == [] else _get_objects(objects),
        depth, profiles, log_level, once,
        None if portion is None else _get_portion(portion),
    )  # fmt: skip


def _get_done(item: list[Any], frames: Sequence[Buffer]) -> m.Done:
    _, session, first, busy_s, batch = item
    if (
        not (type(session) is type(first) is int)
        or not 0 <= session <= TASK_ID_MAX
        or not 0 <= first <= TASK_ID_MAX
        or (type(busy_s) is not float and type(busy_s) is not int)
        or not 0.0 <= busy_s <= SECONDS_MAX
    ):
        raise RemoteProtocolError("Done names a session, a task and a number of seconds")
    return m.Done(session, first, busy_s, _get_batch(batch, frames))


def _check_run(session: object, first: object, function: object, call: object) -> None:
    if (
        not (type(session) is type(first) is type(call) is int)
        or not 0 <= session <= TASK_ID_MAX
        or not 0 <= first <= TASK_ID_MAX
        or not 0 <= call <= TASK_ID_MAX
        or type(function) is not bytes
        or len(function) != FUNCTION_ID_BYTES
    ):
        raise RemoteProtocolError("tasks are named by numbers, and their function by its digest")


_ENCODERS: dict[type[m.Message], Callable[[Any, list[Buffer]], list[object]]] = {}
_DECODERS: dict[int, Callable[[list[Any], Sequence[Buffer]], m.Message]] = {}
for _class in m.Message.__subclasses__():
    # A slots dataclass is made anew by its decorator: the class it replaced is a subclass too.
    if getattr(m, _class.__name__) is _class:
        _register(_class)

_ENCODERS |= {
    m.Submit: _put_submit,
    m.Results: _put_results,
    m.Assign: _put_assign,
    m.Done: _put_done,
}
_DECODERS |= {12: _get_submit, 14: _get_results, 20: _get_assign, 26: _get_done}

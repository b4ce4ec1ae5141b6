"""Every message to frames and back; and whatever else arrives decodes or is refused."""

from __future__ import annotations

import dataclasses
import math

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import (
    FUNCTION_ID_BYTES,
    NAME_CHARS_MAX,
    SEGMENT_NAME_BYTES_MAX,
    TASK_ID_MAX,
)
from scaler_cluster.wire import checks, codec
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

CLASSES = sorted(
    (
        cls
        for cls in vars(m).values()
        if isinstance(cls, type) and issubclass(cls, m.Message) and cls is not m.Message
    ),
    key=lambda cls: cls.tag,
)

numbers = st.integers(0, TASK_ID_MAX)
# Any text that Python can hold: tasks print lone surrogates too.
texts = st.text(st.characters(exclude_categories=()), max_size=20)
seconds = st.floats(0, 1e6, allow_nan=False)
small_buffers = st.binary(max_size=64)
buffers = st.one_of(
    small_buffers,
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=8),
              st.just(codec.FRAME_BYTES)),
)  # fmt: skip
batches = st.builds(Batch.of, st.lists(buffers, min_size=1, max_size=5))
cut_batches = st.builds(lambda batch: batch.cut(len(batch) // 2, len(batch)), batches)
details = st.dictionaries(
    texts, st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), texts, seconds),
    max_size=4,
)  # fmt: skip
amounts = st.integers(-1, TASK_ID_MAX) | st.floats(0, 1e9)
capabilities = st.dictionaries(texts, amounts, max_size=3).map(
    lambda one: tuple(sorted(one.items()))
)
options = st.builds(
    m.TaskOptions,
    priority=st.integers(-(2**31), 2**31),
    timeout_s=st.one_of(st.none(), seconds),
    retries=st.integers(0, 10),
    at_most_once=st.booleans(),
    stream_output=st.booleans(),
    profiling=st.booleans(),
    capabilities=capabilities,
    workers=st.lists(texts, max_size=3).map(tuple),
    cores=st.integers(1, TASK_ID_MAX) | st.just(m.WHOLE_MACHINE),
)
portions = st.builds(
    m.Portion,
    capabilities,
    st.lists(numbers, max_size=3).map(tuple),
    st.integers(1, TASK_ID_MAX),
    st.booleans(),
)
homes = st.builds(m.StorageEndpoint, texts, texts, texts, numbers)
BY_ANNOTATION: dict[str, st.SearchStrategy[object]] = {
    "int": numbers,
    "float": seconds,
    "bool": st.booleans(),
    "str": texts,
    "bytes": st.binary(max_size=SEGMENT_NAME_BYTES_MAX),
    "Buffer": buffers,
    "Batch": batches | cut_batches,
    "StorageEndpoint": homes,
    "tuple[StorageEndpoint, ...]": st.lists(homes, min_size=1, max_size=3).map(tuple),
    "tuple[int, ...]": st.lists(numbers, max_size=3).map(tuple),
    "TaskOptions": st.just(m.DEFAULT_OPTIONS) | options,
    "tuple[TaskOptions, ...]": st.lists(options, max_size=3).map(tuple),
    "Capabilities": capabilities,
    "Portion | None": st.none() | portions,
    "dict[str, Any]": details,
    "tuple[str, ...]": st.lists(texts, max_size=3).map(tuple),
    "tuple[bytes, ...]": st.lists(st.binary(max_size=SEGMENT_NAME_BYTES_MAX), max_size=3).map(
        tuple
    ),
}


def strategy_of(cls: type[m.Message]) -> st.SearchStrategy[m.Message]:
    """Return what makes any message of a class, from the annotations of its fields."""
    fields = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        fields[field.name] = BY_ANNOTATION[str(field.type)]
        if field.name == "function":
            size = FUNCTION_ID_BYTES
            fields[field.name] = st.binary(min_size=size, max_size=size)
    if cls is m.Hello:
        fields["protocol"] = st.just(m.PROTOCOL_VERSION)  # others: tests/wire/test_versions.py
    return st.builds(cls, **fields)


messages = st.one_of([strategy_of(cls) for cls in CLASSES])
envelopes = st.tuples(numbers, numbers, numbers, st.lists(messages, max_size=4))


def plain(value: object) -> object:
    """Return a value that compares by content."""
    if isinstance(value, Batch):
        return [bytes(payload) for payload in value]
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, m.Message):
        names = [field.name for field in dataclasses.fields(value)]  # type: ignore[arg-type]
        return type(value), [plain(getattr(value, name)) for name in names]
    return value


def transported(frames):
    """Return frames as a link delivers them: the first as bytes, the others as views."""
    return [bytes(frames[0]), *(memoryview(bytes(frame)) for frame in frames[1:])]


def one_message(*fields, frames=()):
    """Return the frames of an envelope that holds one message of these fields."""
    return [msgpack.packb([1, 0, 1, 0, list(fields)]), *frames]


# -- what is sent arrives --------------------------------------------------------------------


@pytest.mark.parametrize("cls", [pytest.param(each, id=each.__name__) for each in CLASSES])
def test_every_message_comes_back_as_it_was(cls):
    """Decoding what was encoded gives a message of the same class and content."""

    @settings(max_examples=30)
    @given(strategy_of(cls))
    def check(message):
        frames = transported(codec.encode(7, 8, 9, [message]))
        envelope = codec.decode(frames)

        assert (envelope.incarnation, envelope.seq, envelope.ack) == (7, 8, 9)
        assert [plain(one) for one in envelope.messages] == [plain(message)]

    check()


@given(envelopes)
def test_envelopes_keep_messages_and_their_order(envelope):
    """An envelope of any messages comes back with all of them, in order."""
    incarnation, seq, ack, sent = envelope

    received = codec.decode(transported(codec.encode(incarnation, seq, ack, sent)))

    assert (received.incarnation, received.seq, received.ack) == (incarnation, seq, ack)
    assert [plain(one) for one in received.messages] == [plain(one) for one in sent]


def test_tags_are_unique():
    """No two classes share a tag: one would decode as the other."""
    assert len({cls.tag for cls in CLASSES}) == len(CLASSES)


def test_every_class_has_a_codec():
    """Each message class of the module can be encoded and decoded."""
    assert set(codec._ENCODERS) == set(CLASSES)
    assert set(codec._DECODERS) == {cls.tag for cls in CLASSES}


# -- large buffers ---------------------------------------------------------------------------


def test_a_large_payload_is_a_frame_of_its_own():
    """A buffer of FRAME_BYTES is passed on as it is, not copied."""
    payload = bytes(codec.FRAME_BYTES)
    message = m.Submit(0, b"f" * 16, 0, m.DEFAULT_OPTIONS, Batch.single(payload))

    frames = codec.encode(1, 1, 0, [message])

    assert len(frames) == 2
    assert frames[1] is payload


def test_a_large_payload_is_not_copied_on_arrival():
    """A decoded batch refers to the frame that it came in."""
    frames = transported(
        codec.encode(1, 1, 0, [m.Results(0, Batch.single(bytes(codec.FRAME_BYTES)))])
    )

    (message,) = codec.decode(frames).messages

    assert isinstance(message, m.Results)
    assert message.batch.data is frames[1]


def test_a_small_payload_stays_in_the_envelope():
    """One byte less than FRAME_BYTES makes no frame."""
    message = m.Function(b"f" * 16, bytes(codec.FRAME_BYTES - 1))

    assert len(codec.encode(1, 1, 0, [message])) == 1


def test_many_ends_are_a_frame_too():
    """The offsets of a batch of thousands of payloads travel beside them, not in the header."""
    frames = codec.encode(1, 1, 0, [m.Results(0, Batch.of([b"x" * 10] * 4096))])

    assert [len(frame) for frame in frames[1:]] == [4 * 4096, 10 * 4096]
    assert len(frames[0]) < 32


def test_several_large_buffers_keep_apart():
    """Each large buffer of an envelope finds its own frame."""
    large = [bytes([n]) * codec.FRAME_BYTES for n in range(3)]
    sent: list[m.Message] = [m.Function(bytes([n]) * 16, large[n]) for n in range(3)]

    received = codec.decode(transported(codec.encode(1, 1, 0, sent))).messages

    assert [plain(one) for one in received] == [plain(one) for one in sent]


# -- what must not be sent -------------------------------------------------------------------


def decodes_or_refuses(frames):
    """Decode; whatever passes as a message must be fit to be forwarded."""
    try:
        envelope = codec.decode(frames)
    except RemoteProtocolError:
        return
    again = codec.encode(envelope.incarnation, envelope.seq, envelope.ack, envelope.messages)
    for message in envelope.messages:
        if isinstance(getattr(message, "batch", None), Batch):
            batch = message.batch  # type: ignore[attr-defined]
            middle = (len(batch) + 1) // 2
            message.batch = batch.cut(0, middle)  # type: ignore[attr-defined]
            assert len(list(message.batch)) == middle  # type: ignore[attr-defined]
    codec.decode(transported(again))
    codec.decode(transported(codec.encode(1, 1, 0, envelope.messages)))


@given(st.lists(st.binary(max_size=200), max_size=4))
@example([])
@example([b""])
@example([b"\xdd\xff\xff\xff\xff"])  # an array that claims 4 G items
@example([b"\x94\x01\x01\x00\xc6\xff\xff\xff\xff"])  # a buffer that claims 4 GB
@example([b"\x91" * 5000])  # nested too deep
def test_random_bytes_decode_or_are_refused(frames):
    """Any bytes decode as an envelope or raise RemoteProtocolError, and nothing else."""
    decodes_or_refuses(frames)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts
    | st.binary(max_size=20) | st.just(msgpack.ExtType(5, b"x")) | st.just(msgpack.Timestamp(1)),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(CLASSES), st.lists(anything, max_size=8), st.lists(st.binary(max_size=9)))
def test_any_fields_decode_or_are_refused(cls, fields, frames):
    """A message of any class with fields of any type is a good one or is refused."""
    body = msgpack.packb([1, 0, 1, 0, [cls.tag, *fields]], unicode_errors="surrogatepass")
    decodes_or_refuses([body, *(memoryview(frame) for frame in frames)])


@given(messages, st.integers(0, 10), anything)
def test_one_wrong_field_is_refused_or_harmless(message, index, value):
    """A good message in which one field was replaced is a good one or is refused."""
    frames = codec.encode(1, 1, 0, [message])
    body = msgpack.unpackb(frames[0], strict_map_key=False, unicode_errors="surrogatepass")
    fields = body[4]
    fields[index % len(fields)] = value
    packed = msgpack.packb(body, unicode_errors="surrogatepass")
    decodes_or_refuses(transported([packed, *frames[1:]]))


@given(envelopes, st.data())
def test_damaged_frames_decode_or_are_refused(envelope, data):
    """Frames that were changed, cut, lost or swapped decode as good ones or are refused."""
    frames = [bytearray(frame) for frame in codec.encode(*envelope)]
    for _ in range(data.draw(st.integers(1, 4), "damages")):
        frame = frames[data.draw(st.integers(0, min(len(frames), 3) - 1), "frame")]
        at = data.draw(st.integers(0, max(len(frame) - 1, 0)), "at")
        how = data.draw(st.sampled_from(["change", "cut", "lose", "swap", "repeat"]), "how")
        if how == "change" and frame:
            frame[at] = data.draw(st.integers(0, 255), "byte")
        elif how == "cut":
            del frame[at:]
        elif how == "lose" and len(frames) > 1:
            frames.pop()
        elif how == "swap":
            frames.reverse()
        elif how == "repeat":
            frames.append(frame)
    decodes_or_refuses([bytes(frame) for frame in frames])


def spoiled(message, field, value, *frames):
    """Return the frames of a good message in which one field is another as it travels."""
    good = codec.encode(1, 1, 0, [message])
    codec.decode(transported(good))
    body = msgpack.unpackb(good[0])
    names = [each.name for each in dataclasses.fields(message)]
    body[4][1 + names.index(field)] = value
    return [msgpack.packb(body), *frames]


def refused(reason, *wrong):
    with pytest.raises(RemoteProtocolError, match=reason):
        codec.decode(spoiled(*wrong))


@pytest.mark.parametrize(
    ("message", "field", "value", "kind"),
    [
        (m.Welcome(1, 2), "session", -1, "int"),
        (m.Welcome(1, 2), "session", TASK_ID_MAX + 1, "int"),
        (m.Welcome(1, 2), "workers", True, "int"),
        (m.Refused("why"), "reason", b"a reason is text", "str"),
        (m.Forget(b"f" * 16), "function", b"no digest", "bytes"),
        (m.Cancel(0, 1), "queued_only", 0, "bool"),
        (m.Kill(b"W1", "why"), "worker", "bytes, not text", "bytes"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused(message, field, value, kind):
    """The decoder checks the type and the range of every field."""
    refused(f"{type(message).__name__}.{field} is not a valid {kind}", message, field, value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([6, "Unknown has no fields"], "Unknown with 1 fields"),
        ([2, 1, 2], "Welcome with 2 fields"),
        ([120], r"KeyError\(120\)"),
        ([[], {}], "unhashable type"),
    ],
)
def test_a_message_that_does_not_exist_is_refused(fields, reason):
    """The decoder refuses a kind of message it does not know, or a wrong number of fields."""
    with pytest.raises(RemoteProtocolError, match=reason):
        codec.decode(one_message(*fields))


@pytest.mark.parametrize(
    "message",
    [m.Done(1, 0, 1, Batch.of([b"x"])), m.Erred(1, 0, 1, "exception", b"", {})],
)
def test_a_whole_number_of_seconds_is_one(message):
    """Some languages have no other way to write 1.0."""
    (found,) = codec.decode(codec.encode(1, 1, 0, [message])).messages

    assert isinstance(found, m.Done | m.Erred)
    assert found.busy_s == 1


@pytest.mark.parametrize("busy_s", [math.nan, math.inf, 1e300, -1.0, "1", None, True])
def test_a_duration_is_a_sane_number_of_seconds(busy_s):
    """No duration that would poison a mean passes: neither nan, inf nor beyond all ages."""
    done = m.Done(1, 0, 0.5, Batch.of([b"x"]))
    erred = m.Erred(1, 0, 0.5, "exception", b"", {})

    refused("Done names a session, a task and a number of seconds", done, "busy_s", busy_s)
    refused("Erred.busy_s is not a valid float", erred, "busy_s", busy_s)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, "1"), (1, math.nan), (1, -1), (1, "1"), (1, True), (2, -1), (2, True), (3, 1), (4, 1),
        (5, 1), (6, -1), (6, codec.DEPTH_MAX + 1), (6, True), (9, -1), (9, "INFO"),
        (10, 0), (10, -2), (10, True), (10, 1.5), (11, 1), (11, "x" * 300),
    ],
)  # fmt: skip
def test_task_options_are_checked(place, value):
    """The decoder refuses task options one of which has the wrong type or is out of range."""
    good: list[object] = [0, None, 0, False, False, False, 0, [], [], 0, 1, ""]
    submit = m.Submit(0, b"f" * 16, 0, m.DEFAULT_OPTIONS, Batch.of([b"x"]))
    codec.decode(spoiled(submit, "options", good))
    good[place] = value

    refused("task options of the wrong type", submit, "options", good)


def test_task_options_are_a_list():
    """The decoder refuses task options that are no list."""
    submit = m.Submit(0, b"f" * 16, 0, m.DEFAULT_OPTIONS, Batch.of([b"x"]))

    refused("undecodable message: ValueError", submit, "options", {"priority": 1})


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ([b"", 0, b""], "ends do not fit"),
        ([b"\1\0\0", 0, b"x"], "not a multiple of itemsize"),
        ([b"\2\0\0\0", 0, b"x"], "ends do not fit"),
        ([b"\1\0\0\0", 1, b"x"], "ends do not fit"),
        ([b"\1\0\0\0", -1, b"xx"], "ends do not fit"),
        ([b"\1\0\0\0", 0], "not enough values"),
    ],
)
def test_ends_that_do_not_fit_are_refused(batch, reason):
    """A batch is refused without payloads, and where its ends pass or miss its data."""
    refused(reason, m.Results(0, Batch.of([b"x"])), "batch", batch)


@pytest.mark.parametrize(("number", "frames"), [(1, []), (0, [b"x"]), (-1, [b"x"]), (True, [b"x"])])
def test_frames_that_are_not_there_are_refused(number, frames):
    """A buffer may name only frames that came along, and never the header."""
    wrong = [b"\1\0\0\0", 0, number]

    refused("the number of a frame", m.Results(0, Batch.of([b"x"])), "batch", wrong, *frames)


def test_details_are_flat():
    """A detail holds plain values only: one that nests too deep could not be sent on."""
    deep: object = 0
    for _ in range(500):
        deep = [deep]
    failed = m.Failed(0, "exception")

    for wrong in ({"deep": deep}, {b"key": 1}):
        refused("Failed.detail is not a valid dict", failed, "detail", wrong)


# -- limits ----------------------------------------------------------------------------------


def test_too_large_a_header_is_refused_unread(monkeypatch):
    """A header above HEADER_BYTES_MAX is refused before anything of it is unpacked."""
    monkeypatch.setattr(codec, "HEADER_BYTES_MAX", 100)
    header = msgpack.packb([1, 0, 1, 0, [5, "x" * 100]])

    with pytest.raises(RemoteProtocolError, match="too large a header"):
        codec.decode([header])


def test_too_many_frames_are_refused(monkeypatch):
    """More than FRAMES_MAX frames are refused."""
    monkeypatch.setattr(codec, "FRAMES_MAX", 3)

    with pytest.raises(RemoteProtocolError, match="too many frames"):
        codec.decode([*one_message(4), b"", b"", b""])


def test_too_many_messages_are_refused(monkeypatch):
    """More than MESSAGES_MAX messages are refused."""
    monkeypatch.setattr(codec, "MESSAGES_MAX", 5)

    with pytest.raises(RemoteProtocolError, match="an envelope is a list of 4 numbers"):
        codec.decode([msgpack.packb([1, 0, 1, 0, *([[4]] * 6)])])


def test_too_long_a_text_is_refused(monkeypatch):
    """A text above TEXT_BYTES_MAX is refused."""
    monkeypatch.setattr(checks, "TEXT_BYTES_MAX", 10)

    refused("Refused.reason is not a valid str", m.Refused("why"), "reason", "x" * 11)


def test_lone_surrogates_travel():
    """What a task printed arrives as it was, also where it is no valid Unicode."""
    message = m.Printed(1, 2, "stdout", "a\ud800b")

    (received,) = codec.decode(codec.encode(1, 1, 0, [message])).messages

    assert received == message


@pytest.mark.parametrize("field", ["host", "name", "python", "role", "pid_space"])
def test_what_a_hello_says_is_short(field):
    """A Hello with a name that no machine and no worker can have is refused: it is kept for long."""
    hello = m.Hello("client", m.PROTOCOL_VERSION, "3.13", 1, "host")
    for length, is_right in ((NAME_CHARS_MAX, True), (NAME_CHARS_MAX + 1, False)):
        frames = codec.encode(1, 1, 0, [dataclasses.replace(hello, **{field: "x" * length})])
        if is_right:
            assert getattr(codec.decode(frames).messages[0], field) == "x" * length
        else:
            with pytest.raises(RemoteProtocolError, match=f"Hello.{field} is not a valid str"):
                codec.decode(frames)


def test_the_longest_hello_fits_where_nothing_else_may_come():
    """A worker with long names and as many capabilities as there may be can say Hello."""
    name, path = "x" * NAME_CHARS_MAX, "/" * checks.PATH_CHARS_MAX
    offered = tuple((f"{number:0255}", 1.5) for number in range(codec.CAPABILITIES_MAX))
    place = m.StorageEndpoint(path, path, path)
    hello = m.Hello(
        "worker",
        m.PROTOCOL_VERSION,
        "3.13",
        1,
        name,
        place=place,
        name=name,
        capabilities=offered,
        pid_space=name,
    )
    (header,) = codec.encode(1, 1, 0, [hello])
    assert len(header) <= codec.HELLO_BYTES_MAX
    assert codec.decode([header]).messages == [hello]


def test_paths_and_names_of_capabilities_have_limits():
    """A Hello with a path or a capability that is too long is refused."""
    longer = "x" * (NAME_CHARS_MAX + 1)
    hello = m.Hello("worker", m.PROTOCOL_VERSION, "3.13", 1, "host", capabilities=((longer, 1),))
    with pytest.raises(RemoteProtocolError, match="a capability is a name and an amount"):
        codec.decode(codec.encode(1, 1, 0, [hello]))
    place = m.StorageEndpoint("x" * (checks.PATH_CHARS_MAX + 1))
    hello = m.Hello("worker", m.PROTOCOL_VERSION, "3.13", 1, "host", place=place)
    with pytest.raises(RemoteProtocolError, match="two directories"):
        codec.decode(codec.encode(1, 1, 0, [hello]))

"""ZMTP as bytes: whatever the pieces in which they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.links import zmtp
from scaler_cluster.links.zmtp import COMMAND, GREETING, LONG, Reader, encode, opening

LARGE = 12 * zmtp.LARGE_BYTES
FRAMES = st.one_of(
    st.binary(max_size=300),
    st.integers(0, LARGE).map(lambda size: bytes(range(256)) * (size // 256)),
)


def read(reader, data, sizes):
    """Let a reader take data in in pieces of these sizes, the last again and again."""
    messages = []
    sizes = iter(sizes)
    size = 1
    while data:
        size = next(sizes, size)
        if reader.large is None:
            piece, data = data[:size], data[size:]
            messages += reader.feed(memoryview(piece) if size % 2 else piece)
        else:
            target = reader.target
            piece, data = data[: min(size, len(target))], data[min(size, len(target)) :]
            target[: len(piece)] = piece
            messages += reader.filled(len(piece))
    return messages


def greeted(bytes_max=1 << 30):
    """Return a reader of a connection whose other side is ready."""
    reader = Reader(bytes_max)
    assert reader.feed(opening(b"ROUTER", b"")) == []
    return reader


@given(
    sent=st.lists(st.lists(FRAMES, min_size=1, max_size=4), max_size=5),
    sizes=st.lists(st.integers(1, 2 * LARGE), min_size=1, max_size=20),
)
def test_messages_arrive_whatever_the_pieces(sent, sizes):
    """What was encoded is read again, frame by frame, and so is who sent it."""
    reader = Reader(1 << 30)
    data = opening(b"DEALER", b"W1") + b"".join(bytes(one) for m in sent for one in encode(m))

    # A single byte at a time would take too long for large frames.
    got = read(reader, data, [*sizes, 50_000])

    assert [[bytes(frame) for frame in message] for message in got] == sent
    assert all(isinstance(message[0], bytes) for message in got)
    assert reader.peer == b"W1"


def test_a_large_frame_is_read_where_it_lies():
    """Of a large frame that has begun to come, nothing is copied a second time."""
    reader = greeted()
    header, body = encode([bytes(LARGE)])
    assert reader.feed(bytes(header) + body[:10]) == []
    assert len(reader.target) == LARGE - 10
    assert [list(map(bytes, one)) for one in reader.filled(LARGE - 10)] == [[bytes(LARGE)]]
    assert reader.large is None


def test_a_ping_is_answered():
    """The other side may ask whether anybody is there; what it sends along comes back."""
    reader = greeted()
    ping = b"\x04PING" + b"\x00\x0a" + b"context"
    assert reader.feed(bytes((COMMAND, len(ping))) + ping) == []
    assert reader.answer == bytes((COMMAND, 12)) + b"\x04PONGcontext"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n".ljust(64),
        GREETING[:10] + b"\x01" + GREETING[11:],
        GREETING[:12] + b"CURVE".ljust(20, b"\0") + GREETING[32:],
        GREETING + b"\x00\x01x",
        GREETING + b"\x01\x01x",
        GREETING + bytes((COMMAND, 0)) + b"\x00\x01x",
        GREETING + bytes((COMMAND, 9)) + b"\x05READY\x0bSo",
        GREETING + bytes((COMMAND, 10)) + b"\x05ERROR\x03no!",
        opening(b"DEALER", b"W1") + bytes((LONG,)) + (200_001).to_bytes(8, "big"),
        opening(b"DEALER", b"W1") + bytes((LONG | COMMAND,)) + (5000).to_bytes(8, "big"),
        GREETING + bytes((LONG,)) + (5000).to_bytes(8, "big"),
    ],
    ids=[
        "http",
        "version",
        "curve",
        "early",
        "early more",
        "no name",
        "cut off",
        "error",
        "too large",
        "long command",
        "early and large",
    ],
)
def test_what_is_no_zmtp_is_refused(data):
    """What breaks the protocol raises RemoteProtocolError and nothing else."""
    with pytest.raises(RemoteProtocolError):
        Reader(200_000).feed(data)


@given(data=st.binary(max_size=400), is_ready=st.booleans())
def test_garbage_raises_nothing_else(data, is_ready):
    """Whatever comes, it is taken in or refused."""
    reader = Reader(1000)
    try:
        reader.feed(opening(b"DEALER", b"W1") if is_ready else GREETING)
        reader.feed(data)
    except RemoteProtocolError:
        return

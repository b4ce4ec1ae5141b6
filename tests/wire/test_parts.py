"""How many parts a header has, before it is read."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import SEGMENT_NAME_BYTES_MAX, TASK_ID_MAX
from scaler_cluster.wire import codec
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.parts import has_more_parts

plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
texts = st.text(max_size=300) | st.binary(max_size=70_000)
values = st.recursive(
    plain | texts,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=30,
)


def count(value: object) -> int:
    """Return how many values are in this one."""
    if isinstance(value, dict):
        return sum(2 + count(one) for one in value.values())
    return sum(1 + count(one) for one in value) if isinstance(value, list) else 0


@given(values)
def test_parts_are_counted_as_msgpack_makes_them(value) -> None:
    """Every value of every kind counts as one, and nothing else does."""
    header = msgpack.packb(value)
    parts = count(value)

    assert not has_more_parts(header, parts)
    assert parts == 0 or has_more_parts(header, parts - 1)


@pytest.mark.parametrize("length", [20, 300, 70_000])
def test_each_way_to_write_a_length_is_known(length) -> None:
    """Lists, maps, texts and bytes of every size are stepped over."""
    each = [
        list(range(length)),
        dict.fromkeys(map(str, range(length))),
        "x" * length,
        bytes(length),
    ]
    header = msgpack.packb(each)

    assert not has_more_parts(header, count(each))
    assert has_more_parts(header, count(each) - 1)


@pytest.mark.parametrize(
    "header",
    [
        b"\xdd" + (10**6).to_bytes(4, "big"),
        b"\xdf" + (10**6).to_bytes(4, "big"),
        (b"\xdc" + (900).to_bytes(2, "big")) * 500,
        b"\x90" * 1010,
        msgpack.packb([msgpack.ExtType(5, b"x")]),
        b"\xc1",
    ],
    ids=["a list", "a map", "lists in lists", "values after the end", "no message's", "no value's"],
)
def test_what_would_take_memory_is_seen_before_that(header) -> None:
    """Lists that only say how long they are, and what no message has, are refused."""
    assert has_more_parts(header, 1000)


def test_a_header_of_empty_lists_is_refused_unread(monkeypatch) -> None:
    """Nothing is made of a large header that is none of ours."""
    monkeypatch.setattr(msgpack, "unpackb", None)
    with pytest.raises(RemoteProtocolError, match="a header of too many parts"):
        codec.decode([b"\x90" * (codec.PLAIN_BYTES_MAX + 1)])


def test_the_messages_with_most_parts_pass() -> None:
    """What names all the objects that one message may name is no attack."""
    names = tuple(n.to_bytes(SEGMENT_NAME_BYTES_MAX, "big") for n in range(codec.OBJECTS_MAX))
    keep = m.Keep("", names, names, (TASK_ID_MAX,) * len(names))

    (header,) = codec.encode(1, 1, 0, [keep])
    assert codec.PLAIN_BYTES_MAX < len(header) <= codec.HEADER_BYTES_MAX
    assert codec.decode([header]).messages == [keep]

"""A Hello of another version is read as far as both versions agree, and nothing else of it."""

from __future__ import annotations

import dataclasses

import msgpack
import pytest

from scaler_cluster import __version__
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import NAME_CHARS_MAX
from scaler_cluster.wire import codec
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.versions import difference

OTHER = m.PROTOCOL_VERSION + 1
HELLO = m.Hello("client", OTHER, "3.14", 7, "there", release="9.8")


def item_of(hello: m.Hello) -> list:
    """Return a Hello as it is on the wire."""
    return msgpack.unpackb(codec.encode(1, 1, 0, [hello])[0])[codec.NUMBERS]


def decoded(*items) -> list[m.Message]:
    """Return what an envelope of these messages says."""
    return list(codec.decode([msgpack.packb([1, 0, 1, 0, *items])]).messages)


def test_a_hello_with_more_fields_is_understood():
    """Whatever a newer version says besides, and in which form."""
    more = [*item_of(HELLO), "new", {"a": [1, 2]}]

    assert decoded(more, [99, "unknown"], 7) == [HELLO]


def test_a_hello_with_fewer_fields_is_understood():
    """An older version does not say which release it is."""
    assert decoded(item_of(HELLO)[:6]) == [dataclasses.replace(HELLO, release="")]


def test_what_else_a_foreign_hello_says_is_not_taken():
    """Only who is refused, and why: the rest may mean something else there."""
    hello = dataclasses.replace(HELLO, worker=b"W1", workers=9, capabilities=(("gpu", 1.0),))

    assert decoded(item_of(hello)) == [HELLO]


@pytest.mark.parametrize("value", ["x" * (NAME_CHARS_MAX + 1), b"x", 5.0, None, [1]])
@pytest.mark.parametrize("place", [1, 3, 5])
def test_a_foreign_hello_is_not_trusted(place, value):
    """A name that is too long, or none, is left out."""
    item = item_of(HELLO)
    item[place] = value

    (hello,) = decoded(item)

    assert isinstance(hello, m.Hello)
    assert "" in (hello.role, hello.python, hello.host)


@pytest.mark.parametrize("item", [[], [1], [1, "client"], [1, "client", "11"], [1, "client", True]])
def test_a_hello_without_a_version_is_none(item):
    """Then nobody can say what it should have been."""
    with pytest.raises(RemoteProtocolError):
        decoded(item)


def test_the_sentence_names_both_releases():
    """And says what to do."""
    assert difference("client", HELLO, "this scheduler") == (
        f"The client (scaler-exec 9.8) speaks protocol {OTHER}, this scheduler "
        f"(scaler-exec {__version__}) {m.PROTOCOL_VERSION}: "
        "install the same version of scaler-exec on both sides."
    )


def test_what_is_no_release_is_said_as_well():
    """Of a worker that somebody wrote, or of an older version."""
    hello = dataclasses.replace(HELLO, release="")

    assert "client (of an unknown release) speaks" in difference("client", hello, "this scheduler")


def test_the_beginning_of_hello_is_for_ever():
    """Other versions look for these fields in these places, and for Refused under its number."""
    places = {name: place for place, name in enumerate(m.Hello.__slots__, 1)}

    assert m.Hello.tag == 1
    assert [places[name] for name in ("role", "protocol", "python", "pid", "host")] == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert places["release"] == 21
    assert (m.Refused.tag, m.Refused.__slots__) == (3, ("reason",))

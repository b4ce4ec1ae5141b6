"""The feed to bytes and back; and whatever else arrives is read as far as it is known, or refused."""

from __future__ import annotations

import dataclasses
import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import EVENTS, SNAPSHOT
from scaler_cluster.wire import feed as f
from scaler_cluster.wire.feed_codec import as_dict, decode, encode

texts = st.text(max_size=20)
whole = st.integers(-(2**63), 2**63 - 1)
seconds = st.floats(allow_nan=False, allow_infinity=False)
BY_ANNOTATION: dict[str, st.SearchStrategy[object]] = {
    "int": whole,
    "float": seconds,
    "bool": st.booleans(),
    "str": texts,
    "bytes": st.binary(max_size=20),
    "int | None": st.none() | whole,
    "float | None": st.none() | seconds,
    "dict[str, int]": st.dictionaries(texts, whole, max_size=3),
    "dict[str, float]": st.dictionaries(texts, seconds, max_size=3),
}


def rows(kind):
    """Return what makes any row, or event, of a class."""
    found = {one.name: BY_ANNOTATION[str(one.type)] for one in dataclasses.fields(kind)}
    return st.builds(kind, **found)


BY_NAME = {kind.__name__: kind for kind in f.RECORDS}
for _kind in f.RECORDS:
    BY_ANNOTATION[_kind.__name__] = rows(_kind)
    BY_ANNOTATION[f"list[{_kind.__name__}]"] = st.lists(rows(_kind), max_size=2)
BY_ANNOTATION["list[Event]"] = st.lists(
    st.one_of([rows(kind) for kind in f.EVENT_KINDS.values()]), max_size=5
)
snapshots, batches, logs = rows(f.Snapshot), rows(f.Events), rows(f.Logs)
plain = st.recursive(
    st.none() | st.booleans() | whole | seconds | texts | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.slow
@given(snapshots | batches | logs)
def test_what_is_published_is_read(message):
    """Decoding an encoded message of the feed gives an equal one."""
    assert decode(encode(message)) == message


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_any_bytes_are_read_or_refused(frames):
    """Any bytes decode as a message or raise RemoteProtocolError, and nothing else."""
    try:
        decode(frames)
    except RemoteProtocolError:
        return


@pytest.mark.slow
@given(
    st.sampled_from([SNAPSHOT, EVENTS]),
    snapshots | batches,
    st.dictionaries(
        st.sampled_from([one.name for one in dataclasses.fields(f.Snapshot)] + ["events"]), plain
    ),
)
def test_any_content_is_read_or_refused(topic, message, wrong):
    """A message with wrong fields decodes or is refused, even where most of it is right."""
    content = msgpack.unpackb(encode(message)[1])
    try:
        decode([topic, msgpack.packb(content | wrong)])
    except RemoteProtocolError:
        return


@pytest.mark.slow
@given(snapshots)
def test_a_reader_ignores_what_it_does_not_know(snapshot):
    """Fields, columns and kinds of events that come with a later version change nothing."""
    content = msgpack.unpackb(encode(snapshot)[1])
    content["news"] = {"a": [1, 2]}
    content["scheduler"]["mood"] = "fine"
    content["workers"]["fields"].insert(0, "shoe_size")
    content["workers"]["rows"] = [[44, *row] for row in content["workers"]["rows"]]
    batch = {
        "version": f.FEED_VERSION, "run": "r", "seq": 7, "clock": 1.0, "skipped": {},
        "fields": {"danced": ["at"], "moved": ["where", "count"]},
        "events": [["danced", 1.0], ["moved", "there", 3]],
    }  # fmt: skip

    assert decode([SNAPSHOT, msgpack.packb(content)]) == snapshot
    assert decode([EVENTS, msgpack.packb(batch)]) == f.Events("r", 7, 1.0, {}, [f.Moved(count=3)])


@pytest.mark.slow
@given(snapshots)
def test_a_reader_does_without_what_is_not_there(snapshot):
    """A field that an earlier version does not send has its default."""
    content = msgpack.unpackb(encode(snapshot)[1])
    del content["tasks"], content["workers"], content["scheduler"]["lag_s"]

    read = decode([SNAPSHOT, msgpack.packb(content)])
    assert isinstance(read, f.Snapshot)
    assert (read.tasks, read.workers, read.scheduler.lag_s) == (f.Tasks(), [], 0.0)
    assert read.scheduler.host == snapshot.scheduler.host


def test_another_version_is_refused_with_a_hint():
    """A feed of another version is refused with a hint at what to do."""
    with pytest.raises(RemoteProtocolError, match="install the same version"):
        decode([SNAPSHOT, msgpack.packb({"version": f.FEED_VERSION + 1})])


def test_text_that_is_no_unicode_is_published():
    """A function's name is published though it is no valid Unicode."""
    sent = f.Events("r", 1, 0.0, {}, [f.Done(function="f\ud800")])

    read = decode(encode(sent))
    assert read == f.Events("r", 1, 0.0, {}, [f.Done(function="f\\ud800")])


@pytest.mark.slow
@given(snapshots)
def test_rows_are_shown_by_name(snapshot):
    """A row is shown as plain values by name, which JSON can hold."""
    for kind in f.RECORDS:
        json.dumps(as_dict(kind()))
    shown = [as_dict(row) for row in snapshot.workers]

    assert [row["worker"] for row in shown] == [row.worker.hex() for row in snapshot.workers]


def test_every_event_has_a_kind():
    """Every class of events has a kind of its own."""
    classes = [kind for kind in f.Event.__subclasses__() if getattr(f, kind.__name__, None) is kind]

    assert sorted(f.EVENT_KINDS.values(), key=str) == sorted(classes, key=str)

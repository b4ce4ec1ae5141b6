"""What the receiving end of a transfer asks for, and refuses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.storage.transfer import PART_BYTES, PARTS_AHEAD, SILENCE_S, Download
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m


def part(offset, total, nbytes=None):
    """Return a part as an honest source sends it, unless it is to be of another size."""
    size = min(PART_BYTES, total - offset) if nbytes is None else nbytes
    return m.Part(b"s", offset, total, bytes(size))


def begun(total):
    """Return a download of which the first part has arrived."""
    download = Download(b"s", 0.0)
    download.requests()
    download.receive(part(0, total), 0.0)
    return download


@given(
    total=st.integers(0, 40 * PART_BYTES),
    restarts=st.sets(st.integers(0, 40), max_size=3),
)
def test_everything_is_asked_for_once(total, restarts):
    """Parts are asked for a few ahead, and only missing ones from a source that starts over."""
    download = Download(b"s", 0.0)
    asked = download.requests()
    arrived = 0
    while not download.is_whole:
        assert 0 < len(asked) <= PARTS_AHEAD
        if arrived in restarts:
            restarts = restarts - {arrived}
            download.restart()
            asked = download.requests()
        request = asked.pop(0)
        assert request == m.Fetch(b"s", arrived * PART_BYTES, PART_BYTES)
        download.receive(part(request.offset, total), 0.0)
        arrived += 1
        asked += download.requests()

    assert download.received == total
    assert asked == []
    assert download.requests() == []


def test_a_silent_source_is_given_up():
    """A source that sends no part for a while is given up, unless everything is there."""
    download = begun(2 * PART_BYTES)
    assert download.deadline == SILENCE_S
    download.requests()
    download.receive(part(PART_BYTES, 2 * PART_BYTES), 7.0)

    assert download.deadline == math.inf


@pytest.mark.parametrize(
    "other",
    [part(0, 5 * PART_BYTES), part(2 * PART_BYTES, 5 * PART_BYTES)],
    ids=["again", "early"],
)
def test_answers_to_an_earlier_transfer_are_ignored(other):
    """Parts that answer an earlier, interrupted transfer are ignored."""
    download = begun(5 * PART_BYTES)
    download.requests()

    assert not download.receive(other, 0.0)
    assert download.receive(part(PART_BYTES, 5 * PART_BYTES), 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        part(PART_BYTES, 4 * PART_BYTES),
        part(PART_BYTES, 5 * PART_BYTES, 1),
        part(PART_BYTES, 5 * PART_BYTES, PART_BYTES + 1),
    ],
    ids=["other total", "short", "long"],
)
def test_what_no_honest_source_sends_is_refused(wrong):
    """A part of a wrong size, or of a whole whose size has changed, is refused."""
    download = begun(5 * PART_BYTES)
    download.requests()

    with pytest.raises(RemoteProtocolError, match="a part of another size than was asked for"):
        download.receive(wrong, 0.0)


def test_a_source_that_serves_others_is_not_given_up():
    """A source that serves others first is not given up before it is our turn."""
    download = begun(2 * PART_BYTES)
    download.touch(20.0)

    assert download.deadline == 20.0 + SILENCE_S


def test_nothing_is_taken_before_it_was_asked_for():
    """A part that was not asked for is ignored, even if it is the right one."""
    assert not Download(b"s", 0.0).receive(part(0, 10), 0.0)
    assert not begun(5 * PART_BYTES).receive(part(PART_BYTES, 5 * PART_BYTES), 0.0)

"""What the receiving end of a transfer asks for, when, and what it refuses."""

from __future__ import annotations

import math
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.storage.transfer import (
    DELAY_S,
    PART_BYTES_MAX,
    PART_BYTES_MIN,
    SILENCE_S,
    WINDOW_BYTES_FIRST,
    WINDOW_BYTES_MAX,
    WINDOW_BYTES_MIN,
    Download,
    Flow,
)
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

KBIT, MBIT = 125.0, 125_000.0
"""Bytes a second."""


def answer(fetch, total, nbytes=None):
    """Return the part as an honest source sends it, unless it is to be of another size."""
    size = max(min(fetch.nbytes, total - fetch.offset), 0) if nbytes is None else nbytes
    return m.Part(fetch.segment, fetch.offset, total, bytes(size))


class Link:
    """A flow from a source over a link of some rate, and its clock."""

    def __init__(self, rate: float, round_trip_s: float = 0.0) -> None:
        self.rate, self.round_trip_s = rate, round_trip_s
        self.now = 100.0
        self.flow: Flow[Download] = Flow(self.now)
        self._free_at = self.now
        self._air: deque[tuple[float, m.Fetch]] = deque()
        self.most = 0
        """Bytes that were under way at most."""

    def ask(self, download: Download, total: int) -> None:
        """Send what is to be asked for, which the source answers as soon as the link is free."""
        for fetch in self.flow.ask([download], self.now):
            sent_at = max(self._free_at, self.now + self.round_trip_s)
            self._free_at = sent_at + len(answer(fetch, total).data) / self.rate
            self._air.append((self._free_at, fetch))
        self.most = max(self.most, sum(fetch.nbytes for _, fetch in self._air))

    def fetch(self, total: int) -> float:
        """Fetch a segment; return how long it took."""
        start, download = self.now, Download(b"s")
        self.ask(download, total)
        while not download.is_whole:
            self.now, fetch = self._air.popleft()
            assert self.flow.deadline > self.now, "a source that sends is given up"
            assert self.flow.answer(answer(fetch, total), self.now) is download
            self.ask(download, total)
        return self.now - start


RATES = {
    "256 kbit/s": 256 * KBIT,
    "1 Mbit/s": MBIT,
    "10 Mbit/s": 10 * MBIT,
    "1 Gbit/s": 1e3 * MBIT,
    "10 Gbit/s": 1e4 * MBIT,
}


@pytest.mark.parametrize("rate", RATES.values(), ids=list(RATES))
@pytest.mark.parametrize("round_trip_s", [0.0002, 0.02, 0.05])
def test_a_link_of_any_rate_is_filled_and_not_flooded(rate, round_trip_s) -> None:
    """Once it has begun, a transfer takes what its link takes; little more is ever under way."""
    link = Link(rate, round_trip_s)
    nbytes = max(int(3 * rate), 1 << 20)
    # Then the link is known.
    link.fetch(nbytes)
    link.most = 0

    assert link.fetch(nbytes) < 1.05 * nbytes / rate + 2 * round_trip_s
    assert link.most < 2.2 * max(rate * max(2 * round_trip_s, DELAY_S), WINDOW_BYTES_FIRST)


def test_a_fast_link_is_known_soon() -> None:
    """The window doubles with each round trip: the first 64 MB come in a few round trips more."""
    link = Link(1e4 * MBIT, 0.001)

    assert link.fetch(64 << 20) < 1.5 * (64 << 20) / link.rate
    assert link.flow.part_bytes == PART_BYTES_MAX
    assert link.flow.window <= WINDOW_BYTES_MAX


def test_a_link_that_slows_down_is_not_flooded_for_long() -> None:
    """When the rate drops, less is asked for; when the way gets longer, more again."""
    link = Link(1e3 * MBIT, 0.001)
    link.fetch(64 << 20)
    assert link.flow.window > 4 << 20
    link.rate = MBIT
    link.fetch(64 << 20)
    assert link.flow.window <= 2 * WINDOW_BYTES_MIN
    assert link.flow.part_bytes == PART_BYTES_MIN

    link.rate, link.round_trip_s = 100 * MBIT, 0.4
    link.fetch(1 << 30)
    assert link.fetch(1 << 30) < 1.2 * (1 << 30) / link.rate


def test_small_segments_share_a_window() -> None:
    """What is asked for of several segments is bounded by the link as well, first come first."""
    flow: Flow[Download] = Flow(0.0)
    downloads = [Download(b"%d" % number) for number in range(6)]

    fetches = flow.ask(downloads, 0.0)
    assert [(fetch.segment, fetch.offset) for fetch in fetches] == [
        (segment, 0) for segment in (b"0", b"1", b"2", b"3")
    ]
    flow.answer(answer(fetches[0], 10), 0.001)
    assert [fetch.segment for fetch in flow.ask(downloads[1:], 0.001)] == [b"4"]


@given(
    total=st.integers(0, 60 * PART_BYTES_MIN),
    restarts=st.sets(st.integers(0, 40), max_size=3),
    delays=st.lists(st.floats(0.0, 3.0), max_size=20),
)
def test_everything_is_asked_for_once(total, restarts, delays) -> None:
    """Each byte is asked for once, and again only from a source that starts over."""
    flow: Flow[Download] = Flow(0.0)
    download, now, arrived = Download(b"s"), 0.0, 0
    asked = flow.ask([download], now)
    end = 0
    while not download.is_whole:
        if arrived in restarts:
            restarts = restarts - {arrived}
            flow.restart()
            asked = flow.ask([download], now)
        request = asked.pop(0)
        assert (request.segment, request.offset) == (b"s", end)
        now += delays.pop() if delays else 0.01
        part = answer(request, total)
        assert flow.answer(part, now) is download
        end += len(part.data)
        arrived += 1
        asked += flow.ask([download], now)

    assert download.received == total
    # Beyond the end only the very first part was asked for, whose answer tells the end.
    assert asked == []
    assert flow.is_idle


def begun(total: int):
    """Return a flow, its download of which the first part has arrived, and what is asked for."""
    flow: Flow[Download] = Flow(0.0)
    download = Download(b"s")
    (first,) = flow.ask([download], 0.0)
    flow.answer(answer(first, total), 0.0)
    return flow, download, flow.ask([download], 0.0)


def test_a_silent_source_is_given_up() -> None:
    """A source that sends no part for a while is given up, unless nothing is asked of it."""
    flow, _, (fetch,) = begun(2 * PART_BYTES_MIN)
    assert flow.deadline == SILENCE_S
    flow.answer(answer(fetch, 2 * PART_BYTES_MIN), 7.0)
    assert flow.deadline == math.inf

    flow.ask([Download(b"t")], 50.0)
    assert flow.deadline == 50.0 + SILENCE_S


def test_a_source_that_serves_others_is_not_given_up() -> None:
    """A part of any segment shows that the source lives."""
    flow: Flow[Download] = Flow(0.0)
    one, other = Download(b"s"), Download(b"t")
    fetches = flow.ask([one, other], 0.0)
    assert flow.answer(answer(fetches[0], 5), 20.0) is one

    assert flow.deadline == 20.0 + SILENCE_S


def test_answers_that_nobody_waits_for_are_ignored() -> None:
    """What was not asked for, or not now, is not taken and is no sign of life."""
    total = 9 * PART_BYTES_MIN
    flow, download, (second, third, *_) = begun(total)
    for stale in (
        m.Part(b"s", 0, total, bytes(PART_BYTES_MIN)),
        answer(third, total),
        m.Part(b"t", second.offset, total, bytes(PART_BYTES_MIN)),
        m.Transferred(b"t", "gone"),
    ):
        assert flow.answer(stale, 5.0) is None
    assert flow.deadline == SILENCE_S

    assert flow.answer(answer(second, total), 5.0) is download


def test_what_nobody_wants_any_more_is_waited_for() -> None:
    """Parts that are under way for nobody count until they have come, so that no link is flooded."""
    total = 9 * PART_BYTES_MIN
    flow, download, fetches = begun(total)
    download.is_abandoned = True
    other = Download(b"t")

    assert flow.ask([other], 10.0) == []
    assert flow.answer(answer(fetches.pop(0), total), 10.0) is None
    assert flow.answer(m.Transferred(b"s", "gone"), 10.0) is None
    assert [fetch.segment for fetch in flow.ask([other], 10.0)] == [b"t"]
    assert not flow.is_idle


@pytest.mark.parametrize(
    ("total", "nbytes"),
    [(8, None), (9, 1), (9, PART_BYTES_MIN + 1)],
    ids=["other total", "short", "long"],
)
def test_what_no_honest_source_sends_is_refused(total, nbytes) -> None:
    """A part of a wrong size, or of a whole whose size has changed, is refused."""
    flow, _, (second, *_) = begun(9 * PART_BYTES_MIN)

    with pytest.raises(RemoteProtocolError, match="a part of another size than was asked for"):
        flow.answer(answer(second, total * PART_BYTES_MIN, nbytes), 0.0)

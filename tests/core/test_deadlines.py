"""The heap of deadlines."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.scheduler import deadlines
from scaler_cluster.core.scheduler.deadlines import Deadlines


def never(item: object) -> bool:
    return False


def test_an_empty_heap_is_never_due():
    """Without items the next deadline is inf, and nothing comes out."""
    empty: Deadlines[str] = Deadlines(never)

    assert empty.next == math.inf
    assert list(empty.due(1e9)) == []


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_items_come_out_by_time_then_by_arrival(times, looks):
    """Each look takes out exactly what is due, soonest first, ties in the order of arrival."""
    heap: Deadlines[int] = Deadlines(never)
    for item, when in enumerate(times):
        heap.add(float(when), item)
    left = sorted(enumerate(times), key=lambda entry: entry[1])
    for now in looks:
        assert list(heap.due(float(now))) == [item for item, when in left if when <= now]
        left = [(item, when) for item, when in left if when > now]
        assert heap.next == min((when for _, when in left), default=math.inf)


def test_what_is_added_meanwhile_counts():
    """An item that is added while others are taken out comes out too if it is due."""
    heap: Deadlines[str] = Deadlines(never)
    heap.add(1.0, "first")
    out = []
    for item in heap.due(2.0):
        out.append(item)
        if item == "first":
            heap.add(2.0, "second")
            heap.add(3.0, "third")

    assert out == ["first", "second"]


def test_moot_items_do_not_pile_up():
    """Only a bounded number of items is kept after many became moot at once."""
    moot = set(range(10_000)) - {5_000}
    heap: Deadlines[int] = Deadlines(moot.__contains__)
    for item in range(10_000):
        heap.add(1e6, item)

        assert len(heap._heap) <= deadlines.CLEAN_AT_MIN

    assert 5_000 in list(heap.due(1e6))

"""Figures of many things over time, made by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_monitoring import samples as module
from scaler_monitoring.samples import Samples


@pytest.fixture
def few(monkeypatch):
    """Room for a hundred points in a hundred seconds."""
    monkeypatch.setattr(module, "POINTS_MAX", 100)
    return Samples(1, 100.0)


def rows_of(samples, key):
    """Return when somebody was looked at, and what its figures were."""
    found = [(one.clock, one.keys.index(key), one.columns) for one in samples.taken
             if key in one.keys]  # fmt: skip
    return [(clock, *(column[index] for column in columns)) for clock, index, columns in found]


def test_who_comes_later_begins_later():
    """The history of one that comes later begins later, and that of one that left ends."""
    made = Samples(2, 100.0)
    made.add(1.0, [b"a"], [(1, 10)])
    made.add(2.0, [b"b", b"a"], [(5, 50), (2, None)])
    made.add(3.0, [b"b"], [(6, 60)])

    first, second = rows_of(made, b"a")
    assert (first, second[:2]) == ((1.0, 1, 10), (2.0, 2))
    assert math.isnan(second[2])
    assert rows_of(made, b"b") == [(2.0, 5, 50), (3.0, 6, 60)]


def test_what_is_old_is_forgotten(few):
    """Samples older than the window are forgotten."""
    for clock in 0.0, 50.0, 120.0:
        few.add(clock, [b"a"], [(clock,)])

    assert rows_of(few, b"a") == [(50.0, 50.0), (120.0, 120.0)]


def test_many_are_looked_at_less_often(few):
    """Many workers are sampled less often, so that the whole window has room."""
    keys = [bytes((n,)) for n in range(10)]
    for clock in range(300):
        few.add(float(clock), keys, [(n,) for n in range(10)])

    assert [one.clock for one in few.taken] == [float(one) for one in range(200, 300, 10)]
    assert few.points == 100


def test_ids_that_stay_the_same_are_kept_once(few):
    """Equal ids of two snapshots are kept once."""
    for clock in 0.0, 50.0:
        few.add(clock, [bytes([1, 2, 3])], [(1,)])

    first, second = few.taken
    assert first.keys is second.keys


@given(st.lists(st.tuples(st.floats(0.0, 50.0), st.integers(0, 60)), max_size=50))
def test_room_is_bounded(steps):
    """The number of points is bounded; only one single sample may exceed it."""
    made = Samples(1, 100.0)
    clock = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "POINTS_MAX", 40)
        for passed_s, count in steps:
            clock += passed_s
            made.add(clock, [bytes((n,)) for n in range(count)], [(n,) for n in range(count)])

            assert made.points == sum(len(one.keys) for one in made.taken)
            assert made.points <= 40 or len(made.taken) == 1
            assert all(one.clock >= clock - 100.0 for one in made.taken)

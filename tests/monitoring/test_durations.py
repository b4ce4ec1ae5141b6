"""Histograms of durations, and what is kept of functions and failed tasks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.wire import feed as f
from scaler_monitoring import model as module
from scaler_monitoring.durations import BUCKETS_MAX, GROWTH, LEAST_S, Durations
from scaler_monitoring.ledger import FAILED_MAX, SLOWEST
from scaler_monitoring.model import Model

SECONDS = st.floats(LEAST_S, 1e5)


def of(seconds):
    made = Durations()
    for one in seconds:
        made.add(one)
    return made


@given(st.lists(SECONDS, min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 1.0]))
def test_quantiles_are_right_to_a_few_percent(seconds, share):
    """A quantile differs from that of all durations by the width of half a bucket at most."""
    exact = sorted(seconds)[max(math.ceil(share * len(seconds)), 1) - 1]

    assert of(seconds).quantile(share) == pytest.approx(exact, rel=GROWTH - 1)


@given(st.lists(SECONDS, max_size=50), st.lists(SECONDS, max_size=50))
def test_merging_is_as_if_one_had_seen_all(left, right):
    """Two histograms that are merged are that of all durations."""
    merged = of(left)
    merged.merge(of(right))

    whole = of(left + right)
    assert merged.buckets == whole.buckets
    assert (merged.count, merged.max_s) == (whole.count, whole.max_s)


@given(st.lists(st.floats(0.0, 1e12), max_size=300))
def test_a_histogram_is_bounded_and_its_bars_have_all(seconds):
    """Whatever is added, there are so many buckets at most, and bars leave nothing out."""
    made = of(seconds)
    bars = made.bars(20)

    assert len(made.buckets) <= BUCKETS_MAX
    assert len(bars) <= 20
    assert sum(count for _, _, count in bars) == len(seconds)


def test_nothing_has_no_quantile():
    """Of no task it is not said how long it takes."""
    assert Durations().quantile(0.5) is None
    assert Durations().bars(9) == []


# -- what a model keeps ------------------------------------------------------------------------


def fed(*events):
    model = Model()
    model.apply(f.Snapshot("run", 1, clock=100.0, time=1000.0, interval_s=1.0), 0.0)
    model.apply(f.Events("run", 1, 100.0, {}, list(events)), 0.0)
    return model


def done(first, busy_s=0.5, count=1, function="price"):
    return f.Done(99.0, b"W1", 1, first, count, function, busy_s)


def failed(first, reason="exception"):
    return f.Failed(98.0, b"W1", 1, first, 1, "load", 0.25, 1, reason, "KeyError", "USD", "trace")


def test_done_tasks_do_not_evict_failed_ones(monkeypatch):
    """Failed tasks are kept when more tasks were done since than there is room for."""
    monkeypatch.setattr(module, "STREAM_MAX", 100)
    model = fed(failed(7), *(done(n) for n in range(10, 400)))

    assert not any(one.is_bad for one in model.stream)
    assert [one.first for one in model.ledger.failed] == [7]
    (attempt,) = model.ledger.attempts(model.stream, 1, 7)
    assert attempt.traceback == "trace"


def test_failures_are_bounded():
    """There is a limit to failed tasks as well."""
    model = fed(*(failed(n) for n in range(FAILED_MAX + 5)))

    assert len(model.ledger.failed) == FAILED_MAX


def test_functions_have_their_slowest_tasks():
    """Of each function the slowest tasks are known, the slowest first; a group has its mean."""
    model = fed(*(done(n, busy_s=n / 10) for n in range(1, 60)), done(100, busy_s=8.0, count=4))
    times = model.ledger.functions["price"]

    assert [one.first for one in times.slowest][:3] == [59, 58, 57]
    assert len(times.slowest) == SLOWEST
    assert times.durations.count == 63
    assert times.is_grouped


def test_what_died_has_no_duration():
    """A task that died with its worker, nobody knows when, does not count as a short one."""
    dead = f.Failed(98.0, b"W1", 1, 1, 1, "load", 0.0, 1, "worker_died")

    assert "load" not in fed(dead).ledger.functions


def test_a_task_has_each_of_its_attempts():
    """All attempts of a task are found by its number, and where it was assigned to."""
    again = f.Retried(97.0, b"W1", 1, 12, "price", 1, "exception", "KeyError", "USD", 0.1)
    given_ = f.Assigned(96.0, b"W1", 1, 10, 5, "price")
    model = fed(given_, again, done(10, count=5))

    assert [one.state for one in model.ledger.attempts(model.stream, 1, 12)] == ["retried", "done"]
    assert model.ledger.assignments(1, 12) == [given_]
    assert model.ledger.assignments(2, 12) == []

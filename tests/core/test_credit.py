"""How much a worker is given ahead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.records.credit import (
    AHEAD_MIN,
    BEYOND_HELD,
    BEYOND_HELD_S,
    HELD_COUNT,
    HELD_LEAST_S,
    HELD_MAX_S,
    HELD_S,
    LONG_S,
    LOW_WATER_S,
    PATIENCE,
    STALL_S,
    grant,
    holding_s,
    is_hungry,
    measure,
    patience_s,
)
from scaler_cluster.core.records.functions import FunctionRecord
from scaler_cluster.core.records.limits import TASKS_MAX, UNMEASURED_S, WINDOW_S
from scaler_cluster.core.records.workers import WorkerRecord

PLENTY = 1_000_000


@pytest.fixture
def worker():
    return WorkerRecord(b"W1", b"S1", 1, "host", 0)


def load(worker, count, backlog_s):
    worker.count = worker.given = count
    worker.backlog_s = backlog_s
    return worker


# -- who gets more ---------------------------------------------------------------------------


def test_an_idle_worker_is_hungry(worker):
    """A worker with nothing gets something."""
    assert is_hungry(worker)


def test_the_next_task_waits_where_the_last_one_ends(worker):
    """A worker has AHEAD_MIN tasks at least, if they are not long."""
    assert is_hungry(load(worker, AHEAD_MIN - 1, LONG_S))
    assert not is_hungry(load(worker, AHEAD_MIN, LONG_S))


def test_nothing_waits_behind_a_long_task(worker):
    """A worker with a long task gets nothing more until that has ended."""
    assert not is_hungry(load(worker, 1, LONG_S * 1.01))


def test_a_worker_below_the_low_water_mark_is_hungry(worker):
    """Work for less than LOW_WATER_S makes hungry, for more it does not."""
    assert is_hungry(load(worker, 10, LOW_WATER_S * 0.99))
    assert not is_hungry(load(worker, 10, LOW_WATER_S * 1.01))


def test_no_worker_is_given_too_many(worker):
    """TASKS_MAX bounds what is ahead, however short tasks are measured."""
    assert not is_hungry(load(worker, TASKS_MAX, 0.0))


@pytest.mark.parametrize("why", ["stalled", "retiring", "killed", "revoking"])
def test_some_workers_get_nothing(worker, why):
    """A worker that is stalled, retiring or about to be killed is never hungry."""
    setattr(worker, why, "yes")

    assert not is_hungry(worker)


def test_a_worker_at_its_task_limit_is_not_hungry(worker):
    """A worker that was given its task_limit gets no more."""
    worker.task_limit = 3
    worker.given = 3

    assert not is_hungry(worker)


# -- how much --------------------------------------------------------------------------------


def test_short_tasks_fill_the_window(worker):
    """An idle worker is given as many short tasks as fill WINDOW_S."""
    assert grant(worker, WINDOW_S / 100.5, PLENTY) == 100


def test_what_is_ahead_counts(worker):
    """A worker is given only what its queue lacks to WINDOW_S."""
    load(worker, 50, WINDOW_S / 2)

    assert grant(worker, WINDOW_S / 100.5, PLENTY) == 50


@pytest.mark.parametrize(
    ("unit_s", "together"), [(0.001, 30), (0.0031, 9), (0.004, 8), (0.0099, 8), (0.015, 5)]
)
def test_what_is_reported_together_is_given_together(worker, unit_s, together):
    """A worker that reports so many has something left to run, and is hungry; not before that."""
    held_s = holding_s(unit_s)
    first = grant(worker, unit_s, PLENTY, held_s)
    left = first - together

    assert left >= 1
    assert is_hungry(load(worker, left, left * unit_s))
    assert grant(worker, unit_s, PLENTY, held_s) == together
    assert not is_hungry(load(worker, first, first * unit_s))


@pytest.mark.parametrize("unit_s", [HELD_LEAST_S * 0.99, UNMEASURED_S])
def test_short_and_long_tasks_are_not_held(unit_s):
    """Of the short ones there are many in each report, and the long ones would wait for long."""
    assert holding_s(unit_s) == 0
    assert holding_s(HELD_LEAST_S) == HELD_S
    assert holding_s(HELD_S / HELD_COUNT * 1.5) == HELD_S * 1.5
    assert holding_s(UNMEASURED_S * 0.99) == HELD_MAX_S


def test_what_may_be_held_is_waited_for():
    """A task turned out long after PATIENCE of its kind, and after the time of what is held."""
    assert patience_s(STALL_S / 10, STALL_S) == STALL_S
    assert patience_s(0.001, STALL_S, HELD_S) == pytest.approx(PATIENCE * 0.001 + HELD_S - 0.001)
    assert patience_s(UNMEASURED_S, STALL_S) == PATIENCE * UNMEASURED_S


def test_an_unknown_function_is_given_one_at_a_time(worker):
    """Before anything was measured, one task is taken to fill the window, and none is held."""
    unknown = FunctionRecord(b"")

    assert grant(worker, unknown.mean_s, PLENTY) == 1


def test_a_long_task_gets_no_queue(worker):
    """A task above LONG_S is given to an idle worker, never behind another."""
    assert grant(worker, LONG_S * 1.01, PLENTY) == 1
    assert grant(load(worker, 1, 0.001), LONG_S * 1.01, PLENTY) == 0


def test_work_is_shared_fairly(worker):
    """No worker is given more than its share of what is ready."""
    assert grant(worker, 1e-6, 7) == 7


def test_the_task_limit_is_kept(worker):
    """A worker is never given more than its task_limit."""
    worker.task_limit = 10
    worker.given = 8

    assert grant(worker, 1e-6, PLENTY) == 2


@given(
    st.integers(0, TASKS_MAX - 1), st.floats(0, 1), st.floats(1e-9, 10), st.integers(1, PLENTY),
    st.integers(0, 100), st.integers(0, 99),
)  # fmt: skip
def test_a_grant_keeps_all_bounds(count, backlog_s, unit_s, share, limit, given_before):
    """What a hungry worker is given is positive, or 0 behind others, and within every bound."""
    worker = WorkerRecord(b"W1", b"S1", 1, "host", limit)
    worker.count, worker.backlog_s = count, backlog_s if count else 0.0
    worker.given = given_before
    if not is_hungry(worker):
        return

    held_s = holding_s(unit_s)
    granted = grant(worker, unit_s, share, held_s)

    assert (granted >= 1) or (count and unit_s > LONG_S)
    assert granted <= share
    assert count + granted <= TASKS_MAX
    assert not limit or worker.given + granted <= limit
    window_s = WINDOW_S
    if held_s:
        window_s = held_s // unit_s * unit_s + max(BEYOND_HELD * unit_s, BEYOND_HELD_S)
    assert granted <= 1 or worker.backlog_s + granted * unit_s <= window_s * (1 + 1e-9)


# -- measuring -------------------------------------------------------------------------------


def test_the_first_measurement_is_the_mean():
    """The first measurement replaces the assumption."""
    function = FunctionRecord(b"")
    measure(function, 100, 0.1)

    assert function.mean_s == pytest.approx(0.001)


def test_a_small_batch_moves_the_mean_little():
    """One task that was held up counts as one among the many before it."""
    function = FunctionRecord(b"")
    measure(function, 1000, 0.1)
    measure(function, 1, 0.1)

    assert function.mean_s < 0.0003


def test_the_mean_follows_a_change():
    """Old measurements fade: after some of another duration, the mean is close to it."""
    function = FunctionRecord(b"")
    measure(function, 100, 0.1)
    for _ in range(30):
        measure(function, 100, 1.0)

    assert function.mean_s == pytest.approx(0.01, rel=0.01)


def test_a_mean_is_never_zero():
    """A mean stays above zero though tasks took no measurable time: grants divide by it."""
    function = FunctionRecord(b"")
    measure(function, 5, 0.0)

    assert function.mean_s > 0

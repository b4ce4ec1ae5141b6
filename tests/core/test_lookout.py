"""When the control thread of a worker looks at what its main thread leaves undone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.delivery.channel import PROBE_AFTER_S
from scaler_cluster.core.records.limits import FLUSH_S
from scaler_cluster.core.worker.lookout import BUSY_S, IDLE_S, LEAST_S, LONG_S, REST_S, Lookout
from scaler_cluster.core.worker.task_loop import OVERDUE_S

LONG, MIDDLE, SHORT = 5 * LONG_S, 2 * FLUSH_S, FLUSH_S / 10


def look(
    lookout, now, *, last_end, took_s,
    is_busy=True, results_wait=False, may_wait=False, interrupts=False,
):  # fmt: skip
    """Let the control thread look; all was sent and received just now."""
    lookout.looked(
        now,
        last_end,
        took_s,
        now + FLUSH_S,
        is_busy=is_busy,
        results_wait=results_wait,
        may_wait=may_wait,
        interrupts=interrupts,
    )


@pytest.fixture
def lookout():
    """Return that of a worker that has had no tasks yet."""
    return Lookout()


def test_a_long_task_is_not_disturbed(lookout):
    """Where the last task was long, what arrives wakes the thread, and hardly anything else."""
    assert lookout.begin(10.0, LONG), "it sleeps for ever"
    assert (lookout.listens, lookout.look_at) == (True, 10.0 + BUSY_S)
    look(lookout, 10.5, last_end=10.4, took_s=LONG)
    assert (lookout.listens, lookout.look_at) == (True, 10.5 + BUSY_S), "tasks end meanwhile"
    look(lookout, 12.5, last_end=10.4, took_s=LONG)
    assert (lookout.listens, lookout.look_at) == (True, 12.5 + IDLE_S), "this one is longer"


def test_what_arrived_during_a_task_of_seconds_is_acknowledged_in_time(lookout):
    """After tasks that take longer than IDLE_S, the thread looks so soon, however many have ended."""
    lookout.begin(10.0, 3.0)
    assert (lookout.listens, lookout.look_at) == (True, 10.0 + IDLE_S)
    look(lookout, 10.5, last_end=10.0, took_s=3.0)
    assert (lookout.listens, lookout.look_at) == (True, 10.5 + IDLE_S)
    assert PROBE_AFTER_S > IDLE_S


def test_a_long_task_after_short_ones_is_acknowledged_in_time(lookout):
    """The first look finds that it is long."""
    lookout.begin(10.0, SHORT)
    look(lookout, 10.05, last_end=10.0, took_s=SHORT)
    assert (lookout.listens, lookout.look_at) == (True, 10.05 + IDLE_S)


def test_one_long_task_after_the_other_wakes_nobody(lookout):
    """To go on to the next task costs the control thread nothing."""
    lookout.begin(10.0, LONG)
    woken = [lookout.begin(10.0 + task * LONG, LONG) for task in range(1, 5)]
    assert not any(woken)


def test_results_of_short_tasks_are_reported_soon(lookout):
    """Where short tasks wait, the thread looks every few milliseconds, whatever arrives."""
    assert lookout.begin(10.0, SHORT)
    assert lookout.look_by(10.001 + FLUSH_S)
    look(lookout, 10.005, last_end=10.003, took_s=SHORT, may_wait=True)
    assert (lookout.listens, lookout.look_at) == (False, 10.005 + FLUSH_S)
    assert not lookout.look_by(10.006 + FLUSH_S), "it looks soon enough"


def test_short_tasks_that_come_one_by_one_are_not_disturbed(lookout):
    """Nothing waits while the last task runs: the thread looks now and then, and nobody wakes it."""
    assert lookout.begin(10.0, SHORT), "it sleeps for ever"
    assert (lookout.listens, lookout.look_at) == (False, 10.0 + REST_S)
    assert not lookout.begin(10.001, SHORT)
    look(lookout, 10.05, last_end=10.05, took_s=SHORT, is_busy=False)
    assert not lookout.begin(10.051, SHORT)
    look(lookout, 10.1, last_end=10.099, took_s=SHORT)
    assert (lookout.listens, lookout.look_at) == (False, 10.1 + REST_S)


def test_a_result_that_waits_wakes_a_thread_that_sleeps_long(lookout):
    """A short task came after long ones, and the next one may be long again."""
    lookout.begin(10.0, LONG)
    assert lookout.look_by(10.2 + FLUSH_S)
    assert lookout.look_at == 10.2 + FLUSH_S


def test_what_was_taken_for_short_turns_out_long(lookout):
    """A task that runs on is left alone more and more."""
    lookout.begin(10.0, SHORT)
    look(lookout, 10.0 + FLUSH_S, last_end=10.0, took_s=SHORT, may_wait=True)
    assert (lookout.listens, lookout.look_at) == (False, 10.0 + 2 * FLUSH_S)
    look(lookout, 10.0 + 2 * FLUSH_S, last_end=10.0, took_s=SHORT, may_wait=True)
    assert (lookout.listens, lookout.look_at) == (False, 10.0 + 2 * FLUSH_S + REST_S)
    look(lookout, 10.06, last_end=10.0, took_s=SHORT, may_wait=True)
    assert (lookout.listens, lookout.look_at) == (True, 10.06 + IDLE_S)


def test_the_next_tasks_may_arrive_ahead(lookout):
    """Tasks of some milliseconds are given ahead, and their arrival wakes nobody."""
    lookout.begin(10.0, MIDDLE)
    assert (lookout.listens, lookout.look_at) == (False, 10.0 + REST_S)
    look(lookout, 10.05, last_end=10.048, took_s=MIDDLE, may_wait=True)
    assert (lookout.listens, lookout.look_at) == (False, 10.05 + REST_S)


def test_requests_of_other_workers_are_heard(lookout):
    """Where results of nodes are kept, what arrives wakes the thread in shorter tasks as well."""
    lookout.expect_requests(is_on=True)
    lookout.begin(9.0, SHORT)
    assert (lookout.listens, lookout.look_at) == (False, 9.0 + FLUSH_S)
    lookout.begin(10.0, MIDDLE)
    look(lookout, 10.006, last_end=10.0, took_s=MIDDLE)
    assert (lookout.listens, lookout.look_at) == (True, 10.006 + BUSY_S)


def test_a_task_that_is_to_stop_is_interrupted_again(lookout):
    """The thread looks again soon while a task has not heeded its interrupt."""
    lookout.begin(10.0, LONG)
    look(lookout, 10.1, last_end=10.0, took_s=LONG, interrupts=True)
    assert (lookout.listens, lookout.look_at) == (True, 10.1 + LONG_S)


def test_it_rests_once_nothing_has_run_for_a_while(lookout):
    """Between two tasks it looks once more; then only a task wakes it."""
    lookout.begin(10.0, LONG)
    look(lookout, 10.5, last_end=10.1, took_s=LONG, is_busy=False)
    assert lookout.look_at == 10.5 + REST_S
    look(lookout, 10.55, last_end=10.1, took_s=LONG, is_busy=False)
    assert lookout.look_at == math.inf
    assert lookout.begin(20.0, LONG)


@given(
    now=st.floats(100.0, 200.0),
    ended=st.floats(0.0, 1.0),
    took_s=st.floats(0.0, 1.0),
    due=st.floats(-1.0, 2 * LONG_S),
    results_wait=st.booleans(),
    may_wait=st.booleans(),
    interrupts=st.booleans(),
)
def test_no_result_waits_long(now, ended, took_s, due, results_wait, may_wait, interrupts):
    """A result that waits is reported when it is due, and so is one that may come to wait unnoticed."""
    lookout = Lookout()
    lookout.looked(
        now,
        now - ended,
        took_s,
        now + due,
        is_busy=True,
        results_wait=results_wait,
        may_wait=may_wait,
        interrupts=interrupts,
    )
    assert now + LEAST_S <= lookout.look_at <= now + BUSY_S
    # The main thread looks at the result of a task after a longer one than this.
    is_noticed = max(took_s, now - (now - ended)) >= OVERDUE_S
    if results_wait or (may_wait and not is_noticed):
        assert not lookout.listens
        assert lookout.look_at <= max(now + LEAST_S, now + due)

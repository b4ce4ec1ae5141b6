"""When to look at workers that report nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.records.workers import WorkerRecord
from scaler_cluster.core.scheduler.stall_timers import StallTimers

WORKERS = [WorkerRecord(b"W%d" % number, b"S1", number, "host", 0) for number in range(4)]
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "pop", "take"]), st.sampled_from(WORKERS), st.integers(0, 20))
)


@pytest.fixture
def timers():
    return StallTimers()


def test_the_soonest_comes_first(timers):
    """Workers come out in the order of their times, each when its time has come."""
    for worker, when in zip(WORKERS, (3.0, 1.0, 2.0), strict=False):
        timers.set(worker, when)

    assert timers.next == 1.0
    assert [timers.take(2.0), timers.take(2.0), timers.take(2.0)] == [WORKERS[1], WORKERS[2], None]
    assert timers.next == 3.0


def test_reports_move_a_timer_on_at_no_cost(timers):
    """A worker that reports again and again has one entry, whatever the number of reports."""
    for now in range(1000):
        timers.set(WORKERS[0], now + 10.0)

    assert len(timers._heap) == 1
    assert timers.next == 1009.0
    assert timers.take(1008.0) is None


@given(STEPS)
def test_it_is_as_a_table_of_times(steps):
    """Whatever happens, what comes out is what a table of all times says."""
    timers, table = StallTimers(), {}
    for step, worker, number in steps:
        if step == "set":
            timers.set(worker, float(number))
            table[worker.peer] = float(number)
        elif step == "pop":
            timers.pop(worker.peer)
            table.pop(worker.peer, None)
        else:
            taken = timers.take(float(number))
            soonest = min(table.values(), default=math.inf)
            assert (taken is not None) == (soonest <= number)
            if taken is not None:
                assert table.pop(taken.peer) == soonest
        assert timers.next == min(table.values(), default=math.inf)
        assert all((one.peer in timers) == (one.peer in table) for one in WORKERS)

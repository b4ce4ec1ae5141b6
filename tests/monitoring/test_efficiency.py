"""What became of the time of workers, by example."""

from __future__ import annotations

import pytest

from scaler_cluster.wire import feed as f
from scaler_monitoring.efficiency import Efficiency, Meter

IDLE = f.Worker(b"W1")
BUSY = f.Worker(b"W1", tasks=2)
BLOCKED = f.Worker(b"W1", tasks=1, is_blocked=True)


def snapshot(clock, *workers, busy_s=0.0, run="run", **fields):
    functions = [f.Function("f", busy_s=busy_s)]
    return f.Snapshot(run, clock=clock, workers=list(workers), functions=functions, **fields)


def measured(*snapshots):
    meter = Meter()
    for one in snapshots:
        meter.apply(one)
    return meter.efficiency()


def test_nothing_was_seen():
    """A time in which nothing was seen has no parts."""
    assert measured() == Efficiency()
    assert measured(snapshot(1.0, BUSY)) == Efficiency()
    assert Efficiency().share(0.0) == 0.0


def test_idle_workers():
    """A worker without tasks counts as idle."""
    found = measured(snapshot(10.0, IDLE, IDLE), snapshot(14.0, IDLE, IDLE))

    assert found == Efficiency(4.0, available_s=8.0, idle_s=8.0)


def test_work_is_what_functions_took():
    """Overhead is the time with tasks that functions did not take."""
    found = measured(
        snapshot(0.0, BUSY, IDLE, busy_s=100.0), snapshot(10.0, BUSY, IDLE, busy_s=107.5)
    )

    assert found == Efficiency(10.0, 20.0, working_s=7.5, overhead_s=2.5, idle_s=10.0)
    assert found.share(found.working_s) == 0.375


def test_tasks_that_still_run_count():
    """A running task counts from the first look on, not before it."""
    before = f.Worker(b"W1", tasks=1, age_s=3.0)
    after = f.Worker(b"W1", tasks=1, age_s=13.0)

    assert measured(snapshot(0.0, before), snapshot(10.0, after)).working_s == 10.0
    assert measured(snapshot(0.0, before), snapshot(10.0, IDLE, busy_s=4.0)).working_s == 1.0


def test_workers_that_come_and_go():
    """A worker that came or went between two looks counts for half of that time."""
    found = measured(snapshot(0.0, IDLE), snapshot(4.0, IDLE, IDLE), snapshot(5.0))

    assert found.available_s == 4.0 + 2.0 + 1.0


def test_a_task_that_waits_for_others_is_no_work():
    """A blocked worker's time does not count, as another worker has its place."""
    found = measured(snapshot(0.0, BLOCKED, BUSY), snapshot(10.0, BLOCKED, BUSY, busy_s=10.0 + 9.0))

    assert found == Efficiency(10.0, 10.0, working_s=9.0, overhead_s=1.0, blocked_s=10.0)


def test_parts_never_exceed_the_whole():
    """Short tasks between two looks count as work, and never as more than the time there is."""
    found = measured(snapshot(0.0, IDLE), snapshot(1.0, IDLE, busy_s=0.75))
    assert found == Efficiency(1.0, 1.0, working_s=0.75, idle_s=0.25)

    found = measured(snapshot(0.0, IDLE), snapshot(1.0, IDLE, busy_s=5.0))
    assert found == Efficiency(1.0, 1.0, working_s=1.0)


def test_cpu_is_summed_if_it_is_known():
    """CPU time is what was measured since the look before, if anything was."""
    busy = f.Worker(b"W1", tasks=1, cpu=0.5)

    assert measured(snapshot(0.0, IDLE), snapshot(2.0, IDLE)).cpu_s is None
    assert measured(snapshot(0.0, busy), snapshot(2.0, busy, IDLE)).cpu_s == 1.0


def test_another_scheduler_counts_from_its_start():
    """Counts begin anew with another scheduler; the time between the two is unknown."""
    found = measured(
        snapshot(0.0, IDLE), snapshot(1.0, IDLE, busy_s=1.0),
        snapshot(0.5, IDLE, run="other"), snapshot(2.5, IDLE, busy_s=0.5, run="other"),
    )  # fmt: skip

    assert found == Efficiency(3.0, 3.0, working_s=1.5, idle_s=1.5)


def test_out_of_turn():
    """A snapshot of the same moment or an earlier one changes nothing."""
    first, last = snapshot(0.0, IDLE), snapshot(1.0, BUSY)

    assert measured(first, last, last, first) == measured(first, last)


def test_workers_that_are_not_listed_count():
    """Workers for whose rows there was no room count as well."""
    cut = {"left_out": {"workers": 9}}

    assert measured(snapshot(0.0, IDLE, **cut), snapshot(1.0, IDLE, **cut)).idle_s == 10.0


def test_shares_add_up():
    """The shares of work, overhead and idling add up to 1."""
    found = measured(snapshot(0.0, BUSY, IDLE), snapshot(3.0, BUSY, IDLE, busy_s=1.3))
    parts = (found.working_s, found.overhead_s, found.idle_s)

    assert sum(map(found.share, parts)) == pytest.approx(1.0)

"""Two runs side by side: what is told of each, and of how they differ."""

from __future__ import annotations

import pytest

from scaler_cluster.wire import feed as f
from scaler_monitoring.comparison import change, compare
from scaler_monitoring.period import Period

MINUS = "\N{MINUS SIGN}"


def run(passed_s, functions, **fields):
    """Return a time in which two workers had these functions."""
    workers = [f.Worker(b"W1"), f.Worker(b"W2")]
    made = Period()
    made.apply(f.Snapshot("run", 1, clock=0.0, workers=workers), 0.0)
    tasks = f.Tasks(done=sum(one.done for one in functions))
    last = f.Snapshot(
        "run", 2, clock=passed_s, workers=workers, functions=functions, tasks=tasks, **fields
    )
    made.apply(last, passed_s)
    return made


def lines(before, after):
    """Return what is told of each thing: there, here and the change."""
    totals, functions = compare(before, after)
    return {one.name: (one.before, one.after, one.change) for one in totals}, functions


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (10.0, 10.01, "same"),
        (10.0, 12.0, "+20 %"),
        (10.0, 7.0, f"{MINUS}30 %"),
        (10.0, 25.0, "2.5 x"),
        (10.0, 0.0, f"{MINUS}100 %"),
        (0, 0, "same"),
        (0, 5, "-"),
        (None, 5.0, "-"),
        (5.0, None, "-"),
    ],
)
def test_a_change_is_told_in_percent_or_times(before, after, told):
    """A change is told in percent, from twice as much on in times, and not at all from nothing."""
    assert change(before, after) == told


def test_what_a_run_came_to_stands_beside_the_other():
    """Times, tasks, work and peaks of both runs are told, of each the change."""
    before = run(10.0, [f.Function("price", 100, 100, busy_s=8.0)], objects_bytes=1 << 20)
    after = run(5.0, [f.Function("price", 100, 100, busy_s=8.0)], worker_deaths=1)
    totals, _ = lines(before, after)

    assert totals["time"] == ("10.0s", "5.0s", f"{MINUS}50 %")
    assert totals["tasks done"] == ("100", "100", "same")
    assert totals["work of workers"] == ("8.0s", "8.0s", "same")
    assert totals["their idling"] == ("12.0s", "2.0s", f"{MINUS}83 %")
    assert totals["workers that died"] == ("0", "1", "-")
    assert totals["objects at most"] == ("1.0 MiB", "0 B", f"{MINUS}100 %")


def test_the_function_that_differs_most_comes_first():
    """Functions are told by how much their time differs, also those that one run alone had."""
    before = run(10.0, [f.Function("a", 10, 10, busy_s=2.0), f.Function("gone", 1, 1, busy_s=1.0)])
    after = run(10.0, [f.Function("a", 20, 20, busy_s=12.0), f.Function("b", 1, 1, busy_s=0.5)])
    _, functions = lines(before, after)

    assert [one.name for one in functions] == ["a", "gone", "b"]
    first, gone, new = functions
    assert first.done == ("10", "20")
    assert (first.each.before, first.each.after, first.each.change) == ("200ms", "600ms", "3.0 x")
    assert (gone.done, gone.each.after, gone.in_all.change) == (("1", "-"), "-", "-")
    assert (new.done, new.each.before) == (("-", "1"), "-")

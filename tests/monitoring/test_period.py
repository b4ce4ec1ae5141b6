"""What a while came to, made of messages by hand."""

from __future__ import annotations

from itertools import pairwise

from scaler_cluster.wire import feed as f
from scaler_monitoring import period as module
from scaler_monitoring.period import Period

W = b"W1"


def snapshot(seq, done=0, run="run", **fields):
    clock = float(seq)
    functions = [f.Function("f", submitted=done + 5, done=done, busy_s=done * 2.0)]
    return f.Snapshot(
        run, seq, clock=clock, time=1000.0 + clock, interval_s=1.0, functions=functions,
        tasks=f.Tasks(submitted=done + 5, done=done, ready=5), **fields,
    )  # fmt: skip


def heard(*messages):
    period = Period()
    for now, message in enumerate(messages):
        period.apply(message, float(now))
    return period


def test_what_was_before_does_not_count():
    """A period counts only its own tasks, functions and deaths."""
    period = heard(
        snapshot(1, 100, worker_deaths=3, skipped={"done": 7, "assigned": 1}),
        snapshot(2, 110, worker_deaths=4, skipped={"done": 9, "assigned": 5}),
    )

    tasks = period.tasks()
    assert (tasks.submitted, tasks.done, tasks.ready) == (10, 10, 5)
    ((row, pending),) = period.functions()
    assert (row.name, row.done, row.busy_s, row.each_s, pending) == ("f", 10, 20.0, 2.0, 5)
    assert period.deaths() == 1
    assert period.untold() == 2


def test_functions_that_were_not_in_use_are_left_out():
    """A period leaves out unused functions, and sorts the others by the time they took."""
    before = [f.Function("old", 9, 9, busy_s=90.0), f.Function("a", 1, 1, busy_s=1.0)]
    after = [before[0], f.Function("a", 2, 2, busy_s=2.0), f.Function("b", 1, 1, busy_s=7.0)]
    period = heard(f.Snapshot("r", 1, functions=before), f.Snapshot("r", 2, functions=after))

    assert [row.name for row, _ in period.functions()] == ["b", "a"]


def test_of_a_function_that_did_not_end_nobody_knows_what_one_takes():
    """A function whose tasks have not ended has no time per task."""
    period = heard(f.Snapshot("r", 1), f.Snapshot("r", 2, functions=[f.Function("f", 1)]))

    ((row, pending),) = period.functions()
    assert (row.each_s, pending) == (None, 1)


def test_another_scheduler_goes_on():
    """What another scheduler counts is added to what the one before did, in one curve."""
    period = heard(
        snapshot(5, 100, worker_deaths=3), snapshot(6, 103, worker_deaths=4),
        snapshot(1, 7, "other", worker_deaths=1), snapshot(2, 9, "other", worker_deaths=1),
    )  # fmt: skip

    # The five that had not ended are those that the other scheduler has.
    assert (period.tasks().submitted, period.tasks().done, period.deaths()) == (12, 12, 2)
    ((row, pending),) = period.functions()
    assert (row.submitted, row.done, row.busy_s, pending) == (12, 12, 24.0, 5)
    assert [one.clock for one in period.curve] == [5.0, 6.0, 7.0, 8.0]
    assert period.meter.efficiency().passed_s == 2.0


def test_what_nobody_submitted_again_counts_no_more():
    """Tasks that were lost with their client and the scheduler make no number negative."""
    period = heard(snapshot(5, 100), f.Snapshot("other", 1, clock=1.0))

    assert (period.tasks().submitted, period.tasks().done) == (0, 0)
    assert period.functions() == []


def test_nothing_is_forgotten():
    """A period forgets nothing, however long it lasts."""
    died = f.Events("run", 1, 2.0, {}, [f.WorkerDied(2.0, W), f.Done(2.0, W, function="f")])
    late = f.Snapshot("run", 2, clock=1e6)
    period = heard(snapshot(1), died, late)

    assert len(period.model.deaths) == 1
    assert len(period.model.stream) == 1


def test_curves_thin_out(monkeypatch):
    """Curves span the whole period with no more points than a page is wide."""
    monkeypatch.setattr(module, "POINTS_MAX", 10)
    period = heard(*(snapshot(seq) for seq in range(1, 102)))

    clocks = [one.clock for one in period.curve]
    assert len(clocks) <= 10
    assert clocks[0] == 1.0
    assert clocks[-1] > 90.0
    steps = {after - before for before, after in pairwise(clocks)}
    assert len(steps) == 1


def test_peaks_are_of_all_snapshots():
    """Peaks count snapshots that are not in the curves as well."""
    worker = f.Worker(W, rss_bytes=500)
    period = heard(snapshot(1), snapshot(2, workers=[worker], objects_bytes=70), snapshot(3))

    assert (period.rss_bytes_max, period.objects_bytes_max) == (500, 70)

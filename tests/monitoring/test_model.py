"""What one who watches knows, made of messages by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.ids import EVENTS, SNAPSHOT
from scaler_cluster.testing.bench import SchedulerBench
from scaler_cluster.wire import feed as f
from scaler_monitoring import model as module
from scaler_monitoring import view
from scaler_monitoring.model import (
    DEATHS_MAX,
    FAILURES_MAX,
    NEWS_MAX,
    WINDOW_S,
    Model,
    SchedulerRestarted,
)
from scaler_monitoring.work import CANCELLED, DONE, FAILED, RETRIED, Work
from tests.monitoring.feeds import fed

W = b"W1"


def snapshot(seq=1, clock=0.0, run="run", **fields):
    return f.Snapshot(run, seq, clock=clock, time=1000.0 + clock, interval_s=1.0, **fields)


def batch(seq, *events, clock=0.0, run="run"):
    return f.Events(run, seq, clock, {}, list(events))


def test_it_knows_nothing_at_first():
    """A model that has heard nothing is stale, and knows no time."""
    model = Model()

    assert model.snapshot is None
    assert model.is_stale(0.0)
    assert model.time_of(5.0) == 0.0


def test_the_last_snapshot_is_what_is():
    """A snapshot replaces the one before, whatever events said."""
    model = fed(snapshot(1), batch(1, f.Done(1.0, W)), snapshot(2, objects=7))

    assert model.snapshot == snapshot(2, objects=7)
    assert model.missed == 0


def test_times_are_told_in_those_of_people():
    """The last snapshot translates the scheduler's clock into wall time."""
    assert fed(snapshot(1, 10.0)).time_of(7.5) == 1007.5


def test_a_silent_scheduler_is_noticed():
    """A model is stale after some intervals without a message."""
    model = fed(snapshot(1))

    assert not model.is_stale(4.0)
    assert model.is_stale(6.0)


# -- gaps --------------------------------------------------------------------------------------


def test_what_is_missed_is_counted():
    """Missed messages are counted by their numbers, per topic, from the first one heard."""
    model = fed(snapshot(7), batch(3), snapshot(8), snapshot(11), batch(5))

    assert model.missed == 3


def test_messages_out_of_turn_are_ignored():
    """An older or repeated message changes nothing."""
    model = fed(snapshot(2, objects=2), snapshot(1, objects=1), batch(1, f.Done(1.0, W)))
    model.apply(batch(1, f.Done(1.0, W)), 3.0)

    assert model.snapshot.objects == 2
    assert len(model.stream) == 1
    assert model.missed == 0


def test_another_scheduler_is_noticed():
    """All that was known stays when another scheduler speaks, and this is marked in the news."""
    failed = f.Failed(50.5, W, 1, 1, 1, "f", reason="lost")
    model = fed(snapshot(5, 50.0), batch(4, failed, clock=51.0), snapshot(1, 2.0, "other"))

    assert model.restarts == 1
    assert model.snapshot.run == "other"
    assert (model.missed, len(model.history), len(model.stream)) == (0, 2, 1)
    assert list(model.failures) == [("f", "lost")]
    assert list(model.news) == [failed, SchedulerRestarted(52.0)]
    assert view.news(model, 1)[0].endswith("the scheduler was started again")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(1, 9)), max_size=40))
def test_whatever_arrives_is_counted_right(sent):
    """Each message counts once or as missed, whatever the order, gaps and schedulers."""
    model = Model()
    seen: dict[bool, list[int]] = {False: [], True: []}
    run, expected, heard = "", 0, {False: 0, True: 0}
    for name, is_snapshot, seq in sent:
        if name != run:
            expected += missed_in(seen)
            run, seen = name, {False: [], True: []}
        numbers = seen[is_snapshot]
        if not numbers or seq > numbers[-1]:
            numbers.append(seq)
            heard[is_snapshot] += 1
        make = snapshot(seq, run=name) if is_snapshot else batch(seq, f.Done(0.0, W), run=name)
        model.apply(make, 0.0)

    assert model.missed == expected + missed_in(seen)
    assert len(model.stream) == heard[False]
    assert len(model.history) == heard[True]


def missed_in(seen):
    """Return how many numbers are missing, of those that were heard of each topic."""
    return sum(one[-1] - one[0] + 1 - len(one) for one in seen.values() if one)


# -- what is kept ------------------------------------------------------------------------------


def test_rates_are_per_second():
    """Rates of tasks, functions and messages are per second, between two snapshots."""
    before = snapshot(1, 10.0, tasks=f.Tasks(done=100), sent={"Assign": 10})
    after = snapshot(
        2, 12.0, tasks=f.Tasks(done=300, failed=1), functions=[f.Function("f", 9, 8)],
        sent={"Assign": 30, "Kill": 2},
    )  # fmt: skip

    rates = fed(before, after).rates
    assert (rates.tasks["done"], rates.tasks["failed"]) == (100.0, 0.5)
    assert rates.functions == {"f": 4.0}
    assert rates.sent == {"Assign": 10.0, "Kill": 1.0}


def test_snapshots_close_together_make_no_rates():
    """Snapshots close together make no rates; the next one counts from the first."""
    first, close = snapshot(1, 10.0), snapshot(2, 10.01, tasks=f.Tasks(done=50))
    model = fed(first, close)
    assert model.rates.tasks == {}
    model.apply(snapshot(3, 11.0, tasks=f.Tasks(done=100)), 3.0)

    assert model.rates.tasks["done"] == 100.0


def test_work_is_kept_as_it_was():
    """Work is kept with its start, worker and outcome, also of tasks that never ran."""
    done = f.Done(10.0, W, 1, 5, 100, "f", 2.0, 2)
    failed = f.Failed(11.0, W, 1, 105, 1, "f", 0.5, 1, "exception", "KeyError")
    nowhere = f.Failed(12.0, b"", 1, 106, 1, "f", reason="unplaced")
    retried = f.Retried(13.0, W, 1, 107, "f", 1, "exception", "KeyError", "'x'", 0.5)
    cancelled = f.Cancelled(14.0, W, 1, 108, 2, "f", 1, 4.0)
    model = fed(snapshot(), batch(1, done, failed, nowhere, f.Moved(), retried, cancelled))

    assert list(model.stream) == [
        Work(W, 8.0, 10.0, 1, 5, 100, "f", 2, DONE),
        Work(W, 10.5, 11.0, 1, 105, 1, "f", 1, FAILED, "exception", "KeyError"),
        Work(b"", 12.0, 12.0, 1, 106, 1, "f", 1, FAILED, "unplaced"),
        Work(W, 12.5, 13.0, 1, 107, 1, "f", 1, RETRIED, "exception", "KeyError", "'x'"),
        Work(W, 10.0, 14.0, 1, 108, 2, "f", 1, CANCELLED),
    ]
    assert model.streamed == 5


def test_details_of_the_last_failures_are_kept(monkeypatch):
    """Only the last failures keep their details."""
    monkeypatch.setattr(module, "DETAILS_MAX", 2)
    events = [
        f.Failed(float(n), W, 1, n, 1, "f", 0.0, 1, "exception", "KeyError", "why", "where")
        for n in range(4)
    ]
    model = fed(batch(1, *events))

    assert [(one.error, one.message, one.traceback) for one in model.stream] == [
        ("KeyError", "", ""), ("KeyError", "", ""),
        ("KeyError", "why", "where"), ("KeyError", "why", "where"),
    ]  # fmt: skip


def test_workers_keep_their_names():
    """A lost worker keeps its name; an unknown worker is called by its id."""
    here = f.Worker(W, host="host", pid=1, name="one")
    came = f.WorkerJoined(1.0, b"W2", b"S1", "host", 2, "two")
    died = f.WorkerDied(2.0, b"W3", b"S1", "host", 3)
    model = fed(snapshot(1, workers=[here]), batch(1, came, died), snapshot(2))

    assert [model.label(one) for one in (W, b"W2", b"W3")] == ["one|1", "two|2", "3|host"]
    assert model.label(b"\x01\x02") == "0102"


def test_names_are_bounded(monkeypatch):
    """The names of the workers that came first are forgotten first."""
    monkeypatch.setattr(module, "LABELS_MAX", 2)
    joined = [f.WorkerJoined(0.0, worker, pid=7) for worker in (b"W1", b"W2", b"W3")]

    assert list(fed(batch(1, *joined)).labels) == [b"W2", b"W3"]


def test_deaths_are_kept():
    """The last deaths are kept as they were told."""
    events = [f.WorkerDied(float(n), W, pid=n) for n in range(DEATHS_MAX + 1)]
    model = fed(batch(1, *events))

    assert [one.pid for one in model.deaths] == list(range(1, DEATHS_MAX + 1))


def test_curves_count_a_computer_once():
    """Curves count a computer once though two supervisors tell of it."""
    machines = [
        f.Machine(name, host, cpus=4, cpu=1.5, memory_bytes=100, free_bytes=40)
        for name, host in ((b"S1", "a"), (b"S2", "a"), (b"S3", "b"))
    ]
    (figures,) = fed(snapshot(1, machines=machines)).history

    assert (figures.machines, figures.machines_cpus, figures.machines_cpu) == (2, 8, 3.0)
    assert (figures.memory_bytes, figures.free_bytes) == (200, 80)


def test_curves_of_what_nobody_measured_have_gaps():
    """A value that nobody measured is a gap in its curve."""
    (figures,) = fed(snapshot(1, machines=[f.Machine(b"S1", "a")])).history

    assert (figures.machines_cpu, figures.memory_bytes, figures.free_bytes) == (None, None, None)


def test_each_has_its_own_history():
    """Each worker, machine and store has a history of its own."""
    before = snapshot(1, 1.0, workers=[f.Worker(W, tasks=3, cpu=0.5, rss_bytes=10)])
    after = snapshot(
        2, 2.0, workers=[f.Worker(W, tasks=1, cpu=1.0, rss_bytes=20)],
        machines=[f.Machine(b"S1", cpu=2.0, memory_bytes=9, free_bytes=5)],
        stores=[f.Store(b"", "tcp://a", 7, 70)],
    )  # fmt: skip
    model = fed(before, after)

    columns = [[list(one) for one in taken.columns] for taken in model.worker_samples.taken]
    assert columns == [[[0.5], [10], [3]], [[1.0], [20], [1]]]
    machine, store = model.machine_samples.taken[-1], model.store_samples.taken[-1]
    assert (machine.clock, machine.keys) == (2.0, (b"S1",))
    assert [list(one) for one in machine.columns] == [[2.0], [5], [9]]
    assert [list(one) for one in store.columns] == [[70], [7]]


def test_failures_are_grouped():
    """Failures are grouped by function and type, and the last one of each is kept whole."""
    events = [f.Failed(float(n), W, 1, n, 1, "f", error="KeyError") for n in range(3)]
    events.append(f.Failed(3.0, b"", 1, 9, 5, "g", reason="lost"))
    events.append(f.Failed(4.0, W, 1, 7, 1, "f", error="KeyError", traceback="last"))
    model = fed(batch(1, *events))

    assert list(model.failures) == [("g", "lost"), ("f", "KeyError")]
    assert [one.count for one in model.failures.values()] == [5, 4]
    assert model.failures["f", "KeyError"].last.traceback == "last"


def test_news_are_what_is_not_everyday():
    """News are deaths, failures, and peers that come or leave."""
    model = fed(batch(1, f.Assigned(), f.Done(), f.Moved(), f.WorkerDied(pid=7), f.ClientLeft()))

    assert [one.kind for one in model.news] == ["worker_died", "client_left"]


def test_what_is_old_is_forgotten():
    """Everything older than WINDOW_S is forgotten."""
    failed = f.Failed(1.0, W, 1, 1, 1, "f", reason="lost")
    model = fed(snapshot(1, 1.0), batch(1, failed, clock=1.0), snapshot(2, 2.0 + WINDOW_S))

    assert len(model.history) == 1
    assert (len(model.stream), len(model.news), len(model.failures)) == (0, 0, 0)


def test_rows_are_bounded(monkeypatch):
    """The model's memory is bounded, however much happens at once."""
    monkeypatch.setattr(module, "STREAM_MAX", 10)
    model = Model()
    events = [
        f.Failed(0.0, W, 1, n, 1, f"f{n}", reason="lost") for n in range(NEWS_MAX + FAILURES_MAX)
    ]
    model.apply(batch(1, *events), 0.0)

    assert len(model.stream) == 10
    assert len(model.news) == NEWS_MAX
    assert len(model.failures) == FAILURES_MAX
    assert ("f1199", "lost") in model.failures


# -- fed by a scheduler ------------------------------------------------------------------------


@pytest.mark.parametrize("comes_late", [False, True])
def test_it_knows_what_the_scheduler_knows(comes_late):
    """A model that watched from the start and one that came late know the same counts."""
    bench = SchedulerBench()
    model = Model()

    def hear() -> None:
        bench.wait(1.2)
        for message in bench.published:
            model.apply(message, bench.now)
        bench.published.clear()

    if not comes_late:
        bench.watch(SNAPSHOT, EVENTS)
    bench.supervisor()
    bench.client()
    bench.worker()
    bench.submit(0, 3)
    for task in 0, 1:
        bench.done(task)
    bench.erred(2)
    bench.died(None)
    if comes_late:
        bench.watch(SNAPSHOT, EVENTS)
    hear()

    assert model.snapshot is not None
    tasks = model.snapshot.tasks
    assert (tasks.submitted, tasks.done, tasks.failed) == (3, 2, 1)
    assert model.snapshot.workers == []
    assert model.missed == 0
    assert sum(one.count for one in model.stream if one.state == DONE) == (0 if comes_late else 2)

"""What a model tells of several schedulers that followed each other, made of messages by hand."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.records.totals import OTHERS
from scaler_cluster.wire import feed as f
from scaler_monitoring import past as module
from scaler_monitoring.model import GROWING, Model
from tests.monitoring.feeds import fed

W, M = b"W1", b"S1"
ENDED = ("done", "failed", "cancelled")


def snapshot(run, seq=1, clock=1.0, **fields):
    return f.Snapshot(run, seq, clock=clock, time=1000.0 + clock, interval_s=1.0, **fields)


def test_counts_are_added():
    """All that a scheduler counts is added to what the schedulers before it had counted."""
    counted = {
        "tasks": f.Tasks(1, 2, 3, 4, submitted=60, done=40, failed=5, retried=2, moved=1),
        "sent": {"Assign": 10, "Kill": 1}, "received": {"Done": 7},
        "worker_deaths": 2, "skipped": {"done": 3}, "errors": 1,
    }  # fmt: skip
    now = fed(*(snapshot(run, **deepcopy(counted)) for run in ("a", "b", "c"))).snapshot

    # What has not ended is submitted again, and counts once.
    assert now.tasks == f.Tasks(1, 2, 3, 4, 150, 120, 15, retried=6, moved=3)
    assert (now.sent, now.received) == ({"Assign": 30, "Kill": 3}, {"Done": 21})
    assert (now.worker_deaths, now.skipped, now.errors) == (6, {"done": 9}, 3)


def test_functions_are_remembered():
    """A function goes on from its totals, and keeps them if nobody calls it again."""
    before = [f.Function("f", 9, 5, 1, busy_s=2.0, mean_s=0.4), f.Function("g", 4, 3, 1)]
    after = [f.Function("f", 4, 1, busy_s=1.0, mean_s=0.5), f.Function("h", 2)]
    now = fed(snapshot("a", functions=before), snapshot("b", functions=after)).snapshot

    assert now.functions == [
        f.Function("f", 10, 6, 1, busy_s=3.0, mean_s=0.5), f.Function("h", 2),
        f.Function("g", 4, 3, 1),
    ]  # fmt: skip
    assert [one.pending for one in now.functions] == [3, 2, 0]


def test_functions_are_bounded(monkeypatch):
    """Functions that there is no room for are counted together."""
    monkeypatch.setattr(module, "NAMES_MAX", 2)
    rows = [f.Function(name, 3, done) for name, done in (("f", 1), ("g", 2), ("h", 3))]
    model = fed(snapshot("a", functions=rows), snapshot("b"))
    model.apply(snapshot("c", functions=[f.Function("i", 1, 1)]), 3.0)

    found = {one.name: one.done for one in model.snapshot.functions}
    assert found == {"i": 1, "f": 1, "g": 2, OTHERS: 3}


def test_those_that_come_back_are_the_same():
    """A client and a worker that come back go on from their counts, though others come first."""
    client, worker = f.Client(1, "host", 7, b"", 9, 5, 1), f.Worker(W, M, given=20)
    first = snapshot("a", clients=[client], workers=[worker])
    model = fed(first, snapshot("b", clients=[f.Client(2, "host", 7)]))
    back = f.Client(1, "host", 7, b"", 4, 3)
    model.apply(snapshot("c", clients=[back], workers=[f.Worker(W, M, given=3)]), 2.0)

    assert model.snapshot.clients == [f.Client(1, "host", 7, b"", 10, 8, 1)]
    assert model.snapshot.workers == [f.Worker(W, M, given=23)]


def test_a_client_of_another_process_is_another():
    """A client has no other one's counts, though another cluster gave it the same number."""
    model = fed(snapshot("a", clients=[f.Client(1, "host", 7, done=5)]))
    model.apply(snapshot("b", clients=[f.Client(1, "host", 8, done=2)]), 1.0)

    assert model.snapshot.clients == [f.Client(1, "host", 8, done=2)]


def test_to_come_back_is_no_news():
    """Those that the scheduler before knew are no news when they join again; others are."""
    first = snapshot(
        "a", machines=[f.Machine(M)], workers=[f.Worker(W)], clients=[f.Client(1)],
    )  # fmt: skip
    joined = [
        f.MachineJoined(1.0, M), f.WorkerJoined(1.0, W), f.ClientJoined(1.0, 1),
        f.WorkerJoined(1.0, b"W2"), f.WorkerDied(1.0, W), f.WorkerJoined(1.0, W),
    ]  # fmt: skip
    model = fed(first, f.Events("b", 1, 1.0, {}, joined))

    kinds = ["scheduler_restarted", "worker_joined", "worker_died", "worker_joined"]
    assert [one.kind for one in model.news] == kinds


def test_time_goes_on():
    """Time goes on by the clock of whoever watches, whatever the schedulers' clocks say."""
    failed = f.Failed(4.5, W, 1, 1, 1, "f", 2.0, reason="exception")
    model = fed(snapshot("a", clock=500.0))
    model.apply(f.Events("b", 1, 5.0, {}, [failed]), 3.0)
    model.apply(snapshot("b", clock=6.0), 4.0)

    assert [(one.start, one.end) for one in model.stream] == [(500.5, 502.5)]
    assert model.failures["f", "exception"].last.at == 502.5
    assert [one.clock for one in model.history] == [500.0, 504.0]
    assert model.time_of(504.0) == 1006.0


def test_messages_stay_as_they_are():
    """A message is not changed: it is recorded as it came."""
    rows = [f.Function("f", 1, 1)]
    first, second = (snapshot(run, tasks=f.Tasks(done=1), functions=rows) for run in "ab")
    events = f.Events("b", 1, 2.0, {}, [f.Done(2.0, W)])
    told = deepcopy([first, second, events])
    fed(first, second, events)

    assert [first, second, events] == told


def test_a_snapshot_need_not_come_first():
    """What was known is shown until the other scheduler's first snapshot is there."""
    model = fed(snapshot("a", tasks=f.Tasks(done=5)), f.Events("b", 1, 1.0))
    assert model.snapshot.tasks.done == 5
    model.apply(f.Events("c", 1, 1.0), 3.0)
    model.apply(snapshot("c", tasks=f.Tasks(done=2)), 4.0)

    assert model.snapshot.tasks.done == 7


counts = st.builds(f.Tasks, **{name: st.integers(0, 9) for name in (*ENDED, "retried", "moved")})


@given(st.lists(st.lists(counts, min_size=1, max_size=4), min_size=1, max_size=5))
def test_no_total_falls(lives):
    """No total falls and no rate is negative, however many schedulers follow each other."""
    model = Model()
    totals: list[f.Tasks] = []
    for life, steps in enumerate(lives):
        told = f.Tasks()
        for seq, step in enumerate(steps, 1):
            told = f.Tasks(**{name: getattr(told, name) + getattr(step, name) for name in GROWING})
            told.submitted = sum(getattr(told, name) for name in ENDED)
            model.apply(snapshot(str(life), seq, float(seq), tasks=told), len(totals))
            assert model.snapshot is not None
            totals.append(model.snapshot.tasks)
            assert min(model.rates.tasks.values(), default=0.0) >= 0.0

    for before, after in pairwise(totals):
        assert all(getattr(after, name) >= getattr(before, name) for name in GROWING)
    expected = sum(step.done for steps in lives for step in steps)
    assert totals[-1].done == expected

"""When workers are asked what their tasks do, and what watchers are told of it."""

from __future__ import annotations

import math

import pytest

from scaler_cluster.call_tree import CallTree, Frame
from scaler_cluster.core.scheduler.sampling import (
    ANSWER_BYTES_MAX,
    BYTES_MAX,
    INTERVAL_S,
    NO_ANSWER,
    PATIENCE_S,
    ROW_BYTES,
    SAMPLES_MAX,
    WORKERS_PER_S,
)
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import EVENTS, PROFILE, SNAPSHOT, alias_of
from scaler_cluster.testing.bench import function_id
from scaler_cluster.wire import messages as m

F = function_id("f")


def tree(us=1000):
    made = CallTree()
    made.add([Frame("f", "x.py", 1)], us)
    return made.packed()


def answer(number, samples=3, us=1000, **fields):
    data = tree(us)
    return m.Sampled(number, (F,), (samples,), (len(data),), data, **fields)


def test_nobody_is_asked_unless_somebody_listens(one):
    """No worker is asked for samples as long as nobody listens to them."""
    one.watch(SNAPSHOT, EVENTS)
    one.submit(0)

    assert not any("Sample" in line for line in one.wait(5.0).get("W1", []))


def test_workers_are_asked_at_once_and_again(one):
    """A listener has all workers asked at once, and then each interval until the last one left."""
    one.watch(PROFILE)
    first = one.wait(0.0)["W1"]
    later = one.wait(2.5 * INTERVAL_S)["W1"]
    one.watch()
    rest = one.wait(5.0)

    assert first == ["Sample 1"]
    assert later == ["Sample 2", "Sample 3"]
    assert rest == {}
    assert one.core.feed.due == math.inf


def test_answers_are_passed_on(one):
    """What workers answer is published as soon as the last one has, with what runs now."""
    one.watch(PROFILE)
    one.submit(0)
    one.wait(0.0)
    one.feed(b"W1", answer(1, session=1, runs=F, age_s=2.5, stack="at f"))

    (samples,) = one.published
    assert [(row.worker, row.samples, row.tree) for row in samples.sampled] == [
        (alias_of(b"W1"), 3, tree())
    ]
    (row,) = samples.running
    assert (row.function, row.age_s, row.stack) == (samples.sampled[0].function, 2.5, "at f")


def test_who_does_not_answer_is_named(one):
    """A worker whose task keeps it from answering is told of, with its task and why."""
    one.watch(PROFILE)
    one.submit(0)
    one.wait(2 * PATIENCE_S)

    (samples,) = one.published
    (row,) = samples.running
    assert (row.task, row.stack, row.reason) == (0, "", NO_ANSWER)


def test_a_late_answer_counts_but_does_not_run(one):
    """A late answer's samples are published with the next ones; what ran then does not run now."""
    one.watch(PROFILE)
    one.wait(2.2 * INTERVAL_S)
    one.published.clear()
    one.feed(b"W1", answer(1, session=1, runs=F, stack="at f"))
    one.wait(INTERVAL_S)

    assert sum(row.samples for one in one.published for row in one.sampled) == 3
    assert not any(one.running for one in one.published)


def test_too_much_is_left_out_and_counted(one, monkeypatch):
    """Trees beyond the bound of a message are left out, and their samples counted."""
    monkeypatch.setattr(
        "scaler_cluster.core.scheduler.sampling.BYTES_MAX", len(tree()) + 2 * ROW_BYTES
    )
    one.watch(PROFILE)
    one.wait(0.0)
    one.feed(b"W1", answer(0))
    one.feed(b"W1", answer(0, samples=5))
    one.wait(PATIENCE_S)

    (samples,) = one.published
    assert (len(samples.sampled), samples.skipped) == (1, 5)
    assert BYTES_MAX < 1 << 28


def test_answers_of_no_bytes_are_bounded_as_well(one):
    """A worker that answers again and again, with trees of no bytes, fills no memory."""
    one.watch(PROFILE)
    one.wait(0.0)
    empty = m.Sampled(0, (F,) * 64, (1,) * 64, (0,) * 64, b"")
    for _ in range(BYTES_MAX // (64 * ROW_BYTES) + 10):
        one.feed(b"W1", empty)
    one.wait(PATIENCE_S)

    (samples,) = one.published
    assert len(samples.sampled) <= BYTES_MAX // ROW_BYTES
    assert samples.skipped >= 10 * 64


def test_many_workers_are_asked_less_often(one):
    """So many workers are asked a second that the answers take little of the scheduler's time."""
    one.watch(PROFILE)
    sampling = one.core.feed.monitor.sampling
    workers = one.core.table.workers
    many = {str(number).encode(): None for number in range(10 * WORKERS_PER_S)}
    sampling._table = type("Many", (), {"workers": many})

    assert sampling.interval_s == 10.0
    assert len(workers) == 1


@pytest.mark.parametrize(
    "said",
    [
        m.Sampled(1, (F,), (1,), (), b""),
        m.Sampled(1, (F,), (1,), (5,), b"1234"),
        m.Sampled(1, (F,) * 65, (1,) * 65, (0,) * 65, b""),
        m.Sampled(1, (F,), (SAMPLES_MAX + 1,), (0,), b""),
        m.Sampled(1, stack="x" * (ANSWER_BYTES_MAX + 1)),
    ],
)
def test_what_does_not_fit_together_is_refused(one, said):
    """An answer whose parts do not fit together is a fault of the worker."""
    one.watch(PROFILE)
    with pytest.raises(RemoteProtocolError, match="samples"):
        one.feed(b"W1", said)


@pytest.mark.parametrize("peer", [b"C1", b"S1"])
def test_only_workers_answer(one, peer):
    """Nobody but a worker says what tasks do."""
    with pytest.raises(RemoteProtocolError, match="only a worker reports"):
        one.feed(peer, m.Sampled(1))

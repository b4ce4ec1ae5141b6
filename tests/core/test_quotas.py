"""What one client may have in the scheduler at once: more fails, and only that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scaler_cluster.core.scheduler.config import QuotaConfig, SchedulerConfig
from scaler_cluster.errors import QuotaExceededError, RemoteProtocolError
from scaler_cluster.pickling.exceptions import failure_to_exception
from scaler_cluster.testing.bench import (
    PYTHON,
    SchedulerBench,
    function_id,
    graph_of,
    payloads_of,
)
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch


def bench_with(**limits: int) -> SchedulerBench:
    """Return a scheduler with limits, one client and one worker."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, quotas=QuotaConfig(**limits)))
    bench.supervisor()
    bench.client()
    bench.worker()
    return bench


def submission(first: int, nbytes: int = 1) -> m.Submit:
    """Return a Submit of one task with an argument of this size."""
    batch = Batch.single(bytes(nbytes))
    return m.Submit(first, function_id("f"), m.CALL_ARGS, m.DEFAULT_OPTIONS, batch)


def in_two(first: int, count: int, at: int) -> list[m.Graph]:
    """Return the two messages of a graph of nodes that need nothing, all wanted."""
    whole = graph_of(first, *[""] * count, wanted=" ".join(map(str, range(count))))
    return [
        replace(
            whole,
            start=low,
            batch=payloads_of(first + low, high - low),
            ends=bytes(whole.ends)[4 * low : 4 * high],
            uses=bytes(whole.uses)[4 * low : 4 * high],
            wanted=bytes(whole.wanted)[low:high],
            is_last=high == count,
        )
        for low, high in ((0, at), (at, count))
    ]


def test_tasks_beyond_the_quota_fail() -> None:
    """The client is told which tasks; those that it has go on, and make room for others."""
    bench = bench_with(tasks_max=10)
    bench.submit(0, 8)

    assert bench.submit(8, 3)["C1"] == ["FailedRange 10 quota"]
    assert bench.submit(11, 2)["C1"] == ["FailedRange 11-12 quota"]
    bench.done(0)
    assert "C1" not in bench.submit(13)


def test_the_quota_is_each_clients_own() -> None:
    """What one client has takes nothing from another."""
    bench = bench_with(tasks_max=10)
    bench.submit(0, 10)
    bench.client(b"C2")

    assert "C2" not in bench.submit(0, 10, peer=b"C2")


def test_the_error_names_the_setting() -> None:
    """The future of such a task says what to do."""
    bench = bench_with(tasks_max=1)
    bench.core.receive(b"C1", [m.Function(function_id("f"), b"f")], bench.now)
    bench.submit(0)
    bench.core.receive(b"C1", [submission(1)], bench.now)
    (failed,) = bench.act_raw()[b"C1"]
    assert isinstance(failed, m.FailedRange)

    error = failure_to_exception(m.Failed(1, failed.kind, b"", failed.detail))

    assert isinstance(error, QuotaExceededError)
    assert str(error) == (
        "the scheduler takes no more than 1 tasks of one client at once (max_tasks_per_client)"
    )


def test_bytes_beyond_the_quota_fail() -> None:
    """Payloads, objects and functions count together, as long as they are there."""
    bench = bench_with(bytes_max=1000)
    bench.core.receive(b"C1", [m.Function(function_id("f"), b"f")], bench.now)
    bench.store("a", nbytes=500)
    bench.feed(b"C1", submission(0, 400))

    assert bench.feed(b"C1", submission(1, 200)) == {"C1": ["FailedRange 1 quota"]}
    assert "C1" not in bench.feed(b"C1", submission(2, 50))
    bench.release("a")
    assert "C1" not in bench.feed(b"C1", submission(3, 500))


def test_who_stores_far_too_much_is_dropped() -> None:
    """Objects are there before they are announced: an honest client is far below this."""
    bench = bench_with(bytes_max=1000)
    bench.store("a", nbytes=1900)

    with pytest.raises(RemoteProtocolError, match="2 times max_bytes_per_client"):
        bench.store("b", number=1, nbytes=200)


def test_graphs_beyond_the_quota_fail_as_a_whole() -> None:
    """All parts of a graph that is refused fail; the next graph may begin when one has ended."""
    bench = bench_with(graphs_max=1)
    bench.graph(0, "", "0")
    parts = in_two(100, 3, 1)

    assert bench.feed(b"C1", parts[0])["C1"] == ["Failed 100 quota"]
    assert bench.feed(b"C1", parts[1])["C1"] == ["Failed 101 quota", "Failed 102 quota"]
    bench.feed(b"C1", m.Cancel(0, 2))
    bench.feed(b"W1", m.Aborted(1, 0, 1))
    assert "C1" not in bench.graph(200, "", "0")


def test_nodes_count_as_tasks() -> None:
    """A graph that is too large fails, and one that grows far too large ends its client."""
    bench = bench_with(tasks_max=10)
    every = [""] * 11
    assert bench.graph(0, *every)["C1"] == ["Failed 10 quota"]
    parts = in_two(100, 30, 9)

    bench.feed(b"C1", parts[0])
    with pytest.raises(RemoteProtocolError, match="2 times max_tasks_per_client"):
        bench.feed(b"C1", parts[1])


def test_a_client_that_leaves_leaves_no_count() -> None:
    """Nothing is remembered of it."""
    bench = bench_with(bytes_max=10, graphs_max=1)
    bench.submit(0)
    bench.graph(10, "", "0")
    bench.feed(b"C1", in_two(100, 3, 1)[0])

    bench.lose(b"C1")

    quotas = bench.core._clients._quotas
    assert quotas is not None
    assert (quotas._nbytes, quotas._refused) == ({}, set())

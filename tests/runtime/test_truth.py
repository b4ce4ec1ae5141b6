"""All that watch agree, to the task, with what a program knows to have done."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import CancelledError
from time import perf_counter as clock

import pytest
from prometheus_client import CollectorRegistry

from scaler_cluster.wire.feed_codec import as_dict
from scaler_exec import Client, SchedulerClusterCombo, WorkerDiedError
from scaler_monitoring.feed import Feed
from scaler_monitoring.model import GROWING, Model
from scaler_monitoring.period import Period
from scaler_monitoring.prometheus import ClusterCollector
from scaler_monitoring.recording import Recorder, read
from scaler_monitoring.trace import Trace
from tests.runtime.helpers import BOUND_S, Flags
from tests.runtime.truth_tasks import (
    NESTED,
    child,
    dies,
    fails,
    fails_once,
    parent,
    plain,
    waits,
)

PLAIN, NODES = 200, 5


def play(client, flags):
    """Do what is to be counted; return how many tasks of each function came to what."""
    assert sum(client.map(plain, range(PLAIN))) == sum(range(PLAIN))
    for _ in range(3):
        with pytest.raises(ValueError, match="as it is to"):
            client.submit(fails).result(BOUND_S)
    client.options(retries=1).submit(fails_once, flags.path("once")).result(BOUND_S)
    # Before the tasks of a task: a worker that is killed may not have told of those yet.
    with pytest.raises(WorkerDiedError):
        client.options(retries=0).submit(dies).result(BOUND_S)
    assert client.submit(parent, client).result(BOUND_S) == sum(range(NESTED))
    graph = {f"n{n}": (plain, n) for n in range(NODES)}
    client.get(graph, list(graph))
    with pytest.raises(ValueError, match="as it is to"):
        client.get({"bad": (fails,), "above": (plain, "bad")}, ["bad", "above"])
    blockers = [client.submit(waits, flags.path("go")) for _ in range(2)]
    doomed = [client.submit(child, n) for n in range(7)]
    assert all(one.cancel() for one in doomed)
    flags.set("go")
    for one in blockers:
        one.result(BOUND_S)
    with pytest.raises(CancelledError):
        doomed[0].result(BOUND_S)
    return {
        "plain": (PLAIN + NODES, 1, 0), "fails": (0, 4, 0), "fails_once": (1, 0, 0), "parent": (1, 0, 0),
        "child": (NESTED, 0, 7), "dies": (0, 1, 0), "waits": (2, 0, 0),
    }  # fmt: skip


def listen(feed, recorder, takers, is_over):
    """Let all take in what is published until one thing is so."""
    end = clock() + BOUND_S
    while not is_over():
        assert clock() < end, takers[0].snapshot.functions
        message = feed.next(1.0)
        if message is not None:
            now = clock()
            recorder.apply(message, now)
            for one in takers:
                one.apply(message, now)


def test_all_who_watch_agree(tmp_path) -> None:
    """Every task is counted once, by all who watch: plain, failed, retried, nested, killed, ..."""
    model, period, collector = Model(), Period(), ClusterCollector()
    path = str(tmp_path / "truth.rec")

    class Metrics:
        def apply(self, message, _):
            collector.apply(message)

    with (
        SchedulerClusterCombo(2) as cluster,
        Client(cluster.get_address()) as client,
        Feed(cluster.get_monitor_address()) as feed,
        Recorder(path) as recorder,
    ):
        takers = [model, period, Metrics()]
        listen(feed, recorder, takers, lambda: model.snapshot is not None)
        expected = play(client, Flags(tmp_path))

        def is_over() -> bool:
            tasks = latest().tasks
            return tasks.submitted >= total and not any(one.pending for one in functions())

        def functions():
            return latest().functions

        def latest():
            assert model.snapshot is not None
            return model.snapshot

        total = sum(map(sum, expected.values()))
        listen(feed, recorder, takers, is_over)

    # The nodes of graphs are counted with the tasks of their functions.
    told = {row.name: (row.done, row.failed, row.cancelled) for row in functions()}
    assert told == expected
    tasks = latest().tasks
    assert (tasks.submitted, tasks.retried, tasks.recalled) == (total, 1, 0)
    assert tasks.done + tasks.failed + tasks.cancelled == total
    # The others tell the same.
    replayed = Model()
    for at, message in read(path):
        replayed.apply(message, at)
    assert replayed.snapshot == model.snapshot
    counted = period.tasks()
    assert all(getattr(counted, name) == getattr(tasks, name) for name in GROWING)
    assert {row.name: row.done for row, _ in period.functions()} == {
        name: done for name, (done, _, _) in told.items()
    }
    json = as_dict(latest())
    assert sum(row["done"] for row in json["functions"]) == json["tasks"]["done"] == tasks.done
    registry = CollectorRegistry()
    registry.register(collector)
    for outcome in ("done", "failed", "cancelled"):
        value = registry.get_sample_value("scaler_tasks_ended_total", {"outcome": outcome})
        assert value == getattr(tasks, outcome)
    # Pieces of work are told one by one, but for those within the task that waited for them.
    kinds: Counter[str] = Counter()
    for event in Trace().convert(message for _, message in read(path)):
        kinds[event.get("cat", "")] += event.get("args", {}).get("count", 1)
    drawn = Counter({"done": 0})
    for work in model.stream:
        drawn[work.state] += work.count
    for state in ("done", "failed", "cancelled", "retried"):
        assert kinds[state] == drawn[state]
    skipped = sum(latest().skipped.values())
    assert skipped == 0
    assert (drawn["failed"], drawn["cancelled"], drawn["retried"]) == (5, 7, 1)
    assert drawn["done"] == tasks.done - tasks.inlined

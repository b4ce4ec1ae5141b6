"""Who has the memory, as snapshots tell it."""

from __future__ import annotations

from scaler_cluster.wire import feed as f
from scaler_monitoring.memory_use import (
    Made,
    by_client,
    by_function,
    client_names,
    machines_use,
    maker,
    workers_use,
)

OWNERS = [f.Owner(1, "load", 2, 50), f.Owner(2, "load", 1, 30), f.Owner(2, "", 3, 60)]


def test_objects_are_added_up_by_who_made_them():
    """By function those of all clients, by client those of all functions, most first."""
    assert list(by_function(OWNERS).items()) == [("load", Made(3, 80)), ("", Made(3, 60))]
    assert list(by_client(OWNERS).items()) == [(2, Made(4, 90)), (1, Made(2, 50))]


def test_who_made_an_object_is_said():
    """A function and its client, or the client alone; one that has left is gone."""
    names = client_names(f.Snapshot(clients=[f.Client(1, "desk", 21)]))

    assert [maker(one, names) for one in OWNERS] == [
        "load for 21|desk", "load for gone", "stored by gone",
    ]  # fmt: skip
    assert maker(f.LargeObject(b"of an earlier release"), names) == ""


def test_workers_are_measured_by_their_limit():
    """Or else by what their machine has; the fullest comes first, also beyond its limit."""
    machines = [f.Machine(b"S", "host", memory_bytes=1000)]
    workers = [
        f.Worker(b"A", b"S", rss_bytes=300, memory_limit_bytes=400),
        f.Worker(b"B", b"S", rss_bytes=300),
        f.Worker(b"C", b"S", rss_bytes=500, memory_limit_bytes=400),
        f.Worker(b"D", b"S"),
        f.Worker(b"E", b"other", rss_bytes=300),
    ]
    snapshot = f.Snapshot(machines=machines, workers=workers)
    uses = workers_use(snapshot, 9)

    assert [(one.who, one.limit, one.share, one.is_own) for one in uses] == [
        (b"C", 400, 1.25, True), (b"A", 400, 0.75, True), (b"B", 1000, 0.3, False),
    ]  # fmt: skip
    assert uses[0].parts == {"resident": 500, "free": 0}
    assert uses[1].parts == {"resident": 300, "free": 100}
    assert [one.who for one in workers_use(snapshot, 2)] == [b"C", b"A"]


def test_machines_have_objects_and_others():
    """Objects that are on disk take no memory; two supervisors of a computer count once."""
    machines = [
        f.Machine(b"S1", "head", memory_bytes=1000, free_bytes=400),
        f.Machine(b"S2", "node", memory_bytes=1000, free_bytes=100),
        f.Machine(b"S3", "node", memory_bytes=1000, free_bytes=100),
        f.Machine(b"S4", "silent"),
    ]
    stores = [
        f.Store(b"", "", 1, 250, 300),
        f.Store(b"S2", "tcp://node:1", 1, 700, 500),
        f.Store(b"S3", "tcp://node:2", 1, 100, 500),
        f.Store(b"tcp", "tcp://store:1", 1, 700, 500),
    ]
    snapshot = f.Snapshot(scheduler=f.Process("head"), machines=machines, stores=stores)
    node, head = machines_use(snapshot)

    assert (node.who, node.share, node.on_disk) == (b"S2", 0.9, 200)
    assert node.parts == {"objects": 600, "others": 300, "free": 100}
    assert (head.who, head.share, head.on_disk) == (b"S1", 0.6, 0)
    assert head.parts == {"objects": 250, "others": 350, "free": 400}


def test_objects_take_no_more_than_what_is_used():
    """Free memory is measured before objects are counted: bars are never longer than the limit."""
    machine = f.Machine(b"S1", "h", memory_bytes=1000, free_bytes=900)
    (use,) = machines_use(f.Snapshot(machines=[machine], stores=[f.Store(b"S1", "", 1, 300, 500)]))

    assert use.parts == {"objects": 100, "others": 0, "free": 900}

"""A client that does not read its results gets no more of them until it does."""

from __future__ import annotations

import pytest

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.testing.bench import hello
from scaler_cluster.wire import messages as m

HUB, SPOKE = b"", b"C1"
BIG = m.Output(0, "stdout", "x" * 1000)


@pytest.fixture
def shared(one):
    """Clients C1 (session 1) and C2 (session 2), and the worker W1."""
    one.client(b"C2")
    return one


def hold_back(bench, *peers):
    """Let the shell say whose envelopes are unread; return what the scheduler sends then."""
    bench.core.hold_back(dict.fromkeys(peers), bench.now)
    return bench.act()


def given(sent):
    """Return the tasks that W1 is given, as session:task."""
    return [line.split()[1] for line in sent.get("W1", []) if line.startswith("Assign ")]


def test_tasks_of_a_client_that_does_not_read_wait(shared):
    """Those of other clients go on, also if the waiting ones are more urgent."""
    hold_back(shared, b"C1")
    assert given(shared.submit(0, 3, options=m.TaskOptions(priority=5))) == []
    assert given(shared.submit(0, peer=b"C2")) == ["2:0"]
    assert shared.done(0, session=2) == {"C2": ["Results 0 [r0]"]}

    assert given(hold_back(shared)) == ["1:0-2"]


def test_tasks_that_waited_before_wait_as_well(bench):
    """What is queued already is not given out, and is given out in order later."""
    bench.supervisor()
    bench.client()
    bench.client(b"C2")
    bench.submit(0, 2)
    hold_back(bench, b"C1")
    bench.submit(10, 2)
    assert given(bench.worker()) == []
    assert given(bench.submit(0, peer=b"C2")) == ["2:0"]

    order = given(hold_back(bench))
    order += given(bench.done(0, session=2))
    for task in (0, 1, 10):
        order += given(bench.done(task))
    assert order == ["1:0", "1:1", "1:10-11"]


def test_what_waits_can_be_cancelled(shared):
    """A client that does not read may cancel, in part and as a whole, and may leave."""
    hold_back(shared, b"C1")
    shared.submit(0, 10)
    shared.feed(b"C1", m.Cancel(3, 4))
    assert shared.core.table.backlog.count == 6
    shared.feed(b"C1", m.Cancel(0, 3))
    assert given(hold_back(shared))[0] == "1:7"

    hold_back(shared, b"C1")
    shared.submit(20, 5)
    shared.lose(b"C1")
    assert not shared.core.held_back
    assert shared.core.table.backlog.count == 0
    assert given(shared.submit(0, peer=b"C2")) == []  # W1 is to stop task 7 first.


def test_tasks_with_demands_and_nodes_of_graphs_wait_as_well(shared):
    """Every queue holds back what is of that client."""
    shared.worker(b"W2", capabilities=(("gpu", 1),))
    hold_back(shared, b"C1")
    on_gpu = m.TaskOptions(capabilities=(("gpu", 1),))
    sent = shared.submit(0, options=on_gpu) | shared.graph(100, "", "0")
    assert not sent.keys() & {"W1", "W2"}
    sent = hold_back(shared)
    assert sent.keys() == {"W1", "W2"}


def test_both_are_in_the_log(shared):
    """One line says that a client does not read, and one that it does again."""
    shared.core.table.journal.take(shared.now)
    for _ in range(3):
        hold_back(shared, b"C1")
    hold_back(shared)
    assert shared.core.table.journal.take(shared.now) == [
        (True, "client 1 (pid 1 on host) does not read its results, its tasks wait until it does"),
        (False, "client 1 (pid 1 on host) reads its results again, its tasks go on"),
    ]


def test_what_is_not_acknowledged_is_counted():
    """A peer is unread from so many bytes on, until it has acknowledged half of them."""
    hub, spoke = Exchange(10, 5000), Exchange(20)
    hub.receive(SPOKE, spoke.send(HUB, [hello(m.CLIENT)], 0.0)[0], 0.0)
    sent = []
    while not hub.unread:
        sent += hub.send(SPOKE, [BIG], 0.0)
    assert len(sent) == 5

    for frames in sent[:2]:
        spoke.receive(HUB, frames, 0.0)
    hub.receive(SPOKE, spoke.send(HUB, [m.Heartbeat()], 0.0)[0], 0.0)
    assert SPOKE in hub.unread
    for frames in sent[2:]:
        spoke.receive(HUB, frames, 0.0)
    hub.receive(SPOKE, spoke.send(HUB, [m.Heartbeat()], 0.0)[0], 0.0)
    assert not hub.unread


@pytest.mark.parametrize("leaves", [True, False])
def test_a_peer_that_is_forgotten_or_begins_anew_has_read_all(leaves):
    """What was kept for a peer that is gone does not count for the next one of its name."""
    hub, spoke = Exchange(10, 500), Exchange(20)
    hub.receive(SPOKE, spoke.send(HUB, [hello(m.CLIENT)], 0.0)[0], 0.0)
    hub.send(SPOKE, [BIG], 0.0)
    assert SPOKE in hub.unread
    if leaves:
        hub.drop(SPOKE)
    else:
        hub.receive(SPOKE, Exchange(21).send(HUB, [hello(m.CLIENT)], 0.0)[0], 0.0)
    assert not hub.unread

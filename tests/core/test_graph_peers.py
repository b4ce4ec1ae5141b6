"""Graphs at both ends: what a worker keeps for the nodes it is given, what a client answers."""

from __future__ import annotations

import pytest

from scaler_cluster.core.client import ClientCore
from scaler_cluster.core.worker import WorkerCore
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import first_task_id
from scaler_cluster.testing.bench import function_id, graph_of, payloads_of
from scaler_cluster.testing.describe import describe
from scaler_cluster.testing.worker_driver import WorkerDriver
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

G = function_id("g")


def nodes(first: int, count: int, *, graph: int = 0, oldest: int = 1, **inputs: bytes):
    """Return nodes for a worker, with the results of others as ``n0=b"..."``."""
    numbers = b"".join(int(name[1:]).to_bytes(4, "little") for name in inputs)
    results = Batch.of([*inputs.values()] or [b""])
    batch = payloads_of(first, count)
    return m.AssignNodes(1, graph, first, G, False, False, batch, (), numbers, results, oldest)


@pytest.fixture
def hands():
    """A worker that knows the functions of a graph."""
    core = WorkerCore()
    core.receive([m.Welcome(0, 0), m.Function(G, b"g")])
    return WorkerDriver(core)


def run(hands, count=1):
    for _ in range(count):
        hands.take_up(0.0)
        hands.returned(b"r%d" % hands.task[1], 0.0)
    hands.take_up(0.0)


def kept(hands, graph=0):
    """Return the nodes of a graph whose results a worker keeps."""
    return sorted(hands.core._graphs.get((1, graph), ()))


# -- the worker ------------------------------------------------------------------------------


def test_inputs_come_with_their_segments(hands):
    """Each input is found by its node, with the segments of its large buffers."""
    message = nodes(2, 1, n0=b"a", n1=b"b")
    message.segments, message.segment_ends = (b"s1", b"s2"), b"\0\0\0\0\2\0\0\0"
    hands.core.receive([message])

    values = {
        node: (bytes(data), found) for node, (data, found) in hands.core.queue[0].values.items()
    }
    assert values == {0: (b"a", ()), 1: (b"b", (b"s1", b"s2"))}


def test_results_are_there_for_what_follows(hands):
    """What nodes returned here is kept for later ones of the graph, until that is over."""
    hands.core.receive([nodes(0, 2)])
    run(hands, 2)
    hands.core.receive([nodes(2, 1)])
    assert hands.core.queue[0].results == {0: (b"r0", ()), 1: (b"r1", ())}

    run(hands)
    hands.core.receive([m.GraphOver(1, 0)])
    assert kept(hands) == []


def test_results_that_nobody_can_need_are_dropped(hands):
    """The scheduler says from which message on results may still be needed."""
    hands.core.receive([nodes(0, 2)])
    run(hands, 2)
    hands.core.receive([nodes(2, 2, oldest=1)])
    run(hands, 2)
    assert kept(hands) == [0, 1, 2, 3]

    hands.core.receive([nodes(4, 1, oldest=2)])
    assert kept(hands) == [2, 3]
    hands.core.receive([nodes(7, 1, graph=7, oldest=4)])
    assert kept(hands) == []


def test_nodes_that_are_given_back_keep_their_values(hands):
    """Nodes cut off from others by a Revoke find what those returned."""
    hands.core.receive([nodes(0, 4)])
    hands.core.receive([m.Revoke(1, 1, 1)])
    first, rest = hands.core.queue

    assert rest.results is first.results
    assert (rest.first, rest.stop) == (2, 2)


def test_a_node_that_cannot_run_is_skipped(hands):
    """It is reported by itself, after what was done before it."""
    hands.core.receive([nodes(0, 2)])
    hands.take_up(0.0)
    hands.returned(b"r0", 0.0)
    hands.take_up(0.0)
    hands.skipped(0.0)

    assert [describe(one) for one in hands.core.take_actions()] == ["Done 1:0 [r0]", "Skipped 1:1"]


def test_nodes_without_their_functions_are_refused(hands):
    """Nodes of a table that was not sent are a scheduler's fault."""
    message = nodes(0, 1)
    message.function = function_id("h")
    with pytest.raises(RemoteProtocolError):
        hands.core.receive([message])


# -- the client ------------------------------------------------------------------------------


@pytest.fixture
def core():
    """A client that was welcomed."""
    made = ClientCore()
    made.receive([m.Welcome(1, 2)], 0.0)
    return made


def test_nodes_settle_their_waiters(core):
    """What comes back for wanted nodes goes to who waits for each."""
    first = core.open_graph()
    part = graph_of(first, "", "0", "1", "")
    core.submit_graph(
        (G, b"g", (), "g"), part, {first + 1: "one", first + 2: "two", first + 3: "x"}, ()
    )
    assert [type(one).__name__ for one in core.take_actions()] == ["Function", "Graph"]
    failed = m.Failed(first + 2, m.FAILED_EXCEPTION)
    core.receive([m.Results(first + 1, payloads_of(1, 1)), failed, m.Cancelled(first + 3, 1)], 0.0)

    (one, data), two, gone = core.settled
    assert (one, bytes(data)) == ("one", b"p1")
    assert (two, gone) == (("two", failed), ("x", None))
    assert not core.busy


def test_graphs_and_maps_are_numbered_together(core):
    """No two calls have the same number; a single node takes those of single tasks."""
    assert [core.open_graph(), core.open_graph()] == [first_task_id(1), first_task_id(2)]
    assert [core.reserve(3), core.reserve(1)] == [0, 3]
    assert core.next_task == 4


def test_unmet_inputs_are_noted(core):
    """The scheduler says once for each graph which inputs it does not know."""
    first = core.open_graph()
    core.submit_graph(
        (G, b"g", (), "g"), graph_of(first, "", "", "0 1"), {first + 2: "w"}, ["f", "g"]
    )
    core.receive([m.RequestInputs(first, b"\1\0\0\0")], 0.0)

    assert core.unmet == [(first + 1, "g")]
    core.receive([m.RequestInputs(first, b"")], 0.0)
    assert core.unmet == [(first + 1, "g")]

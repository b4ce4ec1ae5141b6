"""The longest paths of graphs, against what a look at all of their paths says."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.graph import critical_path as module
from scaler_cluster.core.graph.critical_path import STEPS_MAX, CriticalPath
from scaler_cluster.core.graph.graph import GraphRecord
from scaler_cluster.core.graph.layers import Layers
from scaler_cluster.core.graph.losses import lose
from scaler_cluster.core.graph.node_states import DONE, READY
from scaler_cluster.core.graph.topology import GraphPart
from scaler_cluster.core.records.accounts import Account
from scaler_cluster.core.records.functions import FunctionRecord
from scaler_cluster.core.records.totals import Names
from scaler_cluster.ids import EVENTS, SNAPSHOT
from scaler_cluster.testing.bench import function_id, graph_of
from scaler_cluster.wire import messages as m


def made(*nodes, inputs=0, wanted=""):
    """Return a graph whose nodes are given by the numbers they depend on."""
    graph = GraphRecord(
        1, 0, function_id("g"), FunctionRecord(b""), Account(), Layers(Names(), "g")
    )
    graph.add(GraphPart(graph_of(0, *nodes, wanted=wanted)), inputs)
    return graph


def longest(graph, *, live):
    """Return how many nodes are on the longest path, of all or of those that have not ended."""
    lengths: list[int] = []
    for node in range(len(graph.nodes.states)):
        counts = node >= graph.topology.inputs and (not live or graph.nodes.is_live(node))
        below = [lengths[one] for one in graph.topology.dependencies(node)]
        lengths.append(1 + max(below, default=0) if counts else 0)
    return max(lengths, default=0)


def watching(graph, steps=STEPS_MAX):
    """Return what returns what is known of a graph after so many steps more, of either kind."""
    path = CriticalPath()

    def told():
        path.look(graph, steps)
        path.settle(graph, steps)
        return path.longest(graph), path.left

    return told


def told(graph):
    """Return what is known of a graph that was just looked at."""
    return watching(graph)()


@pytest.fixture
def slowly(monkeypatch):
    """Let three steps be done for each snapshot."""
    monkeypatch.setattr(module, "STEPS_MAX", 3)


def snapshots(bench):
    """Yield what is told of the graphs in each snapshot, while all peers say that they live."""
    bench.watch(SNAPSHOT)
    for _ in range(100):
        for peer in (b"C1", b"S1"):
            bench.feed(peer, m.Heartbeat())
        bench.wait(0.5)
        for told in bench.published:
            yield [(row.chain, row.chain_left) for row in told.graphs]
        bench.published.clear()


def returned(graph, *nodes):
    for node in nodes:
        graph.nodes.returned(node, [b""])


# -- by example --------------------------------------------------------------------------------


def test_the_longest_path_counts():
    """A graph is as long as its longest path; nodes beside it do not count."""
    assert told(made("", "", "0 1", "2", "", "3 4")) == (4, 4)


def test_what_has_returned_is_no_longer_left():
    """Nodes that have returned are no longer left as soon as the next snapshot is made."""
    graph = made("", "", "0 1", "2")
    told = watching(graph)
    told()
    returned(graph, 0)
    first = told()
    returned(graph, 1, 2)

    assert (first, told()) == ((3, 3), (3, 1))


def test_inputs_are_no_nodes():
    """Inputs of a graph do not count as nodes of a path."""
    assert told(made("", "0", "1", inputs=1)) == (2, 2)


def test_nodes_that_depend_on_nothing_are_a_path_each():
    """Nodes that depend on nothing make a longest path of one node."""
    assert told(made("", "", wanted="0 1")) == (1, 1)


def test_what_is_left_is_known_once_all_nodes_have_come():
    """What is left of a graph is unknown until its last part has come."""
    whole = graph_of(0, "", "0", "1")
    first = replace(
        whole, batch=whole.batch.cut(0, 2), ends=whole.ends[:8], uses=whole.uses[:8],
        dependencies=whole.dependencies[:4], wanted=whole.wanted[:2], is_last=False,
    )  # fmt: skip
    rest = replace(
        whole, start=2, batch=whole.batch.cut(2, 3), ends=whole.ends[4:8], uses=whole.uses[8:],
        dependencies=whole.dependencies[4:], wanted=whole.wanted[2:], options=(),
    )  # fmt: skip
    graph = GraphRecord(
        1, 0, function_id("g"), FunctionRecord(b""), Account(), Layers(Names(), "g")
    )
    graph.add(GraphPart(first), 0)
    told = watching(graph)
    before = told()
    graph.add(GraphPart(rest), 0)

    assert (before, told()) == ((2, None), (3, 3))


@pytest.mark.usefixtures("slowly")
def test_a_large_graph_takes_several_snapshots(one):
    """A snapshot says nothing of the longest path before all nodes were looked at."""
    one.graph(0, "", *map(str, range(9)))
    seen = []
    for ((chain, left),) in snapshots(one):
        seen.append((chain, left))
        if left is not None:
            break

    assert seen[0] == (None, None)
    assert seen[-1] == (10, 10)
    assert len(seen) > 5


@pytest.mark.usefixtures("slowly")
def test_graphs_share_the_steps_of_a_snapshot(one):
    """A second graph is looked at once a first one is known, and takes as long again."""
    for first in (0, 10):
        one.graph(first, "", *map(str, range(9)))
    rows = list(itertools.islice(snapshots(one), 40))
    before = [other for first, other in rows if first[1] is None]

    assert len(before) > 5
    assert before == [(None, None)] * len(before)
    assert [other for _, other in rows].index((10, 10)) >= 2 * len(before)


@pytest.mark.usefixtures("slowly")
def test_another_graph_does_not_wait_for_one_that_goes_on_failing(one):
    """A graph of which nothing is known is looked at before one that has to be looked at again."""
    nodes = 30
    one.graph(0, *[""] * nodes, wanted=" ".join(map(str, range(nodes))))
    told = snapshots(one)
    while next(told)[0][1] is None:
        pass
    one.graph(nodes, "", "0")
    for node in range(8):
        one.feed(b"C1", m.Cancel(nodes - 1 - node, 1))
        _, other = next(told)

    assert other == (2, 2)


def test_what_was_cancelled_is_not_left():
    """A cancelled node is not left, nor is what depends on it."""
    graph = made("", "0", "1", "", wanted="2 3")
    told = watching(graph)
    told()
    graph.nodes.end(1, None)

    assert told() == (3, 1)


def test_what_was_lost_is_left_again():
    """A node whose result was lost is left again, as it runs once more."""
    graph = made("", "0", "1")
    told = watching(graph)
    told()
    returned(graph, 0, 1)
    before = told()
    lose(graph.nodes, graph.topology, [1])

    assert (before, told()) == ((3, 1), (3, 3))


def test_a_node_is_looked_at_as_a_whole():
    """One look finishes the node that it began, however much that depends on, and then ends."""
    graph = made(*[""] * 30, " ".join(map(str, range(30))), "30")
    chain = CriticalPath()

    assert [chain.look(graph, 10) for _ in range(4)] == [10, 10, 10, 31]


# -- whatever happens --------------------------------------------------------------------------


@pytest.mark.slow
@given(data=st.data(), count=st.integers(1, 20), steps=st.integers(1, 30))
def test_it_is_what_a_look_at_all_paths_says(data, count, steps):
    """The length left is never too low, and in the end exactly that of all paths compared."""
    below = [
        data.draw(st.lists(st.integers(0, node - 1), max_size=3)) if node else []
        for node in range(count)
    ]
    used = {one for some in below for one in some}
    ends = [node for node in range(count) if node not in used]
    inputs = data.draw(st.integers(0, 2)) if count > 5 and not any(below[:2]) else 0
    ends = [node for node in ends if node >= inputs] or [count - 1]
    graph = made(
        *(" ".join(map(str, some)) for some in below), inputs=inputs,
        wanted=" ".join(map(str, ends)),
    )  # fmt: skip
    told = watching(graph, steps)
    for what in data.draw(st.lists(st.sampled_from("rrrrcl"), max_size=30)):
        nodes = range(inputs, count)
        if what == "r":
            some = [node for node in nodes if graph.nodes.states[node] == READY]
        elif what == "c":
            some = [node for node in nodes if graph.nodes.is_live(node)]
        else:
            some = [
                node
                for node in nodes
                if graph.nodes.states[node] == DONE and graph.nodes.uses[node]
            ]
        if not some:
            continue
        node = data.draw(st.sampled_from(some))
        if what == "r":
            returned(graph, node)
        elif what == "c":
            graph.nodes.end(node, None)
        else:
            lose(graph.nodes, graph.topology, [node])
        _, left = told()
        assert left is None or graph.nodes.losses or left >= longest(graph, live=True)
    for _ in range(500):
        now = told()

    assert now == (longest(graph, live=False), longest(graph, live=True))


# -- in a scheduler ----------------------------------------------------------------------------


def test_those_who_watch_are_told(one):
    """Each snapshot tells the longest path as it is at that time."""
    one.graph(0, "", "0", "0", "1 2")
    before = one.snapshot().graphs[0]
    one.done(0)
    after = one.snapshot().graphs[0]

    assert [(row.chain, row.chain_left) for row in (before, after)] == [(3, 3), (3, 2)]


@pytest.mark.usefixtures("slowly")
@pytest.mark.parametrize("topics", [(), (EVENTS,)])
def test_nothing_is_kept_while_nobody_looks(one, topics):
    """The longest path is worked out from the beginning for a watcher that comes later."""
    one.graph(0, "", "0", "1", "2")
    one.watch(*topics)
    one.wait(2.0)
    told = snapshots(one)
    first = [next(told) for _ in range(5)]
    one.watch(*topics)
    one.wait(2.0)
    told = snapshots(one)
    second = [next(told) for _ in range(5)]

    assert first[0] == [(None, None)]
    assert first[-1] == [(4, 4)]
    assert second == first

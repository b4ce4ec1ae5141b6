"""The longest paths of graphs, against what a look at all of their paths says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core import critical_path as module
from scaler_cluster.core.critical_path import CriticalPath, advance
from scaler_cluster.core.graph import DONE, READY, GraphRecord, Nodes
from scaler_cluster.ids import EVENTS, SNAPSHOT
from scaler_cluster.testing.bench import function_id, graph_of


def made(*nodes, inputs=0, wanted=""):
    """Return a graph whose nodes are given by the numbers they depend on."""
    graph = GraphRecord(1, 0, function_id("g"))
    graph.add(Nodes(graph_of(0, *nodes, wanted=wanted)), inputs)
    return graph


def longest(graph, *, live):
    """Return how many nodes are on the longest path, of all or of those that have not ended."""
    lengths: list[int] = []
    for node in range(len(graph.states)):
        counts = node >= graph.inputs and (not live or graph.is_live(node))
        below = [lengths[one] for one in graph.dependencies(node)]
        lengths.append(1 + max(below, default=0) if counts else 0)
    return max(lengths, default=0)


def told(graph):
    """Return what is known of a graph after another snapshot."""
    advance([graph])
    assert graph.chain is not None
    return graph.chain.longest(graph), graph.chain.left


@pytest.fixture
def slowly(monkeypatch):
    """Let three steps be done for each snapshot."""
    monkeypatch.setattr(module, "STEPS_MAX", 3)


def returned(graph, *nodes):
    for node in nodes:
        graph.returned(node, [b""])


# -- by example --------------------------------------------------------------------------------


def test_the_longest_path_counts():
    """Not the nodes beside it."""
    assert told(made("", "", "0 1", "2", "", "3 4")) == (4, 4)


def test_what_has_returned_is_no_longer_left():
    """As soon as the next snapshot is made."""
    graph = made("", "", "0 1", "2")
    told(graph)
    returned(graph, 0)
    first = told(graph)
    returned(graph, 1, 2)

    assert (first, told(graph)) == ((3, 3), (3, 1))


def test_inputs_are_no_nodes():
    """They are not run."""
    assert told(made("", "0", "1", inputs=1)) == (2, 2)


def test_nodes_that_depend_on_nothing_are_a_path_each():
    """Of one node."""
    assert told(made("", "", wanted="0 1")) == (1, 1)


def test_what_is_left_is_known_once_all_nodes_have_come():
    """What is still to come may follow on any."""
    whole = graph_of(0, "", "0", "1")
    first = replace(
        whole, batch=whole.batch.cut(0, 2), ends=whole.ends[:8], uses=whole.uses[:8],
        dependencies=whole.dependencies[:4], wanted=whole.wanted[:2], is_last=False,
    )  # fmt: skip
    rest = replace(
        whole, start=2, batch=whole.batch.cut(2, 3), ends=whole.ends[4:8], uses=whole.uses[8:],
        dependencies=whole.dependencies[4:], wanted=whole.wanted[2:], options=(),
    )  # fmt: skip
    graph = GraphRecord(1, 0, function_id("g"))
    graph.add(Nodes(first), 0)
    before = told(graph)
    graph.add(Nodes(rest), 0)

    assert (before, told(graph)) == ((2, None), (3, 3))


@pytest.mark.usefixtures("slowly")
def test_a_large_graph_takes_several_snapshots():
    """Nothing is said before it is known."""
    graph = made("", *map(str, range(9)))
    seen = [told(graph)]
    while seen[-1][1] is None:
        seen.append(told(graph))

    assert seen[0] == (None, None)
    assert seen[-1] == (10, 10)
    assert len(seen) > 5


@pytest.mark.usefixtures("slowly")
def test_another_graph_does_not_wait_for_one_that_goes_on_failing():
    """What nothing is known of goes first."""
    unsteady, other = made(*[""] * 50, wanted=" ".join(map(str, range(50)))), made("", "0")
    while told(unsteady)[1] is None:
        pass
    for node in range(49):
        unsteady.end(node, None)
        advance([unsteady, other])

    assert other.chain is not None
    assert other.chain.left == 2


def test_what_was_cancelled_is_not_left():
    """With what depends on it."""
    graph = made("", "0", "1", "", wanted="2 3")
    told(graph)
    graph.end(1, None)

    assert told(graph) == (3, 1)


def test_what_was_lost_is_left_again():
    """It is run once more."""
    graph = made("", "0", "1")
    told(graph)
    returned(graph, 0, 1)
    before = told(graph)
    graph.lose([1])

    assert (before, told(graph)) == ((3, 1), (3, 3))


def test_a_node_is_looked_at_as_a_whole():
    """However much it depends on; then it is enough for this snapshot."""
    graph = made(*[""] * 30, " ".join(map(str, range(30))), "30")
    chain = CriticalPath()

    assert [chain.look(graph, 10) for _ in range(4)] == [10, 10, 10, 31]


# -- whatever happens --------------------------------------------------------------------------


@given(data=st.data(), count=st.integers(1, 20), steps=st.integers(1, 30))
def test_it_is_what_a_look_at_all_paths_says(data, count, steps):
    """Never too low, and once nothing has failed since: exactly that."""
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STEPS_MAX", steps)
        for what in data.draw(st.lists(st.sampled_from("rrrrcl"), max_size=30)):
            nodes = range(inputs, count)
            if what == "r":
                some = [node for node in nodes if graph.states[node] == READY]
            elif what == "c":
                some = [node for node in nodes if graph.is_live(node)]
            else:
                some = [node for node in nodes if graph.states[node] == DONE and graph.uses[node]]
            if not some:
                continue
            node = data.draw(st.sampled_from(some))
            if what == "r":
                returned(graph, node)
            elif what == "c":
                graph.end(node, None)
            else:
                graph.lose([node])
            _, left = told(graph)
            assert left is None or graph.losses or left >= longest(graph, live=True)
        for _ in range(500):
            now = told(graph)

    assert now == (longest(graph, live=False), longest(graph, live=True))


# -- in a scheduler ----------------------------------------------------------------------------


def test_those_who_watch_are_told(one):
    """With each snapshot, as it is then."""
    one.graph(0, "", "0", "0", "1 2")
    before = one.snapshot().graphs[0]
    one.done(0)
    after = one.snapshot().graphs[0]

    assert [(row.chain, row.chain_left) for row in (before, after)] == [(3, 3), (3, 2)]


@pytest.mark.parametrize("topics", [(), (EVENTS,)])
def test_nothing_is_kept_while_nobody_looks(one, topics):
    """Neither before somebody takes snapshots, nor after."""
    one.graph(0, "", "0")
    (graph,) = one.core.table.sessions[b"C1"].graphs.values()
    one.watch(*topics)
    one.wait(5.0)
    assert graph.chain is None
    one.watch(SNAPSHOT)
    one.wait(1.0)
    assert graph.chain is not None
    one.watch(*topics)
    one.wait(5.0)

    assert graph.chain is None

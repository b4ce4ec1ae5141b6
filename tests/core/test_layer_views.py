"""What watchers are told of layers: rows and links, by name, and what events say of nodes."""

import pytest

from scaler_cluster.core.graph import layer_views
from scaler_cluster.core.scheduler import graph_rows
from scaler_cluster.ids import EVENTS
from scaler_cluster.testing.bench import graph_of, payloads_of
from scaler_cluster.wire import messages as m

BELOW = "", "", "0", "1", "2 3"
NAMES = "load load mean mean sum"


def ask(bench, first=0, nodes=BELOW, names=NAMES):
    """Let the client ask for a graph."""
    function = m.Function(graph_of(0, "").function, b"g", name="table")
    return bench.feed(b"C1", function, graph_of(first, *nodes, names=names))


def learn(bench):
    """Let a node end, so that it is known how short they are; then they come several at once."""
    ask(bench, 100, ("",), "warm")
    bench.feed(b"W1", m.Done(1, 100, 1e-6, payloads_of(100, 1)))


def rows_of(snapshot):
    """Return the layers of a snapshot, with waiting, ready, assigned and done of each."""
    return {row.name: (row.waiting, row.ready, row.assigned, row.done) for row in snapshot.layers}


def test_layers_and_their_links(one):
    """Each name has a row; links say which names wait for which."""
    ask(one)
    snapshot = one.snapshot()
    assert rows_of(snapshot).keys() == {"load", "mean", "sum"}
    assert sum(map(sum, rows_of(snapshot).values())) == 5
    assert [row.name for row in snapshot.graphs] == ["load, mean, sum"]
    assert [(row.source, row.target) for row in snapshot.links] == [
        ("load", "mean"), ("mean", "sum"),
    ]  # fmt: skip
    assert {row.name: row.submitted for row in snapshot.functions} == {
        "load": 2, "mean": 2, "sum": 1,
    }  # fmt: skip


def test_nodes_count_under_their_names(one):
    """The graph's function has no row of its own; what was counted outlives the graph."""
    learn(one)
    ask(one, nodes=("", "0", "1"), names="load mean mean")
    one.feed(b"W1", m.Done(1, 0, 0.6, payloads_of(0, 2)))
    during = one.snapshot()
    assert rows_of(during)["load"][3] == 1
    assert {row.name: (row.done, row.busy_s) for row in during.functions if row.name != "warm"} == {
        "load": (1, pytest.approx(0.3)), "mean": (1, pytest.approx(0.3)),
    }  # fmt: skip
    assert during.tasks.done == 3
    one.feed(b"W1", m.Erred(1, 2, 0.1, m.FAILED_EXCEPTION, b"", {}))
    after = one.snapshot()
    assert (after.graphs, after.layers, after.links) == ([], [], [])
    assert {row.name: (row.done, row.failed) for row in after.functions if row.name != "warm"} == {
        "load": (1, 0), "mean": (1, 1),
    }  # fmt: skip


def test_events_name_nodes_one_after_the_other(one):
    """Nodes that are reported together are told by name, each when it ended."""
    learn(one)
    one.watch(EVENTS)
    ask(one, nodes=("", "0", "1"), names="load mean mean")
    one.feed(b"W1", m.Done(1, 0, 0.6, payloads_of(0, 3)))
    one.wait(1.0)
    events = [event for batch in one.published for event in batch.events]
    done = [event for event in events if event.kind == "done"]
    assert [(one.first, one.count, one.function) for one in done] == [
        (0, 1, "load"), (1, 2, "mean"),
    ]  # fmt: skip
    assert [one.busy_s for one in done] == pytest.approx([0.2, 0.4])
    assert done[1].at - done[0].at == pytest.approx(0.4)


def test_large_graphs_are_counted_in_turn(one, monkeypatch):
    """One snapshot counts so many nodes; the others keep their last counts, and all come to it."""
    monkeypatch.setattr(layer_views, "NODES_MAX", 5)
    for first in (0, 10, 20):
        ask(one, first)
    assert [row.graph for row in one.snapshot().layers] == [0, 0, 0, 10, 10, 10, 20, 20, 20]
    looks = one.core.feed.monitor.looks.layers
    graphs = list(one.core.table.session_by_number[1].graphs.values())
    before = [looks.of(graph).counted for graph in graphs]
    for _ in range(3):
        one.snapshot()
    after = [looks.of(graph).counted for graph in graphs]
    assert len(set(after)) == len(graphs)
    assert all(new > old for new, old in zip(after, before, strict=True))


def test_rows_have_a_bound(one, monkeypatch):
    """A watcher is told how many rows were left out."""
    monkeypatch.setattr(graph_rows, "LAYERS_MAX", 4)
    ask(one)
    ask(one, 10)
    snapshot = one.snapshot()
    assert [row.graph for row in snapshot.layers] == [0, 0, 0]
    assert snapshot.left_out == {"layers": 3}


def test_links_are_bounded(one, monkeypatch):
    """A graph may have 255 names, each of which waits for all others."""
    monkeypatch.setattr(layer_views, "LINKS_MAX", 1)
    ask(one)
    assert [(row.source, row.target) for row in one.snapshot().links] == [("load", "mean")]


def test_nodes_are_found_by_name(one):
    """So an operator cancels what people see, and not the table of functions."""
    ask(one)
    (graph,) = one.core.table.session_by_number[1].graphs.values()
    assert graph.nodes_named("mean") == [(2, 4)]
    assert graph.nodes_named("table") == []

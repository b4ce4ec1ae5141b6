"""The part of a snapshot that tells of graphs: what became of their nodes, in all and by name."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.critical_path import CriticalPaths
from scaler_cluster.core.graph.layer_views import LayerViews
from scaler_cluster.core.graph.layers import STATES
from scaler_cluster.wire import feed

if TYPE_CHECKING:
    from scaler_cluster.core.graph.graph import GraphRecord
    from scaler_cluster.core.records import totals as t
    from scaler_cluster.core.scheduler.table import Table

GRAPHS_MAX = 1000
"""Graphs that are looked at: their nodes are counted, 100,000 in a fraction of a millisecond."""
LAYERS_MAX = LINKS_MAX = 5000
"""Rows of each table: a row takes 2 µs to make and to send."""


class GraphLooks:
    """What is worked out of graphs as long as snapshots are taken."""

    def __init__(self) -> None:
        self.paths = CriticalPaths()
        self.layers = LayerViews()

    def clear(self) -> None:
        """Nobody watches any more."""
        self.paths.clear()
        self.layers.clear()


def add_graphs(
    snapshot: feed.Snapshot,
    table: Table,
    looks: GraphLooks,
    functions: dict[int, tuple[str, t.Totals]],
    clients: dict[int, t.Totals],
    ended: t.Totals,
) -> int:
    """Add the graphs, and add to all totals what has become of their nodes so far.

    Returns how many nodes are run by tasks that wait for them; no worker's numbers include these.
    """
    handed_over = 0
    graphs = chain.from_iterable(one.graphs.values() for one in table.sessions.values())
    seen = list(islice(graphs, GRAPHS_MAX))
    looks.paths.advance(seen)
    looks.layers.advance(seen)
    for graph in seen:
        snapshot.graphs.append(_graph(graph, looks.paths))
        totals = graph.totals()
        # Its nodes were counted as submitted when they came.
        totals.submitted = 0
        clients[graph.session].add(totals)
        ended.add(totals)
        _add_layers(snapshot, graph, looks.layers, functions)
        handed_over += sum(map(graph.nodes.is_live, graph.handed_over))
    return handed_over


def _add_layers(
    snapshot: feed.Snapshot,
    graph: GraphRecord,
    views: LayerViews,
    functions: dict[int, tuple[str, t.Totals]],
) -> None:
    view, records = views.of(graph), graph.layers.records
    for layer, totals in graph.layers.totals(view.counts):
        if layer.nodes:
            functions[id(layer.totals)][1].add(totals)
    identity = graph.session, graph.first
    if len(snapshot.layers) + len(records) > LAYERS_MAX:
        snapshot.left_out["layers"] = snapshot.left_out.get("layers", 0) + len(records)
        return
    for layer, found in zip(records, view.counts, strict=True):
        row = feed.Layer(*identity, layer.name, *(found.get(state, 0) for state in STATES))
        row.busy_s = layer.total_s
        snapshot.layers.append(row)
    if len(snapshot.links) + len(view.links) > LINKS_MAX:
        snapshot.left_out["links"] = snapshot.left_out.get("links", 0) + len(view.links)
        return
    for source, target in view.links:
        names = records[source].name, records[target].name
        snapshot.links.append(feed.LayerLink(*identity, *names))


def _graph(graph: GraphRecord, paths: CriticalPaths) -> feed.Graph:
    inputs, states = graph.topology.inputs, graph.nodes.states
    states = states[inputs:] if inputs else states
    counts = [states.count(state) for state in STATES]
    is_whole = graph.topology.is_whole
    row = feed.Graph(graph.session, graph.first, graph.layers.label, len(states), is_whole, *counts)
    path = paths.of(graph)
    if path is not None:
        row.chain, row.chain_left = path.longest(graph), path.left
    return row

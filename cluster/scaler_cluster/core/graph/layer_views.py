"""What watchers are told of the layers of graphs: how many nodes are in which state, who waits.

It is worked out only while there are watchers, a part for each snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.core.graph.graph import GraphRecord

NODES_MAX = 50_000
"""Nodes whose states are counted for one snapshot, of all graphs together; one graph is counted
whole. That takes 5 ms."""
STEPS_MAX = 15_000
"""Nodes and dependencies that one snapshot looks at, of all graphs together, to see which layers
depend on which: as many as for the longest paths, and as fast."""
LINKS_MAX = 1000
"""Links of one graph: more cannot be drawn. The first ones are kept."""


@dataclass(slots=True)
class LayerView:
    """What is known of the layers of one graph."""

    counts: list[dict[int, int]] = field(default_factory=list)
    """How many nodes of each layer are in which state, as they were counted last."""
    links: dict[tuple[int, int], None] = field(default_factory=dict)
    """A layer that others depend on, and one that does; of the nodes that were looked at."""
    seen: int = 0
    """How many nodes were looked at for that."""
    counted: int = 0
    """The snapshot that counted them."""


class LayerViews:
    """The layers of the graphs that are watched, kept as long as the graphs live."""

    def __init__(self) -> None:
        self._views: WeakKeyDictionary[GraphRecord, LayerView] = WeakKeyDictionary()
        self._snapshots = 0

    def of(self, graph: GraphRecord) -> LayerView:
        """Return what is known of a graph that :meth:`advance` was given."""
        return self._views[graph]

    def clear(self) -> None:
        """Nobody watches any more."""
        self._views.clear()

    def advance(self, graphs: Iterable[GraphRecord]) -> None:
        """Go on with the layers of these graphs, as far as one snapshot may."""
        views = [(graph, self._views.setdefault(graph, LayerView())) for graph in graphs]
        self._snapshots += 1
        nodes = NODES_MAX
        # Those that were counted the longest ago come first; of new ones nothing is known.
        for graph, view in sorted(views, key=lambda item: item[1].counted):
            count = len(graph.nodes.states)
            if len(view.counts) == len(graph.layers.records) and count > nodes:
                continue
            view.counts = graph.layers.counts(graph.nodes.states, graph.topology.inputs)
            view.counted = self._snapshots
            nodes -= count
        steps = STEPS_MAX
        for graph, view in views:
            if steps > 0:
                steps -= _look(graph, view, steps)


def _look(graph: GraphRecord, view: LayerView, steps: int) -> int:
    """Look at what about ``steps`` more nodes and dependencies are linked to; return how many."""
    topology, layers = graph.topology, graph.layers
    count, used = len(graph.nodes.states), 0
    number_of, links, inputs = layers.number_of, view.links, topology.inputs
    node = view.seen
    while node < count and used < steps:
        below = topology.dependencies(node)
        to = number_of(node)
        if len(layers.records) > 1:
            for one in below:
                source = number_of(one)
                if source != to and one >= inputs and len(links) < LINKS_MAX:
                    links[source, to] = None
        used += 1 + len(below)
        node += 1
    view.seen = node
    return used

"""How long a graph must take at least, however many workers there are: its longest paths.

They are worked out only while there are watchers, a part for each snapshot. A node comes after the
nodes that it depends on: one pass forward says how many nodes are on the longest path to each node,
and one pass backward says how many nodes follow on it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scaler_cluster.core.graph.node_states import CANCELLED, FAILED, LIVE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.core.graph.graph import GraphRecord

STEPS_MAX = 15_000
"""Nodes and dependencies that one snapshot looks at, of all graphs together, and once more as many
to see which nodes have ended. The first takes up to 4 ms, the second 2 ms. So a graph of 100,000
nodes that depend on two nodes each is known after 40 snapshots. A node is looked at as a whole: one
with 100,000 dependencies takes 4 ms more.
"""
NONE = (1 << 32) - 1
"""In place of a node: no more of this height."""


class CriticalPaths:
    """The longest paths of the graphs that are watched, kept as long as the graphs live."""

    def __init__(self) -> None:
        self._paths: WeakKeyDictionary[GraphRecord, CriticalPath] = WeakKeyDictionary()

    def of(self, graph: GraphRecord) -> CriticalPath | None:
        """Return the longest paths of a graph; None: it has not been looked at."""
        return self._paths.get(graph)

    def clear(self) -> None:
        """Nobody watches any more."""
        self._paths.clear()

    def advance(self, graphs: Iterable[GraphRecord]) -> None:
        """Go on with the longest paths of these graphs, as far as one snapshot may."""
        paths = [(graph, self._paths.setdefault(graph, CriticalPath())) for graph in graphs]
        steps = STEPS_MAX
        # Graphs of which nothing is known come first: others may be looked at again and again.
        for graph, path in sorted(paths, key=lambda item: item[1].left is not None):
            if steps <= 0:
                break
            steps -= path.look(graph, steps)
        steps = STEPS_MAX
        for graph, path in paths:
            steps -= path.settle(graph, steps)


class CriticalPath:
    """The longest paths of one graph."""

    __slots__ = ("_depth", "_depths", "_known", "_next", "_seen")

    def __init__(self) -> None:
        self._depths = array("I")
        """How many nodes are on the longest path to each node, itself among them."""
        self._seen = 0
        """How many nodes were looked at for that."""
        self._depth = 0
        self._known: Heights | None = None
        self._next: Heights | None = None
        """The heights that are being worked out."""

    def longest(self, graph: GraphRecord) -> int | None:
        """Return how many nodes are on the longest path; None: not all were looked at."""
        return self._depth if self._seen == len(graph.nodes.states) else None

    @property
    def left(self) -> int | None:
        """How many nodes are on the longest path of nodes that have not ended; None: not known.

        The number may be too high for a while after nodes have failed or were cancelled.
        """
        return self._known.top if self._known is not None else None

    def look(self, graph: GraphRecord, steps: int) -> int:
        """Look at about ``steps`` more nodes and dependencies; return how many it were."""
        used = self._look_forward(graph, steps)
        if not graph.topology.is_whole or self._seen < len(graph.nodes.states):
            return used
        self._depths = array("I")
        if self._next is None and (
            self._known is None or self._known.ended != ended_otherwise(graph)
        ):
            self._next = Heights(graph, self._depth)
        if self._next is not None:
            used += self._next.look(graph, steps - used)
            if self._next.is_whole:
                self._known, self._next = self._next, None
        return used

    def settle(self, graph: GraphRecord, steps: int) -> int:
        """Take note of nodes that have ended; look at ``steps`` at most, and return how many."""
        return self._known.settle(graph, steps) if self._known is not None else 0

    def _look_forward(self, graph: GraphRecord, steps: int) -> int:
        depths, count, inputs = self._depths, len(graph.nodes.states), graph.topology.inputs
        depth_of, dependencies = depths.__getitem__, graph.topology.dependencies
        used, node = 0, self._seen
        while node < count and used < steps:
            below = dependencies(node)
            depth = 0
            if node >= inputs:
                depth = 1 + max(map(depth_of, below)) if below else 1
            depths.append(depth)
            used += 1 + len(below)
            node += 1
        self._depth = max(self._depth, max(depths[self._seen : node], default=0))
        self._seen = node
        return used


class Heights:
    """How many nodes are on the longest path from each node that has not ended, itself among them.

    Nodes of one height are kept as a list that runs from ``_heads`` through ``_before``. To see how
    much is left, only nodes need be looked at that have ended since.
    """

    __slots__ = ("_before", "_heads", "_heights", "_node", "_todo", "ended", "top")

    def __init__(self, graph: GraphRecord, depth: int) -> None:
        count = len(graph.nodes.states)
        self.ended = ended_otherwise(graph)
        """How much had ended without returning when this was begun."""
        self.top = 0
        """The height of the highest node that has not ended, as far as this was settled."""
        self._todo = count
        """Nodes before this one are still to be looked at."""
        self._heights = array("I", bytes(4 * count))
        self._heads = array("I", (NONE,)) * (depth + 1)
        self._before = array("I", bytes(4 * count))
        self._node = NONE
        """The next node to look at among the highest."""

    @property
    def is_whole(self) -> bool:
        """All nodes have been looked at."""
        return not self._todo

    def look(self, graph: GraphRecord, steps: int) -> int:
        """Look at about ``steps`` nodes and dependents; return how many it were."""
        heights, heads, before = self._heights, self._heads, self._before
        states = graph.nodes.states
        height_of, dependents = heights.__getitem__, graph.topology.dependents
        used, node, inputs = 0, self._todo, graph.topology.inputs
        while node > inputs and used < steps:
            node -= 1
            used += 1
            if states[node] in LIVE:
                above = dependents[node]
                height = 1 + max(map(height_of, above)) if above else 1
                heights[node] = height
                before[node], heads[height] = heads[height], node
                used += len(above)
        self.top = max(self.top, max(heights[node : self._todo], default=0))
        self._todo = node
        if node <= inputs:
            self._todo = 0
            self._heights = array("I")
            self._node = heads[self.top]
        return used

    def settle(self, graph: GraphRecord, steps: int) -> int:
        """Go down to a node that has not ended, past ``steps`` nodes at most."""
        heads, before, states = self._heads, self._before, graph.nodes.states
        used, top, node = 0, self.top, self._node
        while top and used < steps:
            if node == NONE:
                top -= 1
                node = heads[top]
            elif states[node] in LIVE:
                break
            else:
                node = before[node]
            used += 1
        self.top, self._node = top, node
        return used


def ended_otherwise(graph: GraphRecord) -> tuple[int, int]:
    """Return numbers that change when nodes end without returning, or are to be run once more."""
    return graph.nodes.states.count(FAILED) + graph.nodes.states.count(
        CANCELLED
    ), graph.nodes.losses

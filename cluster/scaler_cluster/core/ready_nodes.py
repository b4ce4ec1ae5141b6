"""Nodes of a graph that share their options: in the ready queue they have one place together."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from scaler_cluster.core.lifecycle import State

if TYPE_CHECKING:
    from scaler_cluster.core.graph import GraphRecord
    from scaler_cluster.wire.messages import TaskOptions


class ReadyNodes:
    """How many of them are ready, and which come first."""

    __slots__ = ("_heap", "count", "function", "graph", "options", "session")

    def __init__(self, graph: GraphRecord, options: TaskOptions) -> None:
        self.graph = graph
        self.session = graph.session
        self.function = graph.function
        self.options = options
        self.count = 0
        """Number of nodes that are ready."""
        self._heap: list[int] = []
        """Nodes that are not ready any more stay in it until they are its first."""

    @property
    def state(self) -> State:
        """READY if one of its nodes is."""
        return State.READY if self.count else State.WAITING

    def push(self, node: int) -> None:
        """A node is ready."""
        self.count += 1
        heappush(self._heap, node)

    def extend(self, nodes: list[int]) -> None:
        """Nodes are ready, in ascending order."""
        self.count += len(nodes)
        self._heap += nodes
        heapify(self._heap)

    def put_back(self, node: int) -> None:
        """A node that was popped is ready still."""
        heappush(self._heap, node)

    def pop(self) -> int:
        """Take the first node that is ready off the heap; -1: there is none.

        It is counted as long as it is ready.
        """
        states, heap = self.graph.states, self._heap
        while heap:
            node = heappop(heap)
            if states[node] == State.READY:
                return node
        return -1

    def nodes(self) -> list[int]:
        """Return the nodes that are ready."""
        states = self.graph.states
        return sorted({node for node in self._heap if states[node] == State.READY})

    def peek(self) -> int:
        """Return the first node that is ready, -1 if there is none."""
        node = self.pop()
        if node >= 0:
            heappush(self._heap, node)
        return node

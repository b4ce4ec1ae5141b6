"""Graphs that the tasks of a worker submitted, as long as something of them is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scaler_cluster.core.worker.subtasks import OwnGraph


class OwnGraphs:
    """Finds the graph that a task is a node of."""

    def __init__(self) -> None:
        self._by_node: dict[int, OwnGraph] = {}
        """By the nodes that are waited for and have not come back."""
        self._by_first: dict[int, OwnGraph] = {}

    @property
    def is_empty(self) -> bool:
        """Return True if nothing of any graph is waited for."""
        return not (self._by_node or self._by_first)

    def add(self, graph: OwnGraph, nodes: Iterable[int]) -> None:
        """Take in a graph of which these nodes are waited for."""
        for node in nodes:
            self._by_node[node] = graph
            graph.pending += 1
        if graph.pending:
            self._by_first[graph.first] = graph

    def of(self, task: int) -> OwnGraph | None:
        """Return the graph of a node that is waited for."""
        return self._by_node.get(task)

    def beginning_at(self, first: int) -> OwnGraph | None:
        """Return the graph with this first node, if something of it is waited for."""
        return self._by_first.get(first)

    def has_any(self, first: int, stop: int) -> bool:
        """Return True if one of these tasks is a node that is waited for."""
        return not self._by_node.keys().isdisjoint(range(first, stop))

    def drop(self, task: int) -> OwnGraph | None:
        """A node is not waited for any more; return its graph, None if there is none."""
        graph = self._by_node.pop(task, None)
        if graph is not None:
            graph.pending -= 1
            if not graph.pending:
                del self._by_first[graph.first]
        return graph

    def with_needs(self, tasks: Iterable[int], is_pending: Callable[[int], bool]) -> list[int]:
        """Return tasks, each after those that it takes the results of and that are pending."""
        found: dict[int, None] = {}
        opened: dict[int, None] = {}
        stack = list(tasks)
        stack.reverse()
        while stack:
            task = stack[-1]
            graph = self._by_node.get(task)
            if graph is None or task in opened:
                found[stack.pop()] = None
                continue
            opened[task] = None
            stack += [one for one in reversed(graph.inputs) if is_pending(one)]
        return list(found)

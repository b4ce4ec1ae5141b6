"""The layers of a graph: its nodes by name, and what is counted of each name.

A node has one byte for that. Where the nodes of a layer stand is only counted when somebody wants
to know, or when the graph is over.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.node_states import (
    ASSIGNED,
    CANCELLED,
    DONE,
    FAILED,
    READY,
    WAITING,
)
from scaler_cluster.core.records.credit import measure
from scaler_cluster.core.records.functions import LayerRecord
from scaler_cluster.core.records.totals import Totals
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import FUNCTION_NAME_CHARS_MAX, LAYERS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scaler_cluster.core.graph.topology import GraphPart
    from scaler_cluster.core.records.totals import Names

STATES = (WAITING, READY, ASSIGNED, DONE, FAILED, CANCELLED)

LABELLED_MAX = 4
"""Layers of a graph that stand in its name."""


class Layers:
    """The layers of one graph."""

    __slots__ = ("_default", "_names", "_of", "count", "records")

    def __init__(self, names: Names, default: str) -> None:
        self._names = names
        self._default = default
        """The name of the nodes if the client gives them none."""
        self.records: list[LayerRecord] = []
        self._of = bytearray()
        """Which of the records each node has; empty as long as all have the first."""
        self.count = 0
        """Number of nodes, inputs included."""

    @property
    def label(self) -> str:
        """What the graph is called: the names of some of its layers."""
        names = [layer.name for layer in self.records[:LABELLED_MAX]] or [self._default]
        more = ", ..." if len(self.records) > LABELLED_MAX else ""
        return ", ".join(names)[: FUNCTION_NAME_CHARS_MAX - len(more)] + more

    def check(self, part: GraphPart) -> None:
        """Raise RemoteProtocolError if the nodes of a part have no names, or too many."""
        known = len(self.records) + len(part.names)
        if known > LAYERS_MAX:
            raise RemoteProtocolError("a graph whose nodes have too many names")
        if any(len(name) > FUNCTION_NAME_CHARS_MAX for name in part.names):
            raise RemoteProtocolError("a graph in which a name is too long")
        if part.layers and max(part.layers) >= max(known, 1):
            raise RemoteProtocolError("a graph whose nodes have no names")

    def add(self, part: GraphPart, inputs: int) -> None:
        """Take the nodes of a part in, of which the first ``inputs`` are not to be run."""
        records = self.records
        names = part.names or (() if records else (self._default,))
        records += [LayerRecord(name, self._names.enter(name)) for name in names]
        count = len(part.ends)
        if part.layers and not self._of:
            self._of += bytes(self.count)
        if self._of or part.layers:
            self._of += part.layers or bytes(count)
        start, self.count = self.count, self.count + count
        for layer, nodes in self.shares(start + inputs, self.count):
            layer.nodes += nodes
            layer.totals.submitted += nodes

    def of(self, node: int) -> LayerRecord:
        """Return the layer of a node."""
        return self.records[self._of[node] if self._of else 0]

    def number_of(self, node: int) -> int:
        """Return which of the records a node has."""
        return self._of[node] if self._of else 0

    def shares(self, first: int, stop: int) -> Sequence[tuple[LayerRecord, int]]:
        """Return the layers of contiguous nodes, and how many of the nodes each has."""
        if first >= stop:
            return ()
        of, count = self._of, stop - first
        if not of or count == 1 or of.count(of[first], first, stop) == count:
            return ((self.of(first), count),)
        return [(self.records[one], many) for one, many in Counter(of[first:stop]).items()]

    def stretches(self, first: int, stop: int) -> Iterator[tuple[int, int, str]]:
        """Yield first, stop and name of contiguous nodes that share their name."""
        while first < stop:
            low, first = first, first + 1
            number = self.number_of(low)
            while first < stop and self.number_of(first) == number:
                first += 1
            yield low, first, self.records[number].name

    def measured(self, first: int, count: int, busy_s: float) -> None:
        """Contiguous nodes took so long together; those of several layers share it by number."""
        for layer, nodes in self.shares(first, first + count):
            share_s = busy_s * nodes / count
            layer.total_s += share_s
            measure(layer, nodes, share_s)

    def counts(self, states: bytearray, inputs: int) -> list[dict[int, int]]:
        """Return for each layer how many of its nodes are in each state; inputs do not count.

        Nodes are looked at one by one if there are several layers: 100,000 take 10 ms.
        """
        counts: list[dict[int, int]] = [{} for _ in self.records]
        if not self._of:
            for one in counts[:1]:
                one.update((state, states.count(state, inputs)) for state in STATES)
            return counts
        # A number of 16 bits for each node: its layer and its state.
        pairs = bytearray(2 * (len(states) - inputs))
        pairs[::2], pairs[1::2] = states[inputs:], self._of[inputs:]
        for pair, count in Counter(memoryview(pairs).cast("H")).items():
            state, layer = pair.to_bytes(2, sys.byteorder)
            counts[layer][state] = count
        return counts

    def end(self, states: bytearray, inputs: int) -> None:
        """The graph is over, or given up: count what became of its nodes."""
        if states.count(DONE, inputs) == len(states) - inputs:
            counts: list[dict[int, int]] = [{DONE: layer.nodes} for layer in self.records]
        else:
            counts = self.counts(states, inputs)
        for layer, found in zip(self.records, counts, strict=True):
            done, failed = found.get(DONE, 0), found.get(FAILED, 0)
            layer.totals.add(Totals(0, done, failed, layer.nodes - done - failed))
            layer.totals.users -= 1

    def totals(self, counts: Sequence[dict[int, int]]) -> Iterator[tuple[LayerRecord, Totals]]:
        """Yield each layer, and what became of its nodes as these counts say."""
        for layer, found in zip(self.records, counts, strict=True):
            yield layer, Totals(0, *(found.get(one, 0) for one in (DONE, FAILED, CANCELLED)))

"""How the nodes of a graph hang together, as the client said: nothing of it changes later."""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from scaler_cluster.wire import messages as m
    from scaler_cluster.wire.batch import Batch


class GraphPart:
    """What a Graph message says of its nodes, checked."""

    __slots__ = (
        "batch", "dependencies", "ends", "is_last", "kinds", "layers", "names", "options", "owned",
        "start", "uses", "wanted",
    )  # fmt: skip

    def __init__(self, message: m.Graph) -> None:
        self.start = message.start
        self.batch = message.batch
        self.ends = numbers(message.ends)
        self.dependencies = numbers(message.dependencies)
        self.uses = numbers(message.uses)
        self.wanted = bytes(message.wanted)
        self.is_last = message.is_last
        self.options = message.options
        self.kinds = numbers(message.kinds)
        self.names = message.names
        self.layers = bytes(message.layers)
        owners = numbers(message.owners)
        count = len(message.batch)
        if not count == len(self.ends) == len(self.uses) == len(self.wanted):
            raise RemoteProtocolError("a graph whose parts are of different lengths")
        if self.wanted.strip(b"\0\1") or any(map(operator.lt, self.uses, self.wanted)):
            raise RemoteProtocolError("a graph in which a node is wanted and of no use")
        if self.kinds and len(self.kinds) != count:
            raise RemoteProtocolError("a graph in which some nodes have no options")
        if self.layers and len(self.layers) != count:
            raise RemoteProtocolError("a graph in which some nodes have no names")
        if len(owners) != len(message.objects):
            raise RemoteProtocolError("objects of a graph that belong to no node")
        self.owned: dict[int, tuple[bytes, ...]] = {}
        for owner, one in zip(owners, message.objects, strict=True):
            self.owned[owner] = (*self.owned.get(owner, ()), one)


class Topology:
    """Which nodes each node depends on, and what each node carries."""

    __slots__ = (
        "_declared", "_starts", "batches", "dependents", "ends", "flat", "inputs", "is_whole",
        "kinds", "kinds_count", "owned",
    )  # fmt: skip

    def __init__(self) -> None:
        self.inputs = 0
        """Number of its first nodes, which are not run."""
        self.is_whole = False
        """True once the last part of the graph has come."""
        self.flat: list[int] = []
        """The dependencies of all nodes, one node after the other."""
        self.ends: list[int] = [0]
        """Where the dependencies of each node begin in ``flat``; at last, where they all end."""
        self.dependents: list[list[int]] = []
        """The nodes that depend on each node, of all that have come."""
        self.kinds = array("I")
        """Which options each node has; empty as long as all nodes have the first."""
        self.kinds_count = 0
        """Number of different options."""
        self.owned: dict[int, tuple[bytes, ...]] = {}
        """Ids of the objects that the payloads of nodes refer to."""
        self._declared: list[int] = []
        """How many nodes depend on each, in all that is still to come as well."""
        self.batches: list[Batch] = []
        """The payloads of nodes."""
        self._starts: list[int] = []
        """The first node of each batch."""

    @property
    def count(self) -> int:
        """Number of nodes that have come."""
        return len(self.dependents)

    def dependencies(self, node: int) -> list[int]:
        """Return the nodes that a node depends on."""
        return self.flat[self.ends[node] : self.ends[node + 1]]

    def batch_of(self, node: int) -> tuple[int, Batch]:
        """Return the batch that has the payload of a node, and the first node of that batch."""
        index = bisect_right(self._starts, node) - 1
        return self._starts[index], self.batches[index]

    def add(self, part: GraphPart, inputs: int) -> None:
        """Take a part in, of which the first ``inputs`` nodes are not to be run.

        Raises RemoteProtocolError if it is not what may come next; the graph is of no use then.
        """
        start, count, flat = self.count, len(part.ends), part.dependencies
        if part.start != start or self.is_whole or (inputs and start):
            raise RemoteProtocolError("a part of a graph out of turn")
        low = 0
        for high in part.ends:
            if not low <= high <= len(flat):
                raise RemoteProtocolError("dependencies of a graph out of bounds")
            low = high
        self._add_kinds(part, count)
        self.inputs = self.inputs or inputs
        self.is_whole = part.is_last
        self.owned.update(part.owned)
        self._starts.append(start)
        self.batches.append(part.batch)
        offset = len(self.flat)
        self.flat += flat
        self.ends += [offset + end for end in part.ends]
        dependents, declared = self.dependents, self._declared
        declared += map(operator.sub, part.uses, part.wanted)
        dependents += [[] for _ in range(count)]
        low = 0
        for node, high in enumerate(part.ends, start):
            for one in flat[low:high]:
                if one >= node:
                    raise RemoteProtocolError("a node that depends on a later one")
                above = dependents[one]
                above.append(node)
                if len(above) > declared[one]:
                    raise RemoteProtocolError("a node that more depend on than was said")
            low = high

    def _add_kinds(self, part: GraphPart, count: int) -> None:
        known = self.kinds_count + len(part.options)
        if not known or any(kind >= known for kind in part.kinds):
            raise RemoteProtocolError("a graph whose nodes have no options")
        self.kinds_count = known
        if part.kinds and not self.kinds:
            self.kinds.frombytes(bytes(4 * self.count))
        if self.kinds or part.kinds:
            self.kinds.extend(part.kinds or [0] * count)

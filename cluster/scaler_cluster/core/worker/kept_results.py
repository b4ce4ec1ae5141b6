"""What the nodes of graphs returned on a worker, as long as nodes there or elsewhere need it."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.wire import messages as m
    from scaler_cluster.wire.batch import Buffer


class Pickled(NamedTuple):
    """What a node returned, of which each node that needs it gets its own copy."""

    payload: Buffer
    segments: tuple[bytes, ...]


class KeptResults:
    """What nodes of one graph returned on this worker, until the scheduler has it dropped."""

    __slots__ = ("alone", "uses", "values")

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        """The values themselves, by node, or :class:`Pickled`."""
        self.alone: dict[int, int] = {}
        """Nodes whose results nobody else has, with their bytes; 0 if they cannot be sent."""
        self.uses: dict[int, int] = {}
        """How many nodes still need each of those that are large."""

    def used(self, nodes: Iterable[int]) -> None:
        """A node returned that took these results: drop those that no other node needs."""
        for node in nodes:
            left = self.uses.get(node, 0) - 1
            if left > 0:
                self.uses[node] = left
            elif not left:
                self.drop(node)

    def drop(self, node: int) -> None:
        """Forget a result."""
        self.values.pop(node, None)
        self.alone.pop(node, None)
        self.uses.pop(node, None)


LOOKS = 16
"""How often it is added up what is kept, while so much is kept as may be."""


class KeptGraphs:
    """The results that a worker keeps, and those of them that it is to send."""

    def __init__(self) -> None:
        self.limit_bytes = math.inf
        """What nobody else has may take so much; the rest is written out."""
        self._added = 0
        """Bytes that were added since it was last added up."""
        self._excess = 0.0
        """Bytes that are still to be written out."""
        self.graphs: dict[tuple[int, int], KeptResults] = {}
        """By session and graph."""
        self.to_share: deque[tuple[int, int, int]] = deque()
        """Session, graph and node of each result that the shell is to send."""

    def of(self, session: int, graph: int) -> KeptResults:
        """Return those of one graph."""
        kept = self.graphs.get((session, graph))
        if kept is None:
            kept = self.graphs[session, graph] = KeptResults()
        return kept

    def drop(self, message: m.DropResults) -> None:
        """No node needs these any more."""
        kept = self.graphs.get((message.session, message.graph))
        if kept is not None:
            for node in numbers(message.nodes):
                kept.drop(node)

    def add(self, nbytes: int) -> bool:
        """A result was kept; return True if some may have to be written out."""
        self._added += nbytes
        return self._added * LOOKS >= self.limit_bytes

    def take_excess(self) -> tuple[int, int, Any] | None:
        """Return session, task and value of a result to be written out; None: there is no need.

        The oldest come first: branches come one after the other, so these are needed last.
        """
        if self._added * LOOKS >= self.limit_bytes:
            self._added = 0
            total = sum(sum(list(kept.alone.values())) for kept in self.graphs.values())
            self._excess = total - self.limit_bytes
        if self._excess > 0:
            for (session, graph), kept in self.graphs.items():
                for node, nbytes in list(kept.alone.items()):
                    if nbytes and kept.alone.pop(node, 0) and node in kept.values:
                        self._excess -= nbytes
                        return session, graph + node, kept.values[node]
        self._excess = 0.0
        return None

    def written_out(self, session: int, task: int, pickled: Pickled) -> None:
        """A result is where others find it: from now on it is taken from there here as well."""
        for (owner, graph), kept in self.graphs.items():
            if owner == session and task - graph in kept.values:
                kept.values[task - graph] = pickled

    def ask(self, message: m.Share) -> None:
        """Workers elsewhere need these."""
        nodes = numbers(message.nodes)
        self.to_share += [(message.session, message.graph, node) for node in nodes]

    def end(self, session: int, graph: int) -> None:
        """A graph is over."""
        kept = self.graphs.pop((session, graph), None)
        if kept is not None:
            # Whoever ran the last node may still know them.
            kept.values.clear()
            kept.alone.clear()
            kept.uses.clear()

    def put_back(self, session: int, task: int) -> None:
        """A result cannot be sent; it stays here, and may be asked for again."""
        for (owner, graph), kept in self.graphs.items():
            if owner == session and task - graph in kept.values:
                kept.alone[task - graph] = 0

    def ask_for_all(self) -> None:
        """The worker is about to leave: what nobody else has would be lost."""
        for (session, graph), kept in self.graphs.items():
            self.to_share += [(session, graph, node) for node in list(kept.alone)]

    def take_to_share(self) -> tuple[int, int, Any] | None:
        """Return session, task and value of a result that is to be sent; None: there is none.

        The value is None if it is not here.
        """
        if not self.to_share:
            return None
        session, graph, node = self.to_share.popleft()
        kept = self.graphs.get((session, graph))
        if kept is None or node not in kept.alone:
            return session, graph + node, None
        del kept.alone[node]
        return session, graph + node, kept.values[node]

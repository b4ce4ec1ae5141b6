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

    __slots__ = ("alone", "copies", "uses", "values")

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        """The values themselves, by node, or :class:`Pickled`."""
        self.alone: dict[int, int] = {}
        """Nodes whose results nobody else has, with their bytes; 0 if they cannot be sent."""
        self.copies: dict[int, tuple[int, Pickled]] = {}
        """Nodes whose large results were sent as well: their bytes, and what was sent."""
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
        self.copies.pop(node, None)
        self.uses.pop(node, None)

    @property
    def nbytes(self) -> int:
        """Bytes of all large results that live here."""
        # Lists, as the task loop goes on meanwhile.
        return sum(list(self.alone.values())) + sum(size for size, _ in list(self.copies.values()))


LOOKS = 16
"""How often it is added up what is kept, while as much is added as may be kept."""


class KeptGraphs:
    """The results that a worker keeps, and those of them that it is to send."""

    def __init__(self) -> None:
        self.limit_bytes = math.inf
        """What may live here at most; the rest is written out."""
        self.is_due = False
        """True if it is time for :meth:`room_wanted`."""
        self._room = 0
        """Bytes that the machine has given this worker room for."""
        self._total = 0
        """Bytes that lived here when they were added up last."""
        self._added = 0
        """Bytes that were added since."""
        self._excess = 0
        """Bytes that are still to be written out."""
        self.graphs: dict[tuple[int, int], KeptResults] = {}
        """By session and graph."""
        self.to_share: deque[tuple[int, int, int]] = deque()
        """Session, graph and node of each result that the shell is to send."""
        self._writing: dict[tuple[int, int], bool] = {}
        """Session and task of each result that is being written out, True if it was asked for."""

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
            self._may_give_room_back()

    def add(self, nbytes: int) -> None:
        """A large result lives here from now on."""
        self._added += nbytes
        # Where there is no more room, not for each result anew.
        ahead = max(self._room - self._total, self.limit_bytes / LOOKS)
        if self._added > ahead:
            self.is_due = True

    def _may_give_room_back(self) -> None:
        self.is_due = self.is_due or self._room > 0

    def room_wanted(self) -> int:
        """Add up what lives here; return how much the machine should have room for."""
        self.is_due = False
        self._added = 0
        self._total = sum(kept.nbytes for kept in self.graphs.values())
        if not self._total:
            return 0
        return int(min(self._total + self.limit_bytes / LOOKS, self.limit_bytes))

    def have_room(self, nbytes: int) -> None:
        """The machine has so much room for what lives here."""
        self._room = nbytes
        self._excess = self._total - nbytes

    def take_excess(self) -> tuple[int, int, Any] | None:
        """Return session, task and value of a result to be written out; None: there is no need.

        The oldest come first: branches come one after the other, so these are needed last. What
        others have as well is only forgotten.
        """
        if self._excess <= 0:
            return None
        self._forget_copies()
        for (session, graph), kept in self.graphs.items():
            for node, nbytes in list(kept.alone.items()):
                if self._excess <= 0:
                    return None
                if nbytes and kept.alone.pop(node, 0) and node in kept.values:
                    self._excess -= nbytes
                    self._writing[session, graph + node] = False
                    return session, graph + node, kept.values[node]
        self._excess = 0
        return None

    def _forget_copies(self) -> None:
        """Take what others have as well from where they find it, until there is no excess."""
        for kept in self.graphs.values():
            for node, (nbytes, pickled) in list(kept.copies.items()):
                # The task loop may have dropped it meanwhile.
                if self._excess > 0 and kept.copies.pop(node, None) is not None:
                    kept.values[node] = pickled
                    self._excess -= nbytes

    def sent(self, session: int, task: int, pickled: Pickled, nbytes: int) -> None:
        """A result is where others find it; it lives here as well."""
        kept = self._keeping(session, task)
        if kept is not None:
            kept[0].copies[kept[1]] = nbytes, pickled

    def written_out(self, session: int, task: int, pickled: Pickled) -> None:
        """A result is where others find it: from now on it is taken from there here as well."""
        self._writing.pop((session, task), None)
        kept = self._keeping(session, task)
        if kept is not None:
            kept[0].values[kept[1]] = pickled

    def _keeping(self, session: int, task: int) -> tuple[KeptResults, int] | None:
        """Return the results to which that of a task belongs, and its node, if it lives here."""
        for (owner, graph), kept in self.graphs.items():
            if owner == session and task - graph in kept.values:
                return kept, task - graph
        return None

    @property
    def has_requests(self) -> bool:
        """Return True if the shell is to send results, or to look whether there is room."""
        return self.is_due or bool(self.to_share)

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
            kept.copies.clear()
            kept.uses.clear()
            self._may_give_room_back()

    def put_back(self, session: int, task: int) -> None:
        """A result cannot be sent; it stays here, and may be asked for again."""
        is_asked_for = self._writing.pop((session, task), False)
        kept = self._keeping(session, task)
        if kept is not None:
            kept[0].alone[kept[1]] = 0
            if is_asked_for:
                self.to_share.append((session, task - kept[1], kept[1]))

    def ask_for_all(self) -> None:
        """The worker is about to leave: what nobody else has would be lost."""
        for (session, graph), kept in self.graphs.items():
            self.to_share += [(session, graph, node) for node in list(kept.alone)]

    def take_to_share(self) -> tuple[int, int, Any] | None:
        """Return session, task and value of a result that is to be sent; None: there is none.

        The value is None if it is not here.
        """
        while self.to_share:
            session, graph, node = self.to_share.popleft()
            if (session, graph + node) in self._writing:
                # It will be sent.
                self._writing[session, graph + node] = True
                continue
            kept = self.graphs.get((session, graph))
            if kept is None or node not in kept.alone:
                return session, graph + node, None
            del kept.alone[node]
            return session, graph + node, kept.values[node]
        return None

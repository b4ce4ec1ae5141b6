"""The ready nodes of a graph that share their options: they have one place in the ready queue.

A node is *bound* to a worker if that worker alone has some of what the node needs, and *free* if
any worker can be sent all of it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from scaler_cluster.core.records.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.core.records.accounts import Account
    from scaler_cluster.wire.messages import TaskOptions

LOOK_BACK = 8
"""Entries of a heap looked at for a node that is to move to another worker."""


class ReadyNodes:
    """How many of the nodes are ready, and which come first."""

    __slots__ = (
        "_free", "_states", "account", "bound", "count", "function", "graph", "homes", "options",
        "session",
    )  # fmt: skip

    def __init__(
        self,
        session: int,
        graph: int,
        function: bytes,
        account: Account,
        options: TaskOptions,
        states: bytearray,
    ) -> None:
        self.session = session
        self.graph = graph
        """First task of the graph."""
        self.function = function
        self.account = account
        self.options = options
        self.count = 0
        """Number of nodes that are ready."""
        self.homes: dict[int, bytes] = {}
        """The worker of each ready node that is bound, by its peer id."""
        self.bound: dict[bytes, list[int]] = {}
        """Heaps of the nodes that are bound to each worker; entries may be out of date."""
        self._states = states
        """The states of all nodes of the graph; the graph changes them."""
        self._free: list[int] = []
        """A heap of the other nodes. An entry stays in it until it is the first, though it may be
        out of date long before."""

    @property
    def state(self) -> State:
        """READY if one of its nodes is."""
        return State.READY if self.count else State.WAITING

    def push(self, node: int) -> None:
        """A node is ready, and free."""
        self.count += 1
        heappush(self._free, node)

    def extend(self, nodes: list[int]) -> None:
        """Nodes are ready, and free, in ascending order."""
        self.count += len(nodes)
        self._free += nodes
        heapify(self._free)

    def bind(self, node: int, peer: bytes) -> None:
        """A node is ready, and bound to a worker."""
        self.count += 1
        self.homes[node] = peer
        heappush(self.bound.setdefault(peer, []), node)

    def put_back(self, node: int) -> None:
        """A free node that was popped is ready still."""
        heappush(self._free, node)

    def leave(self, node: int) -> None:
        """A node is not ready any more."""
        self.count -= 1
        self.homes.pop(node, None)

    def leave_all(self, first: int, stop: int) -> None:
        """The ready ones of these nodes are not any more; their states are still to change."""
        self.count -= self._states.count(State.READY, first, stop)
        if self.homes:
            for node in range(first, stop):
                self.homes.pop(node, None)

    def pop(self) -> int:
        """Take the first free node off its heap; -1: there is none.

        It is counted as long as it is ready.
        """
        states, heap, homes = self._states, self._free, self.homes
        while heap:
            node = heappop(heap)
            if states[node] == State.READY and node not in homes:
                return node
        return -1

    def peek(self) -> int:
        """Return the first free node, -1 if there is none."""
        node = self.pop()
        if node >= 0:
            heappush(self._free, node)
        return node

    def pop_bound(self, peer: bytes) -> int:
        """Take the first node off its heap that is bound to a worker; -1: there is none."""
        heap = self.bound.get(peer, ())
        while heap:
            node = heappop(heap)
            if self._is_bound(node, peer):
                return node
        self.bound.pop(peer, None)
        return -1

    def late_bound(self, peer: bytes) -> int:
        """Return one of the nodes bound to a worker that it would run late; -1: there is none."""
        heap = self.bound.get(peer, ())
        for node in heap[: -LOOK_BACK - 1 : -1]:
            if self._is_bound(node, peer):
                return node
        node = self.pop_bound(peer)
        if node >= 0:
            heappush(self.bound.setdefault(peer, []), node)
        return node

    def bound_to(self, peer: bytes) -> Iterator[int]:
        """Yield the nodes that are bound to a worker, in no promised order."""
        found = (node for node in self.bound.get(peer, ()) if self._is_bound(node, peer))
        return iter(dict.fromkeys(found))

    def _is_bound(self, node: int, peer: bytes) -> bool:
        return self._states[node] == State.READY and self.homes.get(node) == peer

    def nodes(self) -> list[int]:
        """Return the nodes that are ready."""
        states = self._states
        free = {node for node in self._free if states[node] == State.READY}
        return sorted(free.union(self.homes))

"""Where each node of a graph stands: which nodes wait or are ready, which results are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from scaler_cluster.core.graph.ready_nodes import ReadyNodes
from scaler_cluster.core.records.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scaler_cluster.core.graph.topology import GraphPart, Topology
    from scaler_cluster.core.records.accounts import Account
    from scaler_cluster.wire import messages as m
    from scaler_cluster.wire.batch import Buffer

Result: TypeAlias = tuple[bytes, tuple[bytes, ...]]
"""What a node returned: its payload and the segments of its large buffers."""

WAITING, READY, ASSIGNED = int(State.WAITING), int(State.READY), int(State.ASSIGNED)
DONE, FAILED, CANCELLED = int(State.DONE), int(State.FAILED), int(State.CANCELLED)
LIVE = (WAITING, READY, ASSIGNED)


class NodeStates:
    """The states of the nodes, and the moves that keep all that is counted in step.

    Methods that end nodes leave it to the caller to tell the client. They set aside for it:
    ``ended`` (nodes that the client wanted, with the failure that ended them; None: they were
    cancelled), ``stopped`` (nodes that a worker is to stop), ``dropped`` (segments that nobody
    needs any more), ``outdated`` (nodes whose results nobody needs any more), ``to_share`` (nodes
    whose results their workers are to send) and ``unplaced`` (nodes that lack nothing but a place).
    """

    def __init__(
        self, session: int, first: int, function: bytes, account: Account, topology: Topology
    ) -> None:
        self._topology = topology
        self._session, self._first = session, first
        self._function, self._account = function, account
        self.states = bytearray()
        self.groups: list[ReadyNodes] = []
        """The ready nodes, by their options."""
        self._touched: dict[ReadyNodes, None] | None = None
        """Groups whose ready nodes have changed; None: all nodes are in the first group."""
        self.open = 0
        """Number of nodes that no worker has, and that have not ended."""
        self.live = 0
        """Number of nodes that have not ended."""
        self.missing: list[int] = []
        """How many dependencies of each node have not returned, or are being sent for it; one more
        while a worker is still to stop it."""
        self.uses: list[int] = []
        """How many nodes that have not ended need each; one more while the client waits for it."""
        self.wanted = bytearray()
        """1 for each node that the client waits for."""
        self.results: dict[int, Result] = {}
        """What was returned and sent, as long as a node needs it that has not ended. What inputs
        brought stays: nodes that need it may have to run again."""
        self.kept: dict[int, int] = {}
        """What was returned and only the worker has that ran the node, likewise: how many bytes."""
        self.sharing: dict[int, list[int]] = {}
        """What workers were asked to send, each with the nodes that wait for it."""
        self.ended: list[tuple[int, m.Failed | None]] = []
        self.stopped: list[int] = []
        self.dropped: list[bytes] = []
        self.outdated: list[int] = []
        self.to_share: list[int] = []
        self.unplaced: list[int] = []
        self.stopping: dict[int, None] = {}
        """Nodes that ended while a worker had them, which has not stopped them yet."""
        self.lost_input: dict[int, None] = {}
        """Nodes that lost something they need while a worker had them."""
        self.losses = 0
        """How often nodes had to be run again because what they returned was lost."""
        self._failures: dict[int, m.Failed] = {}
        """Why nodes failed, as long as nodes may come that depend on them."""

    @property
    def ready(self) -> int:
        """Number of nodes that are ready."""
        return sum(group.count for group in self.groups)

    def is_live(self, node: int) -> bool:
        """Return True for a node that has not ended."""
        return self.states[node] in LIVE

    def is_ready(self, node: int) -> bool:
        """Return True if a node waits for nothing; False if it has not come."""
        return node < len(self.states) and self.states[node] == READY

    def group_of(self, node: int) -> ReadyNodes:
        """Return the ready nodes that share their options with this node."""
        kinds = self._topology.kinds
        return self.groups[kinds[node]] if kinds else self.groups[0]

    def take_touched(self) -> Iterable[ReadyNodes]:
        """Return the groups whose ready nodes may have changed since this was last called."""
        touched = self._touched
        if touched is None:
            return self.groups
        self._touched = {}
        return touched

    # -- nodes come, go to workers and come back -----------------------------------------------

    def add(self, part: GraphPart) -> None:
        """Take in the nodes of a part that the topology has taken in."""
        topology, states, missing = self._topology, self.states, self.missing
        start, count, inputs = len(states), len(part.ends), topology.inputs
        identity = self._session, self._first, self._function, self._account
        self.groups += [ReadyNodes(*identity, options, states) for options in part.options]
        if topology.kinds and self._touched is None:
            self._touched = dict.fromkeys(self.groups)
        self.uses += part.uses
        self.wanted += part.wanted
        self.live += count
        self.open += count
        states += bytes((WAITING,)) * count
        fresh, lost = [], []
        flat, low = part.dependencies, 0
        for node, high in enumerate(part.ends, start):
            lack = high - low
            if start:
                # Nodes of the parts before this one may have ended.
                for one in flat[low:high]:
                    state = states[one]
                    if state == DONE:
                        lack -= 1
                    elif state >= FAILED:
                        lost.append(one)
            low = high
            missing.append(lack)
            if not lack and node >= inputs:
                fresh.append(node)
        if self.kept:
            far = [node for node in fresh if self.is_far(node)]
            self.unplaced += far
            fresh = sorted(set(fresh).difference(far))
        for node in fresh:
            states[node] = READY
        if self._touched is None:
            self.groups[0].extend(fresh)
        else:
            for node in fresh:
                self._touch(node).push(node)
        for one in dict.fromkeys(lost):
            self._end_dependents(one, self._failures.get(one))
        if topology.is_whole:
            self._failures.clear()

    def _touch(self, node: int) -> ReadyNodes:
        """Return the group of a node, whose ready nodes are about to change."""
        group = self.groups[self._topology.kinds[node]]
        if self._touched is not None:
            self._touched[group] = None
        return group

    def assign(self, first: int, stop: int) -> None:
        """A worker is given contiguous nodes of one group that wait or are ready."""
        group = self.groups[0] if self._touched is None else self._touch(first)
        group.leave_all(first, stop)
        self.states[first:stop] = bytes((ASSIGNED,)) * (stop - first)
        self.open -= stop - first

    def put_back(self, first: int, stop: int) -> None:
        """A worker did not run these nodes, as far as they have not ended."""
        states, missing = self.states, self.missing
        for node in range(first, stop):
            if states[node] != ASSIGNED:
                continue
            self.open += 1
            self.lost_input.pop(node, None)
            states[node] = WAITING
            if not missing[node]:
                self.release(node)

    def release(self, node: int) -> None:
        """A node waits for nothing more."""
        if self.kept and self.is_far(node):
            self.unplaced.append(node)
        else:
            self.set_ready(node, None)

    def is_far(self, node: int) -> bool:
        """Return True if a node needs what only a worker has."""
        return not self.kept.keys().isdisjoint(self._topology.dependencies(node))

    def set_ready(self, node: int, peer: bytes | None) -> None:
        """A node can run: on this worker, or on any (None)."""
        self.states[node] = READY
        group = self.groups[0] if self._touched is None else self._touch(node)
        if peer is None:
            group.push(node)
        else:
            group.bind(node, peer)

    def unready(self, node: int) -> None:
        """A node that was ready is to wait."""
        self.states[node] = WAITING
        (self.groups[0] if self._touched is None else self._touch(node)).leave(node)

    def off_worker(self, first: int, stop: int) -> None:
        """A worker does not have these nodes any more."""
        for node in range(first, stop) if self.stopping else ():
            if node in self.stopping:
                del self.stopping[node]
                if self.states[node] == WAITING:
                    # It is to run again after all.
                    self.missing[node] -= 1
                    if not self.missing[node]:
                        self.release(node)

    # -- nodes end -----------------------------------------------------------------------------

    def returned(self, first: int, payloads: Iterable[Buffer], sizes: Sequence[int] = ()) -> None:
        """Contiguous nodes returned; the client knows of those that are wanted.

        ``sizes`` are the bytes of results that were not sent, each 0 if it was; empty: all were.
        """
        states, missing, uses, wanted = self.states, self.missing, self.uses, self.wanted
        topology, results, inputs = self._topology, self.results, self._topology.inputs
        flat, ends, dependents = topology.flat, topology.ends, topology.dependents
        node = first
        for payload in payloads:
            if states[node] != ASSIGNED:
                # An input: no worker had it.
                self.open -= 1
            states[node] = DONE
            if wanted[node]:
                wanted[node] = 0
                uses[node] -= 1
            if not uses[node] and node >= inputs:
                self.outdated.append(node)
            else:
                if sizes and sizes[node - first]:
                    self.kept[node] = sizes[node - first]
                else:
                    results[node] = (bytes(payload), ())
                for one in dependents[node]:
                    missing[one] -= 1
                    if not missing[one] and states[one] == WAITING:
                        self.release(one)
            for one in flat[ends[node] : ends[node + 1]]:
                uses[one] -= 1
                if not uses[one]:
                    self._drop(one)
            node += 1
        self.live -= node - first

    def stored(self, node: int, payload: Buffer, segments: tuple[bytes, ...]) -> None:
        """A node returned a value that lies in segments, which are now held by this graph."""
        self.returned(node, (payload,))
        if node in self.results:
            self.results[node] = (self.results[node][0], segments)
        else:
            self.dropped += segments

    def end(self, node: int, failure: m.Failed | None) -> None:
        """A node failed, or was cancelled (None), and with it all that depends on it."""
        if self.is_live(node):
            self._end(node, failure)
            self._end_dependents(node, failure)

    def give_up(self, nodes: Sequence[int]) -> None:
        """The client does not want these nodes any more: end the nodes that only they needed."""
        for node in nodes:
            if self.wanted[node] and self.is_live(node):
                self.wanted[node] = 0
                self.uses[node] -= 1
                if not self.uses[node]:
                    self._drop(node)

    def forget(self, node: int) -> None:
        """What a node returned is gone, or nobody needs it."""
        self.dropped += self.results.pop(node, (b"", ()))[1]
        self.kept.pop(node, None)
        for one in self.sharing.pop(node, ()):
            self.missing[one] -= 1

    def _end(self, node: int, failure: m.Failed | None) -> None:
        if self.wanted[node]:
            self.wanted[node] = 0
            self.ended.append((node, failure))
        if failure is not None and not self._topology.is_whole:
            self._failures[node] = failure
        self._leave(node, CANCELLED if failure is None else FAILED)
        for one in self._topology.dependencies(node):
            self.uses[one] -= 1
            if not self.uses[one]:
                self._drop(one)

    def _end_dependents(self, node: int, failure: m.Failed | None) -> None:
        todo = [node]
        while todo:
            for one in self._topology.dependents[todo.pop()]:
                if self.is_live(one):
                    self._end(one, failure)
                    todo.append(one)

    def _drop(self, node: int) -> None:
        """No node needs this node any more: forget what it returned, or cancel it."""
        todo = [node]
        while todo:
            node = todo.pop()
            if self.states[node] == DONE:
                if node >= self._topology.inputs:
                    self.forget(node)
                    self.outdated.append(node)
            elif self.is_live(node):
                self._leave(node, CANCELLED)
                for one in self._topology.dependencies(node):
                    self.uses[one] -= 1
                    if not self.uses[one]:
                        todo.append(one)

    def _leave(self, node: int, state: int) -> None:
        before = self.states[node]
        if before == ASSIGNED:
            self.stopped.append(node)
            self.stopping[node] = None
        else:
            self.open -= 1
            if before == READY:
                self.unready(node)
        self.states[node] = state
        self.live -= 1

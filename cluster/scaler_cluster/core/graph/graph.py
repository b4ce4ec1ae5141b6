"""A graph in the scheduler: its topology, where its nodes stand, and which workers have them.

Nodes are numbered so that each comes after those it depends on, one branch after the other. So the
first ready node is the one to run next, and the nodes that follow it mostly depend on it and on
what was done before: contiguous nodes go to one worker together, which finds there what they need.
A node is in a :class:`NodeRun` only as long as a worker has it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.node_states import (
    ASSIGNED,
    CANCELLED,
    DONE,
    FAILED,
    READY,
    WAITING,
    NodeStates,
)
from scaler_cluster.core.graph.placer import Placer
from scaler_cluster.core.graph.topology import Topology
from scaler_cluster.core.records.totals import Totals
from scaler_cluster.core.records.workers import Run
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.core.graph.layers import Layers
    from scaler_cluster.core.graph.ready_nodes import ReadyNodes
    from scaler_cluster.core.graph.topology import GraphPart
    from scaler_cluster.core.records.accounts import Account
    from scaler_cluster.core.records.functions import FunctionRecord
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.wire.messages import TaskOptions

LOOK = 8
"""Ready nodes looked at for one that many others follow."""
LOOK_FAR = 16
"""Nodes looked at to see whether a worker could run them without what another one has."""
FEW_MAX = 8
"""A worker that is given no more nodes than this at once is given long ones."""
SIBLINGS_MAX = 64
"""A node that needs more others than this has them made by any worker."""


@dataclass(slots=True, eq=False)
class NodeRun(Run):
    """Contiguous nodes of a graph that a worker has. Other nodes are in no run."""

    graph: GraphRecord = field(kw_only=True, repr=False)

    @property
    def needed(self) -> tuple[bytes, ...]:
        """Ids of the objects that its worker needs, with those of the results that it is sent."""
        results = self.graph.nodes.results
        # The results that a node needed may be gone if the node is to be stopped.
        inputs = (results[one][1] for one in self.graph.inputs_of(self) if one in results)
        return (*self.objects, *chain.from_iterable(inputs))

    def cut_head(self, count: int) -> NodeRun:
        """Take the first ``count`` nodes out, as a run of their own."""
        head = replace(self, batch=self.batch.cut(0, count))
        self.drop_head(count)
        return head


class GraphRecord:
    """One graph of a session."""

    def __init__(
        self,
        session: int,
        first: int,
        function: bytes,
        timing: FunctionRecord,
        account: Account,
        layers: Layers,
        *,
        is_shared: bool = False,
    ) -> None:
        self.session = session
        self.first = first
        self.function = function
        self.is_shared = is_shared
        """Nodes on one worker get the very objects that other nodes returned."""
        self.topology = Topology()
        self.layers = layers
        """What its nodes are called, and what is counted of each name."""
        self.account = account
        """Whose time its nodes take."""
        self.nodes = NodeStates(session, first, function, account, self.topology)
        self.objects: list[bytes] = []
        """Ids of the objects that its payloads refer to, once for each payload."""
        self.is_begun = False
        """True once a worker was given nodes of it."""
        self.workers: dict[bytes, None] = {}
        """Peers that were given nodes of it."""
        self.handed_over: dict[int, NodeRun] = {}
        """Nodes that are run by the task which submitted them."""
        self._holders: list[WorkerRecord | None] = []
        """The worker that was given each node last: it has what the node returned."""
        self.placer = Placer(self.topology, self.nodes, self._holders, timing)
        self._marks: dict[int, tuple[int, int, int]] = {}
        """Tries, losses and deaths of workers of nodes that have any."""

    # -- looks ---------------------------------------------------------------------------------

    def name_of(self, task: int) -> str:
        """Return the name under which a node is counted."""
        return self.layers.of(task - self.first).name

    def nodes_named(self, name: str) -> list[tuple[int, int]]:
        """Return the ranges of tasks that are counted under this name, inputs not among them."""
        if not any(layer.name == name for layer in self.layers.records):
            return []
        found = self.layers.stretches(self.topology.inputs, len(self.nodes.states))
        return [(self.first + low, self.first + high) for low, high, one in found if one == name]

    @property
    def stop(self) -> int:
        """Id after the last task."""
        return self.first + len(self.nodes.states)

    @property
    def nodes_to_run(self) -> int:
        """How many nodes have come that are no inputs."""
        return max(len(self.nodes.states) - self.topology.inputs, 0)

    @property
    def is_over(self) -> bool:
        """Return True once all of its nodes have come and ended."""
        return self.topology.is_whole and not self.nodes.live

    def totals(self) -> Totals:
        """Return how many nodes came to what; inputs do not count."""
        inputs = self.topology.inputs
        states = self.nodes.states[inputs:] if inputs else self.nodes.states
        ends = map(states.count, (DONE, FAILED, CANCELLED))
        return Totals(len(states), *ends)

    def __str__(self) -> str:
        """Tell the graph's story in one line, for errors and logs."""
        nodes = self.nodes
        return (
            f"graph {self.first}..{self.stop - 1} of session {self.session}: {nodes.live} live, "
            f"{nodes.ready} ready, {len(nodes.results)} results"
        )

    def add(self, part: GraphPart, inputs: int) -> None:
        """Take nodes in, of which the first ``inputs`` are not to be run.

        Raises RemoteProtocolError if they are not what may come next.
        """
        self.layers.check(part)
        self.topology.add(part, inputs)
        self.layers.add(part, inputs)
        self.nodes.add(part)
        self._holders += [None] * len(part.ends)

    # -- nodes go to workers and come back -----------------------------------------------------

    def cut_head(
        self, group: ReadyNodes, limit: int, worker: WorkerRecord, least: int
    ) -> NodeRun | None:
        """Take up to ``limit`` nodes out for a worker, from the first ready node of a group on.

        Return None if no ``least`` nodes seem to go together: other workers come to them sooner.
        """
        count = len(self.nodes.states)
        short: list[int] = []
        first = group.pop()
        while first >= 0:
            stop = first + least
            node = first + 1
            while node < stop and node < count and self._fits(node, first, worker):
                node += 1
            if node >= stop:
                break
            short.append(first)
            first = group.pop() if len(short) < LOOK else -1
        for node in short:
            group.put_back(node)
        if first < 0:
            return None
        if limit <= FEW_MAX:
            # What long nodes return may be large.
            apart = self._apart(first, group, worker)
            if apart != first:
                group.put_back(first)
                first = apart
        return self._cut(first, limit, worker)

    def _apart(self, first: int, group: ReadyNodes, worker: WorkerRecord) -> int:
        """Return a ready node near the first one that is not needed together with others' nodes.

        What one node needs is best made by one worker: else it has to be brought together.
        """
        states = self.nodes.states
        node = first
        for _ in range(LOOK):
            siblings = self._siblings(node)
            if not any(self._is_with_another(one, worker) for one in siblings):
                return node
            after = max(siblings) + 1
            ahead = range(after, min(after + LOOK_FAR, len(states)))
            ready = (one for one in ahead if states[one] == READY and one not in group.homes)
            node = next((one for one in ready if self.nodes.group_of(one) is group), -1)
            if node < 0:
                break
        return first

    def _is_with_another(self, node: int, worker: WorkerRecord) -> bool:
        """Return True if another worker runs a node, or keeps what that returned."""
        nodes = self.nodes
        is_there = nodes.states[node] == ASSIGNED or node in nodes.kept
        return is_there and self._holders[node] is not worker

    def _siblings(self, node: int) -> Sequence[int]:
        """Return what is needed together with what a node returns, unless that is much."""
        above = self.topology.dependents[node]
        below = self.topology.dependencies(above[0]) if above else ()
        return below if len(below) <= SIBLINGS_MAX else ()

    def cut_bound(self, group: ReadyNodes, limit: int, worker: WorkerRecord) -> NodeRun | None:
        """Take up to ``limit`` nodes out, from the first of a group that is bound to a worker."""
        first = group.pop_bound(worker.peer)
        return self._cut(first, limit, worker) if first >= 0 else None

    def is_apart(self, first: int, stop: int) -> bool:
        """Return True if most nodes at the head of a range depend on nothing close before them."""
        stop = min(stop, first + LOOK_FAR)
        states = self.nodes.states
        apart = 0
        for node in range(first, stop):
            below = self.topology.dependencies(node)
            apart += all(one >= first or states[one] == DONE for one in below)
        return 2 * apart > stop - first

    def cut_after(self, run: NodeRun, limit: int, worker: WorkerRecord) -> NodeRun | None:
        """Take up to ``limit`` nodes out that follow on a run of a worker, if it can run them."""
        first, nodes = run.stop - self.first, self.nodes
        if first == len(nodes.states) or nodes.group_of(first) is not nodes.group_of(first - 1):
            return None
        return self._cut(first, limit, worker) if self._fits(first, first, worker) else None

    def _fits(self, node: int, first: int, worker: WorkerRecord) -> bool:
        """Return True if a worker that has the nodes from ``first`` on can be given this one.

        What the node waits for must be before it there, and what it needs must not be elsewhere.
        """
        nodes, topology = self.nodes, self.topology
        states, kinds = nodes.states, topology.kinds
        if not WAITING <= states[node] <= READY or node < topology.inputs:
            return False
        if kinds and kinds[node] != kinds[first]:
            return False
        if node in nodes.stopping:
            # A worker has it still.
            return False
        if states[node] == READY:
            return nodes.group_of(node).homes.get(node, worker.peer) == worker.peer
        holders, ends, kept = self._holders, topology.ends, nodes.kept
        for one in topology.flat[ends[node] : ends[node + 1]]:
            if one < first:
                state = states[one]
                if holders[one] is worker:
                    if state not in (DONE, ASSIGNED):
                        return False
                elif state != DONE or one in kept:
                    return False
        return True

    def _cut(self, first: int, limit: int, worker: WorkerRecord) -> NodeRun:
        topology = self.topology
        batch_start, batch = topology.batch_of(first)
        stop = min(first + limit, batch_start + len(batch))
        owned, marks = topology.owned, self._marks
        objects, mark = owned.get(first, ()), marks.get(first, (0, 0, 0))
        node = first + 1
        while node < stop and self._fits(node, first, worker):
            if (owned and owned.get(node, ()) != objects) or (
                marks and marks.get(node, (0, 0, 0)) != mark
            ):
                break
            node += 1
        self.nodes.assign(first, node)
        self.placer.assigned(first, node)
        self._holders[first:node] = [worker] * (node - first)
        self.is_begun = True
        self.workers[worker.peer] = None
        return NodeRun(
            self.session,
            self.first + first,
            self.function,
            m.CALL_NODE,
            self.nodes.group_of(first).options,
            batch.cut(first - batch_start, node - batch_start),
            objects,
            tries=mark[0],
            losses=mark[1],
            deaths=mark[2],
            account=self.account,
            graph=self,
        )

    def hand_over(
        self, last: int, worker: WorkerRecord, may_run: Callable[[WorkerRecord, TaskOptions], bool]
    ) -> NodeRun | None:
        """Take out the first ready node up to ``last``, if there is one that may run there.

        The task that submitted the node, and waits for it, runs it on this worker. The worker
        itself is not told.
        """
        first = last + 1
        for group in self.nodes.groups:
            node = group.peek()
            if 0 <= node < first and may_run(worker, group.options):
                first = node
        if first > last:
            self.placer.free_first(last)
            return None
        self.nodes.group_of(first).pop()
        run = self.handed_over[first] = self._cut(first, 1, worker)
        self._holders[first] = None
        return run

    def next_objects(self, group: ReadyNodes) -> tuple[bytes, ...]:
        """Return the objects that the next node of a group needs."""
        node = group.peek()
        if node < 0:
            return ()
        results, below = self.nodes.results, self.topology.dependencies(node)
        segments = [results[one][1] for one in below if one in results]
        return (*self.topology.owned.get(node, ()), *chain.from_iterable(segments))

    def inputs_of(self, run: Run) -> list[int]:
        """Return the nodes whose results must be sent with a run, in order of first use.

        The other nodes that the run depends on are before it on its worker, or were.
        """
        first, states = run.first - self.first, self.nodes.states
        ends, holders, worker = self.topology.ends, self._holders, run.worker
        flat = self.topology.flat[ends[first] : ends[first + run.count]]
        return [
            one
            for one in dict.fromkeys(flat)
            if one < first
            and states[one] == DONE
            and (worker is None or holders[one] is not worker)
        ]

    def to_send(self, run: Run) -> bytes:
        """Return a byte for each node of a run: 1 if its result must come; empty: none must."""
        if run.options.at_most_once:
            # It could not be made again.
            return b"\1" * run.count
        first = run.first - self.first
        wanted = self.nodes.wanted[first : first + run.count]
        return bytes(wanted) if any(wanted) else b""

    def uses_of(self, run: Run) -> bytes:
        """Return how many nodes that have not ended need each node of a run, as 32-bit numbers."""
        first = run.first - self.first
        return array("I", self.nodes.uses[first : first + run.count]).tobytes()

    def has_lost_input(self, run: Run) -> bool:
        """Return True if a single node lost something it needs while a worker had it."""
        return run.first - self.first in self.nodes.lost_input

    def put_back(self, run: Run) -> None:
        """Take back the nodes of a run that a worker did not run."""
        first = run.first - self.first
        stop = first + run.count
        if run.tries or run.losses:
            mark, states = (run.tries, run.losses, run.deaths), self.nodes.states
            self._marks.update((n, mark) for n in range(first, stop) if states[n] == ASSIGNED)
        self.nodes.put_back(first, stop)

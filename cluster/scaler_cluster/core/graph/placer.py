"""Where nodes run that need results which only a worker has.

Such a node goes to the worker that has most of what it needs, unless it would wait there for longer
than the bytes take to move. What other workers have of it, they are asked to send; the node waits
until that has come. Workers without work take such nodes over from those that have many.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.losses import lose
from scaler_cluster.core.graph.node_states import WAITING
from scaler_cluster.core.records.placement import may_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.graph.node_states import NodeStates
    from scaler_cluster.core.graph.ready_nodes import ReadyNodes
    from scaler_cluster.core.graph.topology import Topology
    from scaler_cluster.core.records.functions import FunctionRecord
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.wire import messages as m
    from scaler_cluster.wire.batch import Buffer

MOVE_S = 0.001
"""What it costs to move a result, however small: it is asked for, pickled and sent."""
MOVE_BYTES_PER_S = 1e9
"""How fast large results move: to shared memory and out of it; a network is hardly faster."""
WORTH = 2.0
"""A node moves if it would wait so many times as long as moving it takes: estimates are rough."""
DEAR_WORTH = 4.0
"""The same for a move that costs more than a mean node does. The mean says little there: a single
long node has raised it, or the node takes a small part of what is large. So only the node that is
running is believed, and as one node may be slow by chance, it has to tell more."""
COMING_MAX = 2
"""Nodes that an idle worker takes over at once; the next follow when one of these has come."""


class Placer:
    """Places the nodes of one graph."""

    def __init__(
        self,
        topology: Topology,
        nodes: NodeStates,
        holders: Sequence[WorkerRecord | None],
        timing: FunctionRecord,
    ) -> None:
        self._topology = topology
        self._nodes = nodes
        self._holders = holders
        self._timing = timing
        self._targets: dict[int, WorkerRecord] = {}
        """Where nodes are to run that wait for results which workers are to send."""
        self._coming: dict[WorkerRecord, dict[int, None]] = {}
        """These by worker; some may have ended meanwhile."""

    def place(self) -> None:
        """Place the nodes that lack nothing but a place."""
        nodes = self._nodes
        while nodes.unplaced:
            unplaced, nodes.unplaced = nodes.unplaced, []
            for node in unplaced:
                if nodes.states[node] == WAITING and not nodes.missing[node]:
                    self._place(node)

    def _place(self, node: int) -> None:
        target = self._take_target(node)
        if target is None or not _takes_work(target):
            target = self._best(node)
        self._bring_to(node, target)

    def _bring_to(self, node: int, target: WorkerRecord | None) -> None:
        """Let a node run on this worker, or on any, as soon as all is there that it needs."""
        elsewhere = self._elsewhere(node, target)
        if not elsewhere:
            self._nodes.set_ready(node, None if target is None else target.peer)
            return
        if target is not None:
            self._targets[node] = target
            self._coming.setdefault(target, {})[node] = None
        self._await_shares(node, elsewhere)

    def _await_shares(self, node: int, dependencies: list[int]) -> None:
        """Let a node wait until the workers that have these results have sent them."""
        nodes = self._nodes
        for one in dependencies:
            waiting = nodes.sharing.setdefault(one, [])
            if not waiting:
                nodes.to_share.append(one)
            waiting.append(node)
        nodes.missing[node] += len(dependencies)

    def _take_target(self, node: int) -> WorkerRecord | None:
        target = self._targets.pop(node, None)
        if target is not None:
            del self._coming[target][node]
        return target

    def _elsewhere(self, node: int, worker: WorkerRecord | None) -> list[int]:
        """Return what a node needs that only other workers have."""
        kept, holders = self._nodes.kept, self._holders
        below = self._topology.dependencies(node)
        return [one for one in below if one in kept and holders[one] is not worker]

    def _best(self, node: int) -> WorkerRecord | None:
        """Return the worker on which a node would be done first, of those that have something."""
        kept, holders = self._nodes.kept, self._holders
        nbytes: dict[WorkerRecord, int] = {}
        for one in self._topology.dependencies(node):
            holder = holders[one]
            if one in kept and holder is not None:
                nbytes[holder] = nbytes.get(holder, 0) + kept[one]
        group = self._nodes.group_of(node)
        total = sum(nbytes.values())
        best, least = None, math.inf
        for worker, there in nbytes.items():
            if _takes_work(worker) and may_run(worker, group.options):
                cost = self._queued_s(worker, group)
                if there < total:
                    cost += MOVE_S + (total - there) / MOVE_BYTES_PER_S
                if cost < least:
                    best, least = worker, cost
        return best

    def _queued_s(self, worker: WorkerRecord, group: ReadyNodes) -> float:
        """Return how long a worker is busy with what it has, and with what is bound to it."""
        bound = len(group.bound.get(worker.peer, ()))
        return worker.backlog_s + bound * self._timing.mean_s

    # -- what workers keep ---------------------------------------------------------------------

    @property
    def has_requests(self) -> bool:
        """Return True if workers are to be told something of the results that they keep."""
        return bool(self._nodes.to_share or self._nodes.outdated)

    def take_to_share(self) -> dict[WorkerRecord, list[int]]:
        """Return the nodes whose results workers are to send, by worker."""
        nodes, self._nodes.to_share = self._nodes.to_share, []
        # Some may have been lost or dropped since.
        return self._by_holder([node for node in nodes if node in self._nodes.sharing])

    def take_outdated(self) -> dict[WorkerRecord, list[int]]:
        """Return the nodes whose results workers may drop, by worker."""
        nodes, self._nodes.outdated = self._nodes.outdated, []
        return self._by_holder(nodes)

    def _by_holder(self, nodes: list[int]) -> dict[WorkerRecord, list[int]]:
        found: dict[WorkerRecord, list[int]] = {}
        holders = self._holders
        for node in nodes:
            worker = holders[node]
            if worker is not None:
                found.setdefault(worker, []).append(node)
        return found

    def has_kept(self, node: int, worker: WorkerRecord) -> bool:
        """Return True if this worker alone has what a node returned."""
        return node in self._nodes.kept and self._holders[node] is worker

    def shared(self, node: int, payload: Buffer, segments: tuple[bytes, ...]) -> bool:
        """A worker sent what it had kept; return False if nobody needs it any more."""
        nodes = self._nodes
        if nodes.kept.pop(node, None) is None:
            return False
        nodes.results[node] = (bytes(payload), segments)
        for one in nodes.sharing.pop(node, ()):
            nodes.missing[one] -= 1
            if not nodes.missing[one] and nodes.states[one] == WAITING:
                nodes.release(one)
        for one in self._topology.dependents[node]:
            if one in nodes.group_of(one).homes and not nodes.is_far(one):
                # Any worker can have it now.
                nodes.unready(one)
                nodes.set_ready(one, None)
        return True

    def cannot_share(self, node: int, failure: m.Failed) -> None:
        """A worker cannot send what it kept: the nodes that wait for that fail.

        If it was not asked for it, it is about to leave: all nodes fail that need it.
        """
        nodes = self._nodes
        waiting = nodes.sharing.pop(node, None)
        if waiting is None:
            waiting = self._topology.dependents[node]
        else:
            for one in waiting:
                nodes.missing[one] -= 1
        for one in list(waiting):
            nodes.end(one, failure)

    def worker_lost(self, worker: WorkerRecord) -> list[int]:
        """A worker is gone with what it kept; return the nodes that must not run again."""
        kept, holders = self._nodes.kept, self._holders
        lost = [one for one in kept if holders[one] is worker]
        hopeless = lose(self._nodes, self._topology, lost)
        # What was to run there is to run elsewhere.
        for group in self._nodes.groups:
            for node in list(group.bound_to(worker.peer)):
                self._nodes.unready(node)
                self._nodes.unplaced.append(node)
            group.bound.pop(worker.peer, None)
        for node in self._coming.pop(worker, ()):
            del self._targets[node]
        return hopeless

    # -- nodes move ----------------------------------------------------------------------------

    def take_over(
        self, group: ReadyNodes, loaded: WorkerRecord, idle: WorkerRecord, busy_s: float
    ) -> bool:
        """Let an idle worker have a node that is bound to another one, if that is worth it.

        ``busy_s`` is how long the task has been running that the other worker runs. Return False
        if that is not worth it for now.
        """
        if self._has_enough_coming(idle):
            return True
        node = group.late_bound(loaded.peer)
        if node < 0:
            return True
        elsewhere = self._elsewhere(node, idle)
        if elsewhere and _takes_work(loaded):
            nbytes = sum(self._nodes.kept[one] for one in elsewhere)
            cost = MOVE_S + nbytes / MOVE_BYTES_PER_S
            queued_s, worth = self._queued_s(loaded, group), WORTH
            if cost > self._timing.mean_s:
                queued = loaded.count + len(group.bound[loaded.peer])
                queued_s, worth = min(queued_s, queued * busy_s), DEAR_WORTH
            if max(busy_s, queued_s) < worth * cost:
                return False
        self._nodes.unready(node)
        self._bring_to(node, idle)
        return True

    def _has_enough_coming(self, worker: WorkerRecord) -> bool:
        coming, live, ended = self._coming.get(worker, {}), 0, []
        for node in coming:
            if not self._nodes.is_live(node):
                ended.append(node)
                continue
            live += 1
            if live == COMING_MAX:
                break
        for node in ended:
            self._take_target(node)
        return live >= COMING_MAX

    def free_first(self, last: int) -> None:
        """Have all sent that the first node up to this one needs which is bound to a worker."""
        bound = [node for group in self._nodes.groups for node in group.homes if node <= last]
        if bound:
            node = min(bound)
            self._nodes.unready(node)
            self._bring_to(node, None)

    def assigned(self, first: int, stop: int) -> None:
        """A worker was given these nodes."""
        if self._targets:
            for node in range(first, stop):
                self._take_target(node)


def _takes_work(worker: WorkerRecord) -> bool:
    """Return True if a worker will be given nodes before long."""
    return not (worker.retiring or worker.killed or worker.blocked or worker.asleep_at != math.inf)

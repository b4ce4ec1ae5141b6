"""Which worker gets which tasks, and how many of them."""

from __future__ import annotations

import math
from array import array
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import LOOK_FAR, NodeRun
from scaler_cluster.core.graph.ready_nodes import ReadyNodes
from scaler_cluster.core.records.credit import STALL_S, grant, holding_s
from scaler_cluster.core.records.lifecycle import State
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scaler_cluster.core.records.workers import Run, WorkerPool, WorkerRecord
    from scaler_cluster.core.scheduler.actors import Actors
    from scaler_cluster.core.scheduler.assignment import Assigner
    from scaler_cluster.core.scheduler.backlog import UserQueues
    from scaler_cluster.core.scheduler.machines import Machines
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.queue import ReadyQueue
    from scaler_cluster.core.scheduler.rebalance import Rebalancer
    from scaler_cluster.core.scheduler.table import Table

LOOK_QUEUED = 8
"""Entries of a queue looked at for one that a worker can be given now."""
STEAL_CANDIDATES = 16
"""Workers looked at for one that has nodes which only it can run without anything being moved."""
PLACE_CANDIDATES = 8
"""Workers looked at to find one whose machine has what a task needs."""
WORTH_S = 0.0001
"""Nodes of a graph that take less than this together are left to the worker that runs the nodes
around them: to give them to another worker would cost as much."""


class Dispatch:
    """Gives ready tasks to workers by credit."""

    def __init__(
        self,
        table: Table,
        pools: WorkerPools,
        assigner: Assigner,
        rebalancer: Rebalancer,
        machines: Machines,
        actors: Actors,
    ) -> None:
        self._table = table
        self._pools = pools
        self._assigner = assigner
        self._actors = actors
        self._rebalancer = rebalancer
        self._machines = machines
        self._patient_until = math.inf
        """When a few nodes of a graph are given out though the worker around them should have come
        to them."""
        self._is_due = False
        """True while that time has come."""

    @property
    def deadline(self) -> float:
        """When :meth:`give_out` has something to do even if nothing happens."""
        backlog = self._table.backlog
        if not backlog.resting:
            return self._patient_until
        return min(self._patient_until, backlog.rests_until)

    def give_out(self, now: float) -> None:
        """Give ready tasks to idle workers, then to those with little ahead."""
        backlog = self._table.backlog
        if self._machines.is_waiting:
            self._machines.begin_turn()
        # What a node returned is dropped where it was run, not where it is to run once more.
        if backlog.telling:
            self._tell_workers()
        if self._pools.following:
            self._follow(now)
        if now >= self._patient_until:
            self._patient_until = math.inf
            self._is_due = True
        if backlog.resting:
            backlog.end_rests(now)
        waiting = [one for one in backlog.users.values() if one.ready.count or one.demanding]
        if len(waiting) == 1:
            for _ in self._giving(waiting[0], now):
                continue
        elif waiting:
            self._give_in_turn(waiting, now)
        if self._pools.reserved:
            self._pools.end_turn()
        self._is_due = False
        self._rebalancer.even_out(now)
        if backlog.telling:
            self._tell_workers()

    def _give_in_turn(self, users: list[UserQueues], now: float) -> None:
        """Give out what waits of several users: who has had least of the workers' time is next."""
        turns = [
            (user.account.served_s, number, self._giving(user, now))
            for number, user in enumerate(users)
        ]
        heapify(turns)
        while turns:
            _, number, giving = turns[0]
            if next(giving, None) is None:
                heappop(turns)
            else:
                heapreplace(turns, (users[number].account.served_s, number, giving))

    def _giving(self, user: UserQueues, now: float) -> Iterator[bool]:
        """Give out what waits of a user, as much at each step as one worker gets at once."""
        if user.demanding and (queues := user.runnable(self._pools)):
            yield from self._giving_by_demand(user, queues, now)
            return
        ready, pools = user.ready, self._pools.for_any
        while ready.count and self._give(ready, pools, now):
            yield True

    def _giving_by_demand(
        self, user: UserQueues, queues: list[ReadyQueue], now: float
    ) -> Iterator[bool]:
        """Let tasks that demand something come first among equals: fewer workers can run them.

        Queues without a free worker are left out first, and the others wait in a heap: there may
        be thousands of demands.
        """
        ready = user.ready
        ready.pools = self._pools.for_any
        queues.append(ready)
        offers: list[tuple[tuple[int, int], float, int]] = []
        for number, queue in enumerate(queues):
            has_taker = queue.is_shared or self._pools.takers(queue.options, queue.pools)
            if has_taker and queue.peek() is not None:
                offers.append((queue.rank, queue.given, number))
        heapify(offers)
        while offers:
            rank, _, number = heappop(offers)
            queue = queues[number]
            # Looking for what is next may find that it is gone.
            if queue.peek() is None:
                continue
            if queue.rank == rank:
                if not self._give(queue, queue.pools, now):
                    continue
                yield True
            if queue.peek() is not None:
                heappush(offers, (queue.rank, queue.given, number))
        user.drop_empty(queues)

    def _give(self, queue: ReadyQueue, pools: Sequence[WorkerPool], now: float) -> bool:
        """Give some of what is next in a queue to a worker; False: no more can be given for now."""
        if queue.is_shared:
            return self._give_portion(queue, now)
        takers = self._pools.takers(queue.options, pools)
        if takers is None:
            return False
        run = queue.peek()
        if isinstance(run, ReadyNodes):
            # It may hold nothing but nodes that are bound to busy workers.
            return any(
                self._give_entry(queue, entry, takers, pools, now)
                for entry in queue.entries(LOOK_QUEUED)
            )
        return run is not None and self._give_entry(queue, run, takers, pools, now)

    def _give_portion(self, queue: ReadyQueue, now: float) -> bool:
        """Give the next task of a queue to an idle worker, with what it needs of the machine."""
        entries = list(queue.entries(LOOK_QUEUED))
        bound = {
            peer: None
            for entry in entries
            if isinstance(entry, ReadyNodes)
            for peer in islice(entry.bound, STEAL_CANDIDATES)
        }
        found = self._machines.place(queue, bound)
        if found is None:
            return False
        worker, portion = found
        for entry in entries:
            if isinstance(entry, ReadyNodes):
                run = self._take_node(queue, entry, worker, now)
            else:
                run = queue.take(entry, 1)
            if run is not None:
                unit_s = self._table.functions[run.function].mean_s
                self._machines.given(queue)
                self._assigner.assign(worker, run, unit_s, now, portion)
                if run.options.creates:
                    self._actors.placed(worker, run, now)
                return True
        return False

    def _take_node(
        self, queue: ReadyQueue, group: ReadyNodes, worker: WorkerRecord, now: float
    ) -> Run | None:
        """Take a single node for an idle worker off a group; None: there is none for now."""
        graph = self._table.graph_of(group)
        run = graph.cut_bound(group, 1, worker) or graph.cut_head(group, 1, worker, 1)
        if run is None and self._take_over(group, {worker.peer: worker}, now):
            run = graph.cut_bound(group, 1, worker)
        if run is not None:
            queue.update(group, front=True)
        return run

    def _give_entry(
        self,
        queue: ReadyQueue,
        run: Run | ReadyNodes,
        takers: dict[bytes, WorkerRecord],
        pools: Sequence[WorkerPool],
        now: float,
    ) -> bool:
        """Give some of an entry of a queue to a worker, if that can be."""
        if isinstance(run, ReadyNodes) and run.bound and self._give_bound(queue, run, takers, now):
            return True
        worker = next(iter(takers.values()))
        if not worker.count:
            # The idle worker that was busy last: its process may still be awake.
            worker = next(reversed(takers.values()))
        if len(self._table.objects.stores) > 1:
            worker = self._choose(takers, run, worker)
        if worker.session and worker.count and self._is_above(worker, run):
            other = self._pools.other_than(worker, queue.options, pools)
            if other is None:
                return False
            worker = other
        unit_s = self._table.functions[run.function].mean_s
        workers = sum(pool.count for pool in pools) if len(pools) > 1 else pools[0].count
        if isinstance(run, ReadyNodes):
            part = self._take_nodes(queue, worker, run, unit_s, workers, now)
            self._is_due = False
        else:
            limit = grant(worker, unit_s, -(-queue.count // workers), holding_s(unit_s))
            part = queue.take(run, limit) if limit else None
            if part is None:
                self._pools.reserve(queue.options, pools)
        if part is None:
            if isinstance(run, ReadyNodes) and run.bound and not worker.count:
                return self._take_over(run, takers, now)
            return False
        self._assigner.assign(worker, part, unit_s, now)
        self._pools.had_turn(worker, queue.options)
        return True

    def _give_bound(
        self,
        queue: ReadyQueue,
        group: ReadyNodes,
        takers: dict[bytes, WorkerRecord],
        now: float,
    ) -> bool:
        """Give a worker nodes that are bound to it."""
        table, bound = self._table, group.bound
        peers = [peer for peer in islice(takers, STEAL_CANDIDATES) if peer in bound]
        for peer in peers or list(islice(bound, STEAL_CANDIDATES)):
            worker = table.workers[peer]
            if not self._pools.offers_work_to(worker):
                # With thousands of workers, others are looked at the next time.
                bound[peer] = bound.pop(peer)
                continue
            graph, unit_s = table.graph_of(group), table.functions[group.function].mean_s
            share = -(-max(queue.count, graph.nodes.open) // len(table.workers))
            limit = grant(worker, unit_s, share)
            run = graph.cut_bound(group, limit, worker) if limit else None
            if run is not None:
                queue.update(group, front=True)
                self._assigner.assign(worker, run, unit_s, now)
                return True
        return False

    def _take_over(self, group: ReadyNodes, idle: dict[bytes, WorkerRecord], now: float) -> bool:
        """Let workers that have nothing to do have nodes that are bound to busy ones.

        Return True if one of them can have one at once.
        """
        table = self._table
        graph = table.graph_of(group)
        loaded = [table.workers[peer] for peer in islice(group.bound, STEAL_CANDIDATES)]
        for worker in islice(idle.values(), STEAL_CANDIDATES):
            for other in loaded:
                busy_s = now - other.progress_at if other.count else 0.0
                if other is not worker and not graph.placer.take_over(group, other, worker, busy_s):
                    # It may be worth it in a moment.
                    self._patient_until = min(self._patient_until, now + STALL_S)
        table.backlog.update(graph)
        return any(peer in group.bound for peer in islice(idle, STEAL_CANDIDATES))

    def _tell_workers(self) -> None:
        """Tell workers which of the results that they keep are wanted elsewhere, or by nobody."""
        table = self._table
        for graph in table.backlog.take_telling():
            for kind, told in (
                (m.Share, graph.placer.take_to_share()),
                (m.DropResults, graph.placer.take_outdated()),
            ):
                for worker, nodes in told.items():
                    if table.workers.get(worker.peer) is worker:
                        packed = array("I", nodes).tobytes()
                        table.send(worker.peer, kind(graph.session, graph.first, packed))

    def _take_nodes(
        self,
        queue: ReadyQueue,
        worker: WorkerRecord,
        group: ReadyNodes,
        unit_s: float,
        workers: int,
        now: float,
    ) -> Run | None:
        """Take nodes for a worker off the group that is next; None: there are none for now."""
        graph = self._table.graph_of(group)
        nodes = graph.nodes
        # What waits may go with what is ready.
        share = -(-max(queue.count, nodes.open) // workers)
        limit = grant(worker, unit_s, share)
        if limit == 0:
            return None
        least = 1
        if nodes.open < nodes.live and not self._is_due and queue.is_alone(group):
            least = min(int(WORTH_S / unit_s) + 1, LOOK_FAR, limit)
        run = graph.cut_head(group, limit, worker, least)
        if run is None:
            self._patient_until = min(self._patient_until, now + STALL_S)
        else:
            queue.update(group, front=True)
        return run

    def _choose(
        self, takers: dict[bytes, WorkerRecord], run: Run | ReadyNodes, first: WorkerRecord
    ) -> WorkerRecord:
        """Return the taker that gets what is next: one near its large data, else the first."""
        if isinstance(run, ReadyNodes):
            wanted = self._table.graph_of(run).next_objects(run)
        else:
            wanted = run.objects
        if not wanted:
            return first
        objects = self._table.objects
        stores = [objects.records[one].stores for one in wanted]
        candidates = [first, *islice(takers.values(), PLACE_CANDIDATES)]
        return max(candidates, key=lambda one: sum(one.store in there for there in stores))

    def _follow(self, now: float) -> None:
        """Give workers that run nodes of a graph the nodes that follow, before these are ready.

        So a branch stays on its worker, and the worker need not wait for the answer to its report.
        This is not done if something else is due, or if a node is ready that an idle worker can
        have now: the node would be asked back for the idle worker, and given to the same worker
        again and again.
        """
        table = self._table
        is_any_idle = any(pool.idle for pool in self._pools.for_any)
        users = table.backlog.users.items()
        waiting = [whole for whole, user in users if user.ready.count or user.demanding]
        following, self._pools.following = self._pools.following, {}
        for worker in following.values():
            last = worker.runs[-1] if worker.peer in worker.pool.hungry else None
            if not isinstance(last, NodeRun) or last.state is not State.ASSIGNED:
                continue
            graph = last.graph
            if not graph.nodes.open or graph.session in table.backlog.held_back:
                continue
            group = graph.nodes.group_of(last.stop - graph.first - 1)
            if any(whole is not group.account.whole for whole in waiting):
                continue
            if not group.options.is_for_any and self._pools.are_shared(group.options):
                continue
            queue = table.backlog.queue(group)
            other = queue.peek()
            if other is not None and other is not group:
                continue
            if is_any_idle and graph.nodes.is_ready(last.stop - graph.first):
                continue
            unit_s = table.functions[graph.function].mean_s
            limit = grant(worker, unit_s, -(-graph.nodes.open // len(table.workers)))
            run = graph.cut_after(last, limit, worker) if limit else None
            if run is not None:
                queue.update(group, front=True)
                self._assigner.assign(worker, run, unit_s, now)

    def _is_above(self, worker: WorkerRecord, run: Run | ReadyNodes) -> bool:
        """Return True if these tasks were submitted by the task that the worker runs."""
        return self._table.session_by_number[run.session].worker == worker.peer

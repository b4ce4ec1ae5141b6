"""All that waits for a worker, in queues by user and by what it demands of a worker."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.deadlines import Deadlines
from scaler_cluster.core.scheduler.queue import ReadyQueue
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.core.graph.graph import GraphRecord, NodeRun
    from scaler_cluster.core.graph.ready_nodes import ReadyNodes
    from scaler_cluster.core.records.accounts import Account
    from scaler_cluster.core.records.workers import Run
    from scaler_cluster.core.scheduler.pools import WorkerPools

_NO_REST = object()


class UserQueues:
    """What waits of the clients of one user."""

    def __init__(self, account: Account, held_back: dict[int, None]) -> None:
        self.account = account
        """How much of the workers' time the user has had."""
        self._held_back = held_back
        self.ready = ReadyQueue(m.DEFAULT_OPTIONS, held_back)
        self.ready.given = math.inf
        """What any worker may run."""
        self.demanding: dict[m.Demand, ReadyQueue] = {}
        """What only some workers may run, by what it demands."""
        self._changes_seen = 0
        self._fresh: dict[m.Demand, ReadyQueue] = {}
        """Those of which nobody knows yet whether there is a worker that could run them."""
        self._runnable: dict[m.Demand, ReadyQueue] = {}
        """Those that some worker could run. The others cost a turn nothing, however many there
        are, until a worker comes or goes."""

    def demanding_queue(self, options: m.TaskOptions) -> ReadyQueue:
        """Return the queue in which tasks wait that demand this."""
        demand = options.demand
        queue = self.demanding.get(demand)
        if queue is None:
            queue = self.demanding[demand] = self._fresh[demand] = ReadyQueue(
                options, self._held_back
            )
        return queue

    def runnable(self, pools: WorkerPools) -> list[ReadyQueue]:
        """Return the queues with demands that some worker could run, each with its ``pools``."""
        if pools.changes != self._changes_seen:
            self._changes_seen = pools.changes
            self._fresh = dict(self.demanding)
            self._runnable.clear()
        if self._fresh:
            for demand, queue in self._fresh.items():
                if pools.is_runnable(queue.options):
                    queue.pools = pools.able(queue.options)
                    queue.is_shared = pools.are_shared(queue.options)
                    self._runnable[demand] = queue
            self._fresh = {}
        return list(self._runnable.values())

    def is_asleep(self, options: m.TaskOptions, pools: WorkerPools) -> bool:
        """Return True if the queue of tasks with these options is not among the runnable ones."""
        if pools.changes != self._changes_seen:
            return False
        demand = options.demand
        return demand not in self._runnable and demand not in self._fresh

    def drop_empty(self, queues: Iterable[ReadyQueue]) -> None:
        """Forget those of some queues with demands in which nothing waits."""
        for queue in queues:
            if not queue.count and queue is not self.ready:
                demand = queue.options.demand
                for place in (self.demanding, self._fresh, self._runnable):
                    place.pop(demand, None)


class Backlog:
    """The ready queues of a scheduler."""

    def __init__(self) -> None:
        self.held_back: dict[int, None] = {}
        """Numbers of sessions whose clients do not read what they are sent: their tasks wait."""
        self.users: dict[Account, UserQueues] = {}
        """What waits, by the account of its user. There are as many as keys, so they all stay."""
        self.resting: dict[Run, None] = {}
        """Single tasks that are queued again later, as they kill one worker after another."""
        self._rests: Deadlines[Run] = Deadlines(lambda run: run not in self.resting)
        self.telling: dict[GraphRecord, None] = {}
        """Graphs that have something to tell workers of the results that these keep."""

    @property
    def count(self) -> int:
        """Number of tasks that wait."""
        return sum(queue.count for queue in self.queues()) + len(self.resting)

    def queues(self) -> list[ReadyQueue]:
        """Return all queues."""
        users = self.users.values()
        return [queue for user in users for queue in (user.ready, *user.demanding.values())]

    def queue(self, entry: Run | ReadyNodes) -> ReadyQueue:
        """Return the queue in which these tasks wait."""
        whole = entry.account.whole or entry.account
        user = self.users.get(whole)
        if user is None:
            user = self.users[whole] = UserQueues(whole, self.held_back)
        options = entry.options
        if options is m.DEFAULT_OPTIONS or options.is_for_any:
            return user.ready
        return user.demanding_queue(options)

    def hold_back(self, session: int) -> None:
        """Give no tasks of a session out for now."""
        self.held_back[session] = None
        for queue in self.queues():
            queue.hold_back(session)

    def let_go(self, session: int) -> None:
        """Give tasks of a session out again."""
        del self.held_back[session]
        for queue in self.queues():
            queue.let_go(session)

    def rest(self, run: Run, until: float) -> None:
        """Let a task wait until then before it is queued."""
        self.resting[run] = None
        self._rests.add(until, run)

    @property
    def rests_until(self) -> float:
        """When :meth:`end_rests` is due, if anything is resting."""
        return self._rests.next

    def end_rests(self, now: float) -> None:
        """Queue the tasks that have waited long enough."""
        for run in self._rests.due(now):
            if self.resting.pop(run, _NO_REST) is None:
                self.queue(run).push(run, front=True)

    def discard(self, run: Run) -> None:
        """Count a whole run out that waits, as its state is about to leave READY."""
        if self.resting.pop(run, _NO_REST) is not None:
            self.queue(run).discard(run)

    def update(self, graph: GraphRecord) -> None:
        """See which nodes of a graph are ready by now."""
        if graph.nodes.unplaced:
            graph.placer.place()
        if graph.placer.has_requests:
            self.telling[graph] = None
        for group in graph.nodes.take_touched():
            self.queue(group).update(group, front=graph.is_begun)

    def withdraw(self, graph: GraphRecord) -> None:
        """Take all nodes of a graph out."""
        self.telling.pop(graph, None)
        for group in graph.nodes.groups:
            group.count = 0
            self.queue(group).update(group, front=True)

    def off_worker(self, run: NodeRun, first: int, stop: int) -> None:
        """A worker does not have these nodes any more: they have ended there."""
        if run.graph.nodes.stopping:
            run.graph.nodes.off_worker(first - run.graph.first, stop - run.graph.first)
            self.update(run.graph)

    def take_telling(self) -> list[GraphRecord]:
        """Return the graphs that have something to tell workers of the results that these keep."""
        telling = list(self.telling)
        self.telling.clear()
        return telling

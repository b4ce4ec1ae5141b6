"""Who gets which tasks, and what is asked back to run elsewhere sooner."""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING

from scaler_cluster.core.credit import (
    STALL_S,
    STEAL_MIN_S,
    grant,
    is_hungry,
)
from scaler_cluster.core.graph import LOOK_FAR
from scaler_cluster.core.lifecycle import Event, State, move
from scaler_cluster.core.placement import WorkerPool, has_all, is_named
from scaler_cluster.core.ready_nodes import ReadyNodes
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.graph import GraphRecord
    from scaler_cluster.core.queue import ReadyQueue
    from scaler_cluster.core.records import SessionRecord, WorkerRecord
    from scaler_cluster.core.table import Table
    from scaler_cluster.core.tasks import Run
    from scaler_cluster.wire.messages import Capabilities, TaskOptions

WORKER_FUNCTIONS_MAX = 1024
"""Functions a worker keeps; the least recently used one goes."""
STEAL_CANDIDATES = 16
"""Workers looked at to find one to take work from: enough to find a good one among thousands."""

PLACE_CANDIDATES = 8
"""Workers looked at to find one whose machine has what a task needs."""
WORTH_S = 0.0001
"""Nodes of a graph that take less together are left to the worker that runs what is around them:
handing them over costs as much."""


class Dispatch:
    """Gives ready tasks to workers by credit, and moves queued ones from busy to idle workers."""

    def __init__(self, table: Table, idle_s: float) -> None:
        self._table = table
        self._idle_s = idle_s
        """How long a worker has nothing to do, before it gets what others have queued."""
        self._stall_s = max(STALL_S, idle_s)
        """How long one reports nothing, before it is looked at."""
        self._steal_at = math.inf
        """When those have had nothing for so long that idle now."""
        self._pools: list[WorkerPool] = []
        """Workers that offer the same; those that offer least come first, as others may be needed
        for what only they can run."""
        self._following: dict[bytes, WorkerRecord] = {}
        """Hungry workers that have nodes of a graph, and reported since work was given out."""
        self._patient_until = math.inf
        """When a few nodes of a graph are given out though others should have come to them."""
        self._is_due = False
        """That time has come."""
        self._loaded: OrderedDict[bytes, WorkerRecord] = OrderedDict()
        """Workers with something queued behind what they run."""
        self._watched: dict[bytes, tuple[float, WorkerRecord]] = {}
        """When each loaded worker is to be looked at, soonest first: every watch lasts equally."""

    # -- bookkeeping -------------------------------------------------------------------------

    def admit(self, worker: WorkerRecord, capabilities: Capabilities) -> None:
        """A worker came that offers this."""
        for pool in self._pools:
            if pool.capabilities == capabilities:
                break
        else:
            pool = WorkerPool(capabilities)
            self._pools.append(pool)
            self._pools.sort(key=lambda one: len(one.capabilities))
        pool.count += 1
        worker.pool = pool
        self.consider(worker)

    def consider(self, worker: WorkerRecord) -> None:
        """Note that a worker's load changed."""
        peer, pool = worker.peer, worker.pool
        if is_hungry(worker):
            if worker.count == 0:
                pool.idle[peer] = worker
                pool.hungry.pop(peer, None)
            else:
                pool.hungry[peer] = worker
                pool.idle.pop(peer, None)
                if worker.runs[-1].graph is not None:
                    self._following[peer] = worker
        else:
            pool.idle.pop(peer, None)
            pool.hungry.pop(peer, None)
            if worker.task_limit and worker.given >= worker.task_limit and worker.count == 0:
                self._retire(worker)
        if worker.count > 1:
            self._loaded[peer] = worker
        else:
            self._loaded.pop(peer, None)
            self._watched.pop(peer, None)

    def arm_stall_timer(self, worker: WorkerRecord, now: float) -> None:
        """Look at a worker in a moment, unless it reports before."""
        if worker.count > 1:
            self._watched.pop(worker.peer, None)
            self._watched[worker.peer] = (now + self._stall_s, worker)

    def offers_work_to(self, worker: WorkerRecord) -> bool:
        """Return True if the worker is among those that get what is ready."""
        takers = worker.pool.hungry if worker.count else worker.pool.idle
        return worker.peer in takers

    def forget(self, worker: WorkerRecord) -> None:
        """A worker is gone."""
        pool = worker.pool
        for place in (pool.idle, pool.hungry, self._following, self._loaded, self._watched):
            place.pop(worker.peer, None)
        pool.count -= 1
        if not pool.count:
            self._pools.remove(pool)

    def _retire(self, worker: WorkerRecord) -> None:
        if not worker.retiring:
            worker.retiring = True
            self._table.send(worker.peer, m.Retire())

    # -- giving ------------------------------------------------------------------------------

    def give_out(self, now: float) -> None:
        """Give ready tasks to idle workers, then to those with little ahead."""
        if self._following:
            self._follow(now)
        if now >= self._patient_until:
            self._patient_until = math.inf
            self._is_due = True
        if self._table.demanding:
            self._give_by_demand(now)
        else:
            ready, pools = self._table.ready, self._pools
            while ready.count and self._give(ready, pools, now):
                pass
        self._is_due = False
        if self._loaded and any(pool.idle for pool in self._pools):
            if self._steal_at == math.inf:
                self._steal_at = now + self._idle_s
            if now >= self._steal_at:
                self._steal_at = math.inf
                self._steal(now)
        else:
            self._steal_at = math.inf

    def _give_by_demand(self, now: float) -> None:
        """Let who demands something come first among equals: fewer workers can run that."""
        table = self._table
        offers = [(queue, self._able(queue.options)) for queue in table.demanding.values()]
        offers.append((table.ready, self._pools))
        while True:
            # Looking for what is next may find that it is gone.
            offers = [(queue, pools) for queue, pools in offers if queue.peek() is not None]
            if not offers:
                break
            best = min(offers, key=lambda offer: offer[0].rank)
            if not self._give(*best, now):
                offers.remove(best)
        for demand in [key for key, queue in table.demanding.items() if not queue.count]:
            del table.demanding[demand]

    def _able(self, options: TaskOptions) -> list[WorkerPool]:
        """Return the workers that offer what tasks demand; names are looked at later."""
        demanded = options.capabilities
        return [pool for pool in self._pools if has_all(pool.offered, demanded)]

    def is_runnable(self, options: TaskOptions) -> bool:
        """Return True if there is a worker that could run tasks with these options."""
        pools = self._able(options)
        if not options.workers:
            return bool(pools)
        workers = self._table.workers.values()
        return any(one.pool in pools and is_named(options, one.name, one.host) for one in workers)

    def _takers(
        self, queue: ReadyQueue, pools: Sequence[WorkerPool]
    ) -> dict[bytes, WorkerRecord] | None:
        """Return workers that are to get something: idle ones, or else those with little ahead."""
        if queue.options.workers:
            return self._named_takers(queue.options, pools)
        for pool in pools:
            if pool.idle:
                return pool.idle
        for pool in pools:
            if pool.hungry:
                return pool.hungry
        return None

    def _named_takers(
        self, options: TaskOptions, pools: Sequence[WorkerPool]
    ) -> dict[bytes, WorkerRecord] | None:
        for takers in chain((pool.idle for pool in pools), (pool.hungry for pool in pools)):
            named = {
                peer: one for peer, one in takers.items() if is_named(options, one.name, one.host)
            }
            if named:
                return named
        return None

    def _give(self, queue: ReadyQueue, pools: Sequence[WorkerPool], now: float) -> bool:
        """Give some of what is next in a queue to a worker; False: no more of it, for now."""
        takers = self._takers(queue, pools)
        if takers is None:
            return False
        run = queue.peek()
        if run is None:
            return False
        worker = next(iter(takers.values()))
        if not worker.count:
            # Of the idle ones, the one that was busy last: it may still be awake.
            worker = next(reversed(takers.values()))
        if len(self._table.objects.stores) > 1:
            worker = self._choose(takers, run, worker)
        if worker.session and worker.count and self._is_above(worker, run):
            other = self._other_than(worker, queue, pools)
            if other is None:
                return False
            worker = other
        unit_s = self._table.functions[run.function].mean_s
        workers = sum(pool.count for pool in pools) if len(pools) > 1 else pools[0].count
        if isinstance(run, ReadyNodes):
            part = self._take_nodes(queue, worker, run, unit_s, workers, now)
            self._is_due = False
        else:
            limit = grant(worker, unit_s, -(-queue.count // workers))
            part = queue.take(run, limit) if limit else None
        if part is None:
            return False
        self._assign(worker, part, unit_s, now)
        hungry = worker.pool.hungry
        if worker.peer in hungry:
            # It had its turn: what little is left goes to the others first.
            hungry[worker.peer] = hungry.pop(worker.peer)
        return True

    def _take_nodes(
        self,
        queue: ReadyQueue,
        worker: WorkerRecord,
        group: ReadyNodes,
        unit_s: float,
        workers: int,
        now: float,
    ) -> Run | None:
        """Take nodes off the group that is next for a worker; None: there are none, for now."""
        graph = group.graph
        # What waits may go with what is ready.
        share = -(-max(queue.count, graph.open) // workers)
        limit = grant(worker, unit_s, share)
        if limit == 0:
            return None
        least = 1
        if graph.open < graph.live and not self._is_due and queue.is_alone(group):
            least = min(int(WORTH_S / unit_s) + 1, LOOK_FAR, limit)
        run = queue.take_nodes(group, limit, worker, least)
        if run is None:
            self._patient_until = min(self._patient_until, now + STALL_S)
        return run

    def _choose(
        self, takers: dict[bytes, WorkerRecord], run: Run | ReadyNodes, first: WorkerRecord
    ) -> WorkerRecord:
        """Return who of a takers gets what is next: near its large data, else the first."""
        wanted = run.graph.next_objects(run) if isinstance(run, ReadyNodes) else run.objects
        if not wanted:
            return first
        objects = self._table.objects
        stores = [objects.records[one].stores for one in wanted]
        candidates = [first, *islice(takers.values(), PLACE_CANDIDATES)]
        return max(candidates, key=lambda one: sum(one.store in there for there in stores))

    def _follow(self, now: float) -> None:
        """Give workers that run nodes of a graph what follows on these, before it is ready.

        So branches stay where they are, and a worker need not wait for what it reported to come
        back. Unless something else is due, or another worker idles that can have it now: asked back
        for that one, it would be given to the same worker again and again.
        """
        table = self._table
        is_any_idle = any(pool.idle for pool in self._pools)
        following, self._following = self._following, {}
        for worker in following.values():
            last = worker.runs[-1] if worker.peer in worker.pool.hungry else None
            if last is None or last.state is not State.ASSIGNED:
                continue
            graph = last.graph
            if graph is None or not graph.open:
                continue
            group = graph.group_of(last.stop - graph.first - 1)
            queue = table.queue(group.options)
            other = queue.peek()
            if other is not None and other is not group:
                continue
            if is_any_idle and graph.is_ready(last.stop - graph.first):
                continue
            unit_s = table.functions[graph.function].mean_s
            limit = grant(worker, unit_s, -(-graph.open // len(table.workers)))
            run = graph.cut_after(last, limit, worker) if limit else None
            if run is not None:
                queue.update(group)
                self._assign(worker, run, unit_s, now)

    def _is_above(self, worker: WorkerRecord, run: Run | ReadyNodes) -> bool:
        """Return True if these tasks were submitted by what the worker runs."""
        return self._table.session_by_number[run.session].worker == worker.peer

    def _other_than(
        self, worker: WorkerRecord, queue: ReadyQueue, pools: Sequence[WorkerPool]
    ) -> WorkerRecord | None:
        """Return another worker that may be given something."""
        options = queue.options
        for takers in chain((pool.idle for pool in pools), (pool.hungry for pool in pools)):
            for other in takers.values():
                if other is not worker and is_named(options, other.name, other.host):
                    return other
        return None

    def _assign(self, worker: WorkerRecord, run: Run, unit_s: float, now: float) -> None:
        table = self._table
        move(run, Event.ASSIGN)
        session = table.session_by_number[run.session]
        if run.graph is not None:
            session.runs[run.first] = run
            table.use(run)
        elif session.runs.get(run.first) is not run:
            # It was cut off the head of a queued run: that one starts later now.
            rest = session.runs[run.first]
            session.runs[run.first] = run
            session.runs[rest.first] = rest
            table.use(run)
        run.worker = worker
        run.unit_s = unit_s
        if worker.count == 0:
            worker.progress_at = now
        worker.runs.append(run)
        count = run.count
        worker.count += count
        table.in_flight += count
        worker.given += count
        worker.backlog_s += count * unit_s
        self._teach(worker, run.function)
        wanted = table.functions[run.function].objects + run.objects
        if run.graph is None:
            options = run.options
            table.send(
                worker.peer,
                m.Assign(
                    run.session,
                    run.first,
                    run.function,
                    run.call,
                    options.timeout_s is not None,
                    options.stream_output,
                    run.batch,
                    table.objects.segments(run.objects, worker) if run.objects else (),
                    options.depth,
                    options.profiling,
                    options.log_level,
                ),
            )
        else:
            wanted += self._send_nodes(worker, run, run.graph)
        if wanted:
            table.objects.bring(wanted, worker)
        self.consider(worker)
        if table.monitor is not None:
            table.monitor.assigned(worker, run)
        if worker.peer not in self._watched:
            self.arm_stall_timer(worker, now)

    def _send_nodes(self, worker: WorkerRecord, run: Run, graph: GraphRecord) -> tuple[bytes, ...]:
        """Send nodes with what they depend on; return the objects that are part of that."""
        worker.node_runs += 1
        run.number = worker.node_runs
        oldest = next(one.number for one in worker.runs if one.graph is not None)
        message, segments = self._with_inputs(worker, run, graph, oldest)
        self._table.send(worker.peer, message)
        return segments

    def _with_inputs(
        self, worker: WorkerRecord, run: Run, graph: GraphRecord, oldest: int
    ) -> tuple[m.AssignNodes, tuple[bytes, ...]]:
        """Return nodes with what they depend on, and the objects that are part of that."""
        objects = self._table.objects
        inputs = graph.inputs_of(run)
        results = [graph.results[node] for node in inputs]
        segments: tuple[bytes, ...] = ()
        ends = b""
        if any(result[1] for result in results):
            segments = tuple(chain.from_iterable(result[1] for result in results))
            ends = array("I", accumulate(len(result[1]) for result in results)).tobytes()
        options = run.options
        message = m.AssignNodes(
            run.session,
            graph.first,
            run.first,
            run.function,
            options.timeout_s is not None,
            options.stream_output,
            run.batch,
            objects.segments(run.objects, worker) if run.objects else (),
            array("I", inputs).tobytes(),
            Batch.of([result[0] for result in results] or [b""]),
            oldest,
            objects.segments(segments, worker),
            ends,
            options.depth,
            options.profiling,
            options.log_level,
        )
        return message, segments

    def hand_over(self, session: SessionRecord, first: int, stop: int) -> None:
        """Send a task, which waits for one of these nodes, one that is ready and comes before it.

        Its worker is not given any: it would only run it after that task.
        """
        table = self._table
        worker = table.workers[session.worker]
        for graph in table.graphs_in(session, first, stop):
            run = graph.hand_over(min(stop, graph.stop) - 1 - graph.first, worker)
            if run is None:
                continue
            node = run.first - graph.first
            wanted = graph.needed_by(run)
            if table.objects.are_at(wanted, worker.store):
                table.send(session.peer, self._with_inputs(worker, run, graph, 0)[0])
            else:
                # The task asks again. It cannot be told if something will not come after all.
                table.objects.bring(wanted, worker)
                del graph.lent[node]
                graph.put_back(run)
            table.queue(run.options).update(graph.group_of(node))

    def _teach(self, worker: WorkerRecord, function: bytes) -> None:
        known = worker.functions
        if function in known:
            known.move_to_end(function)
            return
        known[function] = None
        record = self._table.functions[function]
        segments = self._table.objects.segments(record.objects, worker)
        self._table.send(worker.peer, m.Function(function, record.payload, segments))
        if len(known) > WORKER_FUNCTIONS_MAX:
            self._table.send(worker.peer, m.Forget(known.popitem(last=False)[0]))

    # -- asking back -------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When to look at a watched worker, at the few nodes left, or at those who idle."""
        for when, _ in self._watched.values():
            return min(when, self._patient_until, self._steal_at)
        return min(self._patient_until, self._steal_at)

    def tick(self, now: float) -> None:
        """Ask back what waits behind tasks that turned out long."""
        while self._watched:
            peer, (when, worker) = next(iter(self._watched.items()))
            if when > now:
                return
            del self._watched[peer]
            patience = max(self._stall_s, 2 * worker.runs[0].unit_s)
            if now - worker.progress_at < patience or worker.revoking:
                # What it keeps of something asked back for another reason may be stuck as well.
                self.arm_stall_timer(worker, now)
            else:
                worker.stalled = True
                self._revoke(worker, worker.count - 1)

    def clear(self, worker: WorkerRecord) -> None:
        """Ask back all that a worker has not started."""
        self._revoke(worker, worker.count - 1)

    def _steal(self, now: float) -> None:
        """Ask one loaded worker for half of what it has queued, for those that idle."""
        best: WorkerRecord | None = None
        most = STEAL_MIN_S
        for peer in list(islice(self._loaded, STEAL_CANDIDATES)):
            worker = self._loaded[peer]
            self._loaded.move_to_end(peer)
            if worker.revoking:
                continue
            queued_s = worker.backlog_s * (worker.count - 1) / worker.count
            if queued_s > most:
                best, most = worker, queued_s
        if best is not None and self._has_ready_tail(best):
            self._revoke(best, self._movable(best))

    def _movable(self, worker: WorkerRecord) -> int:
        """Return how many of a worker's last tasks, half at most, may go to those that idle."""
        most = -(-(worker.count - 1) // 2)
        count = 0
        for run in reversed(worker.runs):
            options = run.options
            if options.capabilities or options.workers:
                idle = chain.from_iterable(pool.idle.values() for pool in self._able(options))
                if not any(is_named(options, one.name, one.host) for one in idle):
                    break
            count += run.count
            if count >= most:
                break
        return min(count, most)

    def _has_ready_tail(self, worker: WorkerRecord) -> bool:
        """Return False if what would be asked back only depends on what stays."""
        run = worker.runs[-1]
        graph = run.graph
        if graph is None:
            return True
        start = max(run.first, run.stop - worker.count // 2) - graph.first
        return graph.is_apart(start, run.stop - graph.first)

    def _revoke(self, worker: WorkerRecord, count: int) -> None:
        """Ask a worker for the last ``count`` tasks that it has; it keeps at least one."""
        position = len(worker.runs)
        while count > 0 and position:
            position -= 1
            run = worker.runs[position]
            if run.state is not State.ASSIGNED:
                count -= run.count
                continue
            if run.count > count:
                head = self._table.split(run, run.count - count)
                worker.runs.insert(position, head)
                count = run.count
            count -= run.count
            move(run, Event.REVOKE)
            worker.revoking += 1
            self._table.send(worker.peer, m.Revoke(run.session, run.first, run.count))
        self.consider(worker)

"""Which workers want work, and which have more than they run."""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain, islice
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.credit import holding_s, is_hungry, patience_s
from scaler_cluster.core.records.placement import is_able, is_named
from scaler_cluster.core.records.workers import WorkerPool
from scaler_cluster.core.scheduler.stall_timers import StallTimers
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.prospects import Changes
    from scaler_cluster.wire.messages import Capabilities, TaskOptions

NAMED_MAX = 64
"""Of the workers that a task names, so many are looked at: all of a machine may be named."""


class WorkerPools:
    """All workers, in pools by what they offer; kept in step with what the workers have."""

    def __init__(
        self,
        supervisors: Mapping[bytes, SupervisorRecord],
        send: Callable[[bytes, m.Message], None],
        stall_s: float,
    ) -> None:
        self._supervisors = supervisors
        self._send = send
        self.stall_s = stall_s
        """How long a worker reports nothing, before it is looked at."""
        self.pools: list[WorkerPool] = []
        """The pools that offer least come first, as other workers may be needed for what only they
        can run."""
        self.for_any: list[WorkerPool] = []
        """Those of them that take tasks without a demand."""
        self.reserved: list[WorkerPool] = []
        """Pools whose busy workers get no more in this turn."""
        self.changes = 0
        """How often a worker came or went, or a machine may have another number of them."""
        self._by_name: dict[str, dict[bytes, WorkerRecord]] = {}
        """Workers by their names, and by the names of their machines."""
        self.loaded: OrderedDict[bytes, WorkerRecord] = OrderedDict()
        """Workers with something queued behind what they run."""
        self.stall_timers = StallTimers()
        """When each loaded worker is to be looked at."""
        self.machine_changes: Changes | None = None
        """Which machines have changed; None: nobody has asked yet."""
        self.following: dict[bytes, WorkerRecord] = {}
        """Hungry workers that have nodes of a graph and reported since work was last given out."""

    # -- workers come, change and go -----------------------------------------------------------

    def admit(
        self,
        worker: WorkerRecord,
        capabilities: Capabilities,
        shared: Capabilities = (),
        *,
        has_python: bool = True,
    ) -> None:
        """A worker came that offers this, and shares that with the others of its machine."""
        kind = capabilities, shared, has_python
        for pool in self.pools:
            if (pool.capabilities, pool.shared, pool.has_python) == kind:
                break
        else:
            pool = WorkerPool(capabilities, shared, has_python=has_python)
            self.pools.append(pool)
            self.pools.sort(key=lambda one: len(one.offered))
            self.for_any = [one for one in self.pools if one.has_python]
        pool.count += 1
        worker.pool = pool
        self.changes += 1
        for name in worker.names:
            self._by_name.setdefault(name, {})[worker.peer] = worker
        self.consider(worker)

    def consider(self, worker: WorkerRecord) -> None:
        """Note that a worker's load changed."""
        peer, pool = worker.peer, worker.pool
        if self.machine_changes is not None:
            self.machine_changes.note(worker.supervisor)
        if is_hungry(worker):
            if worker.count == 0:
                pool.idle[peer] = worker
                pool.hungry.pop(peer, None)
            else:
                pool.hungry[peer] = worker
                pool.idle.pop(peer, None)
                if isinstance(worker.runs[-1], NodeRun):
                    self.following[peer] = worker
        else:
            pool.idle.pop(peer, None)
            pool.hungry.pop(peer, None)
            if worker.task_limit and worker.given >= worker.task_limit and worker.count == 0:
                self.retire(worker)
        if worker.count > 1:
            self.loaded[peer] = worker
        else:
            self.loaded.pop(peer, None)
            self.stall_timers.pop(peer)

    def progressed(self, worker: WorkerRecord, now: float) -> None:
        """A worker reported on a task; its load is yet to be considered."""
        worker.progress_at = now
        worker.stalled = False
        if worker.count > 1:
            self.arm_stall_timer(worker, now)

    def arm_stall_timer(self, worker: WorkerRecord, now: float) -> None:
        """Look at a loaded worker in a moment, unless it reports before."""
        self.stall_timers.set(worker, now + self.patience_s(worker))

    def patience_s(self, worker: WorkerRecord) -> float:
        """Return how long a worker may report nothing before what it runs turned out long."""
        run = worker.runs[0] if worker.runs else None
        unit_s = run.unit_s if run is not None else 0.0
        held_s = 0.0 if isinstance(run, NodeRun) else holding_s(unit_s)
        return patience_s(unit_s, self.stall_s, held_s)

    def forget(self, worker: WorkerRecord) -> None:
        """A worker is gone."""
        self.machine_changed(worker.supervisor)
        pool = worker.pool
        for place in (pool.idle, pool.hungry, self.following, self.loaded):
            place.pop(worker.peer, None)
        self.stall_timers.pop(worker.peer)
        pool.count -= 1
        if not pool.count:
            self.pools.remove(pool)
            self.for_any = [one for one in self.pools if one.has_python]
        self.changes += 1
        for name in worker.names:
            named = self._by_name.get(name, {})
            named.pop(worker.peer, None)
            if not named:
                self._by_name.pop(name, None)

    def machine_changed(self, machine: bytes) -> None:
        """Take note that the workers of a machine, or what these share, have changed."""
        if self.machine_changes is not None:
            self.machine_changes.note(machine)

    def retire(self, worker: WorkerRecord) -> None:
        """Let a worker leave that has nothing to do."""
        if not worker.retiring:
            worker.retiring = True
            self._send(worker.peer, m.Retire())
            self.consider(worker)

    # -- workers that can be given work --------------------------------------------------------

    @property
    def is_any_idle(self) -> bool:
        """Return True if a worker has nothing to do."""
        return any(pool.idle for pool in self.pools)

    def offers_work_to(self, worker: WorkerRecord) -> bool:
        """Return True if the worker is among those that get what is ready."""
        takers = worker.pool.hungry if worker.count else worker.pool.idle
        return worker.peer in takers

    def able(self, options: TaskOptions) -> list[WorkerPool]:
        """Return the pools that offer what tasks demand; names are looked at later."""
        return [pool for pool in self.pools if is_able(pool, options)]

    def is_runnable(self, options: TaskOptions) -> bool:
        """Return True if there is a worker that could run tasks with these options."""
        pools = self.able(options)
        if options.cores > 1:
            return any(
                one.pool in pools and is_named(options, one.names)
                for supervisor in self._supervisors.values()
                if supervisor.size >= options.cores
                for one in supervisor.workers.values()
            )
        if not options.workers:
            return bool(pools)
        named = (self._by_name.get(name, {}) for name in options.workers)
        return any(one.pool in pools for workers in named for one in workers.values())

    def are_shared(self, options: TaskOptions) -> bool:
        """Return True if tasks with these options use what workers of a machine share.

        Those that make actors need a worker that has nothing else to do, as these do.
        """
        if options.cores != 1 or options.creates:
            return True
        shared = {name for pool in self.able(options) for name, _ in pool.shared}
        return any(name in shared and amount > 0 for name, amount in options.capabilities)

    def takers(
        self, options: TaskOptions, pools: Sequence[WorkerPool]
    ) -> dict[bytes, WorkerRecord] | None:
        """Return workers that are to get something: idle ones, or else those with little ahead."""
        if options.workers:
            return self._named_takers(options, pools)
        for pool in pools:
            if pool.idle:
                return pool.idle
        for pool in pools:
            if pool.hungry and not pool.is_reserved:
                return pool.hungry
        return None

    def reserve(self, options: TaskOptions, pools: Sequence[WorkerPool]) -> None:
        """Give workers that are busy no more in this turn: what is next wants them idle.

        Else a stream of short tasks would keep them from long tasks for ever. Tasks that name
        their workers wait without this, as most of the pools' workers are of no use to them.
        """
        if not options.workers:
            self.reserved += pools
            for pool in pools:
                pool.is_reserved = True

    def end_turn(self) -> None:
        """All that is next was looked at: the next turn reserves anew."""
        for pool in self.reserved:
            pool.is_reserved = False
        self.reserved.clear()

    def _named_takers(
        self, options: TaskOptions, pools: Sequence[WorkerPool]
    ) -> dict[bytes, WorkerRecord] | None:
        for takers in _all_takers(pools):
            if named := self._named_among(takers, options):
                return named
        return None

    def _named_among(
        self, takers: dict[bytes, WorkerRecord], options: TaskOptions
    ) -> dict[bytes, WorkerRecord]:
        """Return some of those that tasks name; cost: O(takers, or workers of these names)."""
        if sum(len(self._by_name.get(name, ())) for name in options.workers) >= len(takers):
            able = (it for it in takers.items() if is_named(options, it[1].names))
            return dict(islice(able, NAMED_MAX))
        # Most takers are of no use: there may be thousands.
        named = (self._by_name.get(name, {}).items() for name in options.workers)
        return dict(islice((it for it in chain.from_iterable(named) if it[0] in takers), NAMED_MAX))

    def had_turn(self, worker: WorkerRecord, options: TaskOptions) -> None:
        """A worker was given something: what little is left goes to other workers first."""
        peer, hungry = worker.peer, worker.pool.hungry
        if peer in hungry:
            hungry[peer] = hungry.pop(peer)
        if options.workers:
            for name in worker.names:
                named = self._by_name[name]
                named[peer] = named.pop(peer)

    def other_than(
        self, worker: WorkerRecord, options: TaskOptions, pools: Sequence[WorkerPool]
    ) -> WorkerRecord | None:
        """Return another worker that may be given something."""
        for takers in _all_takers(pools):
            able = self._named_among(takers, options) if options.workers else takers
            for other in able.values():
                if other is not worker:
                    return other
        return None


def _all_takers(pools: Sequence[WorkerPool]) -> Iterator[dict[bytes, WorkerRecord]]:
    return chain((pool.idle for pool in pools), (pool.hungry for pool in pools))

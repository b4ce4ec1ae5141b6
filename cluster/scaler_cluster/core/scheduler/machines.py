"""What the workers of a machine share, and tasks that need several of its workers.

Such a task is given to a worker that has nothing else, once all is free that it needs: nothing of
it is ever promised ahead. If it is next in its turn and cannot be placed, one machine keeps what it
has for it: others may not take that in this turn, and the next turn looks anew. So a large task
does not starve behind small ones, and at most what one task needs lies idle for each machine.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from scaler_cluster.core.records.amounts import device_count
from scaler_cluster.core.records.placement import is_named, may_run_inside
from scaler_cluster.core.scheduler.prospects import Changes, Prospects
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from scaler_cluster.core.records.amounts import Amounts
    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.queue import ReadyQueue
    from scaler_cluster.core.scheduler.table import Table

QUICK_LOOKS = 4
"""Machines that are looked at before it is worked out for all what they lack."""
KNOWN_MAX = 200_000
"""For so many machines, all demands together, it is known what they lack: some 50 MB."""
KNOWN_LEAST = 16


class Machines:
    """Knows what of the machines is free, and parks workers for tasks with several cores."""

    def __init__(self, table: Table, pools: WorkerPools) -> None:
        self._table = table
        self._pools = pools
        self._keeping: dict[bytes, SupervisorRecord] = {}
        """Machines that keep something for a task that cannot be placed yet."""
        self._kept: list[WorkerRecord] = []
        """Workers that they have parked for that."""
        self._short: dict[bytes, SupervisorRecord] = {}
        """Machines that have yet to park workers for running tasks, as these are busy."""
        self._given = 0
        self._known: dict[m.Demand, Prospects] = {}
        """What machines lack for tasks, by what these demand, the last one asked for last."""

    # -- turns ---------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Let go of what was kept in the last turn."""
        kept, self._kept = self._kept, []
        for worker in kept:
            self._park(worker, is_parked=False)
        for supervisor in self._keeping.values():
            supervisor.amounts.end_reserve()
            self._pools.machine_changed(supervisor.peer)
        self._keeping.clear()
        short, self._short = self._short, {}
        for supervisor in short.values():
            if self._table.supervisors.get(supervisor.peer) is supervisor:
                self.balance(supervisor)

    @property
    def is_waiting(self) -> bool:
        """Return True if :meth:`begin_turn` has something to do."""
        return bool(self._keeping or self._short)

    # -- a place for a task --------------------------------------------------------------------

    def place(
        self, queue: ReadyQueue, wanted: Collection[bytes]
    ) -> tuple[WorkerRecord, m.Portion] | None:
        """Return an idle worker for the next task of a queue, and what the task is to have there.

        It is one of the ``wanted`` workers if that can be. None: there is none, and one machine
        keeps what it has for the task.
        """
        if not wanted and queue.options.demand not in self._known:
            # There may be thousands of demands, each of one task.
            found = self._place_quickly(queue)
            if found is not None:
                return found
        prospects = self._prospects(queue)
        supervisors = self._table.supervisors
        found = self._place_wanted(queue, prospects, wanted)
        if found is not None:
            return found
        best: tuple[float, bytes] | None = None
        with closing(prospects.soonest()) as soonest:
            for lack, peer in soonest:
                if not lack:
                    found = self._place_at(queue, supervisors[peer], wanted)
                    if found is not None:
                        return found
                elif best is not None:
                    break
                if best is None and peer not in self._keeping:
                    best = lack, peer
        if best is not None:
            kept_at = queue.kept_at
            is_same = prospects.lack_of(kept_at) == best[0] and kept_at not in self._keeping
            supervisor = supervisors[kept_at if is_same else best[1]]
            able = [one for one in supervisor.workers.values() if self._is_able(one, queue)]
            self._keep(queue, supervisor, able)
        return None

    def _place_wanted(
        self, queue: ReadyQueue, prospects: Prospects, wanted: Collection[bytes]
    ) -> tuple[WorkerRecord, m.Portion] | None:
        """Return one of the wanted workers, if it can have the next task."""
        workers, supervisors = self._table.workers, self._table.supervisors
        for peer in dict.fromkeys(workers[one].supervisor for one in wanted if one in workers):
            if prospects.lack_of(peer) == 0:
                found = self._place_at(queue, supervisors[peer], wanted)
                if found is not None and found[0].peer in wanted:
                    return found
        return None

    def _place_at(
        self, queue: ReadyQueue, supervisor: SupervisorRecord, wanted: Collection[bytes]
    ) -> tuple[WorkerRecord, m.Portion] | None:
        """Return an idle worker of a machine that lacks nothing; None: none has the GPUs."""
        idle = self._idle(supervisor)
        ready = [one for one in idle if self._is_able(one, queue)]
        ready.sort(key=lambda one: one.peer not in wanted)
        uses = supervisor.amounts.used_by(queue.options)
        made = self._runner(supervisor, ready, uses)
        if made is None:
            return None
        cores = _cores(queue.options, supervisor, len(idle))
        is_whole = queue.options.cores == m.WHOLE_MACHINE
        return made[0], m.Portion(uses, made[1], cores, is_whole)

    def _prospects(self, queue: ReadyQueue) -> Prospects:
        """Return what the machines lack for a queue's next task, as they are now."""
        supervisors, demand = self._table.supervisors, queue.options.demand
        changes, prospects = self._pools.machine_changes, self._known.pop(demand, None)
        if changes is None:
            changes = self._pools.machine_changes = Changes()
        changes.clean(supervisors)
        is_known = prospects is not None and prospects.seen >= changes.whole_since
        if prospects is None or not is_known or prospects.pools != queue.pools:
            prospects = Prospects(queue.pools, changes.last)
            changed = list(supervisors)
        else:
            changed = changes.since(prospects.seen)
            prospects.seen = changes.last
        self._known[demand] = prospects
        if len(self._known) > max(KNOWN_MAX // max(len(supervisors), 1), KNOWN_LEAST):
            del self._known[next(iter(self._known))]
        for peer in dict.fromkeys((*changed, *prospects.unsettled)):
            supervisor = supervisors.get(peer)
            prospects.unsettled.pop(peer, None)
            if supervisor is not None and not self._is_known(supervisor):
                prospects.unsettled[peer] = None
                supervisor = None
            prospects.note(peer, None if supervisor is None else self.lack(queue, supervisor))
        return prospects

    def _place_quickly(self, queue: ReadyQueue) -> tuple[WorkerRecord, m.Portion] | None:
        """Return an idle worker on one of the first machines, if all is free there."""
        for supervisor in islice(self._table.supervisors.values(), QUICK_LOOKS):
            if self._is_known(supervisor) and self.lack(queue, supervisor) == 0:
                return self._place_at(queue, supervisor, ())
        return None

    def lack(self, queue: ReadyQueue, supervisor: SupervisorRecord) -> float | None:
        """Return what a machine lacks for the next task of a queue, as workers to become idle.

        None: it cannot run such tasks. Cost: O(workers of the machine).
        """
        here = [one for one in supervisor.workers.values() if _takes_work(one)]
        if not any(self._is_able(one, queue) for one in here):
            return None
        missing = _missing(queue.options, supervisor, here, self._idle(supervisor))
        uses = supervisor.amounts.used_by(queue.options)
        lack = missing + (not supervisor.amounts.are_free(uses))
        return None if lack == math.inf else lack

    def is_right(self, queue: ReadyQueue) -> bool:
        """Return True if what is known of the machines for a queue is so; for tests."""
        prospects, changes = self._known.get(queue.options.demand), self._pools.machine_changes
        if prospects is None or changes is None or prospects.pools != queue.pools:
            return True
        unsure = {*changes.since(prospects.seen), *prospects.unsettled}
        return prospects.seen < changes.whole_since or all(
            prospects.lack_of(peer) == self.lack(queue, one)
            for peer, one in self._table.supervisors.items()
            if peer not in unsure
        )

    def _idle(self, supervisor: SupervisorRecord) -> list[WorkerRecord]:
        """Return the workers of a machine that could begin a task now."""
        offers = self._pools.offers_work_to
        workers = supervisor.workers.values()
        return [one for one in workers if _takes_work(one) and not one.count and offers(one)]

    def given(self, queue: ReadyQueue) -> None:
        """A task of a queue was placed: among equals, it is the others' turn."""
        self._given += 1
        queue.given = self._given
        queue.kept_at = b""

    def _is_able(self, worker: WorkerRecord, queue: ReadyQueue) -> bool:
        return worker.pool in queue.pools and is_named(queue.options, worker.names)

    def _is_known(self, supervisor: SupervisorRecord) -> bool:
        """Return True once all workers have told what they hold that the machine came back with."""
        return not supervisor.roll or all(one in self._table.workers for one in supervisor.roll)

    def _runner(
        self, supervisor: SupervisorRecord, idle: Sequence[WorkerRecord], uses: m.Capabilities
    ) -> tuple[WorkerRecord, tuple[int, ...]] | None:
        """Return the idle worker that gets a task, and its GPUs.

        A library stays with the GPUs that its process has used first. So a worker is told of the
        same ones each time, and one that cannot have these is replaced.
        """
        count = device_count(uses)
        if not count:
            return (idle[0], ()) if idle else None
        free = supervisor.amounts.devices
        for worker in idle:
            if len(worker.devices) == count and set(worker.devices) <= set(free):
                return worker, worker.devices
        for worker in idle:
            if not worker.devices:
                known = {one for other in supervisor.workers.values() for one in other.devices}
                chosen = sorted(free, key=lambda one: (one in known, one))[:count]
                return worker, tuple(sorted(chosen))
        self._replace_one(supervisor, idle)
        return None

    def _replace_one(self, supervisor: SupervisorRecord, idle: Sequence[WorkerRecord]) -> None:
        """Let a worker leave, so that another one comes in its place, unless one is on its way."""
        workers = [one for one in supervisor.workers.values() if not one.spare]
        is_coming = len(workers) < supervisor.workers_wanted or any(one.retiring for one in workers)
        old = [one for one in idle if not one.spare]
        if old and not is_coming:
            self._pools.retire(old[0])

    def _keep(
        self, queue: ReadyQueue, supervisor: SupervisorRecord, able: Sequence[WorkerRecord]
    ) -> None:
        """Let a machine keep for a task what it has of that which the task needs."""
        options, amounts = queue.options, supervisor.amounts
        uses = amounts.used_by(options)
        if amounts.are_free(uses):
            # While an amount is missing, its workers have better things to do.
            free = set(amounts.devices)
            first = min(able, key=lambda one: (not free.issuperset(one.devices), *_busyness(one)))
            others = [one for one in supervisor.workers.values() if _takes_work(one)]
            others.sort(key=lambda one: (one is not first, *_busyness(one)))
            stop = len(others) if options.cores == m.WHOLE_MACHINE else options.cores
            for worker in others[:stop]:
                self._kept.append(worker)
                self._park(worker, is_parked=True)
        amounts.reserve(uses)
        self._pools.machine_changed(supervisor.peer)
        queue.kept_at = supervisor.peer
        self._keeping[supervisor.peer] = supervisor

    # -- what tasks have -----------------------------------------------------------------------

    def hold(self, worker: WorkerRecord, run: Run, portion: m.Portion) -> None:
        """A worker is given a task, which has this."""
        self.take(worker, portion)
        run.portion = portion
        supervisor = self._table.supervisors[worker.supervisor]
        if portion.is_whole or portion.cores > 1:
            supervisor.wide[worker.peer] = worker
            self.balance(supervisor)

    def take(self, worker: WorkerRecord, portion: m.Portion) -> None:
        """A worker has this from now on."""
        supervisor = self._table.supervisors[worker.supervisor]
        supervisor.amounts.take(portion)
        self._pools.machine_changed(supervisor.peer)
        worker.portion = portion
        worker.devices = portion.devices or worker.devices

    def can_hold(self, worker: WorkerRecord, portion: m.Portion) -> bool:
        """Return True if nobody else has what a task of a worker says it has."""
        amounts: Amounts = self._table.supervisors[worker.supervisor].amounts
        return worker.portion is None and amounts.can_hold(portion)

    def release(self, worker: WorkerRecord, run: Run) -> None:
        """A task that had a portion is not on its worker any more; an actor keeps the portion."""
        run.portion = None
        if not worker.actor:
            self.give_back(worker)

    def give_back(self, worker: WorkerRecord) -> None:
        """Give back what a worker has of its machine."""
        portion, worker.portion = worker.portion, None
        supervisor = self._table.supervisors.get(worker.supervisor)
        if portion is not None and supervisor is not None:
            supervisor.amounts.give_back(portion)
            self._pools.machine_changed(supervisor.peer)
            if portion.is_whole or portion.cores > 1:
                supervisor.wide.pop(worker.peer, None)
                self.balance(supervisor)

    def may_run_inside(self, worker: WorkerRecord, options: m.TaskOptions) -> bool:
        """Return True if a task may run on the stack of one that waits for it on a worker.

        One that needs several cores may, too, if all workers of the machine wait for others: there
        are only so many spare ones, and nothing else would ever go on.
        """
        if may_run_inside(worker, options):
            return True
        workers = self._table.supervisors[worker.supervisor].workers.values()
        if options.cores == 1 or not all(map(_is_leaving, workers)):
            return False
        return may_run_inside(worker, replace(options, cores=1))

    def balance(self, supervisor: SupervisorRecord) -> None:
        """Park as many workers as the running tasks of a machine need, idle ones first.

        A task that waits for others does not need them meanwhile. Cost: O(workers of the machine),
        if there are such tasks.
        """
        needed = cores_needed(supervisor)
        if not needed and not supervisor.parked:
            self._short.pop(supervisor.peer, None)
            return
        workers = supervisor.workers.values()
        before, supervisor.parked = supervisor.parked, {}
        may = [
            one
            for one in workers
            if one.portion is None and (one.peer in before or _takes_work(one))
            and not _is_leaving(one)
        ]  # fmt: skip
        may.sort(key=lambda one: (one.count > 0, one.peer not in before, one.backlog_s))
        needed = int(min(needed, len(may))) if needed == math.inf else int(needed)
        supervisor.parked = {one.peer: one for one in may[:needed]}
        self._pools.machine_changed(supervisor.peer)
        for one in before.values():
            if one.peer not in supervisor.parked:
                self._park(one, is_parked=False)
        for one in supervisor.parked.values():
            self._park(one, is_parked=True)
        is_short = len(supervisor.parked) < needed or any(
            one.count for one in supervisor.parked.values()
        )
        if is_short:
            self._short[supervisor.peer] = supervisor
        else:
            self._short.pop(supervisor.peer, None)

    def _park(self, worker: WorkerRecord, *, is_parked: bool) -> None:
        if worker.parked is not is_parked:
            worker.parked = is_parked
            if self._table.workers.get(worker.peer) is worker:
                self._pools.consider(worker)


def cores_needed(supervisor: SupervisorRecord) -> float:
    """Return how many workers of a machine are to be parked for its running tasks; inf: all."""
    return sum(
        math.inf if one.portion.is_whole else one.portion.cores - 1
        for one in supervisor.wide.values()
        if one.portion is not None and not one.blocked
    )


def _cores(options: m.TaskOptions, supervisor: SupervisorRecord, idle: int) -> int:
    if options.cores == m.WHOLE_MACHINE:
        return max(idle, supervisor.workers_wanted)
    return options.cores


def _missing(
    options: m.TaskOptions,
    supervisor: SupervisorRecord,
    here: Sequence[WorkerRecord],
    idle: Sequence[WorkerRecord],
) -> float:
    """Return how many workers are to become idle before a task can start; inf: too few are here."""
    if options.cores == m.WHOLE_MACHINE:
        workers = supervisor.workers.values()
        busy = sum(one.parked or (one.count > 0 and not one.blocked) for one in workers)
        return max(busy, 1 - len(idle))
    waiting = sum(one.blocked for one in supervisor.workers.values())
    if len(here) + len(supervisor.parked) + waiting < options.cores:
        return math.inf
    # There may be no spare worker for each of those that wait. They use no core.
    needed = min(options.cores, max(len(here) + len(supervisor.parked), 1))
    return max(needed - len(idle), 0)


def _busyness(worker: WorkerRecord) -> tuple[bool, float]:
    return worker.count > 0, worker.backlog_s


def _is_leaving(worker: WorkerRecord) -> bool:
    is_away = worker.blocked or worker.asleep_at != math.inf
    return worker.retiring or bool(worker.killed) or is_away


def _takes_work(worker: WorkerRecord) -> bool:
    """Return True if a worker is given tasks, now or once it has finished what it has."""
    return not worker.parked and not _is_leaving(worker)

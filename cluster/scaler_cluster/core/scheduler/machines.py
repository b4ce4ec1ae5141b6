"""What the workers of a machine share, and tasks that need several of its workers.

Such a task is given to a worker that has nothing else, once all is free that it needs: nothing of
it is ever promised ahead. If it is next in its turn and cannot be placed, one machine keeps what it
has for it: others may not take that in this turn, and the next turn looks anew. So a large task
does not starve behind small ones, and at most what one task needs lies idle for each machine.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.core.records.amounts import device_count
from scaler_cluster.core.records.placement import is_named, may_run_inside
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from scaler_cluster.core.records.amounts import Amounts
    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.queue import ReadyQueue
    from scaler_cluster.core.scheduler.table import Table


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

    # -- turns ---------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Let go of what was kept in the last turn."""
        kept, self._kept = self._kept, []
        for worker in kept:
            self._park(worker, is_parked=False)
        for supervisor in self._keeping.values():
            supervisor.amounts.end_reserve()
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
        best: tuple[tuple[float, bool], SupervisorRecord, list[WorkerRecord]] | None = None
        found: tuple[WorkerRecord, m.Portion] | None = None
        for supervisor in self._table.supervisors.values():
            here = [one for one in supervisor.workers.values() if _takes_work(one)]
            able = [one for one in here if self._is_able(one, queue)]
            if not able or not self._is_known(supervisor):
                continue
            idle = [one for one in here if not one.count and self._pools.offers_work_to(one)]
            missing = _missing(queue.options, supervisor, here, idle)
            uses = supervisor.amounts.used_by(queue.options)
            is_free = supervisor.amounts.are_free(uses)
            if not missing and is_free:
                ready = [one for one in able if not one.count and self._pools.offers_work_to(one)]
                ready.sort(key=lambda one: one.peer not in wanted)
                made = self._runner(supervisor, ready, uses)
                if made is not None:
                    cores = _cores(queue.options, supervisor, len(idle))
                    is_whole = queue.options.cores == m.WHOLE_MACHINE
                    found = made[0], m.Portion(uses, made[1], cores, is_whole)
                    if not wanted or made[0].peer in wanted:
                        break
            if found is None and missing < math.inf and supervisor.peer not in self._keeping:
                rank = missing + (not is_free), supervisor.peer != queue.kept_at
                if best is None or rank < best[0]:
                    best = rank, supervisor, able
        if found is None and best is not None:
            self._keep(queue, best[1], best[2])
        return found

    def given(self, queue: ReadyQueue) -> None:
        """A task of a queue was placed: among equals, it is the others' turn."""
        self._given += 1
        queue.given = self._given
        queue.kept_at = b""

    def _is_able(self, worker: WorkerRecord, queue: ReadyQueue) -> bool:
        return worker.pool in queue.pools and is_named(queue.options, worker.name, worker.host)

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
        queue.kept_at = supervisor.peer
        self._keeping[supervisor.peer] = supervisor

    # -- what tasks have -----------------------------------------------------------------------

    def hold(self, worker: WorkerRecord, run: Run, portion: m.Portion) -> None:
        """A worker is given a task, which has this."""
        supervisor = self._table.supervisors[worker.supervisor]
        supervisor.amounts.take(portion)
        run.portion = worker.portion = portion
        worker.devices = portion.devices or worker.devices
        if portion.is_whole or portion.cores > 1:
            self.balance(supervisor)

    def can_hold(self, worker: WorkerRecord, portion: m.Portion) -> bool:
        """Return True if nobody else has what a task of a worker says it has."""
        amounts: Amounts = self._table.supervisors[worker.supervisor].amounts
        return worker.portion is None and amounts.can_hold(portion)

    def release(self, worker: WorkerRecord, run: Run) -> None:
        """A task that had a portion is not on its worker any more."""
        portion, run.portion, worker.portion = run.portion, None, None
        supervisor = self._table.supervisors.get(worker.supervisor)
        if portion is not None and supervisor is not None:
            supervisor.amounts.give_back(portion)
            if portion.is_whole or portion.cores > 1:
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
        workers = supervisor.workers.values()
        needed = cores_needed(supervisor)
        if not needed and not supervisor.parked:
            self._short.pop(supervisor.peer, None)
            return
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
        for one in supervisor.workers.values()
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

"""What an operator does to workers and machines: pause, resume, drain and restart them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.cancelling import UnknownNameError
from scaler_cluster.ids import alias_of
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.draining import Draining
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.rebalance import Rebalancer
    from scaler_cluster.core.scheduler.table import Table


class NotPossibleError(Exception):
    """What an operator asks for cannot be done with these workers."""


class WorkerControl:
    """Finds workers by what an operator calls them, or their machines, and acts on them."""

    def __init__(
        self, table: Table, pools: WorkerPools, rebalancer: Rebalancer, draining: Draining
    ) -> None:
        self._table = table
        self._pools = pools
        self._rebalancer = rebalancer
        self._draining = draining
        self._acts: dict[str, Callable[[WorkerRecord], None]] = {
            m.PAUSE: self._pause,
            m.RESUME: self._resume,
            m.DRAIN: self._drain,
            m.RESTART: self._restart,
        }

    def act(
        self, action: str, kind: str, name: str, *, is_forced: bool, is_trial: bool, by: str
    ) -> list[WorkerRecord]:
        """Act on all workers that have this name, or whose machine has; return them.

        With ``is_trial`` nothing is done. Raises UnknownNameError, NotPossibleError.
        """
        machines: list[SupervisorRecord] = []
        if kind == m.MACHINE:
            machines = self._machines(name)
            workers = [one for machine in machines for one in machine.workers.values()]
        else:
            workers = self._workers(name)
        if action in (m.DRAIN, m.RESTART) and not is_forced:
            self._check_may_leave(action, workers, is_alone=not machines)
        if is_trial:
            return workers
        for machine in machines:
            if action in (m.PAUSE, m.RESUME):
                machine.is_paused = action == m.PAUSE
            elif action == m.DRAIN:
                self._draining.start_unit(machine)
        for worker in workers:
            if is_forced:
                self._kill(worker, by)
            elif action != m.DRAIN or not machines:
                self._acts[action](worker)
        return workers

    def _machines(self, name: str) -> list[SupervisorRecord]:
        supervisors = self._table.supervisors.values()
        found = [one for one in supervisors if name in (one.host, alias_of(one.peer).hex())]
        if not found:
            raise UnknownNameError(f"there is no machine {name:.200}")
        return found

    def _workers(self, name: str) -> list[WorkerRecord]:
        workers = self._table.workers.values()
        # Not by the name of its machine: that is all of its workers.
        found = [one for one in workers if name and name in (one.name, alias_of(one.peer).hex())]
        if not found:
            raise UnknownNameError(f"there is no worker {name:.200}")
        return found

    def _check_may_leave(self, action: str, workers: list[WorkerRecord], *, is_alone: bool) -> None:
        table = self._table
        for worker in workers:
            who = f"worker {worker.name or alias_of(worker.peer).hex()}"
            if worker.actor:
                raise NotPossibleError(f"the {worker.actor} lives in {who}: end the actor first")
            if is_alone and worker.spare:
                raise NotPossibleError(f"{who} is a spare one, which leaves by itself")
            if is_alone and action == m.DRAIN and worker.supervisor in table.managers:
                raise NotPossibleError(
                    f"a policy says how many workers the machine of {who} has, and would start "
                    "another one: drain the machine, or pause the worker"
                )

    def _pause(self, worker: WorkerRecord) -> None:
        worker.paused = True
        self._pools.consider(worker)
        self._rebalancer.clear(worker)

    def _resume(self, worker: WorkerRecord) -> None:
        worker.paused = False
        self._pools.consider(worker)

    def _drain(self, worker: WorkerRecord) -> None:
        """Let a worker leave for good: its machine is to have one worker less."""
        if worker.retiring or worker.killed:
            return
        supervisor = self._table.supervisors[worker.supervisor]
        if supervisor.manager and supervisor.workers_wanted <= 1:
            # A unit without a worker would go on, and cost what it costs.
            self._draining.start_unit(supervisor)
            return
        supervisor.workers_wanted = max(supervisor.workers_wanted - 1, 0)
        self._table.send(supervisor.peer, m.Wanted(supervisor.workers_wanted))
        self._pools.changes += 1
        self._draining.start(worker, is_for_good=True)

    def _restart(self, worker: WorkerRecord) -> None:
        self._draining.start(worker, is_for_good=True)

    def _kill(self, worker: WorkerRecord, by: str) -> None:
        if not worker.killed:
            worker.killed = f"{by} restarted it"
            self._table.send(worker.supervisor, m.Kill(worker.peer, worker.killed))
            self._pools.consider(worker)

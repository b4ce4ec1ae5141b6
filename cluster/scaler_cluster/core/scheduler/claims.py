"""What workers hold that another scheduler gave them, and who asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.lifecycle import Event, State
from scaler_cluster.core.records.placement import may_run
from scaler_cluster.ids import SESSION_BITS
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.assignment import Assigner
    from scaler_cluster.core.scheduler.failures import Failures
    from scaler_cluster.core.scheduler.machines import Machines
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.core.scheduler.stopping import Stopping
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.core.scheduler.worker_runs import WorkerRuns


class Claims:
    """Gives queued tasks to the workers that hold them, and knows which were started before."""

    def __init__(
        self,
        table: Table,
        runs: WorkerRuns,
        assigner: Assigner,
        stopping: Stopping,
        failures: Failures,
        pools: WorkerPools,
        machines: Machines,
    ) -> None:
        self._table = table
        self._runs = runs
        self._assigner = assigner
        self._stopping = stopping
        self._failures = failures
        self._pools = pools
        self._machines = machines
        self._started: dict[int, list[range]] = {}
        """Tasks, by session, that workers started and that must not start again."""
        self.epochs: tuple[int, ...] = ()
        """Schedulers of whose clients' tasks all that may have been started are known."""

    def settle(self, worker: WorkerRecord, holding: m.Holding, now: float) -> None:
        """Let a worker have those tasks that it holds and that are queued; abort the others."""
        first, stop = holding.first, holding.first + holding.count
        session = self._table.session_by_number.get(holding.session)
        if session is None:
            # Its client may come yet: by then, the worker may have started them.
            self.started(holding.session, first, stop)
        at, portion = first, holding.portion
        if portion is not None and not self._machines.can_hold(worker, portion):
            self._abort(worker, replace(holding, portion=None), first, stop, now)
            return
        for run in session.runs.overlapping(first, stop) if session is not None else ():
            is_queued = run.state is State.READY and not isinstance(run, NodeRun)
            if not is_queued or not may_run(worker, run.options):
                continue
            low, high = max(run.first, first), min(run.stop, stop)
            self._abort(worker, holding, at, low, now)
            adopted = self._runs.take_queued(run, low, high)
            self._assigner.adopt(worker, adopted, now, portion)
            portion = None
            if low == first and holding.running_s:
                worker.progress_at = now - holding.running_s
                since = now - holding.running_s
                self._stopping.started(worker, holding.session, first, since)
            at = high
        self._abort(worker, holding, at, stop, now)

    def _abort(
        self, worker: WorkerRecord, holding: m.Holding, low: int, high: int, now: float
    ) -> None:
        if low < high:
            self._table.send(worker.peer, m.Abort(holding.session, low, high - low))
            if low == holding.first and holding.running_s:
                run = self._stopping.disown(worker, low, now)
                if holding.portion is not None:
                    self._machines.hold(worker, run, holding.portion)
                self._pools.consider(worker)

    # -- tasks that must not start twice -------------------------------------------------------

    def started(self, session: int, first: int, stop: int) -> None:
        """A worker has started these tasks, or may have."""
        self._started.setdefault(session, []).append(range(first, stop))

    def forget(self) -> None:
        """It is too long ago: what may have been started is not known any more."""
        self._started.clear()
        self.epochs = ()

    def judge(self, session: SessionRecord, first: int, stop: int) -> None:
        """Let those of these tasks fail that are queued, and may have been started before."""
        suspects = [range(first, stop)]
        if session.is_resumed and session.number >> SESSION_BITS in self.epochs:
            suspects = self._started.get(session.number, [])
        self._fail(session, first, stop, suspects)

    def judge_calls(self, actor: str) -> None:
        """Let queued calls of an actor fail that its worker has started before, if that is here.

        That worker alone may have done so: what others have forgotten does not matter.
        """
        table = self._table
        record = table.actors.records.get(actor)
        if record is None or record.worker is None:
            return
        demand = m.TaskOptions(workers=(actor,)).demand
        for user in table.backlog.users.values():
            for run in list(user.demanding.get(demand, ())):
                session = table.session_by_number[run.session]
                if session.is_resumed:
                    started = self._started.get(session.number, [])
                    suspects = started if record.is_whole else [range(run.first, run.stop)]
                    self._fail(session, run.first, run.stop, suspects)

    def _fail(
        self, session: SessionRecord, first: int, stop: int, suspects: Sequence[range]
    ) -> None:
        for tasks in suspects:
            low, high = max(tasks.start, first), min(tasks.stop, stop)
            for run in session.runs.overlapping(low, high) if low < high else ():
                if run.state is State.READY and not isinstance(run, NodeRun):
                    start, end = max(run.first, low), min(run.stop, high)
                    part = self._runs.take_queued(run, start, end)
                    self._failures.fail_all(part, m.FAILED_LOST, {"losses": 1})
                    self._table.end(part, Event.UNPLACED)

"""What a scheduler must know to give a whole machine its tasks as if that were one wide worker.

These are the changes that the scheduler's core would need, each in a few lines. As long as two
levels of schedulers are a study, they are patched in here, for the workers that :data:`WIDTHS` has,
and nobody else sees them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.records import credit
from scaler_cluster.core.records.lifecycle import Event, State
from scaler_cluster.core.scheduler import dispatch, invariants, pools
from scaler_cluster.core.scheduler.outcomes import Outcomes
from scaler_cluster.core.scheduler.pools import WorkerPools
from scaler_cluster.core.scheduler.rebalance import Rebalancer
from scaler_cluster.core.scheduler.stopping import Stopping
from scaler_cluster.core.scheduler.worker_runs import WorkerRuns
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.core.records.workers import Run, WorkerRecord

HORIZON_S = 0.03
"""Work given to a machine ahead: three reports' worth, as for a worker."""
WIDTHS: dict[bytes, int] = {}
"""How many tasks a wide worker runs at once, by its peer id; a field of its Hello, in the end."""


def target(width: int, unit_s: float, horizon_s: float) -> int:
    """Return how many tasks a machine is to have: what it runs, and a while of work ahead."""
    return width + int(width * horizon_s / max(unit_s, 1e-6))


def _is_hungry(worker: WorkerRecord) -> bool:
    width = WIDTHS.get(worker.peer)
    if width is None:
        return credit.is_hungry(worker)
    if worker.killed or worker.retiring or worker.revoking or worker.count >= worker.tasks_max:
        return False
    if worker.count < width:
        return True
    unit_s = worker.backlog_s / worker.count
    return not worker.stalled and worker.count < target(width, unit_s, 0.75 * HORIZON_S)


def _grant(worker: WorkerRecord, unit_s: float, fair_share: int, held_s: float = 0.0) -> int:
    width = WIDTHS.get(worker.peer)
    if width is None:
        return credit.grant(worker, unit_s, fair_share, held_s)
    wanted = min(target(width, unit_s, HORIZON_S), worker.tasks_max) - worker.count
    return max(min(wanted, fair_share), 0)


_consider = WorkerPools.consider
_offers_work_to = WorkerPools.offers_work_to
_next_run = WorkerRuns.next_run
_revoke = Rebalancer._revoke
_movable = Rebalancer._movable
_stop = Stopping._stop
_erred = Outcomes.erred
_revoked = Outcomes.revoked
_refused: dict[bytes, float] = {}
"""When wide workers had last reported a result that gave nothing back of what they were asked."""


def _wide_consider(self: WorkerPools, worker: WorkerRecord) -> None:
    """A machine is idle while it has a free worker, and loaded if it has tasks for no worker."""
    _consider(self, worker)
    width = WIDTHS.get(worker.peer)
    if width is None:
        return
    if worker.peer in worker.pool.hungry and worker.count < width:
        worker.pool.idle[worker.peer] = worker.pool.hungry.pop(worker.peer)
    if worker.count <= width:
        self.loaded.pop(worker.peer, None)
        self.stall_timers.pop(worker.peer)


def _wide_offers_work_to(self: WorkerPools, worker: WorkerRecord) -> bool:
    """It is idle with some tasks."""
    if worker.peer in WIDTHS and worker.peer in worker.pool.idle:
        return True
    return _offers_work_to(self, worker)


def _wide_next_run(self: WorkerRuns, worker: WorkerRecord, session: int, task: int) -> Run:
    """The tasks of a machine come back in any order."""
    if worker.peer not in WIDTHS:
        return _next_run(self, worker, session, task)
    for run in self.held(worker, session, task, task + 1):
        return self.isolate(run, task, run.stop) if run.first < task else run
    return _next_run(self, worker, session, task)


def _wide_revoke(self: Rebalancer, worker: WorkerRecord, count: int) -> None:
    """What the machine runs cannot be given back, nor what its scheduler has."""
    if _refused.get(worker.peer) != worker.progress_at:
        _revoke(self, worker, min(count, worker.count - WIDTHS.get(worker.peer, 1)))
    else:
        self._pools.consider(worker)


def _wide_movable(self: Rebalancer, worker: WorkerRecord) -> int:
    """Return how many tasks may move: half of those that the machine has no worker for."""
    most = -(-(worker.count - WIDTHS.get(worker.peer, 1)) // 2)
    return min(_movable(self, worker), most)


def _wide_stop(self: Stopping, run: Run, event: Event, reason: str, now: float) -> None:
    """The machine's scheduler kills the worker if the task does not stop."""
    if run.worker is None or run.worker.peer not in WIDTHS:
        _stop(self, run, event, reason, now)
        return
    run.move(event)
    self._table.send(run.worker.peer, m.Abort(run.session, run.first, run.count))


def _wide_revoked(self: Outcomes, worker: WorkerRecord, message: m.Revoked) -> None:
    """A machine that gives nothing back is asked again once it has reported a result."""
    _revoked(self, worker, message)
    if worker.peer in WIDTHS and message.kept == message.count:
        _refused[worker.peer] = worker.progress_at


def _wide_erred(self: Outcomes, worker: WorkerRecord, message: m.Erred) -> None:
    """A worker of a machine that died is no loss of the machine: its task may have retries."""
    if message.kind == m.FAILED_WORKER_DIED and worker.peer in WIDTHS:
        run = self._runs.single(worker, message.session, message.task)
        if run.state is not State.CANCELLING and run.may_retry:
            self._failures.retried(run, message.kind, message.detail, message.busy_s)
            run.tries += 1
            run.deaths += 1
            self._runs.requeue(worker, run, Event.RETRY, message.busy_s)
            return
    _erred(self, worker, message)


_PATCHES: tuple[tuple[Any, str, Any], ...] = (
    (dispatch, "grant", _grant),
    (pools, "is_hungry", _is_hungry),
    (invariants, "is_hungry", _is_hungry),
    (WorkerPools, "consider", _wide_consider),
    (WorkerPools, "offers_work_to", _wide_offers_work_to),
    (WorkerRuns, "next_run", _wide_next_run),
    (Rebalancer, "_revoke", _wide_revoke),
    (Rebalancer, "_movable", _wide_movable),
    (Stopping, "_stop", _wide_stop),
    (Outcomes, "erred", _wide_erred),
    (Outcomes, "revoked", _wide_revoked),
)


@contextmanager
def wide_workers() -> Iterator[None]:
    """Let schedulers know wide workers inside."""
    before = [(where, name, getattr(where, name)) for where, name, _ in _PATCHES]
    for where, name, patched in _PATCHES:
        setattr(where, name, patched)
    try:
        yield
    finally:
        for where, name, original in before:
            setattr(where, name, original)
        WIDTHS.clear()
        _refused.clear()

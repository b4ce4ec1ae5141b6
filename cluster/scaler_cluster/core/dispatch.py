"""Who gets which tasks, and what is asked back to run elsewhere sooner."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

from scaler_cluster.core.credit import (
    STALL_S,
    STEAL_MIN_S,
    grant,
    is_hungry,
)
from scaler_cluster.core.lifecycle import Event, State, move
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records import WorkerRecord
    from scaler_cluster.core.table import Table
    from scaler_cluster.core.tasks import Run

WORKER_FUNCTIONS_MAX = 1024
"""Functions a worker keeps; the least recently used one goes."""
STEAL_CANDIDATES = 16
"""Workers looked at to find one to take work from: enough to find a good one among thousands."""


class Dispatch:
    """Gives ready tasks to workers by credit, and moves queued ones from busy to idle workers."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._idle: dict[bytes, WorkerRecord] = {}
        self._hungry: dict[bytes, WorkerRecord] = {}
        self._loaded: OrderedDict[bytes, WorkerRecord] = OrderedDict()
        """Workers with something queued behind what they run."""
        self._watched: dict[bytes, tuple[float, WorkerRecord]] = {}
        """When each loaded worker is to be looked at, soonest first: every watch lasts equally."""

    # -- bookkeeping -------------------------------------------------------------------------

    def consider(self, worker: WorkerRecord) -> None:
        """Note that a worker's load changed."""
        peer = worker.peer
        if is_hungry(worker):
            if worker.count == 0:
                self._idle[peer] = worker
                self._hungry.pop(peer, None)
            else:
                self._hungry[peer] = worker
                self._idle.pop(peer, None)
        else:
            self._idle.pop(peer, None)
            self._hungry.pop(peer, None)
            if worker.task_limit and worker.given >= worker.task_limit and worker.count == 0:
                self._retire(worker)
        if worker.count > 1:
            self._loaded[peer] = worker
        else:
            self._loaded.pop(peer, None)
            self._watched.pop(peer, None)

    def watch(self, worker: WorkerRecord, when: float) -> None:
        """Look at a worker then, unless it reports before."""
        if worker.count > 1:
            self._watched.pop(worker.peer, None)
            self._watched[worker.peer] = (when, worker)

    def offers_work_to(self, worker: WorkerRecord) -> bool:
        """Return True if the worker is among those that get what is ready."""
        pool = self._hungry if worker.count else self._idle
        return worker.peer in pool

    def forget(self, worker: WorkerRecord) -> None:
        """A worker is gone."""
        for place in (self._idle, self._hungry, self._loaded, self._watched):
            place.pop(worker.peer, None)

    def _retire(self, worker: WorkerRecord) -> None:
        if not worker.retiring:
            worker.retiring = True
            self._table.send(worker.peer, m.Retire())

    # -- giving ------------------------------------------------------------------------------

    def give_out(self, now: float) -> None:
        """Give ready tasks to idle workers, then to those with little ahead."""
        ready = self._table.ready
        while ready.count:
            pool = self._idle or self._hungry
            if not pool:
                return
            run = ready.peek()
            if run is None:
                return
            # Of the idle ones, the one that was busy last: it may still be awake.
            worker = next(reversed(pool.values()) if pool is self._idle else iter(pool.values()))
            if worker.session and worker.count and self._is_above(worker, run):
                other = self._other_than(worker)
                if other is None:
                    return
                worker = other
            unit_s = self._table.functions[run.function].mean_s
            share = -(-ready.count // len(self._table.workers))
            limit = grant(worker, unit_s, share)
            if limit == 0:
                return
            self._assign(worker, ready.take(run, limit), unit_s, now)
            if worker.peer in self._hungry:
                # It had its turn: what little is left goes to the others first.
                self._hungry[worker.peer] = self._hungry.pop(worker.peer)
        if self._idle and self._loaded:
            self._steal(now)

    def _is_above(self, worker: WorkerRecord, run: Run) -> bool:
        """Return True if these tasks were submitted by what the worker runs."""
        return self._table.session_by_number[run.session].worker == worker.peer

    def _other_than(self, worker: WorkerRecord) -> WorkerRecord | None:
        """Return another worker that may be given something."""
        for pool in (self._idle, self._hungry):
            for other in islice(pool.values(), 2):
                if other is not worker:
                    return other
        return None

    def _assign(self, worker: WorkerRecord, run: Run, unit_s: float, now: float) -> None:
        table = self._table
        move(run, Event.ASSIGN)
        session = table.session_by_number[run.session]
        if session.runs.get(run.first) is not run:
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
            ),
        )
        if wanted := table.functions[run.function].objects + run.objects:
            table.objects.bring(wanted, worker)
        self.consider(worker)
        if worker.peer not in self._watched:
            self.watch(worker, now + STALL_S)

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
        """When the first watched worker is to be looked at."""
        for when, _ in self._watched.values():
            return when
        return math.inf

    def tick(self, now: float) -> None:
        """Ask back what waits behind tasks that turned out long."""
        while self._watched:
            peer, (when, worker) = next(iter(self._watched.items()))
            if when > now:
                return
            del self._watched[peer]
            patience = max(STALL_S, 2 * worker.runs[0].unit_s)
            if now - worker.progress_at < patience or worker.revoking:
                # What it keeps of something asked back for another reason may be stuck as well.
                self.watch(worker, now + STALL_S)
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
        if best is not None:
            self._revoke(best, -(-(best.count - 1) // 2))

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

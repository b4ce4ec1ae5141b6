"""What workers report of their tasks: results, failures, and what they did not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.lifecycle import Event, State
from scaler_cluster.core.scheduler.naming import measure, tally
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.failures import Failures
    from scaler_cluster.core.scheduler.graph_moves import Graphs
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.core.scheduler.worker_runs import WorkerRuns


class Outcomes:
    """Settles what became of tasks on their worker."""

    def __init__(self, table: Table, runs: WorkerRuns, failures: Failures, graphs: Graphs) -> None:
        self._table = table
        self._runs = runs
        self._failures = failures
        self._graphs = graphs

    def done(
        self, worker: WorkerRecord, message: m.Done | m.DoneNodes, sizes: Sequence[int] = ()
    ) -> None:
        """Contiguous tasks returned. They are the next tasks of this worker, in order.

        ``sizes`` are the bytes of results that the worker keeps; empty: it keeps none.
        """
        table = self._table
        batch, observer = message.batch, table.observer
        total = len(batch.ends)
        index = 0
        while index < total:
            run = self._runs.next_run(worker, message.session, message.first + index)
            count = min(run.count, total - index)
            busy_s = message.busy_s * count / total
            if run.state is not State.CANCELLING:
                part = batch if count == total else batch.cut(index, index + count)
                if not isinstance(run, NodeRun):
                    if sizes and any(sizes[index : index + count]):
                        raise RemoteProtocolError("keeps the result of what is no node")
                    table.answers.answer(run.session, m.Results(message.first + index, part))
                    table.functions[run.function].totals.done += count
                    table.session_by_number[run.session].totals.done += count
                else:
                    kept = sizes[index : index + count]
                    self._graphs.returned(run, message.first + index, part, kept)
                observer.done(worker, run, message.first + index, count, busy_s)
            elif isinstance(run, NodeRun):
                self._graphs.returned_late(run, message.first + index, count)
            measure(table.functions, run, message.first + index, count, busy_s)
            self._runs.finish(worker, run, count, Event.RETURNED, busy_s)
            index += count

    def stored(self, worker: WorkerRecord, message: m.Stored) -> None:
        """One task returned a value with large buffers, in segments that its client now holds."""
        table = self._table
        run = self._runs.single(worker, message.session, message.task)
        measure(table.functions, run, message.task, 1, message.busy_s)
        session = table.session_by_number.get(run.session)
        if session is None or run.state is State.CANCELLING:
            table.objects.garbage.remove(worker.store, message.objects)
        else:
            if isinstance(run, NodeRun):
                self._graphs.stored(session, worker, run, message)
            else:
                address = table.objects.take_result(
                    session, worker, message, table.functions[run.function].name
                )
                what = message.payload, message.objects, address, message.sizes
                returned = m.Returned(message.task, *what)
                table.answers.answer(session.number, returned)
                for one in table.totals(run):
                    one.done += 1
            table.observer.done(worker, run, message.task, 1, message.busy_s)
        self._runs.finish(worker, run, 1, Event.RETURNED, message.busy_s)

    def erred(self, worker: WorkerRecord, message: m.Erred) -> None:
        """One task raised: it fails, or is run again if it may be."""
        run = self._runs.single(worker, message.session, message.task)
        measure(self._table.functions, run, message.task, 1, message.busy_s)
        if run.state is not State.CANCELLING:
            if (
                message.kind == m.FAILED_MISSING
                and isinstance(run, NodeRun)
                and run.graph.has_lost_input(run)
            ):
                self._runs.requeue(worker, run, Event.SKIPPED, message.busy_s)
                return
            if message.kind == m.FAILED_EXCEPTION and run.may_retry:
                self._failures.retried(run, message.kind, message.detail, message.busy_s)
                run.tries += 1
                self._runs.requeue(worker, run, Event.RETRY, message.busy_s)
                return
            self._table.observer.failed(run, message.kind, message.detail, message.busy_s)
            failed = m.Failed(message.task, message.kind, message.payload, message.detail)
            self._failures.fail_task(run, failed)
        self._runs.finish(worker, run, 1, Event.RAISED, message.busy_s)

    def skipped(self, worker: WorkerRecord, message: m.Skipped) -> None:
        """A worker could not run a node, as a node that it needs did not return there."""
        run = self._runs.single(worker, message.session, message.task)
        if not isinstance(run, NodeRun):
            raise RemoteProtocolError(f"skipped without a reason: {run}")
        if run.state is State.CANCELLING:
            self._runs.finish(worker, run, 1, Event.SKIPPED, 0.0)
        else:
            self._graphs.skipped(worker, run)
            self._runs.requeue(worker, run, Event.SKIPPED)

    def revoked(self, worker: WorkerRecord, message: m.Revoked) -> None:
        """A worker answers a Revoke: the first ``kept`` tasks stay, the others are free again."""
        border = message.first + message.kept
        stop = message.first + message.count
        # The last run comes first: each goes to the front of the queue.
        for run in reversed(self._runs.held(worker, message.session, message.first, stop)):
            if run.state is State.ASSIGNED:
                raise RemoteProtocolError(f"gives back what it was to run: {run}")
            if run.first < border:
                if run.stop > border and run.state is State.CANCELLING:
                    self._runs.finish_tail(worker, run, run.stop - border)
                    continue
                if run.stop > border:
                    head = self._table.split(run, border - run.first)
                    worker.runs.insert(worker.runs.index(run), head)
                    head.move(Event.KEPT)
                else:
                    run.move(Event.KEPT)
                    continue
            if run.state is State.CANCELLING:
                self._runs.finish(worker, run, run.count, Event.GIVEN_BACK, 0.0)
            else:
                for one, count in tally(self._table.functions, run):
                    one.moved += count
                self._table.observer.moved(worker, run)
                self._runs.requeue(worker, run, Event.GIVEN_BACK)

    def aborted(self, worker: WorkerRecord, message: m.Aborted, busy_s: float) -> None:
        """A worker dropped or interrupted tasks, as it was told to.

        It reported nothing for ``busy_s``, which the first of its tasks took if that was stopped.
        """
        stop = message.first + message.count
        running = worker.runs[0] if worker.runs else None
        for run in self._runs.held(worker, message.session, message.first, stop):
            if run.state is not State.CANCELLING:
                raise RemoteProtocolError(f"aborted unasked: {run}")
            if run.first < message.first:
                # The task before those runs on, and is still to be stopped.
                if run.stop > stop:
                    raise RemoteProtocolError(f"aborted the middle of what it was to: {run}")
                self._runs.finish_tail(worker, run, run.stop - message.first)
            else:
                took_s = busy_s if run is running else 0.0
                count = min(run.stop, stop) - run.first
                self._runs.finish(worker, run, count, Event.STOPPED, took_s)

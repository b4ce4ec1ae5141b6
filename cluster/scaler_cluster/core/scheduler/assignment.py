"""How a run gets to its worker: with its function, its objects and what its nodes depend on."""

from __future__ import annotations

from array import array
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.lifecycle import Event
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from scaler_cluster.core.records.functions import FunctionRecord
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.machines import Machines
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.core.scheduler.table import Table

WORKER_FUNCTIONS_MAX = 1024
"""Functions a worker keeps; the least recently used one goes."""


class Assigner:
    """Sends runs to workers, and nodes to tasks that wait for them."""

    def __init__(self, table: Table, pools: WorkerPools, machines: Machines) -> None:
        self._table = table
        self._pools = pools
        self._machines = machines
        self.may_run_inside = machines.may_run_inside

    def assign(
        self,
        worker: WorkerRecord,
        run: Run,
        unit_s: float,
        now: float,
        portion: m.Portion | None = None,
    ) -> None:
        """Send a worker a run, and all that it needs for it and lacks.

        A run of a single task may have a portion of the machine.
        """
        table = self._table
        run.move(Event.ASSIGN)
        session = table.session_by_number[run.session]
        runs = session.runs
        rest = runs.get(run.first)
        if rest is not run:
            # It was cut off the head of a queued run, which starts later now, or off a graph.
            runs[run.first] = run
            if rest is not None:
                runs[rest.first] = rest
            table.use(run)
        if portion is not None:
            self._machines.hold(worker, run, portion)
        self._load(worker, run, unit_s, now)
        function = table.functions[run.function]
        if run.function in worker.functions:
            worker.functions.move_to_end(run.function)
        else:
            self._teach(worker, run.function, function)
        wanted = function.objects + run.objects
        if isinstance(run, NodeRun):
            wanted += self._send_nodes(worker, run)
        else:
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
                    options.at_most_once,
                    portion,
                ),
            )
        if wanted:
            table.objects.bring(wanted, worker)
        self._settle(worker, run, now)

    def adopt(
        self, worker: WorkerRecord, run: Run, now: float, portion: m.Portion | None = None
    ) -> None:
        """Note that a worker has a run already, which no queue has any more."""
        run.move(Event.ASSIGN)
        if portion is not None:
            self._machines.hold(worker, run, portion)
        objects, function = self._table.objects, self._table.functions[run.function]
        # The worker may have them mapped, and is to be told when they are released.
        wanted = function.objects + run.objects
        objects.segments(wanted, worker)
        self._load(worker, run, function.mean_s, now)
        # It may wait for what the scheduler before had ordered from another machine.
        objects.bring(tuple(one for one in wanted if objects.records[one].stores), worker)
        self._settle(worker, run, now)

    def _load(self, worker: WorkerRecord, run: Run, unit_s: float, now: float) -> None:
        run.worker = worker
        run.unit_s = unit_s
        if worker.count == 0:
            worker.progress_at = now
        worker.runs.append(run)
        count = run.count
        worker.count += count
        self._table.in_flight += count
        worker.given += count
        expected_s = count * unit_s
        worker.backlog_s += expected_s
        run.account.charge(expected_s if run.portion is None else expected_s * run.cores)

    def _settle(self, worker: WorkerRecord, run: Run, now: float) -> None:
        self._pools.consider(worker)
        self._table.observer.assigned(worker, run)
        if worker.count > 1 and worker.peer not in self._pools.stall_timers:
            self._pools.arm_stall_timer(worker, now)

    def _send_nodes(self, worker: WorkerRecord, run: NodeRun) -> tuple[bytes, ...]:
        """Send nodes with the results they depend on; return the objects that these refer to."""
        message, segments = self._with_inputs(worker, run)
        self._table.send(worker.peer, message)
        return segments

    def _with_inputs(
        self, worker: WorkerRecord, run: NodeRun
    ) -> tuple[m.AssignNodes, tuple[bytes, ...]]:
        """Return nodes with the results they depend on, and the objects that these refer to."""
        objects, graph = self._table.objects, run.graph
        inputs = graph.inputs_of(run)
        results = [graph.nodes.results[node] for node in inputs]
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
            objects.segments(segments, worker),
            ends,
            options.depth,
            options.profiling,
            options.log_level,
            graph.is_shared,
            graph.to_send(run),
            graph.uses_of(run),
            run.portion,
        )
        return message, segments

    def hand_over(self, session: SessionRecord, first: int, stop: int) -> None:
        """Send a task that waits for one of these nodes a ready node up to that one, to run it.

        Its worker is not given such nodes: it would only run them after that task.
        """
        table = self._table
        worker = table.workers[session.worker]
        for graph in session.graphs.overlapping(first, stop):
            last = min(stop, graph.stop) - 1 - graph.first
            run = graph.hand_over(last, worker, self.may_run_inside)
            if run is None:
                # What workers keep of the first node's needs was asked for: the task asks again.
                table.backlog.update(graph)
                continue
            node = run.first - graph.first
            wanted = run.needed
            if table.objects.are_at(wanted, worker.store):
                table.send(session.peer, self._with_inputs(worker, run)[0])
            else:
                # The task asks again. It cannot be told if an object does not come after all.
                table.objects.bring(wanted, worker)
                del graph.handed_over[node]
                graph.put_back(run)
            table.backlog.queue(run).update(graph.nodes.group_of(node), front=True)

    def _teach(self, worker: WorkerRecord, digest: bytes, function: FunctionRecord) -> None:
        known = worker.functions
        known[digest] = None
        segments = self._table.objects.segments(function.objects, worker)
        self._table.send(worker.peer, m.Function(digest, function.payload, segments))
        if len(known) > WORKER_FUNCTIONS_MAX:
            self._table.send(worker.peer, m.Forget(known.popitem(last=False)[0]))

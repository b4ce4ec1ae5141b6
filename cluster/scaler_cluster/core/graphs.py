"""The graphs of all sessions: what messages and outcomes do to them, and what follows from that."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeAlias

from scaler_cluster.core import totals as t
from scaler_cluster.core.graph import SUPPLIED, GraphRecord, Nodes
from scaler_cluster.core.lifecycle import State
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import TASK_ID_MAX
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.records import SessionRecord, WorkerRecord
    from scaler_cluster.core.table import Table
    from scaler_cluster.core.tasks import Run
    from scaler_cluster.wire.batch import Batch

Stop: TypeAlias = "Callable[[Run, int, int, float], None]"
"""Stops the tasks ``first <= id < stop`` of a run that a worker has."""


class Graphs:
    """Moves the graphs of a table."""

    def __init__(self, table: Table, stop: Stop) -> None:
        self._table = table
        self._stop = stop

    # -- clients -----------------------------------------------------------------------------

    def submit(self, session: SessionRecord, message: m.Graph) -> None:
        """Take in nodes of a graph; raises RemoteProtocolError if they must not come."""
        nodes, inputs = Nodes(message), numbers(message.inputs, "Q")
        graph = session.graphs.get(message.first)
        if graph is None:
            if message.start:
                raise RemoteProtocolError("the rest of a graph that has not begun")
            graph = GraphRecord(session.number, message.first, message.function)
        stop = message.first + message.start + len(nodes.ends)
        if (
            len(inputs) > len(nodes.ends)
            or stop > TASK_ID_MAX
            or message.function != graph.function
            or self._table.is_taken(session, message.first + message.start, stop)
        ):
            raise RemoteProtocolError("a graph of tasks that are not its own")
        if message.function not in session.functions:
            raise RemoteProtocolError("a graph whose functions were not sent")
        is_whole = session.functions[message.function]
        void: list[int] = []
        for node in list(nodes.owned):
            if not all(one in session.objects for one in nodes.owned[node]):
                void.append(node)
                del nodes.owned[node]
        if not message.start:
            self._table.add_graph(session, graph)
        before = t.nodes_to_run(graph)
        try:
            graph.add(nodes, len(inputs))
        finally:
            self._table.count_nodes(session, graph, t.nodes_to_run(graph) - before)
            objects = tuple(one for owned in nodes.owned.values() for one in owned)
            self._table.objects.hold(objects)
            graph.objects += objects
        if not is_whole:
            void = list(range(message.start, message.start + len(nodes.ends)))
        for node in void:
            graph.end(node, m.Failed(0, m.FAILED_MISSING))
        if inputs:
            self._watch(session, graph, inputs)
        self._settle(graph)

    def cancel(self, session: SessionRecord, first: int, stop: int) -> None:
        """The client does not want these tasks any more, as far as they are nodes."""
        for graph in self._table.graphs_in(session, first, stop):
            low, high = max(first, graph.first), min(stop, graph.stop)
            graph.give_up(range(low - graph.first, high - graph.first))
            self._settle(graph)
        for task in _watched_in(session, first, stop - first):
            self._table.notice(session, m.Cancelled(task, 1))

    def take_back(self, session: SessionRecord, first: int, stop: int) -> None:
        """The client takes back what no worker has yet."""
        for graph in self._table.graphs_in(session, first, stop):
            nodes = [
                node
                for node in range(max(first - graph.first, 0), min(stop, graph.stop) - graph.first)
                if graph.wanted[node] and graph.states[node] in (State.WAITING, State.READY)
            ]
            for node in nodes:
                self._table.answer(session.number, m.Cancelled(graph.first + node, 1))
            graph.give_up(nodes)
            self._settle(graph)

    def supply(self, session: SessionRecord, message: m.ProvideInputs) -> None:
        """A client says what became of an input, or of a node that it was lent."""
        task = message.task
        for graph in self._table.graphs_in(session, task, task + 1):
            node = task - graph.first
            run = graph.lent.pop(node, None)
            if not graph.is_live(node) or (run is None and node >= graph.inputs):
                return
            if run is not None and self._is_not_run(session, graph, run, message.kind):
                graph.put_back(run)
            elif message.kind == m.INPUT_CANCELLED:
                graph.end(node, None)
            elif message.kind:
                graph.end(node, m.Failed(0, message.kind, message.payload, message.detail))
            elif session.objects.keys() >= set(message.objects):
                self._table.objects.hold(message.objects)
                graph.stored(node, message.payload, message.objects)
                if run is not None:
                    # The client knows; graphs that it is an input of do not.
                    returned = m.Returned(task, message.payload, message.objects)
                    self._table.notice(session, returned)
            else:
                graph.end(node, m.Failed(0, m.FAILED_MISSING))
            self._settle(graph)

    def _is_not_run(self, session: SessionRecord, graph: GraphRecord, run: Run, kind: str) -> bool:
        """Return True if a node that was lent is still to be run."""
        if kind != m.FAILED_MISSING:
            return kind == m.NOT_RUN
        # What it needs was lost, or removed to make room.
        store = self._table.workers[session.worker].store
        return graph.has_lost_input(run) or not self._table.objects.are_at(
            graph.needed_by(run), store
        )

    def drop(self, session: SessionRecord) -> None:
        """A client is gone; what its nodes did on workers has been stopped."""
        for graph in list(session.graphs.values()):
            self._table.end_graph(session, graph)

    def _watch(self, session: SessionRecord, graph: GraphRecord, inputs: list[int]) -> None:
        unmet = array("I")
        is_asking = False
        for node, task in enumerate(inputs):
            if task == SUPPLIED:
                continue
            is_asking = True
            if self._table.is_pending(session, task):
                session.watched.setdefault(task, []).append((graph, node))
            else:
                unmet.append(node)
        if is_asking:
            self._table.send(session.peer, m.RequestInputs(graph.first, unmet.tobytes()))

    # -- workers -----------------------------------------------------------------------------

    def returned(self, run: Run, first: int, batch: Batch) -> None:
        """Nodes of a run returned."""
        graph = run.graph
        if graph is None:
            raise AssertionError(f"no graph: {run}")
        start, count = first - graph.first, len(batch)
        wanted = graph.wanted
        low = wanted.find(1, start, start + count)
        while low >= 0:
            high = wanted.find(0, low, start + count)
            if high < 0:
                high = start + count
            is_all = high - low == count
            part = batch if is_all else batch.cut(low - start, high - start)
            self._table.answer(graph.session, m.Results(graph.first + low, part))
            low = wanted.find(1, high, start + count)
        graph.returned(start, batch)
        self._settle(graph)

    def stored(
        self, session: SessionRecord, worker: WorkerRecord, run: Run, message: m.Stored
    ) -> None:
        """A node returned a value in segments."""
        graph, objects = run.graph, self._table.objects
        if graph is None:
            raise AssertionError(f"no graph: {run}")
        node = message.task - graph.first
        address = objects.take_result(session, worker, message)
        objects.hold(message.objects)
        if graph.wanted[node]:
            returned = m.Returned(message.task, message.payload, message.objects, address)
            self._table.answer(session.number, returned)
        else:
            for one in message.objects:
                del session.objects[one]
            objects.release(message.objects)
        graph.stored(node, message.payload, message.objects)
        self._settle(graph)

    def machine_lost(self) -> None:
        """A machine is gone: what only it had, and is still needed, is made again."""
        objects = self._table.objects
        for session in self._table.sessions.values():
            for graph in list(session.graphs.values()):
                lost = [
                    node
                    for node, (_, segments) in graph.results.items()
                    if not all(objects.records[one].stores for one in segments)
                ]
                for node in graph.lose(lost):
                    detail = {"message": "what it needs was lost with the machine that held it"}
                    self._table.noticed.append(
                        (graph, node, m.Failed(0, m.FAILED_MISSING, b"", detail))
                    )
                self._settle(graph)

    # -- what follows ------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """See to what outcomes did to graphs: nodes fail with what they depend on."""
        table = self._table
        while table.noticed:
            graph, node, outcome = table.noticed.popleft()
            session = table.session_by_number.get(graph.session)
            if session is None or session.graphs.get(graph.first) is not graph:
                continue
            if not graph.is_live(node):
                continue
            if isinstance(outcome, tuple):
                payload, segments = outcome
                table.objects.hold(segments)
                graph.stored(node, payload, segments)
            else:
                graph.end(node, outcome)
            self._settle(graph)
        while table.stopping:
            run_session, first, stop = table.stopping.popleft()
            session = table.session_by_number.get(run_session)
            if session is None:
                continue
            for run in table.overlapping(session, first, stop):
                if run.state is not State.CANCELLING:
                    self._stop(run, max(run.first, first), min(run.stop, stop), now)

    def _settle(self, graph: GraphRecord) -> None:
        """Tell the client, and see to what a graph set aside."""
        table = self._table
        if graph.ended:
            ended, graph.ended = graph.ended, []
            for node, failure in ended:
                task = graph.first + node
                if failure is None:
                    table.answer(graph.session, m.Cancelled(task, 1))
                else:
                    failed = m.Failed(task, failure.kind, failure.payload, failure.detail)
                    table.answer(graph.session, failed)
        if graph.stopped:
            for first, stop in _ranges(sorted(graph.stopped)):
                table.stopping.append((graph.session, graph.first + first, graph.first + stop))
            graph.stopped = []
        if graph.dropped:
            table.objects.release(graph.dropped)
            graph.dropped = []
        table.update(graph)
        if graph.is_over:
            table.end_graph(table.session_by_number[graph.session], graph)


def _ranges(nodes: list[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as ranges."""
    ranges: list[tuple[int, int]] = []
    for node in nodes:
        if ranges and ranges[-1][1] == node:
            ranges[-1] = ranges[-1][0], node + 1
        else:
            ranges.append((node, node + 1))
    return ranges


def _watched_in(session: SessionRecord, first: int, count: int) -> list[int]:
    watched = session.watched
    if count < len(watched):
        return [task for task in range(first, first + count) if task in watched]
    return [task for task in watched if first <= task < first + count]

"""What messages and outcomes do to the graphs of all sessions, and what follows from that."""

from __future__ import annotations

import operator
from array import array
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from scaler_cluster.core.graph.graph import GraphRecord, NodeRun
from scaler_cluster.core.graph.layers import Layers
from scaler_cluster.core.graph.losses import lose
from scaler_cluster.core.graph.topology import GraphPart
from scaler_cluster.core.records.lifecycle import State
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import TASK_ID_MAX, ranges_of
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.quotas import Quotas
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.wire.batch import Batch

Stop: TypeAlias = "Callable[[Run, int, int, float], None]"
"""Stops the tasks ``first <= id < stop`` of a run that a worker has."""

GRAPH_NODES_MAX = 65_536
"""Nodes of one message: clients send 4,096. Millions at once would keep all others waiting."""
GRAPH_INPUTS_MAX = 1_000_000
"""Inputs of a graph, which come in one message: a client would need as many futures."""


class Graphs:
    """Moves the graphs of a table."""

    def __init__(self, table: Table, stop: Stop, quotas: Quotas | None) -> None:
        self._table = table
        self._quotas = quotas
        self._stop = stop
        self.stopping: deque[tuple[int, int, int]] = deque()
        """Sessions and ranges of their tasks that are to be stopped at the end of a step."""

    # -- clients -------------------------------------------------------------------------------

    def submit(self, session: SessionRecord, message: m.Graph) -> None:
        """Take in nodes of a graph; raises RemoteProtocolError if they must not come."""
        inputs = numbers(message.inputs, "Q")
        if len(message.batch) - len(inputs) > GRAPH_NODES_MAX or len(inputs) > GRAPH_INPUTS_MAX:
            raise RemoteProtocolError("too many nodes or inputs in one message")
        if any(one.actor or one.creates for one in message.options):
            raise RemoteProtocolError("a node of a graph that makes an actor, or calls one")
        part = GraphPart(message)
        graph = session.graphs.get(message.first)
        if self._quotas is not None and (reason := self._quotas.refuses(session, message)):
            self._fail_all(session, message, m.FAILED_QUOTA, {"message": reason})
            return
        if graph is None:
            if not session.functions.get(message.function, True):
                # They need objects which the client has released.
                self._fail_all(session, message, m.FAILED_MISSING, {})
                return
            if message.start:
                raise RemoteProtocolError("the rest of a graph that has not begun")
            graph = self._begin(session, message)
        stop = message.first + message.start + len(part.ends)
        if (
            len(inputs) > len(part.ends)
            or stop > TASK_ID_MAX
            or message.function != graph.function
            or self._table.is_taken(session, message.first + message.start, stop)
        ):
            raise RemoteProtocolError("a graph of tasks that are not its own")
        void: list[int] = []
        for node in list(part.owned):
            if not all(one in session.objects for one in part.owned[node]):
                void.append(node)
                del part.owned[node]
        if not message.start:
            self._table.add_graph(session, graph)
        before = graph.nodes_to_run
        graph.add(part, len(inputs))
        if not message.start:
            self._table.observer.graph_begun(graph)
        session.totals.submitted += graph.nodes_to_run - before
        objects = tuple(one for owned in part.owned.values() for one in owned)
        self._table.objects.hold(objects)
        graph.objects += objects
        for node in void:
            graph.nodes.end(node, m.Failed(0, m.FAILED_MISSING))
        if inputs:
            self._watch(session, graph, inputs)
        self._settle(graph)

    def _begin(self, session: SessionRecord, message: m.Graph) -> GraphRecord:
        if message.function not in session.functions:
            raise RemoteProtocolError("a graph whose functions were not sent")
        timing = self._table.functions[message.function]
        identity = session.number, message.first, message.function
        account = self._table.account_of(session)
        layers = Layers(self._table.names, timing.name)
        return GraphRecord(*identity, timing, account, layers, is_shared=message.is_shared)

    def _fail_all(
        self, session: SessionRecord, message: m.Graph, kind: str, detail: dict[str, Any]
    ) -> None:
        """Let nodes fail that are not taken in."""
        for node, is_wanted in enumerate(message.wanted, message.first + message.start):
            if is_wanted:
                self._table.answers.answer(session.number, m.Failed(node, kind, b"", detail))

    def cancel(self, session: SessionRecord, first: int, stop: int) -> None:
        """The client does not want these tasks any more, as far as they are nodes."""
        for graph in session.graphs.overlapping(first, stop):
            low, high = max(first, graph.first), min(stop, graph.stop)
            graph.nodes.give_up(range(low - graph.first, high - graph.first))
            self._settle(graph)
        for task in _watched_in(session, first, stop - first):
            self._table.answers.notice(session, m.Cancelled(task, 1))

    def cancel_for_client(self, graph: GraphRecord, first: int, stop: int) -> None:
        """End nodes that their client still wants, with all that depend on them, and tell it."""
        for node in range(first - graph.first, stop - graph.first):
            if graph.nodes.is_live(node):
                graph.nodes.end(node, None)
        self._settle(graph)

    def take_back(self, session: SessionRecord, first: int, stop: int) -> None:
        """The client takes back what no worker has yet."""
        for graph in session.graphs.overlapping(first, stop):
            wanted, states = graph.nodes.wanted, graph.nodes.states
            nodes = [
                node
                for node in range(max(first - graph.first, 0), min(stop, graph.stop) - graph.first)
                if wanted[node] and states[node] in (State.WAITING, State.READY)
            ]
            for node in nodes:
                self._table.answers.answer(session.number, m.Cancelled(graph.first + node, 1))
            graph.nodes.give_up(nodes)
            self._settle(graph)

    def supply(self, session: SessionRecord, message: m.ProvideInputs) -> None:
        """A client says what became of an input, or of a node that it was handed."""
        task = message.task
        for graph in session.graphs.overlapping(task, task + 1):
            node = task - graph.first
            run = graph.handed_over.pop(node, None)
            if run is not None and node in graph.nodes.stopping:
                # It was cancelled. It may be to run again since.
                graph.nodes.off_worker(node, node + 1)
                self._settle(graph)
                return
            if not graph.nodes.is_live(node) or (run is None and node >= graph.topology.inputs):
                return
            if run is not None and self._is_not_run(session, run, message.kind):
                graph.put_back(run)
            elif message.kind == m.INPUT_CANCELLED:
                graph.nodes.end(node, None)
            elif message.kind:
                graph.nodes.end(node, m.Failed(0, message.kind, message.payload, message.detail))
            elif session.objects.keys() >= set(message.objects):
                self._table.objects.hold(message.objects)
                graph.nodes.stored(node, message.payload, message.objects)
                if run is not None:
                    # The client knows; graphs that it is an input of do not.
                    returned = m.Returned(task, message.payload, message.objects)
                    self._table.answers.notice(session, returned)
            else:
                graph.nodes.end(node, m.Failed(0, m.FAILED_MISSING))
            self._settle(graph)

    def _is_not_run(self, session: SessionRecord, run: NodeRun, kind: str) -> bool:
        """Return True if a node that a client was handed is still to be run."""
        if kind != m.FAILED_MISSING:
            return kind == m.NOT_RUN
        # An object that it needs was lost, or removed to make room.
        store = self._table.workers[session.worker].store
        return run.graph.has_lost_input(run) or not self._table.objects.are_at(run.needed, store)

    def drop(self, session: SessionRecord) -> None:
        """A client is gone; its nodes on workers have been stopped."""
        for graph in list(session.graphs.values()):
            self._table.end_graph(session, graph)

    def _watch(self, session: SessionRecord, graph: GraphRecord, inputs: list[int]) -> None:
        unmet = array("I")
        is_asking = False
        for node, task in enumerate(inputs):
            if task == m.SUPPLIED:
                continue
            is_asking = True
            if self._table.is_pending(session, task):
                session.watched.setdefault(task, []).append((graph, node))
            else:
                unmet.append(node)
        if is_asking:
            self._table.send(session.peer, m.RequestInputs(graph.first, unmet.tobytes()))

    # -- workers -------------------------------------------------------------------------------

    def returned(self, run: NodeRun, first: int, batch: Batch, sizes: Sequence[int]) -> None:
        """Nodes of a run returned; ``sizes`` as in :meth:`NodeStates.returned`.

        Raises RemoteProtocolError if the worker keeps what it was to send.
        """
        graph = run.graph
        start, count = first - graph.first, len(batch)
        wanted = graph.nodes.wanted
        if any(sizes) and any(map(operator.and_, map(bool, sizes), wanted[start : start + count])):
            raise RemoteProtocolError("keeps a result that is wanted")
        low = wanted.find(1, start, start + count)
        while low >= 0:
            high = wanted.find(0, low, start + count)
            if high < 0:
                high = start + count
            is_all = high - low == count
            part = batch if is_all else batch.cut(low - start, high - start)
            self._table.answers.answer(graph.session, m.Results(graph.first + low, part))
            low = wanted.find(1, high, start + count)
        graph.nodes.returned(start, batch, sizes)
        self._settle(graph)

    def returned_late(self, run: NodeRun, first: int, count: int) -> None:
        """Nodes of a run returned that were to be stopped: their worker need not keep anything."""
        session = self._table.session_by_number.get(run.session)
        if session is not None and session.graphs.get(run.graph.first) is run.graph:
            start = first - run.graph.first
            run.graph.nodes.outdated += range(start, start + count)
            self._table.backlog.update(run.graph)

    def shared(self, worker: WorkerRecord, message: m.Shared) -> None:
        """A worker sent a result that it had kept, or cannot send it."""
        session = self._table.session_by_number.get(message.session)
        task = message.task
        graphs = session.graphs.overlapping(task, task + 1) if session is not None else []
        for graph in graphs:
            node = task - graph.first
            if session is None or not graph.placer.has_kept(node, worker):
                break
            if message.kind == m.FAILED_MISSING:
                self._fail_lost(graph, lose(graph.nodes, graph.topology, [node]))
            elif message.kind:
                failed = m.Failed(task, message.kind, message.payload, message.detail)
                graph.placer.cannot_share(node, failed)
            else:
                name = graph.name_of(task)
                self._table.objects.take_result(session, worker, message, name)
                self._hold_alone(session, message.objects)
                graph.placer.shared(node, message.payload, message.objects)
            self._settle(graph)
            return
        self._table.objects.garbage.remove(worker.store, message.objects)

    def skipped(self, worker: WorkerRecord, run: NodeRun) -> None:
        """A worker lacks what a node needs: what it should have kept, if all was there, is lost."""
        graph = run.graph
        below = graph.topology.dependencies(run.first - graph.first)
        if all(graph.nodes.states[one] == State.DONE for one in below):
            lost = [one for one in below if graph.placer.has_kept(one, worker)]
            self._fail_lost(graph, lose(graph.nodes, graph.topology, lost))
            self._settle(graph)

    def has_given(self, worker: WorkerRecord) -> bool:
        """Return True if a worker was given nodes of a graph that is not over."""
        sessions = self._table.sessions.values()
        graphs = chain.from_iterable(session.graphs.values() for session in sessions)
        return any(worker.peer in graph.workers for graph in graphs)

    def worker_lost(self, worker: WorkerRecord) -> None:
        """A worker is gone: results that only it had are made again, if they are still needed."""
        for session in self._table.sessions.values():
            for graph in list(session.graphs.values()):
                if worker.peer in graph.workers:
                    self._fail_lost(graph, graph.placer.worker_lost(worker))
                    self._settle(graph)

    def stored(
        self, session: SessionRecord, worker: WorkerRecord, run: NodeRun, message: m.Stored
    ) -> None:
        """A node returned a value in segments."""
        graph, objects = run.graph, self._table.objects
        node = message.task - graph.first
        address = objects.take_result(session, worker, message, graph.name_of(message.task))
        if graph.nodes.wanted[node]:
            objects.hold(message.objects)
            what = message.payload, message.objects, address, message.sizes
            returned = m.Returned(message.task, *what)
            self._table.answers.answer(session.number, returned)
        else:
            self._hold_alone(session, message.objects)
        graph.nodes.stored(node, message.payload, message.objects)
        self._settle(graph)

    def _hold_alone(self, session: SessionRecord, objects: tuple[bytes, ...]) -> None:
        """Let a graph have a result of which the client knows nothing."""
        for one in objects:
            del session.objects[one]

    def machine_lost(self) -> None:
        """A machine is gone: results that only it had are made again, if they are still needed."""
        objects = self._table.objects
        for session in self._table.sessions.values():
            for graph in list(session.graphs.values()):
                lost = [
                    node
                    for node, (_, segments) in graph.nodes.results.items()
                    if not all(objects.records[one].stores for one in segments)
                ]
                self._fail_lost(graph, lose(graph.nodes, graph.topology, lost))
                self._settle(graph)

    def _fail_lost(self, graph: GraphRecord, nodes: Sequence[int]) -> None:
        """Let nodes fail whose results were lost, and which must not run again."""
        failed = m.Failed(0, m.FAILED_LOST, b"", {"losses": 1})
        self._table.answers.noticed.extend((graph, node, failed) for node in nodes)

    # -- what follows --------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """Tell graphs of outcomes, and stop what these outcomes stop."""
        table = self._table
        while table.answers.noticed:
            graph, node, outcome = table.answers.noticed.popleft()
            session = table.session_by_number.get(graph.session)
            if session is None or session.graphs.get(graph.first) is not graph:
                continue
            if not graph.nodes.is_live(node):
                continue
            if isinstance(outcome, tuple):
                payload, segments = outcome
                table.objects.hold(segments)
                graph.nodes.stored(node, payload, segments)
            else:
                graph.nodes.end(node, outcome)
            self._settle(graph)
        while self.stopping:
            run_session, first, stop = self.stopping.popleft()
            session = table.session_by_number.get(run_session)
            if session is None:
                continue
            for run in session.runs.overlapping(first, stop):
                if run.state is not State.CANCELLING:
                    self._stop(run, max(run.first, first), min(run.stop, stop), now)

    def _settle(self, graph: GraphRecord) -> None:
        """Tell the client, and do what a graph has set aside to be done."""
        table, nodes = self._table, graph.nodes
        if nodes.ended:
            ended, nodes.ended = nodes.ended, []
            for node, failure in ended:
                task = graph.first + node
                if failure is None:
                    table.answers.answer(graph.session, m.Cancelled(task, 1))
                else:
                    failed = m.Failed(task, failure.kind, failure.payload, failure.detail)
                    table.answers.answer(graph.session, failed)
        if nodes.stopped:
            for first, stop in ranges_of(sorted(nodes.stopped)):
                self.stopping.append((graph.session, graph.first + first, graph.first + stop))
            nodes.stopped = []
        if nodes.dropped:
            table.objects.release(nodes.dropped)
            nodes.dropped = []
        table.backlog.update(graph)
        if graph.is_over:
            table.end_graph(table.session_by_number[graph.session], graph)


def _watched_in(session: SessionRecord, first: int, count: int) -> list[int]:
    watched = session.watched
    if count < len(watched):
        return [task for task in range(first, first + count) if task in watched]
    return [task for task in watched if first <= task < first + count]

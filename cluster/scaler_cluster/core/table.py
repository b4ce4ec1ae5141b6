"""What the scheduler knows: peers, functions, live runs, the ready queue and the outbox."""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from scaler_cluster.core.journal import Journal
from scaler_cluster.core.lifecycle import ENDS, Event, State, move
from scaler_cluster.core.objects import ObjectTable
from scaler_cluster.core.queue import ReadyQueue
from scaler_cluster.core.totals import Names, Totals, of_graph
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.graph import GraphRecord
    from scaler_cluster.core.monitor import Monitor
    from scaler_cluster.core.records import (
        FunctionRecord,
        SessionRecord,
        SupervisorRecord,
        WorkerRecord,
    )
    from scaler_cluster.core.tasks import Run
    from scaler_cluster.wire.batch import Buffer

Answer: TypeAlias = m.Results | m.Returned | m.Failed | m.Cancelled
"""What a client is told of its tasks."""
Outcome: TypeAlias = "tuple[Buffer, tuple[bytes, ...]] | m.Failed | None"
"""Payload and segments of what a task returned, or why it failed; None: it was cancelled."""
_NONE = object()
Demand: TypeAlias = "tuple[m.Capabilities, tuple[str, ...]]"
EMPTY = Batch(b"", memoryview(b"").cast("I"))
"""The batch of a run that ended."""


class Table:
    """The scheduler's state, with the moves that keep its parts in step."""

    def __init__(
        self, homes: Sequence[m.StorageEndpoint], *, are_elsewhere: bool, retention_s: float
    ) -> None:
        self.errors = 0
        """How often the scheduler failed by a bug of its own."""
        self.sessions: dict[bytes, SessionRecord] = {}
        self.session_by_number: dict[int, SessionRecord] = {}
        self.supervisors: dict[bytes, SupervisorRecord] = {}
        self.workers: dict[bytes, WorkerRecord] = {}
        self.functions: dict[bytes, FunctionRecord] = {}
        self.objects = ObjectTable(
            self, homes, are_elsewhere=are_elsewhere, retention_s=retention_s
        )
        self.ready = ReadyQueue(m.DEFAULT_OPTIONS)
        """What any worker may run."""
        self.demanding: dict[Demand, ReadyQueue] = {}
        """What only some may run, by what it demands."""
        self.outbox: dict[bytes, list[m.Message]] = {}
        self.in_flight = 0
        """Tasks that workers have."""
        self.names = Names()
        self.sent: defaultdict[type[m.Message], int] = defaultdict(int)
        """How many messages of each kind."""
        self.received: defaultdict[type[m.Message], int] = defaultdict(int)
        self.journal = Journal()
        self.refused = ""
        """Which cluster was refused, and why; empty once a worker has come since then."""
        self.deaths = 0
        """Workers that did not end as they were to."""
        self.monitor: Monitor | None = None
        """Who is to be told what happens; None while nobody watches."""
        self.noticed: deque[tuple[GraphRecord, int, Outcome]] = deque()
        """Nodes of which it is known what becomes of them; they are seen to at the end of a step,
        as that may stop others."""
        self.stopping: deque[tuple[int, int, int]] = deque()
        """Sessions and ranges of their tasks that are to be stopped at the end of a step."""

    def send(self, peer: bytes, message: m.Message) -> None:
        """Put a message into the outbox."""
        self.sent[type(message)] += 1
        messages = self.outbox.get(peer)
        if messages is None:
            self.outbox[peer] = [message]
        else:
            messages.append(message)

    def send_session(self, number: int, message: m.Message) -> None:
        """Put a message for a client into the outbox, if it is still there."""
        session = self.session_by_number.get(number)
        if session is not None:
            self.send(session.peer, message)

    def answer(self, number: int, message: Answer) -> None:
        """Tell a client what became of its tasks, and the graphs that they are inputs of."""
        session = self.session_by_number.get(number)
        if session is not None:
            self.send(session.peer, message)
            if session.watched:
                self.notice(session, message)

    def notice(self, session: SessionRecord, message: Answer) -> None:
        """Note what became of tasks for the graphs that they are inputs of."""
        watched = session.watched
        if isinstance(message, m.Failed | m.Returned):
            first, count = message.task, 1
        elif isinstance(message, m.Results):
            first, count = message.first, len(message.batch)
        else:
            first, count = message.first, message.count
        if count <= len(watched):
            tasks = [task for task in range(first, first + count) if task in watched]
        else:
            tasks = sorted(task for task in watched if first <= task < first + count)
        for task in tasks:
            outcome: Outcome = None
            if isinstance(message, m.Results):
                index = task - first
                (payload,) = message.batch.cut(index, index + 1)
                outcome = payload, ()
            elif isinstance(message, m.Returned):
                outcome = message.payload, message.objects
            elif isinstance(message, m.Failed):
                outcome = message
            self.noticed.extend((graph, node, outcome) for graph, node in watched.pop(task))

    # -- peers -------------------------------------------------------------------------------

    def knows(self, peer: bytes) -> bool:
        """Return True if the peer is a client, a worker, a supervisor or the storage."""
        return (
            peer in self.sessions
            or peer in self.workers
            or peer in self.supervisors
            or peer in self.objects.storages
        )

    def add_session(self, session: SessionRecord) -> None:
        """Take a client in."""
        self.sessions[session.peer] = session
        self.session_by_number[session.number] = session

    def drop_session(self, session: SessionRecord) -> None:
        """Forget a client; its runs have been cancelled."""
        del self.sessions[session.peer]
        del self.session_by_number[session.number]

    def drop_worker(self, worker: WorkerRecord) -> None:
        """Forget a worker; its runs are still to be settled."""
        del self.workers[worker.peer]
        self.objects.forget_worker(worker)
        supervisor = self.supervisors.get(worker.supervisor)
        if supervisor is not None:
            supervisor.workers.pop(worker.peer, None)
            supervisor.spares.pop(worker.peer, None)

    def release_function(self, function: bytes) -> None:
        """Count one user of a function out, and drop it with the last one."""
        record = self.functions[function]
        record.users -= 1
        if record.users:
            return
        del self.functions[function]
        record.totals.users -= 1
        if record.objects:
            for worker in self.workers.values():
                if worker.functions.pop(function, _NONE) is None:
                    self.send(worker.peer, m.Forget(function))
            self.objects.release(record.objects)

    # -- runs --------------------------------------------------------------------------------

    def add_run(self, run: Run) -> None:
        """Take a new run in.

        Raises RemoteProtocolError if one of its tasks is there already.
        """
        session = self.session_by_number[run.session]
        runs = session.runs
        # New tasks nearly always come after all others.
        is_last = not runs or runs.peekitem()[1].stop <= run.first
        if not is_last and self.overlapping(session, run.first, run.stop):
            raise RemoteProtocolError(f"task {run.first} was submitted twice")
        if session.graphs and self.graphs_in(session, run.first, run.stop):
            raise RemoteProtocolError(f"task {run.first} was submitted twice")
        runs[run.first] = run
        self.use(run)
        session.totals.submitted += run.count
        self.functions[run.function].totals.submitted += run.count

    def totals(self, run: Run) -> tuple[Totals, Totals]:
        """Return where the tasks of a run are counted, unless they are nodes of a graph."""
        function = self.functions[run.function].totals
        return function, self.session_by_number[run.session].totals

    def use(self, run: Run) -> None:
        """Count a run among the users of what it needs."""
        self.functions[run.function].users += 1
        if run.objects:
            self.objects.hold(run.objects)

    def overlapping(self, session: SessionRecord, first: int, stop: int) -> list[Run]:
        """Return the session's live runs that hold tasks of ``first <= id < stop``, in order."""
        runs = session.runs
        index = max(runs.bisect_right(first) - 1, 0)
        found = []
        for key in runs.keys()[index : runs.bisect_left(stop)]:
            run = runs[key]
            if run.stop > first:
                found.append(run)
        return found

    # -- graphs ------------------------------------------------------------------------------

    def add_graph(self, session: SessionRecord, graph: GraphRecord) -> None:
        """Take a new graph in."""
        session.graphs[graph.first] = graph
        self.functions[graph.function].users += 1
        if self.monitor is not None:
            self.monitor.graph_begun(graph)

    def count_nodes(self, session: SessionRecord, graph: GraphRecord, count: int) -> None:
        """Count nodes of a graph that have come."""
        session.totals.submitted += count
        self.functions[graph.function].totals.submitted += count

    def end_graph(self, session: SessionRecord, graph: GraphRecord) -> None:
        """Forget a graph with all it holds."""
        del session.graphs[graph.first]
        totals = of_graph(graph)
        totals.cancelled = totals.submitted - totals.done - totals.failed
        if self.monitor is not None:
            self.monitor.graph_over(graph, totals)
        # What has come of it was counted as it came.
        totals.submitted = 0
        session.totals.add(totals)
        self.functions[graph.function].totals.add(totals)
        for group in graph.groups:
            group.count = 0
            self.queue(group.options).update(group)
        self.release_function(graph.function)
        for peer in graph.workers:
            if peer in self.workers:
                self.send(peer, m.GraphOver(graph.session, graph.first))
        segments = chain.from_iterable(result[1] for result in graph.results.values())
        self.objects.release([*graph.objects, *graph.dropped, *segments])

    def graphs_in(self, session: SessionRecord, first: int, stop: int) -> list[GraphRecord]:
        """Return the session's graphs that have nodes of ``first <= id < stop``, in order."""
        graphs = session.graphs
        if not graphs:
            return []
        index = max(graphs.bisect_right(first) - 1, 0)
        keys = graphs.keys()[index : graphs.bisect_left(stop)]
        return [graphs[key] for key in keys if graphs[key].stop > first]

    def is_taken(self, session: SessionRecord, first: int, stop: int) -> bool:
        """Return True if one of these tasks is live."""
        if self.overlapping(session, first, stop):
            return True
        return bool(self.graphs_in(session, first, stop))

    def is_pending(self, session: SessionRecord, task: int) -> bool:
        """Return True if the client will be told what becomes of a task."""
        for graph in self.graphs_in(session, task, task + 1):
            return bool(graph.wanted[task - graph.first])
        runs = self.overlapping(session, task, task + 1)
        return bool(runs) and runs[0].state is not State.CANCELLING

    def queue(self, options: m.TaskOptions) -> ReadyQueue:
        """Return where tasks with these options wait."""
        if not options.capabilities and not options.workers:
            return self.ready
        demand = options.capabilities, options.workers
        queue = self.demanding.get(demand)
        if queue is None:
            queue = self.demanding[demand] = ReadyQueue(options)
        return queue

    def update(self, graph: GraphRecord) -> None:
        """See which nodes of a graph are ready by now."""
        for group in graph.take_touched():
            self.queue(group.options).update(group)

    def put_back(self, run: Run) -> None:
        """Queue a run again that a worker had: before its session's others."""
        run.worker = None
        if run.graph is None:
            self.queue(run.options).push(run, front=True)
            return
        run.graph.put_back(run)
        self.update(run.graph)
        self._forget(run)

    # -- parts of runs -----------------------------------------------------------------------

    def split(self, run: Run, count: int) -> Run:
        """Cut the first ``count`` tasks off a run and return them; ``run`` becomes the rest."""
        session = self.session_by_number.get(run.session)
        head = run.cut_head(count)
        self.use(head)
        if session is not None:
            session.runs[head.first] = head
            session.runs[run.first] = run
        return head

    def drop_head(self, run: Run, count: int) -> None:
        """Let the first ``count`` tasks of a run end; at least one stays."""
        session = self.session_by_number.get(run.session)
        if session is not None:
            del session.runs[run.first]
        run.drop_head(count)
        if session is not None:
            session.runs[run.first] = run

    def end(self, run: Run, event: Event) -> None:
        """Move a whole run to one of the ends and forget it."""
        state = move(run, event)
        if state not in ENDS:
            raise AssertionError(f"{event.name} is not the end of {run}")
        self._forget(run)

    def _forget(self, run: Run) -> None:
        session = self.session_by_number.get(run.session)
        if session is not None:
            del session.runs[run.first]
        self.release_function(run.function)
        if run.objects:
            self.objects.release(run.objects)
        run.worker = None
        # A deadline may hold on to the run for long; it must not hold on to the payloads.
        run.batch = EMPTY

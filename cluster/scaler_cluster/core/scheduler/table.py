"""What the scheduler knows: peers, functions, live runs and graphs, in one table."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.accounts import Account
from scaler_cluster.core.records.actors import ActorTable
from scaler_cluster.core.records.lifecycle import ENDS, Event, State
from scaler_cluster.core.records.totals import Names, Totals
from scaler_cluster.core.scheduler.answers import Answers
from scaler_cluster.core.scheduler.backlog import Backlog
from scaler_cluster.core.scheduler.journal import Journal
from scaler_cluster.core.scheduler.objects import ObjectTable
from scaler_cluster.core.scheduler.observer import Observer
from scaler_cluster.core.scheduler.outbox import Outbox
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.core.graph.graph import GraphRecord
    from scaler_cluster.core.graph.ready_nodes import ReadyNodes
    from scaler_cluster.core.records.functions import FunctionRecord
    from scaler_cluster.core.records.managers import ManagerRecord
    from scaler_cluster.core.records.returning import Deferred, Returning
    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.session import SessionRecord

_NONE = object()


class Table:
    """The scheduler's state, with the moves that keep its parts in step."""

    def __init__(
        self,
        homes: Sequence[m.StorageEndpoint],
        user_of: Callable[[bytes], str],
        *,
        are_elsewhere: bool,
        retention_s: float,
        workers_expected: int,
    ) -> None:
        self.user_of = user_of
        """Says whose key a peer has; empty: nobody needs one."""
        self.outbox = Outbox()
        self.send = self.outbox.send
        self._everybody = Account()
        self._accounts: dict[str, Account] = {}
        """Those of users, who may come and go: what each has had counts on."""
        self.sessions: dict[bytes, SessionRecord] = {}
        self.session_by_number: dict[int, SessionRecord] = {}
        self.supervisors: dict[bytes, SupervisorRecord] = {}
        self.managers: dict[bytes, ManagerRecord] = {}
        """Whoever has workers started as they are wanted, supervisors among them."""
        self.operators: dict[bytes, float] = {}
        """Who acts on the tasks of others, and when each was last heard."""
        self.has_lost_machines = False
        """True once a supervisor was lost, or has left."""
        self.is_roster_new = True
        """True until the shell has written down which supervisors there are."""
        self.workers: dict[bytes, WorkerRecord] = {}
        self.functions: dict[bytes, FunctionRecord] = {}
        self.objects = ObjectTable(
            self.workers,
            self.sessions,
            self.functions,
            self.send,
            homes,
            are_elsewhere=are_elsewhere,
            retention_s=retention_s,
        )
        self.backlog = Backlog()
        self.actors = ActorTable()
        self.answers = Answers(self.session_by_number, self.send)
        self.in_flight = 0
        """Tasks that workers have."""
        self.names = Names()
        self.received: defaultdict[type[m.Message], int] = defaultdict(int)
        """How many messages of each kind have come."""
        self.journal = Journal()
        self.observer = Observer()
        """Is told what happens; does nothing while nobody watches."""
        self.deferred: dict[bytes, Deferred] = {}
        """What clients say that another scheduler knew, until all of it can be judged."""
        self.returning: dict[bytes, Returning] = {}
        """Workers that wait for their supervisor, or for the clients of what they hold."""
        self.to_watch: list[tuple[bytes, int]] = []
        """Supervisors and clients, each with the pid of its process, which the shell is to watch.
        The shell empties the list, and calls ``process_over`` when a process has ended."""
        self.refused = ""
        """Which cluster was refused last, and why; empty once a worker has come after that."""
        self.broken = ""
        """Why no worker can start anywhere; empty: some can, or may yet come."""
        self.workers_expected = workers_expected
        """Workers of a supervisor that has not come yet."""
        self.deaths = 0
        """Number of workers that died: they did not end in order."""
        self.errors = 0
        """How often the scheduler failed by a bug of its own."""

    # -- peers ---------------------------------------------------------------------------------

    def has_parted(self, peer: bytes) -> bool:
        """Return True for a peer that was sent away or given up just now: what it says is late."""
        return peer in self.outbox.parting and not self.knows(peer)

    def knows(self, peer: bytes) -> bool:
        """Return True for a client, worker, supervisor, manager, storage or operator."""
        return (
            peer in self.sessions
            or peer in self.workers
            or peer in self.supervisors
            or peer in self.managers
            or peer in self.operators
            or peer in self.returning
            or peer in self.objects.storages
        )

    @property
    def workers_to_come(self) -> int:
        """How many workers are on their way."""
        supervisors = self.supervisors.values()
        if not supervisors and not self.managers and not self.broken:
            return self.workers_expected
        managers = [one for one in self.managers.values() if not one.is_own]
        # Who is managed is counted by its manager.
        names = {one.name for one in managers}
        alone = (one for one in supervisors if one.manager not in names)
        late = (one.workers_wanted - (len(one.workers) - len(one.spares)) for one in alone)
        late_units = (one.wanted - one.here for one in managers)
        return sum(max(count, 0) for count in (*late, *late_units))

    def forgive_silence(self, lag_s: float) -> None:
        """Peers may have spoken in a time in which the scheduler itself did not listen."""
        for session in self.sessions.values():
            session.last_seen += lag_s
        for supervisor in self.supervisors.values():
            supervisor.last_seen += lag_s
        for manager in self.managers.values():
            manager.last_seen += lag_s
        for store in self.objects.stores.values():
            store.last_seen += lag_s

    def open_account(self, user: str) -> Account:
        """Return an account for a new client of a user."""
        whole = self._accounts.get(user)
        if whole is None:
            whole = self._accounts[user] = Account(self._everybody)
        return Account(whole)

    def account_of(self, session: SessionRecord) -> Account:
        """Return the account of what a client submits now: a task submits for its own client."""
        if not session.worker:
            return session.account
        runs = self.workers[session.worker].runs
        # Session 0 has what nobody asks for any more, and no account.
        return runs[0].account if runs and runs[0].session else session.account

    def add_session(self, session: SessionRecord) -> None:
        """Take a client in."""
        self.sessions[session.peer] = session
        self.session_by_number[session.number] = session

    def drop_session(self, session: SessionRecord) -> None:
        """Forget a client; its runs have been cancelled."""
        del self.sessions[session.peer]
        del self.session_by_number[session.number]
        self.deferred.pop(session.peer, None)

    def drop_worker(self, worker: WorkerRecord) -> None:
        """Forget a worker; its runs are still to be settled."""
        del self.workers[worker.peer]
        self.objects.forget_worker(worker)
        supervisor = self.supervisors.get(worker.supervisor)
        if supervisor is not None:
            supervisor.workers.pop(worker.peer, None)
            supervisor.spares.pop(worker.peer, None)
            supervisor.blocked.pop(worker.peer, None)
            supervisor.wide.pop(worker.peer, None)

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

    # -- runs ----------------------------------------------------------------------------------

    def add_run(self, run: Run) -> None:
        """Take a new run in.

        Raises RemoteProtocolError if one of its tasks is there already.
        """
        session = self.session_by_number[run.session]
        runs = session.runs
        # New tasks nearly always come after all others.
        is_last = not runs or runs.last.stop <= run.first
        if not is_last and runs.overlapping(run.first, run.stop):
            raise RemoteProtocolError(f"task {run.first} was submitted twice")
        if session.graphs and session.graphs.overlapping(run.first, run.stop):
            raise RemoteProtocolError(f"task {run.first} was submitted twice")
        runs[run.first] = run
        self.use(run)
        count = run.count
        session.totals.submitted += count
        self.functions[run.function].totals.submitted += count

    def totals(self, run: Run) -> tuple[Totals, Totals]:
        """Return where the tasks of a run are counted, unless they are nodes of a graph."""
        function = self.functions[run.function].totals
        return function, self.session_by_number[run.session].totals

    def use(self, run: Run) -> None:
        """Count a run among the users of what it needs."""
        self.functions[run.function].users += 1
        if run.objects:
            self.objects.hold(run.objects)

    # -- graphs --------------------------------------------------------------------------------

    def add_graph(self, session: SessionRecord, graph: GraphRecord) -> None:
        """Take a new graph in."""
        session.graphs[graph.first] = graph
        self.functions[graph.function].users += 1

    def end_graph(self, session: SessionRecord, graph: GraphRecord) -> None:
        """Forget a graph with all that it holds."""
        del session.graphs[graph.first]
        totals = graph.totals()
        totals.cancelled = totals.submitted - totals.done - totals.failed
        self.observer.graph_over(graph, totals)
        # Its nodes were counted as submitted when they came.
        totals.submitted = 0
        session.totals.add(totals)
        graph.layers.end(graph.nodes.states, graph.topology.inputs)
        self.backlog.withdraw(graph)
        self.release_function(graph.function)
        for peer in graph.workers:
            if peer in self.workers:
                self.send(peer, m.GraphOver(graph.session, graph.first))
        segments = chain.from_iterable(result[1] for result in graph.nodes.results.values())
        self.objects.release([*graph.objects, *graph.nodes.dropped, *segments])

    def graph_of(self, group: ReadyNodes) -> GraphRecord:
        """Return the graph that a group belongs to; at least one node of the group is ready."""
        graph: GraphRecord = self.session_by_number[group.session].graphs[group.graph]
        return graph

    def is_taken(self, session: SessionRecord, first: int, stop: int) -> bool:
        """Return True if one of these tasks is live."""
        if session.runs.overlapping(first, stop):
            return True
        return bool(session.graphs.overlapping(first, stop))

    def is_pending(self, session: SessionRecord, task: int) -> bool:
        """Return True if the client will be told what becomes of a task."""
        for graph in session.graphs.overlapping(task, task + 1):
            return bool(graph.nodes.wanted[task - graph.first])
        runs = session.runs.overlapping(task, task + 1)
        return bool(runs) and runs[0].state is not State.CANCELLING

    def put_back(self, run: Run, rest_until: float = -math.inf) -> None:
        """Queue a run again that a worker had, in front of its session's other runs.

        A single task may have to ``rest`` before. Nodes of graphs need not: others wait for them.
        """
        run.worker = None
        if not isinstance(run, NodeRun):
            if rest_until > -math.inf:
                self.backlog.rest(run, rest_until)
                return
            self.backlog.queue(run).push(run, front=True)
            return
        run.graph.put_back(run)
        self.backlog.update(run.graph)
        self._forget(run)

    # -- parts of runs -------------------------------------------------------------------------

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
        if isinstance(run, NodeRun):
            self.backlog.off_worker(run, run.first, run.first + count)
        run.drop_head(count)
        if session is not None:
            session.runs[run.first] = run

    def end(self, run: Run, event: Event) -> None:
        """Move a whole run to one of the ends and forget it."""
        state = run.move(event)
        if state not in ENDS:
            raise AssertionError(f"{event.name} is not the end of {run}")
        if isinstance(run, NodeRun):
            self.backlog.off_worker(run, run.first, run.stop)
        self._forget(run)

    def _forget(self, run: Run) -> None:
        session = self.session_by_number.get(run.session)
        if session is not None:
            del session.runs[run.first]
        self.release_function(run.function)
        if run.objects:
            self.objects.release(run.objects)
        run.worker = None
        # A deadline may keep the run for long; it must not keep the payloads.
        run.drop_all()

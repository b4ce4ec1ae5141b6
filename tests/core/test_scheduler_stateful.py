"""The scheduler among honest peers that come, go and die, in every order Hypothesis can think of.

Workers are real worker cores; their messages travel in order on each connection, and at any pace
against those of other connections. The model knows which tasks the clients still wait for.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scaler_cluster.core.scheduler import invariants
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.scheduler import SchedulerCore
from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.ids import EVENTS, SNAPSHOT, alias_of
from scaler_cluster.testing.bench import PYTHON, function_id, hello, payloads_of
from scaler_cluster.testing.worker_driver import WorkerDriver
from scaler_cluster.wire import feed as f
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.feed_codec import decode, encode

if TYPE_CHECKING:
    from scaler_cluster.core.records.totals import Totals

F = function_id("f")
OPTIONS = [
    m.DEFAULT_OPTIONS,
    m.TaskOptions(priority=1),
    m.TaskOptions(retries=2),
    m.TaskOptions(timeout_s=0.3),
    m.TaskOptions(timeout_s=0.3, retries=1),
    m.TaskOptions(at_most_once=True),
    m.TaskOptions(depth=1),
    m.TaskOptions(capabilities=(("gpu", 1),)),
    m.TaskOptions(capabilities=(("gpu", 2),), priority=1),
    m.TaskOptions(workers=("host",)),
]
GPU = (("gpu", 1), ("linux", -1))
"""What every other worker offers."""
TURNS_MAX = 1000


class Peer:
    """A process at the other end of a connection to the scheduler."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.outbox: deque[m.Message] = deque()
        """Sent to the scheduler, not there yet."""
        self.inbox: deque[m.Message] = deque()
        """Sent by the scheduler, not here yet."""


class Worker(Peer):
    """A worker and its machine."""

    def __init__(self, name: bytes, machine: Machine, *, spare: bool = False) -> None:
        super().__init__(name)
        self.machine = machine
        self.spare = spare
        self.hands = WorkerDriver(WorkerCore())
        self.capabilities = GPU if name[-1] % 2 else ()
        self.outbox.append(hello(
            m.WORKER, supervisor=machine.name, spare=spare, capabilities=self.capabilities
        ))  # fmt: skip


class Machine(Peer):
    """A supervisor."""

    def __init__(self, name: bytes) -> None:
        super().__init__(name)
        self.outbox.append(hello(m.SUPERVISOR, workers=2))


class Client(Peer):
    """A client, and what it waits for."""

    def __init__(self, name: bytes, worker: bytes = b"") -> None:
        super().__init__(name)
        self.worker = worker
        """Of the session of a worker's tasks: that worker."""
        self.pending: dict[int, m.TaskOptions] = {}
        self.answered: set[int] = set()
        self.came: Counter[str] = Counter()
        """How many tasks came back as what."""
        self.next_task = 0
        self.outbox.append(hello(m.CLIENT, worker=worker))
        self.outbox.append(m.Function(F, b"f"))


class SchedulerMachine(RuleBasedStateMachine):
    """Each task is answered exactly once; none is lost; the books are right after each step."""

    @initialize()
    def start(self) -> None:
        self.now = 100.0
        self.core = SchedulerCore(SchedulerConfig(PYTHON, unplaced_timeout_s=5.0), self.now)
        self.peers: dict[bytes, Peer] = {}
        self.made = self.turns = 0
        self.check_every = 1
        self.add_machine()
        self.add_client()
        self.add_worker()

    def of_kind(self, kind):
        return [peer for peer in self.peers.values() if isinstance(peer, kind)]

    def pick(self, data, kind):
        return data.draw(st.sampled_from(self.of_kind(kind)))

    def new_name(self, role: str) -> bytes:
        self.made += 1
        return f"{role}{self.made}".encode()

    # -- coming and going --------------------------------------------------------------------

    @rule()
    def add_client(self):
        if len([one for one in self.of_kind(Client) if not one.worker]) < 3:
            peer = Client(self.new_name("C"))
            self.peers[peer.name] = peer

    @rule()
    def add_machine(self):
        if len(self.of_kind(Machine)) < 3:
            peer = Machine(self.new_name("S"))
            self.peers[peer.name] = peer

    @precondition(lambda self: self.of_kind(Machine))
    @rule()
    def add_worker(self):
        machines = self.of_kind(Machine)
        if len(self.of_kind(Worker)) < 5:
            peer = Worker(self.new_name("W"), machines[self.made % len(machines)])
            self.peers[peer.name] = peer

    @precondition(lambda self: self.of_kind(Worker))
    @rule(data=st.data(), arrives=st.integers(0, 3))
    def kill_worker(self, data, arrives):
        """A worker dies; the last things it sent may still arrive, in time or too late."""
        worker = self.pick(data, Worker)
        while len(worker.outbox) > arrives:
            worker.outbox.pop()
        self.die(worker)

    def die(self, worker: Worker) -> None:
        session, task = worker.hands.ran
        worker.machine.outbox.append(m.WorkerLost(worker.name, session, task, {"signal": 9}))
        for gone in [worker, *self.sessions_of(worker)]:
            self.peers[gone.name] = ghost = Peer(gone.name)
            ghost.outbox = gone.outbox

    def sessions_of(self, worker: Worker) -> list[Client]:
        return [one for one in self.of_kind(Client) if one.worker == worker.name]

    @precondition(lambda self: len(self.of_kind(Machine)) > 1)
    @rule(data=st.data())
    def lose_machine(self, data):
        """A machine is lost with all that it had under way."""
        machine = self.pick(data, Machine)
        del self.peers[machine.name]
        for worker in self.of_kind(Worker):
            if worker.machine is machine:
                for gone in [worker, *self.sessions_of(worker)]:
                    del self.peers[gone.name]
        self.core.peer_lost(machine.name, self.now)
        self.turn()

    @precondition(lambda self: self.of_kind(Client))
    @rule(data=st.data(), says_goodbye=st.booleans())
    def client_leaves(self, data, says_goodbye):
        client = self.pick(data, Client)
        if says_goodbye:
            client.outbox.append(m.Goodbye())
            while client.outbox:
                self.deliver(client)
        else:
            self.core.peer_lost(client.name, self.now)
        del self.peers[client.name]
        self.turn()

    # -- tasks that submit tasks -------------------------------------------------------------

    @precondition(lambda self: self.of_kind(Worker))
    @rule(data=st.data())
    def nest(self, data):
        """The tasks of a worker open their session, once the worker is there."""
        worker = self.pick(data, Worker)
        if worker.name in self.core.table.workers and not self.sessions_of(worker):
            peer = Client(self.new_name("N"), worker.name)
            self.peers[peer.name] = peer

    @precondition(lambda self: any(one.worker for one in self.of_kind(Client)))
    @rule(data=st.data(), is_blocked=st.booleans())
    def block(self, data, is_blocked):
        """A worker only waits for others, or does no more."""
        session = data.draw(st.sampled_from([one for one in self.of_kind(Client) if one.worker]))
        session.outbox.append(m.Blocked(is_blocked))

    def add_spares(self, machine: Machine, count: int) -> None:
        there = [one for one in self.of_kind(Worker) if one.spare and one.machine is machine]
        for _ in range(count - len(there)):
            peer = Worker(self.new_name("W"), machine, spare=True)
            self.peers[peer.name] = peer

    # -- clients -----------------------------------------------------------------------------

    @precondition(lambda self: self.of_kind(Client))
    @rule(data=st.data(), count=st.integers(1, 40), options=st.sampled_from(OPTIONS))
    def submit(self, data, count, options):
        client = self.pick(data, Client)
        first = client.next_task
        client.next_task += count
        client.pending.update(dict.fromkeys(range(first, first + count), options))
        client.outbox.append(m.Submit(first, F, 0, options, payloads_of(first, count)))

    @precondition(lambda self: any(client.pending for client in self.of_kind(Client)))
    @rule(data=st.data(), count=st.integers(1, 10))
    def cancel(self, data, count):
        client = data.draw(st.sampled_from([one for one in self.of_kind(Client) if one.pending]))
        first = data.draw(st.sampled_from(list(client.pending)))
        for task in range(first, first + count):
            client.pending.pop(task, None)
        client.outbox.append(m.Cancel(first, count))

    @precondition(lambda self: self.of_kind(Client))
    @rule(data=st.data())
    def take_back(self, data):
        client = self.pick(data, Client)
        client.outbox.append(m.Cancel(0, client.next_task, queued_only=True))

    def read(self, client: Client) -> None:
        """What arrives at a client answers what it waits for, or what it gave up."""
        while client.inbox:
            message = client.inbox.popleft()
            if isinstance(message, m.Results):
                tasks = range(message.first, message.first + len(message.batch))
                assert [bytes(one) for one in message.batch] == [b"r%d" % task for task in tasks]
                self.answered(client, list(tasks))
                client.came["done"] += len(tasks)
            elif isinstance(message, m.Failed):
                self.answered(client, [message.task])
                client.came["failed"] += 1
            elif isinstance(message, m.Cancelled):
                self.answered(client, list(range(message.first, message.first + message.count)))

    def answered(self, client: Client, tasks: list[int]) -> None:
        for task in tasks:
            assert task not in client.answered, "answered twice"
            client.answered.add(task)
            client.pending.pop(task, None)

    # -- workers -----------------------------------------------------------------------------

    @precondition(lambda self: self.of_kind(Worker))
    @rule(data=st.data(), count=st.integers(1, 20),
          how=st.sampled_from(["returns", "returns", "raises", "stops"]))  # fmt: skip
    def work(self, data, count, how):
        worker = self.pick(data, Worker)
        for _ in range(count):
            self.work_once(worker, how)

    def work_once(self, worker: Worker, how: str) -> None:
        hands = worker.hands
        work = hands.take_up(self.now)
        if work is None:
            return
        if how == "returns":
            hands.returned(hands.payload.replace(b"p", b"r"), self.now)
        elif how == "raises":
            hands.raised(m.FAILED_EXCEPTION, b"", {}, self.now)
        elif hands.core.interrupt_due():
            hands.stopped(self.now)

    @precondition(lambda self: self.of_kind(Worker))
    @rule(data=st.data())
    def start_task(self, data):
        """A worker starts on a task and stays in it."""
        worker = self.pick(data, Worker)
        worker.hands.take_up(self.now)

    # -- the network and time ----------------------------------------------------------------

    @rule(data=st.data(), count=st.integers(1, 10))
    def travel(self, data, count):
        """Some messages of one peer arrive, in either direction."""
        peer = data.draw(st.sampled_from(list(self.peers.values())))
        for _ in range(count):
            self.exchange(peer)

    def exchange(self, peer: Peer) -> None:
        if isinstance(peer, Worker):
            peer.hands.core.reports.flush()
            peer.outbox += peer.hands.core.take_actions()
        if peer.outbox:
            self.deliver(peer)
        if isinstance(peer, Client):
            self.read(peer)
        elif isinstance(peer, Machine):
            while peer.inbox:
                message = peer.inbox.popleft()
                if isinstance(message, m.Kill):
                    worker = self.peers.get(message.worker)
                    if isinstance(worker, Worker):
                        self.die(worker)
                elif isinstance(message, m.Spares):
                    self.add_spares(peer, message.count)
                elif isinstance(message, m.Examine):
                    workers = [one.name for one in self.of_kind(Worker) if one.machine is peer]
                    figures = tuple(workers), (1,) * len(workers), (2,) * len(workers)
                    peer.outbox.append(m.Vitals(message.sent_at, 0.0, 1, 2, 3, 4, 5, 6, *figures))
        elif isinstance(peer, Worker):
            while peer.inbox:
                peer.hands.core.receive([peer.inbox.popleft()])

    def deliver(self, peer: Peer) -> None:
        message = peer.outbox.popleft()
        if self.core.table.knows(peer.name) or isinstance(message, m.Hello):
            self.core.receive(peer.name, [message], self.now)
        self.turn()

    @rule(pause_s=st.sampled_from([0.001, 0.006, 0.012, 0.1, 0.4, 0.6]))
    def tick(self, pause_s):
        self.now += pause_s
        self.live()
        if self.now >= self.core.deadline:
            self.core.tick(self.now)
        self.turn()

    def live(self) -> None:
        """Whoever lives says so; a supervisor that never will is given up after its timeout."""
        for session in self.core.table.sessions.values():
            session.last_seen = self.now
        for supervisor in self.core.table.supervisors.values():
            if supervisor.peer in self.peers:
                supervisor.last_seen = self.now

    def turn(self) -> None:
        for name, messages in self.core.take_actions(self.now).items():
            if name in self.peers:
                self.peers[name].inbox += messages
        for name in self.core.take_gone():
            if type(self.peers.get(name)) is Peer:
                del self.peers[name]
        self.publish()
        self.turns += 1
        if self.turns % self.check_every == 0:
            invariants.check(self.core)

    # -- who watches -------------------------------------------------------------------------

    @rule(topics=st.sampled_from([(), (SNAPSHOT,), (EVENTS,), (SNAPSHOT, EVENTS)]))
    def watch(self, topics):
        """Somebody begins to watch, or the last one leaves."""
        self.core.feed.watch(topics, self.now)

    def publish(self) -> None:
        if self.now < self.core.feed.due:
            return
        for message in self.core.feed.take(self.now):
            assert decode(encode(message)) == message
            if isinstance(message, f.Snapshot):
                self.check_snapshot(message)

    def check_snapshot(self, snapshot: f.Snapshot) -> None:
        """What it says of tasks adds up, and is what the tables hold."""
        totals = snapshot.tasks
        live = totals.waiting + totals.ready + totals.assigned + totals.running
        ended = totals.done + totals.failed + totals.cancelled
        live += totals.recalled
        # What is being stopped has ended for its client, and is on a worker still.
        assert 0 <= totals.submitted - ended <= live
        for field in "submitted", "done", "failed", "cancelled", "recalled":
            assert sum(getattr(row, field) for row in snapshot.functions) == getattr(totals, field)
        # Also those of clients that are gone, as long as the scheduler has not noticed.
        sessions = self.core.table.sessions.values()
        graphs = [graph for session in sessions for graph in session.graphs.values()]
        handed_over = sum(
            graph.nodes.is_live(node) for graph in graphs for node in graph.handed_over
        )
        on_workers = sum(row.tasks for row in snapshot.workers)
        assert on_workers + handed_over == totals.assigned + totals.running
        assert all(row.pending >= 0 for row in snapshot.functions)
        assert all(row.pending >= 0 for row in snapshot.clients)
        assert {row.worker for row in snapshot.workers} == set(
            map(alias_of, self.core.table.workers)
        )

    # -- the end -----------------------------------------------------------------------------

    def teardown(self):
        """When the faults stop, everything is answered and the tables are empty."""
        if not hasattr(self, "core"):
            return
        # Hundreds of tasks may be left, each a run of its own, and a check looks at all.
        self.check_every = 50
        for client in self.of_kind(Client):
            if client.worker:
                client.outbox.append(m.Blocked(False))
        for _ in range(TURNS_MAX):
            self.add_machine()
            self.add_worker()
            for peer in list(self.peers.values()):
                if isinstance(peer, Worker) and peer.name in self.peers:
                    stops = peer.hands.core.interrupt_due()
                    self.work_once(peer, "stops" if stops else "returns")
                while peer.outbox:
                    self.exchange(peer)
                self.exchange(peer)
            self.tick(0.05)
            if self.is_over():
                break
        assert not {name: peer.pending for name, peer in self.peers.items()
                    if isinstance(peer, Client) and peer.pending}, "lost"  # fmt: skip
        invariants.check(self.core)
        table = self.core.table
        assert (table.backlog.count, table.in_flight) == (0, 0)
        assert not any(user.demanding for user in table.backlog.users.values())
        assert not any(session.runs for session in table.sessions.values())
        for client in self.of_kind(Client):
            totals = table.sessions[client.name].totals
            assert totals.pending == 0
            self.check_totals(client, totals)

    def check_totals(self, client: Client, totals: Totals) -> None:
        """Tasks are counted as what their client was told."""
        assert (totals.done, totals.failed) == (client.came["done"], client.came["failed"])

    def is_over(self) -> bool:
        table = self.core.table
        return not (
            any(client.pending for client in self.of_kind(Client))
            or any(peer.outbox for peer in self.peers.values())
            or table.backlog.count
            or any(user.demanding for user in table.backlog.users.values())
            or table.in_flight
        )


SchedulerMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=50, deadline=None
)
TestSchedulerMachine = pytest.mark.slow(SchedulerMachine.TestCase)

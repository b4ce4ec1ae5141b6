"""Clients get the same time of the workers, and so do users, however much one of them asks for."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest

from scaler_cluster.core.records.accounts import CREDIT_S
from scaler_cluster.testing.bench import function_id, graph_of, hello, payloads_of
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

STEP_S = 0.005
SPAN_S = 3.0
HONEST, FLOOD = b"C1", b"C2"
HONEST_S = 0.001


class Worker:
    """Runs what it is given in order, each task for as long as tasks of its session take."""

    def __init__(self) -> None:
        self.tasks: deque[tuple[int, int]] = deque()
        self.progress_s = 0.0
        self.answers: list[m.Message] = []

    def take(self, message: m.Message) -> None:
        """Take a message in."""
        if isinstance(message, m.Assign | m.AssignNodes):
            first = message.first
            self.tasks += [(message.session, first + n) for n in range(len(message.batch))]
        elif isinstance(message, m.Revoke):
            asked = range(message.first, message.first + message.count)
            there = [task for session, task in self.tasks if session == message.session]
            # What has begun stays, and what has ended is not there any more.
            begun = self.tasks[0] if self.tasks else (0, 0)
            kept = sum(task not in there or (message.session, task) == begun for task in asked)
            gone = {(message.session, task) for task in asked[kept:]}
            self.tasks = deque(one for one in self.tasks if one not in gone)
            self.answers.append(m.Revoked(message.session, message.first, message.count, kept))

    def work(self, spans: dict[int, float], took: dict[int, float]) -> list[m.Message]:
        """Work for a step; return what it says."""
        said, self.answers = self.answers, []
        left_s = STEP_S
        while self.tasks:
            session, task = self.tasks[0]
            needs_s = spans[session] - self.progress_s
            if needs_s > left_s:
                self.progress_s += left_s
                took[session] += left_s
                break
            left_s -= needs_s
            took[session] += needs_s
            self.progress_s = 0.0
            self.tasks.popleft()
            said.append(m.Done(session, task, spans[session], Batch.single(b"r")))
        return said


class Cluster:
    """A scheduler with two workers."""

    def __init__(self, bench) -> None:
        self.bench = bench
        self.workers = {b"W1": Worker(), b"W2": Worker()}
        self.say(b"S1", hello(m.SUPERVISOR, workers=2))
        offered = tuple((f"c{number}", 1.0) for number in range(100))
        for peer in self.workers:
            self.say(peer, hello(m.WORKER, supervisor=b"S1", capabilities=offered))

    def say(self, peer: bytes, *messages: m.Message) -> None:
        """Let a peer say something, to which nobody listens yet."""
        self.bench.core.receive(peer, list(messages), self.bench.now)

    def client(self, peer: bytes, user: str = "") -> int:
        """Let a client come, with the key of a user; return the number of its session."""
        if user:
            self.bench.users[peer] = user
        self.say(peer, hello(m.CLIENT))
        return self.bench.core.table.sessions[peer].number

    def submit(
        self, peer: bytes, count: int, options: m.TaskOptions = m.DEFAULT_OPTIONS, *,
        first: int = 0, function: str = "f",
    ) -> None:  # fmt: skip
        """Let a client submit tasks, 10,000 a message."""
        digest = function_id(function)
        self.say(peer, m.Function(digest, function.encode()))
        for start in range(first, first + count, 10_000):
            batch = payloads_of(start, min(10_000, first + count - start))
            self.say(peer, m.Submit(start, digest, m.CALL_ARGS, options, batch))

    def run(self, spans: dict[int, float], span_s: float = SPAN_S) -> dict[int, float]:
        """Let the workers work; return how long they worked for each session.

        ``spans`` says how long a task of each session takes.
        """
        took: dict[int, float] = defaultdict(float)
        end = self.bench.now + span_s
        while self.bench.now < end:
            # The invariants are checked at the end: here that would take most of the time.
            for peer, sent in self.bench.core.take_actions(self.bench.now).items():
                for message in sent if peer in self.workers else ():
                    self.workers[peer].take(message)
            self.bench.now += STEP_S
            self.say(b"S1", m.Heartbeat())
            for peer, worker in self.workers.items():
                if said := worker.work(spans, took):
                    self.say(peer, *said)
            self.bench.core.tick(self.bench.now)
        return took


@pytest.fixture
def cluster(bench):
    """A scheduler with two workers, and honest client C1, which has many short tasks."""
    made = Cluster(bench)
    made.client(HONEST, "client:alice")
    made.submit(HONEST, 10_000)
    return made


def is_fair(took: dict[int, float]) -> bool:
    """Return True if the honest client had half of the time, give or take a fifth."""
    return took[1] / sum(took.values()) == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize("user", ["client:alice", "client:bob"])
@pytest.mark.parametrize("flood_s", [0.0001, 0.001, 0.04, 0.06, 0.5])
def test_clients_get_the_same_time(cluster, flood_s, user) -> None:
    """It is time that is shared: long tasks of another client are fewer than one's own."""
    flood = cluster.client(FLOOD, user)
    cluster.submit(FLOOD, 100_000, function="g")

    assert is_fair(cluster.run({1: HONEST_S, flood: flood_s}))


@pytest.mark.parametrize("user", ["client:alice", "client:bob"])
def test_functions_that_nobody_has_measured_take_no_more(cluster, user) -> None:
    """Tasks count with the time that they took, though each is of a function of its own."""
    flood = cluster.client(FLOOD, user)
    for number in range(400):
        cluster.submit(FLOOD, 1, first=number, function=f"g{number}")

    assert is_fair(cluster.run({1: HONEST_S, flood: 0.2}))


def test_users_get_the_same_time(cluster) -> None:
    """A user with ten clients gets no more than a user with one."""
    spans = {1: HONEST_S}
    for number in range(10):
        spans[cluster.client(b"F%d" % number, "client:bob")] = 0.002
        cluster.submit(b"F%d" % number, 10_000, function="g")

    assert is_fair(cluster.run(spans))


def test_a_priority_counts_within_its_user_alone(cluster) -> None:
    """Nobody gets more by calling all of it urgent."""
    flood = cluster.client(FLOOD, "client:bob")
    cluster.submit(FLOOD, 100_000, m.TaskOptions(priority=1000), function="g")

    assert is_fair(cluster.run({1: HONEST_S, flood: 0.01}))


def test_demands_count_within_their_user_alone(cluster) -> None:
    """Nobody gets more by demanding a hundred things that all workers have."""
    flood = cluster.client(FLOOD, "client:bob")
    for number in range(100):
        options = m.TaskOptions(capabilities=((f"c{number}", 1.0),))
        cluster.submit(FLOOD, 1000, options, first=1000 * number, function="g")

    assert is_fair(cluster.run({1: HONEST_S, flood: 0.01}))


@pytest.mark.parametrize("user", ["client:alice", "client:bob"])
def test_nodes_of_a_graph_count_as_tasks_do(cluster, user) -> None:
    """Nobody gets more by a graph."""
    flood = cluster.client(FLOOD, user)
    every = [""] * 2000
    graph = graph_of(0, *every, wanted=" ".join(map(str, range(len(every)))))
    cluster.say(FLOOD, m.Function(function_id("g"), b"g"), graph)

    assert is_fair(cluster.run({1: HONEST_S, flood: 0.02}))


def test_what_a_task_submits_counts_for_its_client(cluster) -> None:
    """Nobody gets more by tasks that submit tasks, though these come from workers."""
    cluster.bench.users[b"N1"] = "worker:w"
    flood = cluster.client(FLOOD, "client:bob")
    cluster.submit(FLOOD, 1, function="g")
    spans = {1: HONEST_S, flood: 2 * SPAN_S}
    cluster.run(spans, 0.1)
    (peer,) = (one for one, worker in cluster.workers.items() if (flood, 0) in worker.tasks)
    cluster.say(b"N1", hello(m.CLIENT, worker=peer))
    nested = cluster.bench.core.table.sessions[b"N1"].number
    cluster.submit(b"N1", 5_000, m.TaskOptions(depth=1), function="h")
    other = cluster.client(b"C3", "client:bob")
    cluster.submit(b"C3", 5_000, function="h")

    took = cluster.run(spans | {nested: 0.01, other: 0.01})

    # One worker runs the task that submitted the others.
    assert took[1] == pytest.approx(SPAN_S / 2, rel=0.2)


def test_what_nobody_asks_for_submits_for_its_worker(cluster) -> None:
    """Tasks of a task that is to be stopped, as its client is gone, come before nobody's."""
    cluster.bench.users[b"N1"] = "worker:w"
    core = cluster.bench.core
    cluster.say(b"N1", hello(m.CLIENT, worker=b"W1"))
    worker = core.table.workers[b"W1"]
    core._stopping.disown(worker, 7, cluster.bench.now)
    core._pools.consider(worker)

    cluster.submit(b"N1", 5, function="h")

    session = core.table.sessions[b"N1"]
    assert [run.account for run in session.runs.values()] == [session.account]


def test_what_waits_takes_no_time(cluster) -> None:
    """A task that only waits for others is not counted meanwhile: a spare worker has its place."""
    flood = cluster.client(FLOOD, "client:bob")
    cluster.submit(FLOOD, 1, function="g")
    cluster.run({1: HONEST_S, flood: 100.0}, 0.1)
    (peer,) = (one for one, worker in cluster.workers.items() if (flood, 0) in worker.tasks)
    cluster.say(b"N1", hello(m.CLIENT, worker=peer))
    account = cluster.bench.core.table.sessions[FLOOD].account

    cluster.say(b"N1", m.Blocked(is_blocked=True))
    cluster.bench.now += 5.0
    cluster.say(b"N1", m.Blocked(is_blocked=False))
    cluster.say(peer, m.Done(flood, 0, 6.0, Batch.single(b"r")))

    assert account.served_s == pytest.approx(1.0)


def test_a_task_that_is_stopped_counts_with_what_it_took(cluster) -> None:
    """Nobody gets more by cancelling tasks before they end."""
    flood = cluster.client(FLOOD, "client:bob")
    cluster.submit(FLOOD, 1, function="g")
    cluster.run({1: HONEST_S, flood: 100.0}, 2.0)
    (peer,) = (one for one, worker in cluster.workers.items() if (flood, 0) in worker.tasks)

    cluster.say(FLOOD, m.Cancel(0, 1))
    cluster.say(peer, m.Aborted(flood, 0, 1))

    assert cluster.bench.core.table.sessions[FLOOD].account.served_s == pytest.approx(2.0, abs=0.1)


def test_a_task_that_kills_its_worker_counts_with_what_it_took(cluster) -> None:
    """Nobody gets more by tasks that end their process."""
    flood = cluster.client(FLOOD, "client:bob")
    cluster.submit(FLOOD, 1, function="g")
    cluster.run({1: HONEST_S, flood: 100.0}, 2.0)
    (peer,) = (one for one, worker in cluster.workers.items() if (flood, 0) in worker.tasks)

    cluster.say(b"S1", m.WorkerLost(peer, flood, 0, {"signal": 9}))

    assert cluster.bench.core.table.sessions[FLOOD].account.served_s == pytest.approx(2.0, abs=0.1)


def test_who_comes_later_makes_up_for_little(cluster) -> None:
    """A client that had nothing to run for long does not keep those out who had."""
    cluster.bench.core.peer_lost(HONEST, cluster.bench.now)
    flood = cluster.client(FLOOD, "client:bob")
    cluster.submit(FLOOD, 100_000, function="g")
    cluster.run({flood: 0.01})
    honest = cluster.client(HONEST, "client:alice")
    cluster.submit(HONEST, 10_000)

    took = cluster.run({flood: 0.01, honest: HONEST_S})

    assert took[honest] == pytest.approx((sum(took.values()) + CREDIT_S) / 2, rel=0.1)

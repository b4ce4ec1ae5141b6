"""Actors in the scheduler and the worker: one place, calls in order, every end told."""

from __future__ import annotations

from array import array
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scaler_cluster.core.records.roster import Roster
from scaler_cluster.core.scheduler import invariants
from scaler_cluster.core.scheduler.actors import OWNER_S, RETURN_S
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.scheduler import SchedulerCore
from scaler_cluster.core.worker.slot import SLOT_SESSION, SLOT_TASK
from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import (
    PYTHON,
    SchedulerBench,
    function_id,
    graph_of,
    hello,
    payloads_of,
    submission,
)
from scaler_cluster.testing.describe import describe
from scaler_cluster.testing.worker_driver import WorkerDriver
from scaler_cluster.wire import messages as m

A = "actor:A:1"
MAKE = m.TaskOptions(creates=A, at_most_once=True)
CALL = m.TaskOptions(workers=(A,), at_most_once=True)
OLD = 7
BEFORE = Roster((0,), frozenset({b"S1"}), True)


@pytest.fixture
def made(two):
    """As ``two``, and an actor in W1, which C1 has made by its task 0."""
    two.submit(0, options=MAKE)
    two.done(0)
    return two


def failures(sent, peer="C1"):
    return [line for line in sent.get(peer, []) if line.startswith("Failed")]


def why(bench) -> str:
    """Return what calls of the actor are told."""
    return str(bench.core.table.actors.how_ended(A))


def wait(bench, duration_s, supervisor=b"S1"):
    """Let time pass in which everybody is heard of; return what the machine is told."""
    said = []
    for _ in range(int(duration_s)):
        said += bench.wait(1.0).get("S1", [])
        for peer in (supervisor, *bench.core.table.sessions):
            said += bench.feed(peer, m.Heartbeat()).get("S1", [])
    return str(said)


def test_an_actor_gets_a_worker_of_its_own(two) -> None:
    """The task that makes it goes to an idle worker, whose place a spare worker takes."""
    said = two.submit(0, options=MAKE)

    assert said["W1"] == ["Function f", "Assign 1:0 f once", f"Hosts {A} of 1"]
    assert said["S1"] == ["Spares 1"]
    two.submit(1, 8, function="g")
    assert all(run.function != function_id("g") for run in two.core.table.workers[b"W1"].runs)


def test_it_waits_for_an_idle_worker(one) -> None:
    """An actor is not made behind other tasks: those would share its worker with it."""
    one.submit(0)
    assert "Assign" not in str(one.submit(1, options=MAKE))

    assert f"Hosts {A} of 1" in one.done(0)["W1"]


def test_calls_go_to_its_worker_in_their_order(two) -> None:
    """Calls wait until it has a worker; then they follow what makes it, whoever submits them."""
    two.client(b"C2")
    two.submit(5, options=CALL, peer=b"C2")
    assert "Assign" not in str(two.wait(1.0))

    said = two.submit(0, options=MAKE)
    assert said["W1"][-1].startswith("Assign 2:5")
    assert two.submit(1, options=CALL)["W1"] == ["Assign 1:1 f once"]
    assert two.submit(2, options=CALL)["W1"] == ["Assign 1:2 f once"]
    two.done(0, peer=b"W1")
    assert two.done(5, peer=b"W1", session=2) == {"C2": ["Results 5 [r5]"]}
    assert two.done(1, 1, peer=b"W1") == {"C1": ["Results 1 [r1]"]}


def test_calls_stay_where_the_actor_lives(made) -> None:
    """However long a call takes, what waits behind it is not asked back for an idle worker."""
    made.submit(1, 20, options=CALL)

    assert "Revoke" not in str(made.wait(5.0))


def test_a_worker_is_given_no_more_calls_than_it_may_have(two) -> None:
    """What is beyond that follows when there is room, in order."""
    two.feed(b"S1", m.WorkerLost(b"W1", 0, 0, {}), m.WorkerLost(b"W2", 0, 0, {}))
    two.worker(b"W3", queue=2)
    two.submit(9, options=MAKE)
    said = two.submit(10, 3, options=CALL)

    assert said["W3"] == ["Assign 1:10 f once"]
    assert two.done(9, peer=b"W3")["W3"] == ["Assign 1:11 f once"]
    assert two.done(10, peer=b"W3")["W3"] == ["Assign 1:12 f once"]


def test_a_call_that_waits_is_cancelled_and_one_that_runs_is_not(made) -> None:
    """The worker drops a call that has not started; one that runs is neither stopped nor killed."""
    made.submit(1, 3, options=CALL)
    assert made.feed(b"C1", m.Cancel(1, 2)) == {"W1": ["Abort 1:1-2"]}

    assert "Kill" not in wait(made, 60)
    made.feed(b"W1", m.Aborted(1, 2, 1))
    assert made.done(1, peer=b"W1") == {}
    assert made.done(3, peer=b"W1") == {"C1": ["Results 3 [r3]"]}


def test_a_worker_with_an_actor_interrupts_nothing() -> None:
    """A call that runs is left alone; one that waits behind it is dropped."""
    core = WorkerCore()
    hands = WorkerDriver(core)
    core.receive([m.Hosts(A, 1), *assigned(0), *assigned(1)])
    hands.take_up(0.0)

    core.receive([m.Abort(1, 0, 2)])

    assert not core.interrupt_due()
    assert [describe(one) for one in core.take_actions()] == ["Aborted 1:1"]
    assert core.come_back((), 1, 0.0)[0] == m.Hosts(A, 1)


def assigned(task):
    function = m.Function(function_id("f"), b"f")
    batch = payloads_of(task, 1)
    call = m.Assign(1, task, function.function, 0, False, False, batch, at_most_once=True)
    return function, call


# -- ends ------------------------------------------------------------------------------------------


def test_all_calls_fail_with_the_worker(made) -> None:
    """What runs, what waits and what comes later is told how the worker died; nothing is rerun."""
    made.submit(1, 2, options=CALL)
    said = made.died(1, worker=b"W1")
    late = made.submit(3, options=CALL)

    assert failures(said) + failures(late) == [f"Failed {n} actor" for n in (1, 2, 3)]
    assert A in why(made)
    assert "'signal': 9" in why(made)
    assert "Assign" not in str(said)
    assert not made.core.table.actors.records


@pytest.mark.parametrize("is_lost", [True, False])
def test_an_actor_is_lost_with_its_machine(made, is_lost) -> None:
    """So it is if its worker breaks the protocol."""
    made.submit(1, options=CALL)
    said = made.lose(b"S1" if is_lost else b"W1")

    assert "actor" in str(failures(said))


def test_an_actor_that_cannot_be_made(two) -> None:
    """Its calls are told why, and its worker leaves for another one."""
    two.submit(0, options=MAKE)
    detail = {"type": "ValueError", "message": "no"}
    said = two.feed(b"W1", m.Erred(1, 0, 0.1, m.FAILED_EXCEPTION, b"", detail))

    assert "Retire" in said["W1"]
    assert failures(two.submit(1, options=CALL)) == ["Failed 1 actor"]
    assert "it could not be made: ValueError: no" in why(two)


def test_an_actor_that_no_worker_can_have_is_never_made() -> None:
    """When its demand was waited for in vain, its calls fail."""
    two = SchedulerBench(SchedulerConfig(PYTHON, unplaced_timeout_s=5.0))
    two.supervisor()
    two.client()
    two.worker()
    demanding = m.TaskOptions(creates=A, at_most_once=True, capabilities=(("gpu", 1),))
    two.submit(0, options=demanding)
    two.submit(1, options=CALL)

    wait(two, two.core.config.unplaced_timeout_s + 5)

    assert "could not be made" in why(two)
    assert failures(two.submit(2, options=CALL)) == ["Failed 2 actor"]


def test_an_actor_ends_with_its_client(made) -> None:
    """Its worker is killed; other clients are told."""
    made.client(b"C2")
    made.submit(5, options=CALL, peer=b"C2")
    made.feed(b"C1", m.Goodbye())

    assert "Kill W1: the client is gone" in str(made.wait(1.0)["S1"])
    assert "actor" in str(failures(made.died(5, worker=b"W1", session=2), "C2"))


def test_what_a_task_makes_is_for_the_client_of_the_task(two) -> None:
    """An actor that a task has made outlives the task, and ends with its client."""
    two.submit(0)
    two.feed(b"N2", hello(m.CLIENT, worker=b"W2"))
    said = two.submit(0, peer=b"N2", options=MAKE)

    assert f"Hosts {A} of 1" in said["W1"]


def test_a_client_ends_an_actor(made) -> None:
    """The worker is killed at once; an actor that has no worker yet is never made."""
    assert made.feed(b"C1", m.EndActor(A)) == {"S1": ["Kill W1: it was destroyed"]}
    made.died(worker=b"W1")
    other = "actor:B:2"
    made.submit(1, function="g")
    made.submit(2, options=m.TaskOptions(creates=other))

    assert failures(made.feed(b"C1", m.EndActor(other))) == ["Failed 2 actor"]


def test_there_are_so_many_actors_at_most(two) -> None:
    """Each is a process: the client is told when a machine has its share."""
    for number in range(m.ACTORS_MAX):
        two.submit(number, options=m.TaskOptions(creates=f"actor:A:{number + 2}"))

    assert failures(two.submit(99, options=MAKE)) == ["Failed 99 actor"]
    assert failures(two.submit(100, options=CALL)) == ["Failed 100 actor"]
    assert "64 a machine" in why(two)


def test_what_is_no_honest_client_is_refused(two) -> None:
    """Several tasks that make one actor, calls in graphs, and workers that end actors."""
    with pytest.raises(RemoteProtocolError, match="several tasks"):
        two.submit(0, 2, options=MAKE)
    two.client(b"C2")
    with pytest.raises(RemoteProtocolError, match="only a client"):
        two.feed(b"W1", m.EndActor(A))
    function = m.Function(function_id("g"), b"g", name="g")
    for options in (MAKE, CALL):
        with pytest.raises(RemoteProtocolError, match="a node of a graph"):
            two.feed(b"C2", function, graph_of(50, "", wanted="0", options=(options,)))


# -- another scheduler -----------------------------------------------------------------------------


def restarted(*held, started=(), client=(), is_first=False):
    """Return a scheduler to which an actor's worker and its client have come back."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, epoch=1, predecessor=BEFORE))
    ledger = array("Q", [number for run in started for number in run]).tobytes()
    said = {}

    def client_comes():
        return bench.feed(b"C1", hello(m.CLIENT, resume=OLD), *client, m.Resumed(0))

    if is_first:
        client_comes()
    bench.feed(b"S1", hello(m.SUPERVISOR, workers=1, resume=1), m.Roll((b"W1",), False))
    hi = hello(m.WORKER, supervisor=b"S1", resume=1)
    said = bench.feed(b"W1", hi, m.Hosts(A, OLD), *held, m.Held(ledger, True, 0))
    return bench, said if is_first else client_comes()


@pytest.mark.parametrize("is_first", [True, False])
def test_an_actor_is_found_again(is_first) -> None:
    """What its worker holds stays there, what it has not got follows, what it ran is not rerun."""
    calls = submission(1, 4, options=CALL)
    held = [m.Holding(OLD, 2, 2, 1, 3.0)]
    bench, said = restarted(*held, started=[(OLD, 0, 3)], client=calls, is_first=is_first)

    assert said["W1"] == ["Welcome 0, 0 workers", "Function f", "Assign 7:4 f once"]
    assert [line[:13] for line in failures(said)] == ["Failed 1 lost"]
    assert bench.feed(b"W1", m.Done(OLD, 2, 0.1, payloads_of(2, 2, "r")))["C1"] == [
        "Results 2-3 [r2 r3]"
    ]
    assert "Kill" not in str(bench.wait(OWNER_S + 1.0))


@pytest.mark.parametrize("is_first", [True, False])
def test_what_has_made_an_actor_is_asked_for_again(is_first) -> None:
    """If the client had not heard that it was made, the actor lives all the same, made once."""
    client = [*submission(0, options=MAKE), *submission(1, options=CALL)]
    bench, said = restarted(started=[(OLD, 0, 1)], client=client, is_first=is_first)

    assert failures(said) == ["Failed 0 lost"]
    assert said["W1"][-1] == "Assign 7:1 f once"
    assert A in bench.core.table.actors.records


@pytest.mark.parametrize("is_first", [True, False])
def test_an_actor_that_is_being_made_goes_on(is_first) -> None:
    """What is being made while the scheduler is killed is there afterwards, or fails as usual."""
    client = [*submission(0, options=MAKE), *submission(1, options=CALL)]
    making = m.Holding(OLD, 0, 1, 1, 3.0)
    bench, said = restarted(making, started=[(OLD, 0, 1)], client=client, is_first=is_first)

    assert failures(said) == []
    assert said["W1"][-1] == "Assign 7:1 f once"
    bench.feed(b"W1", m.Erred(OLD, 0, 0.1, m.FAILED_EXCEPTION, b"", {}))
    assert "could not be made" in why(bench)


def test_an_actor_whose_client_does_not_come_back_ends() -> None:
    """Another scheduler waits a while for the client."""
    bench, _ = restarted(client=())
    bench.feed(b"C1", m.Goodbye())

    assert "Kill" not in wait(bench, OWNER_S - 2)
    assert "Kill W1: the client is gone" in wait(bench, 4)


def test_an_actor_that_does_not_come_back_is_told() -> None:
    """Calls wait a while for an actor that a new scheduler does not know."""
    bench = SchedulerBench()
    bench.client()
    bench.submit(1, options=CALL)

    assert not failures(bench.wait(RETURN_S - 1.0))
    assert failures(bench.wait(2.0)) == ["Failed 1 actor"]
    assert failures(bench.submit(2, options=CALL)) == ["Failed 2 actor"]
    assert "does not know it" in why(bench)


def test_an_actor_that_was_given_up_does_not_come_back(made) -> None:
    """Its calls have failed, so there must be none: its worker is killed."""
    made.lose(b"S1")
    made.feed(b"S1", hello(m.SUPERVISOR, workers=2, resume=1), m.Roll((b"W1",), False))
    hi = hello(m.WORKER, supervisor=b"S1", resume=1)
    said = made.feed(b"W1", hi, m.Hosts(A, 1), m.Held(b"", True, 0))

    assert "Kill W1: its actor was given up" in str(said["S1"])


def test_it_keeps_what_it_has_of_the_machine() -> None:
    """What an actor demands is its own until it ends, also for another scheduler."""
    bench = SchedulerBench()
    bench.supervisor(workers=2, capabilities=(("gpu", 1),))
    bench.client()
    bench.worker()
    bench.worker(b"W2")
    gpu = m.TaskOptions(capabilities=(("gpu", 1),))
    bench.submit(0, options=m.TaskOptions(creates=A, capabilities=gpu.capabilities))
    bench.done(0)

    assert "Assign" not in str(bench.submit(1, options=gpu))
    assert "Assign" in str(bench.died())


# -- any order -------------------------------------------------------------------------------------


class ActorMachine(RuleBasedStateMachine):
    """Calls of several clients run in each one's order, one place, once; each end is told.

    Messages travel in order on each connection and at any pace. Workers are real worker cores.
    """

    @initialize()
    def start(self) -> None:
        self.now = 100.0
        self.core = SchedulerCore(SchedulerConfig(PYTHON), self.now)
        self.inboxes: dict[bytes, deque[m.Message]] = {}
        self.outboxes: dict[bytes, deque[m.Message]] = {}
        self.workers: dict[bytes, WorkerDriver] = {}
        self.pending: dict[bytes, set[int]] = {b"C1": set(), b"C2": set()}
        self.next = 1
        self.ran: list[tuple[bytes, int, int]] = []
        """Worker, session and task of each call, as they began."""
        self.told: dict[tuple[bytes, int], str] = {}
        self.say(b"S1", hello(m.SUPERVISOR, workers=2))
        for name in (b"W1", b"W2"):
            self.workers[name] = WorkerDriver(WorkerCore())
            self.say(name, hello(m.WORKER, supervisor=b"S1"))
        for name in (b"C1", b"C2"):
            self.say(name, hello(m.CLIENT), m.Function(function_id("f"), b"f"))
        for name in list(self.outboxes):
            self.deliver(name)
        self.submit(b"C1", 0, MAKE)
        self.deliver(b"C1")

    def say(self, peer: bytes, *messages: m.Message) -> None:
        self.outboxes.setdefault(peer, deque()).extend(messages)

    def submit(self, client: bytes, task: int, options: m.TaskOptions) -> None:
        self.pending[client].add(task)
        batch = payloads_of(task, 1)
        self.say(client, m.Submit(task, function_id("f"), 0, options, batch))

    def deliver(self, peer: bytes, count: int = 99) -> None:
        box = self.outboxes.get(peer, deque())
        messages = [box.popleft() for _ in range(min(count, len(box)))]
        if messages:
            self.core.receive(peer, messages, self.now)
        self.act()

    def act(self) -> None:
        for peer, sent in self.core.take_actions(self.now).items():
            self.inboxes.setdefault(peer, deque()).extend(sent)
        invariants.check(self.core)
        for client in self.pending:
            for message in self.inboxes.pop(client, ()):
                self.take_answer(client, message)

    def take_answer(self, client: bytes, message: m.Message) -> None:
        if isinstance(message, m.Results):
            tasks, kind = range(message.first, message.first + len(message.batch)), "done"
        elif isinstance(message, m.Failed):
            assert message.kind == m.FAILED_ACTOR
            tasks, kind = range(message.task, message.task + 1), "died"
        else:
            return
        for task in tasks:
            self.pending[client].remove(task)
            self.told[client, task] = kind

    @rule(client=st.sampled_from([b"C1", b"C2"]), count=st.integers(1, 4))
    def call(self, client: bytes, count: int) -> None:
        for _ in range(count):
            self.submit(client, self.next, CALL)
            self.next += 1

    @rule(client=st.sampled_from([b"C1", b"C2"]))
    def other_work(self, client: bytes) -> None:
        """Nothing of this may come where the actor lives."""
        self.say(client, m.Submit(
            10**6 + self.next, function_id("f"), 0, m.DEFAULT_OPTIONS, payloads_of(0, 1)
        ))  # fmt: skip
        self.pending[client].add(10**6 + self.next)
        self.next += 1

    @rule(peer=st.sampled_from([b"C1", b"C2", b"W1", b"W2", b"S1"]), count=st.integers(1, 5))
    def travel(self, peer: bytes, count: int) -> None:
        self.deliver(peer, count)

    @rule(name=st.sampled_from([b"W1", b"W2"]))
    def arrive(self, name: bytes) -> None:
        if name in self.workers:
            inbox = self.inboxes.pop(name, deque())
            self.workers[name].core.receive(list(inbox))

    @rule(name=st.sampled_from([b"W1", b"W2"]))
    def run(self, name: bytes) -> None:
        """A worker runs its next task to its end."""
        if name not in self.workers:
            return
        hands = self.workers[name]
        work = hands.take_up(self.now)
        if work is None:
            return
        session, task = hands.task
        if work.is_once:
            self.ran.append((name, session, task))
        hands.returned(b"r", self.now)
        hands.core.reports.flush()
        self.say(name, *hands.core.take_actions())

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.6]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.say(b"S1", m.Heartbeat())
        for name in (b"C1", b"C2", b"S1"):
            self.say(name, m.Heartbeat())
        self.core.tick(self.now)
        self.act()

    @precondition(lambda self: len(self.workers) == 2)
    @rule(name=st.sampled_from([b"W1", b"W2"]))
    def kill(self, name: bytes) -> None:
        hands = self.workers.pop(name)
        self.outboxes.pop(name, None)
        # Each task runs to its end at once: none is under way.
        ran = hands.slot[SLOT_SESSION], hands.slot[SLOT_TASK]
        self.say(b"S1", m.WorkerLost(name, *ran, {"signal": 9, "pid": 1}))

    @invariant()
    def in_order_and_in_one_place(self) -> None:
        ran = getattr(self, "ran", [])
        assert len({worker for worker, _, _ in ran}) <= 1
        for session in (1, 2):
            tasks = [task for _, its, task in ran if its == session]
            assert tasks == sorted(set(tasks))

    def teardown(self) -> None:
        """In the end, everything is told."""
        if not hasattr(self, "now"):
            return
        for _ in range(60):
            for peer in list(self.outboxes):
                self.deliver(peer)
            for name in list(self.workers):
                self.arrive(name)
                for _ in range(10):
                    self.run(name)
            self.wait(0.02)
        calls = {c: [t for t in tasks if t < 10**6] for c, tasks in self.pending.items()}
        assert not any(calls.values()), calls
        assert len(self.workers) < 2 or "died" not in self.told.values()


TestActorMachine = ActorMachine.TestCase
TestActorMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)

"""The ready queue: by example, and against a model of one list."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scaler_cluster.core.records.accounts import Account
from scaler_cluster.core.records.lifecycle import State
from scaler_cluster.core.records.workers import Run
from scaler_cluster.core.scheduler.queue import ReadyQueue
from scaler_cluster.testing.bench import function_id, payloads_of
from scaler_cluster.wire import messages as m

TASK_S = 0.125
USER = Account(Account())
_accounts: dict[int, Account] = {}


@pytest.fixture(autouse=True)
def accounts():
    """What sessions have had of the workers' time, which begins anew with each test."""
    _accounts.clear()
    return _accounts


def make_run(session: int, first: int, count: int = 1, priority: int = 0) -> Run:
    options = m.TaskOptions(priority=priority)
    account = _accounts.setdefault(session, Account(USER))
    batch = payloads_of(first, count)
    return Run(session, first, function_id("f"), 0, options, batch, account=account)


def drain(queue: ReadyQueue, limit: int = 1000) -> list[tuple[int, int, int]]:
    """Take everything; return session, first task and number of tasks of each take."""
    taken = []
    while (head := queue.peek()) is not None:
        run = queue.take(head, limit)
        run.account.served_s += run.count * TASK_S
        taken.append((run.session, run.first, run.count))
    return taken


@pytest.fixture
def queue():
    return ReadyQueue(m.DEFAULT_OPTIONS)


def test_an_empty_queue_has_nothing(queue):
    """Peek returns None, and the count is 0."""
    assert queue.peek() is None
    assert queue.count == 0


def test_first_come_first_served_within_a_session(queue):
    """Runs of one session and priority leave in the order in which they came."""
    for first in (5, 3, 9):
        queue.push(make_run(1, first))

    assert drain(queue) == [(1, 5, 1), (1, 3, 1), (1, 9, 1)]


def test_higher_priority_leaves_first(queue):
    """Priority counts before arrival, also a negative one."""
    queue.push(make_run(1, 0, priority=-1))
    queue.push(make_run(1, 1))
    queue.push(make_run(2, 2, priority=7))

    assert drain(queue) == [(2, 2, 1), (1, 1, 1), (1, 0, 1)]


def test_sessions_take_turns(queue):
    """Of one priority, the session that had least is next, however much the first one queued."""
    for first in range(4):
        queue.push(make_run(1, first))
    queue.push(make_run(2, 10))
    queue.push(make_run(3, 20))

    assert [session for session, _, _ in drain(queue)] == [1, 2, 3, 1, 1, 1]


def test_turns_are_taken_within_a_long_run(queue):
    """A session whose run is only cut waits for its turn as well."""
    queue.push(make_run(1, 0, 6))
    queue.push(make_run(2, 10, 2))

    assert drain(queue, 2) == [(1, 0, 2), (2, 10, 2), (1, 2, 2), (1, 4, 2)]


def test_turns_are_of_equal_time(queue):
    """A session whose tasks take ten times as long gets a tenth of the tasks."""
    for first in range(20):
        queue.push(make_run(1, first))
        queue.push(make_run(2, first))
    order: list[int] = []
    while len(order) < 22 and (head := queue.peek()) is not None:
        queue.take(head, 1)
        head.account.served_s += (10 if head.session == 1 else 1) * TASK_S
        order.append(head.session)

    assert order == [1, *[2] * 10, 1, *[2] * 10]


def test_what_was_counted_too_high_is_made_up_for(queue, accounts):
    """A session whose tasks took less than expected is found again, and then has its turns."""
    for first in range(20):
        queue.push(make_run(1, first))
        queue.push(make_run(2, first))
    assert queue.peek().session == 1
    accounts[1].served_s += 100.0
    assert queue.peek().session == 2
    accounts[1].served_s -= 99.0
    accounts[2].served_s += 101.0

    assert queue.peek().session == 1


def test_a_cut_run_keeps_its_place(queue):
    """What is left of a run that was cut is next in its session."""
    queue.push(make_run(1, 0, 5))
    queue.push(make_run(1, 9))

    assert drain(queue, 3) == [(1, 0, 3), (1, 3, 2), (1, 9, 1)]


def test_what_comes_back_goes_to_the_front(queue):
    """A run that is pushed to the front is served before its session's others."""
    queue.push(make_run(1, 5))
    queue.push(make_run(1, 3), front=True)

    assert drain(queue) == [(1, 3, 1), (1, 5, 1)]


def test_a_cancelled_run_is_passed_over(queue):
    """A run that left the READY state is not counted, not yielded and not served."""
    gone, stays = make_run(1, 0, 3), make_run(1, 5)
    queue.push(gone)
    queue.push(stays)
    queue.discard(gone)
    gone.state = State.CANCELLED

    assert queue.count == 1
    assert list(queue) == [stays]
    assert drain(queue) == [(1, 5, 1)]


def test_cancelled_runs_do_not_pile_up(queue):
    """Runs that are submitted and cancelled leave nothing behind, though nobody ever looks."""
    for first in range(100):
        run = make_run(1, first)
        queue.push(run)
        queue.discard(run)
        run.state = State.CANCELLED

    assert not queue._levels


def test_what_has_ended_hides_nothing(queue, accounts):
    """A session of which only ended runs are left does not take the place of one that has some."""
    gone, stays = make_run(1, 0), make_run(2, 5)
    queue.push(gone)
    queue.push(stays)
    accounts[2].served_s = TASK_S
    queue.peek()
    queue.discard(gone)
    gone.state = State.CANCELLED

    assert list(queue.entries(1)) == [stays]


def test_parts_take_the_place_of_the_whole(queue):
    """The parts that replace a run are served where it would have been."""
    before, whole, after = make_run(1, 0), make_run(1, 10, 4), make_run(1, 20)
    for run in (before, whole, after):
        queue.push(run)

    queue.replace(whole, [whole.cut_head(1), whole])

    assert drain(queue) == [(1, 0, 1), (1, 10, 1), (1, 11, 3), (1, 20, 1)]


class QueueMachine(RuleBasedStateMachine):
    """Whatever is pushed, cut, split and cancelled, everything leaves in its order and turn."""

    @initialize()
    def start(self) -> None:
        self.queue = ReadyQueue(m.DEFAULT_OPTIONS)
        self.model: dict[int, dict[int, list[Run]]] = {}
        self.next_task = 0
        _accounts.clear()

    def runs(self) -> list[Run]:
        return [run for level in self.model.values() for runs in level.values() for run in runs]

    def forget(self, run: Run) -> None:
        level = self.model[run.options.priority]
        level[run.session].remove(run)
        if not level[run.session]:
            del level[run.session]
        if not level:
            del self.model[run.options.priority]

    @rule(session=st.integers(1, 3), priority=st.integers(-1, 1), count=st.integers(1, 5),
          front=st.booleans())  # fmt: skip
    def push(self, session, priority, count, front):
        run = make_run(session, self.next_task, count, priority)
        self.next_task += count
        self.queue.push(run, front=front)
        runs = self.model.setdefault(priority, {}).setdefault(session, [])
        runs.insert(0 if front else len(runs), run)

    @precondition(lambda self: self.model)
    @rule(limit=st.integers(1, 6))
    def take(self, limit):
        level = self.model[max(self.model)]
        peeked = self.queue.peek()
        assert peeked is not None
        least = min(_accounts[session].served_s for session in level)
        assert _accounts[peeked.session].served_s == least
        expected = level[peeked.session][0]
        first, count = expected.first, min(expected.count, limit)

        taken = self.queue.take(peeked, limit)

        assert peeked is expected
        assert (taken.session, taken.first, taken.count) == (expected.session, first, count)
        _accounts[taken.session].served_s += taken.count * TASK_S
        if taken is expected:
            self.forget(expected)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def discard(self, data):
        run = data.draw(st.sampled_from(self.runs()))
        self.queue.discard(run)
        run.state = State.CANCELLED
        self.forget(run)

    @precondition(lambda self: any(run.count > 1 for run in self.runs()))
    @rule(data=st.data())
    def split(self, data):
        run = data.draw(st.sampled_from([run for run in self.runs() if run.count > 1]))
        head = run.cut_head(data.draw(st.integers(1, run.count - 1)))
        self.queue.replace(run, [head, run])
        runs = self.model[run.options.priority][run.session]
        runs.insert(runs.index(run), head)

    @invariant()
    def counts_and_holds_the_same(self):
        if hasattr(self, "model"):
            assert self.queue.count == sum(run.count for run in self.runs())
            assert {id(run) for run in self.queue} == {id(run) for run in self.runs()}


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueMachine = pytest.mark.slow(QueueMachine.TestCase)

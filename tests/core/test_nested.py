"""What the tasks of one worker submit: held, run here, sent away, recalled, given up."""

from __future__ import annotations

import math
from array import array
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from scaler_cluster.core.nested import HOLD_MAX_S, HOLD_S, LINGER_S, NestedCore
from scaler_cluster.core.subtasks import OwnGraph, Subtask
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import CALL_BITS, TASK_ID_MAX
from scaler_cluster.testing.bench import function_id, graph_of, payloads_of
from scaler_cluster.testing.describe import describe
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

FUNCTION = function_id("f"), b"pickle", (), "f"
OWNER, OTHER = 1, 2
NOW = 100.0


class Call:
    """A map of so many tasks; remembers what came back."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.got: dict[int, object] = {}

    def settle(self, index, batch):
        for number, payload in enumerate(batch, index):
            self._note(number, bytes(payload))

    def fail(self, index, failure):
        self._note(index, failure.kind)

    def cancelled(self, index, count):
        for number in range(index, index + count):
            self._note(number, None)

    def _note(self, number, what):
        assert number not in self.got, "a task of a map came back twice"
        self.got[number] = what

    @property
    def outstanding(self):
        return self.count - len(self.got)


@pytest.fixture
def core():
    made = NestedCore()
    made.receive([m.Welcome(1, 4)], NOW)
    return made


def hold(core, now=NOW, owner=OWNER, kept=()):
    """Let a task submit one; the waiter is the id as text."""
    batch = Batch.single(b"p%d" % core.next_task)
    child = Subtask(owner, FUNCTION, m.CALL_ARGS, m.DEFAULT_OPTIONS, (), batch, kept)
    return core.hold(child, str(core.next_task), now)


def hold_map(core, count, now=NOW, owner=OWNER):
    """Let a task ask for a map; return the call and its first id."""
    call = Call(count)
    first = core.open_nested_call(call, owner)
    batch = payloads_of(0, count)
    child = Subtask(owner, FUNCTION, m.CALL_ARGS, m.DEFAULT_OPTIONS, (), batch)
    core.hold_piece(child, first, now)
    return call, first


def sent(core):
    return [describe(message) for message in core.take_actions()]


def submitted(core):
    """Return the ids that the scheduler is sent now."""
    return [
        task
        for message in core.take_actions()
        if type(message) is m.Submit
        for task in range(message.first, message.first + len(message.batch))
    ]


def test_a_new_task_is_held(core) -> None:
    """Nobody hears of a task that is run at once by who waits for it."""
    task = hold(core)

    child = core.claim(task)

    assert child is not None
    assert bytes(child.batch.data) == b"p0"
    assert core.came_back(child, 0.001) == "0"
    core.send_away(NOW + 1)
    assert not core.busy
    assert sent(core) == []


def test_what_nobody_comes_for_is_sent_away(core) -> None:
    """After a moment all held tasks go to the scheduler, in one message."""
    hold(core)
    hold(core, NOW + HOLD_S / 2)
    core.send_away(NOW + HOLD_S / 2)
    assert sent(core) == []
    assert core.deadline == NOW + HOLD_S

    core.send_away(NOW + 2 * HOLD_S)

    assert submitted(core) == [0, 1]
    assert core.claim(0) is None


def test_somebody_looks_a_while_after_the_last_task(core) -> None:
    """There is a deadline without anything held, once, so that new tasks need not wake anybody."""
    core.claim(hold(core))

    assert core.deadline == NOW + LINGER_S

    core.send_away(NOW + LINGER_S)
    assert core.deadline == math.inf


def test_a_recalled_task_is_held_again(core) -> None:
    """What had not started comes back and can be claimed, unlike what had."""
    for _ in range(2):
        hold(core)
    core.send_away(NOW + 1)
    core.take_actions()

    core.recall(0)

    assert sent(core) == ["Cancel 0 queued only"]
    core.receive([m.Cancelled(0, 1)], NOW + 1)
    assert core.claim(0) is not None
    assert core.claim(1) is None
    assert core.settled == []


def test_a_recalled_task_goes_away_again(core) -> None:
    """If nobody claims it then, it is submitted once more, under the same id."""
    hold(core)
    core.send_away(NOW + 1)
    core.take_actions()
    core.recall(0)
    core.receive([m.Cancelled(0, 1)], NOW + 1)
    core.take_actions()

    core.send_away(NOW + 2)

    assert submitted(core) == [0]
    core.receive([m.Results(0, Batch.single(b"r"))], NOW + 2)
    assert core.settled == [("0", b"r")]
    assert not core.owned


def test_it_is_held_longer_while_nobody_else_has_time(core) -> None:
    """Each recall that succeeds doubles the hold, up to a bound; each result from away halves it."""
    for expected in (2 * HOLD_S, 4 * HOLD_S, 8 * HOLD_S, HOLD_MAX_S, HOLD_MAX_S):
        task = hold(core)
        core.send_away(NOW + 1)
        core.recall(task)
        core.receive([m.Cancelled(task, 1)], NOW)
        core.claim(task)
        hold(core)
        assert core.deadline == pytest.approx(NOW + expected)
        core.claim(core.next_task - 1)
    task = hold(core)
    core.send_away(NOW + 1)
    core.receive([m.Results(task, Batch.single(b"r"))], NOW)
    hold(core)
    assert core.deadline == pytest.approx(NOW + HOLD_MAX_S / 2)


def test_a_map_is_claimed_task_by_task(core) -> None:
    """Who takes a map's results in order runs its tasks in order; the rest goes away."""
    call, first = hold_map(core, 5)

    for index in range(2):
        child = core.claim(first + index)
        assert bytes(child.batch.data) == b"p%d" % index
        core.returned_here(child, b"r%d" % index, 0.001)
    core.send_away(NOW + 1)

    assert submitted(core) == [first + 2, first + 3, first + 4]
    assert call.got == {0: b"r0", 1: b"r1"}
    assert core.claim(first + 2) is None


def test_a_maps_middle_is_recalled(core) -> None:
    """Recalled tasks of a map have their payloads still."""
    call, first = hold_map(core, 5)
    core.send_away(NOW + 1)
    core.take_actions()
    core.receive([m.Cancelled(first + 2, 2)], NOW + 1)

    child = core.claim(first + 3)

    assert bytes(child.batch.data) == b"p3"
    core.failed_here(child, m.Failed(first + 3, m.FAILED_EXCEPTION))
    assert call.got == {3: m.FAILED_EXCEPTION}
    assert core.is_held(first + 2)
    assert not core.is_held(first + 4)


def test_the_end_of_a_task_gives_up_what_it_submitted(core) -> None:
    """What is held vanishes, what is away is cancelled; what others submitted stays."""
    away = hold(core)
    core.send_away(NOW + 1)
    core.take_actions()
    held, other = hold(core), hold(core, owner=OTHER)
    call, first = hold_map(core, 3)

    waiters, calls = core.give_up(OWNER)
    core.close_call(first, 3)

    assert sorted(waiters) == [str(away), str(held)]
    assert calls == [call]
    assert sent(core) == [f"Cancel {away}", f"Cancel {first}-{first + 2}"]
    assert core.claim(other) is not None


def test_what_runs_here_may_be_given_up(core) -> None:
    """Its result is dropped then."""
    child = core.claim(hold(core))

    assert core.give_up(OWNER) == (["0"], [])

    assert core.came_back(child, 0.001) is None
    assert sent(core) == []


def test_objects_are_kept_until_a_task_has_ended(core) -> None:
    """Wherever it runs."""
    here, away, dropped = (
        hold(core, kept=(b"a",)),
        hold(core, kept=(b"b",)),
        hold(core, kept=(b"c",)),
    )
    child = core.claim(here)
    assert core.ended == []
    core.came_back(child, 0.001)
    assert core.ended == [(b"a",)]
    core.cancel([dropped])
    assert core.ended == [(b"a",), (b"c",)]
    core.send_away(NOW + 1)
    core.receive([m.Failed(away, m.FAILED_EXCEPTION)], NOW + 1)
    assert core.ended == [(b"a",), (b"c",), (b"b",)]


# -- graphs ----------------------------------------------------------------------------------


def own(core, count, inputs=(), kept=(), wanted=None):
    """Let a task submit a graph of so many nodes, the last of them wanted; return its first."""
    first = core.open_graph()
    wanted = [count - 1] if wanted is None else wanted
    waiters = {first + node: f"node {node}" for node in wanted}
    nodes = ["" for _ in range(count)]
    part = graph_of(first, *nodes, inputs=inputs)
    core.submit_graph(FUNCTION, part, waiters, [f"input {task}" for task in inputs])
    graph = OwnGraph(OWNER, first, FUNCTION, (m.DEFAULT_OPTIONS,), (), inputs, kept)
    core.own_graph(graph, waiters)
    core.take_actions()
    return first


def lend(core, first, node, now=NOW):
    """Let the scheduler lend a node."""
    batch, none = Batch.single(b"p%d" % node), Batch.single(b"")
    message = m.AssignNodes(
        1, first, first + node, FUNCTION[0], False, False, batch, (), b"", none, 0
    )
    core.receive([message], now)


def test_a_node_is_recalled_and_another_is_lent(core) -> None:
    """Who waits for a node may run what comes before it; it is known by the node."""
    first = own(core, 3, kept=(b"k",))
    core.recall(first + 2)
    assert sent(core) == [f"Cancel {first + 2} queued only"]
    assert not core.is_held(first + 2)

    lend(core, first, 0)

    assert core.is_held(first + 2)
    child = core.claim(first + 2)
    assert (child.first, child.owner, bytes(child.batch.data)) == (first, OWNER, b"p0")
    assert core.claim(first + 2) is None
    assert core.came_back(child, 0.001) is None
    lend(core, first, 2)
    assert core.came_back(core.claim(first + 2), 0.001) == "node 2"
    assert not core.is_pending(first + 2)
    assert core.ended == [(b"k",)]
    assert not core.owned


def test_a_node_that_has_come_back_is_not_recalled(core) -> None:
    """Who waits for several asks for the others."""
    first = own(core, 2, wanted=[0, 1])
    core.receive([m.Results(first, Batch.single(b"r"))], NOW)

    core.recall_some(deque([first, first + 1]), 0)

    assert sent(core) == [f"Cancel {first + 1} queued only"]


def test_a_lent_node_that_nobody_runs_is_given_back(core) -> None:
    """After a moment, as what is held is sent away."""
    first = own(core, 2)
    lend(core, first, 0)

    core.send_away(NOW + 1)

    assert sent(core) == [f"ProvideInputs {first} not_run"]
    assert core.claim(first + 1) is None


def test_a_lent_node_ends_with_its_graph(core) -> None:
    """Nobody runs it once nothing of the graph is waited for."""
    first = own(core, 2)
    lend(core, first, 0)
    core.give_up(OWNER)
    assert sent(core) == [f"Cancel {first + 1}"]

    core.send_away(NOW + 1)
    lend(core, first, 0)

    assert sent(core) == []
    assert core.deadline == math.inf


def test_what_a_node_takes_comes_before_it(core) -> None:
    """Who waits for it may have to run that, as far as it has not come back."""
    one, two = hold(core), hold(core)
    below = own(core, 2, inputs=(one, two))
    above = own(core, 2, inputs=(below + 1, two))

    assert core.with_needs([above + 1]) == [one, two, below + 1, above + 1]
    core.came_back(core.claim(one), 0.001)
    assert core.with_needs([two, above + 1]) == [two, below + 1, above + 1]


def test_the_scheduler_is_told_what_it_does_not_see(core) -> None:
    """An input that it did not have, when that has come back; not one that it has."""
    here, there = hold(core), hold(core)
    core.send_away(NOW + 1)
    core.receive([m.Cancelled(here, 1)], NOW)
    first = own(core, 3, inputs=(here, there))
    core.receive([m.RequestInputs(first, array("I", [0]).tobytes())], NOW)
    assert core.unmet == []

    core.came_back(core.claim(here), 0.001)
    assert core.unmet == [(first, str(here))]
    core.receive([m.Results(there, Batch.single(b"r"))], NOW)
    assert core.unmet == [(first, str(here))]


def test_the_scheduler_is_told_of_a_recalled_input(core) -> None:
    """Wherever it runs then, and also if it is given up."""
    for how in ("here", "away", "cancelled"):
        task = hold(core)
        core.send_away(NOW + 1)
        first = own(core, 2, inputs=(task,))
        core.receive([m.RequestInputs(first, b""), m.Cancelled(task, 1)], NOW)
        assert core.unmet == []
        if how == "here":
            core.came_back(core.claim(task), 0.001)
        elif how == "away":
            core.send_away(NOW + 2)
            core.receive([m.Results(task, Batch.single(b"r"))], NOW)
        else:
            core.cancel([task])
        assert core.unmet == [(first, str(task))], how
        core.unmet.clear()


def test_an_input_that_came_back_meanwhile(core) -> None:
    """The scheduler asks for it: it is told at once."""
    task = hold(core)
    first = own(core, 2, inputs=(task,))
    core.came_back(core.claim(task), 0.001)
    core.receive([m.RequestInputs(first, array("I", [0]).tobytes())], NOW)

    assert core.unmet == [(first, f"input {task}")]
    with pytest.raises(RemoteProtocolError):
        core.receive([m.RequestInputs(first, array("I", [0]).tobytes())], NOW)


class AnyOrder(RuleBasedStateMachine):
    """Tasks are held, claimed, sent away, recalled, answered and cancelled in any order.

    The model is an honest scheduler with workers. Each task comes back to who waits for it exactly
    once, and never runs here and elsewhere.
    """

    def __init__(self) -> None:
        super().__init__()
        self.core = NestedCore()
        self.core.receive([m.Welcome(1, 4)], NOW)
        self.now = NOW
        self.pending: dict[int, str] = {}
        """Single tasks that somebody waits for: here, claimed or there."""
        self.claimed: list[Subtask] = []
        self.there: dict[int, bytes] = {}
        """What the scheduler has, and has not answered."""
        self.started: set[int] = set()
        self.recalled: list[m.Cancel] = []
        self.calls: dict[int, Call] = {}

    def _deliver(self) -> None:
        """Let the scheduler have what was sent."""
        for message in self.core.take_actions():
            if type(message) is m.Submit:
                for task, payload in enumerate(message.batch, message.first):
                    assert task not in self.there, "submitted twice"
                    assert all(task != child.first for child in self.claimed), "runs here as well"
                    self.there[task] = bytes(payload)
            elif type(message) is m.Cancel and not message.queued_only:
                for task in [one for one in self.there if 0 <= one - message.first < message.count]:
                    del self.there[task]
                    self.started.discard(task)
            elif type(message) is m.Cancel:
                self._give_back(message)

    def _give_back(self, message: m.Cancel) -> None:
        for task in list(self.there):
            if 0 <= task - message.first < message.count and task not in self.started:
                del self.there[task]
                self.core.receive([m.Cancelled(task, 1)], self.now)

    def _take_settled(self) -> None:
        for waiter, payload in self.core.settled:
            task = int(str(waiter))
            assert task in self.pending, "came back twice"
            assert payload == b"r%d" % task
            del self.pending[task]
        self.core.settled.clear()

    @rule(owner=st.integers(1, 3))
    def submit(self, owner) -> None:
        task = hold(self.core, self.now, owner)
        self.pending[task] = str(task)

    @rule(owner=st.integers(1, 3), count=st.integers(1, 6))
    def map(self, owner, count) -> None:
        call, first = hold_map(self.core, count, self.now, owner)
        self.calls[first] = call

    @rule(data=st.data())
    def claim(self, data) -> None:
        tasks = [task for task in self._all() if self.core.is_held(task)]
        if tasks:
            child = self.core.claim(data.draw(st.sampled_from(tasks)))
            assert child is not None
            assert child.first not in self.there
            self.claimed.append(child)

    def _all(self) -> list[int]:
        maps = [first + n for first, call in self.calls.items() for n in range(call.count)]
        return [*self.pending, *maps]

    @precondition(lambda self: self.claimed)
    @rule(data=st.data())
    def end_here(self, data) -> None:
        child = self.claimed.pop(data.draw(st.integers(0, len(self.claimed) - 1)))
        if child.first >> CALL_BITS:
            self.core.returned_here(child, b"here", 0.001)
            return
        waiter = self.core.came_back(child, 0.001)
        assert waiter == self.pending.pop(child.first, None)

    @rule(pause=st.sampled_from([0.0, HOLD_S, HOLD_MAX_S]))
    def time(self, pause) -> None:
        self.now += pause
        self.core.send_away(self.now)
        self._deliver()

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def start_there(self, data) -> None:
        self.started.add(data.draw(st.sampled_from(sorted(self.there))))

    @precondition(lambda self: self.started)
    @rule(data=st.data())
    def end_there(self, data) -> None:
        task = data.draw(st.sampled_from(sorted(self.started)))
        self.started.discard(task)
        del self.there[task]
        self.core.receive([m.Results(task, Batch.single(b"r%d" % task))], self.now)
        self._take_settled()

    @rule(data=st.data())
    def recall(self, data) -> None:
        tasks = self._all()
        if tasks:
            self.core.recall(data.draw(st.sampled_from(tasks)))
            self._deliver()

    @rule(data=st.data())
    def cancel(self, data) -> None:
        if self.pending:
            task = data.draw(st.sampled_from(sorted(self.pending)))
            assert self.core.cancel([task]) == [self.pending.pop(task)]
            self._deliver()

    @rule(owner=st.integers(1, 3))
    def give_up(self, owner) -> None:
        waiters, calls = self.core.give_up(owner)
        for waiter in waiters:
            del self.pending[int(str(waiter))]
        ended = list(map(id, calls))
        for first in [first for first, call in self.calls.items() if id(call) in ended]:
            self.core.close_call(first, self.calls.pop(first).count)
        self._deliver()
        assert owner not in self.core.owned

    def teardown(self) -> None:
        """Let everything come back."""
        while self.claimed:
            child = self.claimed.pop()
            if child.first >> CALL_BITS:
                self.core.returned_here(child, b"here", 0.001)
            else:
                assert self.core.came_back(child, 0.001) == self.pending.pop(child.first, None)
        self.core.send_away(self.now + 1)
        self._deliver()
        for task in list(self.there):
            self.core.receive([m.Results(task, Batch.single(b"r%d" % task))], self.now)
        self._take_settled()
        assert not self.pending
        assert all(not call.outstanding for call in self.calls.values())
        for first, call in list(self.calls.items()):
            self.core.close_call(first, call.count)
        assert not self.core.owned
        assert not self.core.busy
        self.core.take_actions()
        self.core.recall(0)
        assert not self.core.has_actions
        assert 0 <= self.core.next_task < TASK_ID_MAX


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)

"""What the tasks of one worker submit: held, run here, sent away, recalled, given up."""

from __future__ import annotations

import math
from array import array
from collections import deque
from concurrent.futures import CancelledError

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from scaler_cluster.core.client.events import InputWanted, NodeRan, Profiled, Released, Settled
from scaler_cluster.core.worker.held_tasks import HOLD_MAX_S, HOLD_S, LINGER_S
from scaler_cluster.core.worker.inlined import TELL_S, InlinedTasks
from scaler_cluster.core.worker.nested import NestedCore
from scaler_cluster.core.worker.subtasks import OwnGraph, Subtask
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import TASK_ID_MAX
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
        self.first = 0
        self.count = count
        self.got: dict[int, object] = {}
        self.error: BaseException | None = None

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

    def abort(self, error):
        self.error = error

    @property
    def asked(self):
        return self.count

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
    batch = Batch.single(b"p%d" % core.requests.next_task)
    child = Subtask(owner, FUNCTION, m.CALL_ARGS, m.DEFAULT_OPTIONS, (), batch, kept)
    return core.hold(child, str(core.requests.next_task), now)


def hold_map(core, count, now=NOW, owner=OWNER):
    """Let a task ask for a map; return the call and its first id."""
    call = Call(count)
    first = call.first = core.open_nested_call(call, owner)
    batch = payloads_of(0, count)
    child = Subtask(owner, FUNCTION, m.CALL_ARGS, m.DEFAULT_OPTIONS, (), batch)
    core.hold_piece(child, first, now)
    return call, first


def happened(core, kind):
    """Return all events of a kind since the beginning."""
    seen = core.__dict__.setdefault("seen", [])
    seen += core.events.take()
    return [event for event in seen if isinstance(event, kind)]


def settled(core):
    """Return what came back since the beginning, and to whom."""
    return [pair for event in happened(core, Settled) for pair in event.pairs]


def ended(core):
    """Return what tasks that have ended since the beginning had kept."""
    return [event.objects for event in happened(core, Released)]


def wanted(core):
    """Return the inputs that the scheduler is to be told of, and what stands for them."""
    return [(event.task, event.waiter) for event in happened(core, InputWanted)]


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
    """The scheduler does not hear of a task that its submitter runs itself at once."""
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
    assert core.held.deadline == NOW + HOLD_S

    core.send_away(NOW + 2 * HOLD_S)

    assert submitted(core) == [0, 1]
    assert core.claim(0) is None


def test_somebody_looks_a_while_after_the_last_task(core) -> None:
    """One deadline stays after the last task, so that a new task need not wake the sender."""
    core.claim(hold(core))

    assert core.held.deadline == NOW + LINGER_S

    core.send_away(NOW + LINGER_S)
    assert core.held.deadline == math.inf


def test_it_is_idle_when_nothing_is_left(core) -> None:
    """A worker's session is idle once all that its tasks asked for came back or was given up."""
    assert core.is_idle is True
    child = core.claim(hold(core))
    assert core.is_idle is False
    core.came_back(child, 0.001)
    assert core.is_idle is True
    call, first = hold_map(core, 2)
    assert core.is_idle is False
    core.close_call(first, call.asked)
    assert core.is_idle is True
    core.count_waiting(1)
    assert core.is_idle is False
    core.count_waiting(-1)
    assert core.is_idle is True


@pytest.mark.parametrize("is_map", [False, True])
def test_what_its_worker_cannot_run_stays_away(is_map) -> None:
    """A task with a demand that its own worker does not meet is sent at once, and not recalled."""
    core = NestedCore(may_run=lambda options: not options.capabilities)
    core.receive([m.Welcome(1, 4)], NOW)
    options = m.TaskOptions(capabilities=(("gpu", 1),))
    child = Subtask(OWNER, FUNCTION, m.CALL_ARGS, options, (), payloads_of(0, 1 + 2 * is_map))
    if is_map:
        task = core.open_nested_call(Call(3), OWNER)
        core.hold_piece(child, task, NOW)
    else:
        task = core.hold(child, "waiter", NOW)
    assert task in submitted(core)
    core.recall(task)

    assert sent(core) == []


def test_a_recalled_task_is_held_again(core) -> None:
    """A recalled task that had not started can be claimed; one that had started cannot."""
    for _ in range(2):
        hold(core)
    core.send_away(NOW + 1)
    core.take_actions()

    core.recall(0)

    assert sent(core) == ["Cancel 0 queued only"]
    core.receive([m.Cancelled(0, 1)], NOW + 1)
    assert core.claim(0) is not None
    assert core.claim(1) is None
    assert settled(core) == []


def test_a_recalled_task_goes_away_again(core) -> None:
    """A recalled task that nobody claims is submitted once more, under the same id."""
    hold(core)
    core.send_away(NOW + 1)
    core.take_actions()
    core.recall(0)
    core.receive([m.Cancelled(0, 1)], NOW + 1)
    core.take_actions()

    core.send_away(NOW + 2)

    assert submitted(core) == [0]
    core.receive([m.Results(0, Batch.single(b"r"))], NOW + 2)
    assert settled(core) == [("0", b"r")]
    assert not core.owned


def test_it_is_held_longer_while_nobody_else_has_time(core) -> None:
    """A recall that succeeds doubles the hold, up to a bound; a result from away halves it."""
    for expected in (2 * HOLD_S, 4 * HOLD_S, 8 * HOLD_S, HOLD_MAX_S, HOLD_MAX_S):
        task = hold(core)
        core.send_away(NOW + 1)
        core.recall(task)
        core.receive([m.Cancelled(task, 1)], NOW)
        core.claim(task)
        hold(core)
        assert core.held.deadline == pytest.approx(NOW + expected)
        core.claim(core.requests.next_task - 1)
    task = hold(core)
    core.send_away(NOW + 1)
    core.receive([m.Results(task, Batch.single(b"r"))], NOW)
    hold(core)
    assert core.held.deadline == pytest.approx(NOW + HOLD_MAX_S / 2)


def test_a_map_is_claimed_task_by_task(core) -> None:
    """A task that takes a map's results in order runs its tasks in order; the rest goes away."""
    call, first = hold_map(core, 5)

    for index in range(2):
        child = core.claim(first + index)
        assert bytes(child.batch.data) == b"p%d" % index
        core.settle(child, b"r%d" % index, 0.001)
    core.send_away(NOW + 1)

    assert submitted(core) == [first + 2, first + 3, first + 4]
    assert call.got == {0: b"r0", 1: b"r1"}
    assert core.claim(first + 2) is None


def test_a_closed_map_is_not_sent_away(core) -> None:
    """The tasks of a map that is closed are held no longer, and never reach the scheduler."""
    call, first = hold_map(core, 5)
    core.claim(first)
    core.close_call(first, call.asked)
    core.send_away(NOW + 1)

    assert submitted(core) == []
    assert core.claim(first + 1) is None


def test_a_maps_middle_is_recalled(core) -> None:
    """Recalled tasks of a map still have their payloads."""
    call, first = hold_map(core, 5)
    core.send_away(NOW + 1)
    core.take_actions()
    core.receive([m.Cancelled(first + 2, 2)], NOW + 1)

    child = core.claim(first + 3)

    assert bytes(child.batch.data) == b"p3"
    core.settle(child, m.Failed(first + 3, m.FAILED_EXCEPTION), 0.001)
    assert call.got == {3: m.FAILED_EXCEPTION}
    assert core.is_held(first + 2)
    assert not core.is_held(first + 4)


def test_the_end_of_a_task_gives_up_what_it_submitted(core) -> None:
    """A task that ends cancels only what it submitted; its held tasks vanish."""
    away = hold(core)
    core.send_away(NOW + 1)
    core.take_actions()
    held, other = hold(core), hold(core, owner=OTHER)
    call, first = hold_map(core, 3)

    error = CancelledError()

    waiters = core.give_up(OWNER, error)

    assert sorted(waiters) == [str(away), str(held)]
    assert call.error is error
    assert sorted(sent(core)) == [f"Cancel {away}", f"Cancel {first}-{first + 2}"]
    assert core.claim(other) is not None


def test_what_runs_here_may_be_given_up(core) -> None:
    """The result of a task that was given up while it ran here is dropped."""
    child = core.claim(hold(core))

    assert core.give_up(OWNER, CancelledError()) == ["0"]

    assert core.came_back(child, 0.001) is None
    assert sent(core) == []


def test_objects_are_kept_until_a_task_has_ended(core) -> None:
    """The objects of a task are kept until it has ended, wherever it runs."""
    here, away, dropped = (
        hold(core, kept=(b"a",)),
        hold(core, kept=(b"b",)),
        hold(core, kept=(b"c",)),
    )
    child = core.claim(here)
    assert ended(core) == []
    core.came_back(child, 0.001)
    assert ended(core) == [(b"a",)]
    core.cancel([dropped])
    assert ended(core) == [(b"a",), (b"c",)]
    core.send_away(NOW + 1)
    core.receive([m.Failed(away, m.FAILED_EXCEPTION)], NOW + 1)
    assert ended(core) == [(b"a",), (b"c",), (b"b",)]


# -- graphs ----------------------------------------------------------------------------------


def own(core, count, inputs=(), kept=(), wanted=None):
    """Let a task submit a graph of so many nodes, the last of them wanted; return its first."""
    first = core.requests.open_call()
    wanted = [count - 1] if wanted is None else wanted
    waiters = {first + node: f"node {node}" for node in wanted}
    nodes = ["" for _ in range(count)]
    part = graph_of(first, *nodes, inputs=inputs)
    core.submit_graph(FUNCTION, part, waiters, [f"input {task}" for task in inputs])
    graph = OwnGraph(OWNER, first, FUNCTION, (m.DEFAULT_OPTIONS,), (), inputs, kept)
    core.own_graph(graph, waiters)
    core.take_actions()
    return first


def hand_over(core, first, node, now=NOW):
    """Let the scheduler hand over a node."""
    batch, none = Batch.single(b"p%d" % node), Batch.single(b"")
    message = m.AssignNodes(
        1, first, first + node, FUNCTION[0], False, False, batch, (), b"", none, 0
    )
    core.receive([message], now)


def test_a_node_is_recalled_and_another_is_lent(core) -> None:
    """A task that waits for a node may be handed an earlier one, known by the node waited for."""
    first = own(core, 3, kept=(b"k",))
    core.recall(first + 2)
    assert sent(core) == [f"Cancel {first + 2} queued only"]
    assert not core.is_held(first + 2)

    hand_over(core, first, 0)

    assert core.is_held(first + 2)
    child = core.claim(first + 2)
    assert (child.first, child.owner, bytes(child.batch.data)) == (first, OWNER, b"p0")
    assert core.claim(first + 2) is None
    assert core.came_back(child, 0.001) is None
    hand_over(core, first, 2)
    assert core.came_back(core.claim(first + 2), 0.001) == "node 2"
    assert not core.is_pending(first + 2)
    assert ended(core) == [(b"k",)]
    assert not core.owned


def test_a_node_that_has_come_back_is_not_recalled(core) -> None:
    """A task that waits for several nodes recalls only those that have not come back."""
    first = own(core, 2, wanted=[0, 1])
    core.receive([m.Results(first, Batch.single(b"r"))], NOW)

    core.recall_some(deque([first, first + 1]), 0)

    assert sent(core) == [f"Cancel {first + 1} queued only"]


def test_a_lent_node_that_nobody_runs_is_given_back(core) -> None:
    """A handed over node that nobody runs is given back after a moment, as held tasks are."""
    first = own(core, 2)
    hand_over(core, first, 0)

    core.send_away(NOW + 1)

    assert sent(core) == [f"ProvideInputs {first} not_run"]
    assert core.claim(first + 1) is None


def test_a_lent_node_ends_with_its_graph(core) -> None:
    """A node that was handed over is not run once nothing of its graph is waited for."""
    first = own(core, 2)
    hand_over(core, first, 0)
    core.give_up(OWNER, CancelledError())
    assert sent(core) == [f"Cancel {first + 1}"]

    core.send_away(NOW + 1)
    hand_over(core, first, 0)

    assert sent(core) == []
    assert core.held.deadline == math.inf


def test_what_a_node_takes_comes_before_it(core) -> None:
    """The inputs of a node that have not come back are run before it."""
    one, two = hold(core), hold(core)
    below = own(core, 2, inputs=(one, two))
    above = own(core, 2, inputs=(below + 1, two))

    assert core.with_needs([above + 1]) == [one, two, below + 1, above + 1]
    core.came_back(core.claim(one), 0.001)
    assert core.with_needs([two, above + 1]) == [two, below + 1, above + 1]


def test_the_scheduler_is_told_what_it_does_not_see(core) -> None:
    """The scheduler is told of an input that it lacks once that is back, and of no other."""
    here, there = hold(core), hold(core)
    core.send_away(NOW + 1)
    core.receive([m.Cancelled(here, 1)], NOW)
    first = own(core, 3, inputs=(here, there))
    core.receive([m.RequestInputs(first, array("I", [0]).tobytes())], NOW)
    assert wanted(core) == []

    core.came_back(core.claim(here), 0.001)
    assert wanted(core) == [(first, str(here))]
    core.receive([m.Results(there, Batch.single(b"r"))], NOW)
    assert wanted(core) == [(first, str(here))]


def test_the_scheduler_is_told_of_a_recalled_input(core) -> None:
    """The scheduler is told what became of a recalled input, also if that is given up."""
    for how in ("here", "away", "cancelled"):
        task = hold(core)
        core.send_away(NOW + 1)
        first = own(core, 2, inputs=(task,))
        core.receive([m.RequestInputs(first, b""), m.Cancelled(task, 1)], NOW)
        assert wanted(core) == []
        if how == "here":
            core.came_back(core.claim(task), 0.001)
        elif how == "away":
            core.send_away(NOW + 2)
            core.receive([m.Results(task, Batch.single(b"r"))], NOW)
        else:
            core.cancel([task])
        assert wanted(core) == [(first, str(task))], how
        core.seen.clear()


def test_an_input_that_came_back_meanwhile(core) -> None:
    """The scheduler is told at once of an input that came back before it asked."""
    task = hold(core)
    first = own(core, 2, inputs=(task,))
    core.came_back(core.claim(task), 0.001)
    core.receive([m.RequestInputs(first, array("I", [0]).tobytes())], NOW)

    assert wanted(core) == [(first, f"input {task}")]
    with pytest.raises(RemoteProtocolError, match="asked for an input of no graph"):
        core.receive([m.RequestInputs(first, array("I", [0]).tobytes())], NOW)


def test_a_task_of_its_own_settles_its_waiter(core) -> None:
    """A single task that ran here comes back with its profile before its outcome."""
    child = core.claim(hold(core))
    took = m.Profile(0, child.first, 0.5, 0.25, 1000)

    core.settle(child, b"r", 0.5, took)

    assert core.events.take() == [Profiled("0", took), Settled([("0", b"r")])]


def test_the_scheduler_hears_of_a_node_that_ran_here(core) -> None:
    """The scheduler hears of a node that ran here, for which other nodes wait there."""
    first = own(core, 3)
    hand_over(core, first, 0)
    core.settle(core.claim(first + 2), b"r0", 0.001)
    assert core.events.take() == [NodeRan(first, b"r0")]
    hand_over(core, first, 2)

    core.settle(core.claim(first + 2), b"r2", 0.001)

    waiter = "node 2"
    assert core.events.take() == [Settled([(waiter, b"r2")]), InputWanted(first + 2, waiter)]


def test_a_node_that_could_not_run_is_still_waited_for(core) -> None:
    """A node that was handed over whose input was gone has not failed until the scheduler says so."""
    first = own(core, 2)
    hand_over(core, first, 1)
    missing = m.Failed(first + 1, m.FAILED_MISSING)

    core.settle(core.claim(first + 1), missing, 0.001)

    assert core.events.take() == [NodeRan(first + 1, missing)]
    assert core.is_pending(first + 1)
    core.receive([m.Results(first + 1, Batch.single(b"r1"))], NOW)
    assert [one.pairs for one in core.events.take()] == [[("node 1", b"r1")]]
    assert not core.owned


def test_a_node_that_was_interrupted_is_not_told(core) -> None:
    """A node that is interrupted with the task that waits for it ends with its graph."""
    first = own(core, 2)
    hand_over(core, first, 0)

    core.settle(core.claim(first + 1), None, 0.001)

    assert core.events.take() == []
    assert sent(core) == []


def test_what_ran_here_is_told_once_it_is_due(core) -> None:
    """Tasks that ran here are counted by function and told together; after that nothing is."""
    for outcome in (b"r", b"r", m.Failed(0, m.FAILED_EXCEPTION), None):
        core.settle(core.claim(hold(core)), outcome, 0.5)
    core.cancel([hold(core)])

    core.send_away(NOW)
    assert sent(core) == []
    assert core.inlined.due_at == NOW + TELL_S
    core.send_away(NOW + TELL_S)

    assert sent(core) == ["Inlined f: 2 done, 1 failed, 2 cancelled, 0 recalled, 0 again"]
    core.send_away(NOW + 9)
    assert sent(core) == []
    assert core.deadline == math.inf


def test_no_timer_stays_due_with_nothing_to_tell() -> None:
    """Tasks came back while none ran, and are wanted again before that was told."""
    inlined = InlinedTasks()
    inlined.given_back(1)
    assert inlined.take_due(NOW, is_idle=True) == []
    assert inlined.due_at == NOW + TELL_S

    assert inlined.take_due(NOW + TELL_S, is_idle=False) == []
    assert inlined.due_at == math.inf


def test_what_was_given_back_is_told_of(core) -> None:
    """A recalled task is told as such, one that is sent again before, and one that nobody wants."""
    for _ in range(3):
        hold(core)
    core.send_away(NOW + 1)
    core.take_actions()
    core.recall(0)
    core.cancel([2])
    core.take_actions()
    core.receive([m.Cancelled(0, 3)], NOW + 1)
    core.settle(core.claim(0), b"r", 0.5)

    core.send_away(NOW + 2)
    assert sent(core)[0] == "Inlined f: 0 done, 0 failed, 0 cancelled, 0 recalled, 1 again"
    core.send_away(NOW + 3)
    assert sent(core) == ["Inlined f: 1 done, 0 failed, 0 cancelled, 1 recalled, 0 again"]
    core.receive([m.Results(1, Batch.single(b"r"))], NOW + 3)
    core.send_away(NOW + 4)
    core.send_away(NOW + 5)
    assert sent(core)[-1].endswith(", no more")


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
        self.asked = 0
        """How many tasks were ever submitted, those of maps among them."""
        self.ended = 0
        """How many are counted as done, failed or cancelled."""
        self.back = 0
        """How many were given back, of which nothing is told as yet."""

    def _count(self, told: m.Inlined) -> None:
        """Count what ran here, as a scheduler does."""
        self.back -= told.recalled + told.again
        assert self.back >= 0, "tells of more than was given back"
        self.ended += told.done + told.failed + told.cancelled
        if told.is_last:
            self.ended += self.back
            self.back = 0

    def _deliver(self) -> None:
        """Let the scheduler have what was sent."""
        for message in self.core.take_actions():
            if type(message) is m.Submit:
                for task, payload in enumerate(message.batch, message.first):
                    assert task not in self.there, "submitted twice"
                    assert all(task != child.first for child in self.claimed), "runs here as well"
                    self.there[task] = bytes(payload)
            elif type(message) is m.Inlined:
                self._count(message)
            elif type(message) is m.Cancel and not message.queued_only:
                for task in [one for one in self.there if 0 <= one - message.first < message.count]:
                    del self.there[task]
                    self.ended += 1
                    self.started.discard(task)
            elif type(message) is m.Cancel:
                self._give_back(message)

    def _give_back(self, message: m.Cancel) -> None:
        for task in list(self.there):
            if 0 <= task - message.first < message.count and task not in self.started:
                del self.there[task]
                self.back += 1
                self.core.receive([m.Cancelled(task, 1)], self.now)

    def _take_settled(self) -> None:
        for waiter, payload in settled(self.core):
            task = int(str(waiter))
            assert task in self.pending, "came back twice"
            assert payload == b"r%d" % task
            del self.pending[task]
        self.core.__dict__["seen"].clear()

    @rule(owner=st.integers(1, 3))
    def submit(self, owner) -> None:
        task = hold(self.core, self.now, owner)
        self.pending[task] = str(task)
        self.asked += 1

    @rule(owner=st.integers(1, 3), count=st.integers(1, 6))
    def map(self, owner, count) -> None:
        call, first = hold_map(self.core, count, self.now, owner)
        self.calls[first] = call
        self.asked += count

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
        self._end(self.claimed.pop(data.draw(st.integers(0, len(self.claimed) - 1))))

    def _end(self, child: Subtask) -> None:
        self.core.settle(child, b"r%d" % child.first, 0.001)
        self._take_settled()
        assert child.first not in self.pending

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
        self.ended += 1
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
        for waiter in self.core.give_up(owner, CancelledError()):
            del self.pending[int(str(waiter))]
        for first in [first for first, call in self.calls.items() if call.error is not None]:
            del self.calls[first]
        self._deliver()
        assert owner not in self.core.owned

    def teardown(self) -> None:
        """Let everything come back."""
        while self.claimed:
            self._end(self.claimed.pop())
        self.core.send_away(self.now + 1)
        self._deliver()
        for task in list(self.there):
            self.ended += 1
            self.core.receive([m.Results(task, Batch.single(b"r%d" % task))], self.now)
        self._take_settled()
        assert not self.pending
        assert all(not call.outstanding for call in self.calls.values())
        for first, call in list(self.calls.items()):
            self.core.close_call(first, call.count)
        assert not self.core.owned
        assert not self.core.busy
        self._deliver()
        self.core.send_away(self.now + 1)
        self.core.send_away(self.now + 2)
        self._deliver()
        assert self.ended == self.asked, "a task counts not once"
        assert self.core.inlined.due_at == math.inf
        self.core.recall(0)
        assert not self.core.requests.has_some
        assert 0 <= self.core.requests.next_task < TASK_ID_MAX


TestAnyOrder = pytest.mark.slow(AnyOrder.TestCase)
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)

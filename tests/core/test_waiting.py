"""A thread that waits for tasks: when it runs them, asks for them, says that it is blocked."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.worker.waiting import (
    BLOCKED_AFTER_S,
    PATIENCE_S,
    RECALL_MIN_S,
    Step,
    Waiting,
)

NOW = 100.0
TINY_S = 1e-6


def steps(waiting, now, *, is_held=False):
    """Return what is done at one moment, until it rests or runs."""
    found: list[Step] = []
    while not found or found[-1] not in (Step.REST, Step.RUN, Step.STOP):
        found.append(waiting.next(now, is_held=is_held))
        assert len(found) < 10, "it never rests"
    return found


def test_what_is_held_is_run_at_once() -> None:
    """A task that waits for a held task runs that at once, and says nothing."""
    assert steps(Waiting(NOW, None), NOW, is_held=True) == [Step.RUN]


def test_what_is_away_is_asked_for() -> None:
    """A task that is away is asked for at once, and then again, ever more seldom."""
    waiting = Waiting(NOW, None)
    assert steps(waiting, NOW) == [Step.RECALL, Step.REST]
    assert waiting.until == NOW + BLOCKED_AFTER_S

    asked = []
    now = NOW
    for _ in range(12):
        now = waiting.until
        if Step.RECALL in steps(waiting, now):
            asked.append(now)

    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert pauses == sorted(pauses)
    assert pauses[0] > RECALL_MIN_S


def test_it_is_blocked_after_a_while() -> None:
    """A waiting task says that it is blocked after a while, and that it is not before it runs."""
    waiting = Waiting(NOW, None)
    steps(waiting, NOW)
    assert steps(waiting, NOW + BLOCKED_AFTER_S) == [Step.BLOCK, Step.REST]
    assert waiting.is_blocked

    later = NOW + BLOCKED_AFTER_S + TINY_S
    assert steps(waiting, later, is_held=True) == [Step.UNBLOCK, Step.RUN]
    waiting.ran(later)

    assert steps(waiting, later) == [Step.RECALL, Step.REST]
    assert not waiting.is_blocked


def test_who_looks_at_the_clock_lets_others_run_first() -> None:
    """A wait with a timeout lets others run first, is blocked meanwhile, and stops in time."""
    waiting = Waiting(NOW, 1.0)
    assert steps(waiting, NOW, is_held=True) == [Step.REST]
    assert Step.BLOCK in steps(waiting, NOW + PATIENCE_S / 2, is_held=True)
    assert steps(waiting, NOW + PATIENCE_S, is_held=True) == [Step.UNBLOCK, Step.RUN]
    assert steps(waiting, NOW + 1.0) == [Step.STOP]


def test_another_thread_runs_something() -> None:
    """A wait rests a little before it tries again while another thread runs a task."""
    waiting = Waiting(NOW, None)
    steps(waiting, NOW, is_held=True)
    waiting.could_not_run(NOW)

    assert steps(waiting, NOW, is_held=True) == [Step.REST]
    assert waiting.until > NOW


class Session:
    """The session of a worker's tasks, as a thread that waits sees it."""

    def __init__(self) -> None:
        self.uninterrupted = contextlib.nullcontext()
        self.supplied = 0
        self.held = False
        self.said: list[object] = []

    def with_needs(self, tasks):
        return deque([*tasks, 99])

    def is_held(self, tasks):
        return self.held

    def send_now(self, tasks):
        self.said.append(("send now", list(tasks)))

    def recall(self, tasks, turn):
        self.said.append(("recall", list(tasks), turn))

    def count_waiting(self, change):
        self.said.append(change)


class Clock:
    """What the thread looks at; the test moves it."""

    now = NOW

    def __call__(self) -> float:
        return self.now


def begun(timeout=None, *, held=False):
    """Return a wait for task 7, its session, its clock and its steps."""
    waiting, session, clock = Waiting(NOW, timeout), Session(), Clock()
    session.held = held
    return waiting, session, clock, waiting.steps(session, deque([7]), lambda: False, clock)


def test_what_is_needed_is_asked_for_in_turn() -> None:
    """A wait recalls what it waits for with what that needs, with a turn that counts up."""
    _, session, clock, taken = begun()
    assert next(taken) is Step.REST
    clock.now = NOW + RECALL_MIN_S
    assert next(taken) is Step.REST

    assert session.said == [("recall", [7, 99], 0), ("recall", [7, 99], 1), 1]


def test_a_wait_that_looks_at_the_clock_sends_away_what_it_waits_for() -> None:
    """A wait with a timeout sends what it waits for to other workers at once."""
    _, session, clock, taken = begun(1.0, held=True)
    assert next(taken) is Step.REST
    assert session.said == [("send now", [7, 99])]
    clock.now = NOW + 1.0

    assert list(taken) == []


def test_after_a_task_has_run_the_next_is_asked_for_at_once() -> None:
    """A wait that has run a task recalls another one at once."""
    waiting, session, clock, taken = begun(held=True)
    assert next(taken) is Step.RUN
    waiting.has_run, session.held, clock.now = True, False, NOW + 0.001
    assert next(taken) is Step.REST

    assert session.said == [("recall", [7, 99], 0)]
    assert waiting.until == NOW + 0.001 + BLOCKED_AFTER_S


def test_after_a_task_could_not_be_run_the_wait_rests() -> None:
    """A wait whose task another thread took rests before it tries again."""
    waiting, _, clock, taken = begun(held=True)
    assert next(taken) is Step.RUN
    waiting.has_run = False

    assert next(taken) is Step.REST
    assert waiting.until == NOW + BLOCKED_AFTER_S
    clock.now = NOW + BLOCKED_AFTER_S
    assert next(taken) is Step.RUN


def test_an_input_that_was_supplied_lets_the_wait_ask_at_once() -> None:
    """A wait asks at once when an input was supplied, which may make a task ready."""
    _, session, clock, taken = begun()
    next(taken)
    session.supplied, clock.now = 1, NOW + 0.001
    next(taken)

    assert session.said == [("recall", [7, 99], 0), ("recall", [7, 99], 1)]


def test_a_wait_that_is_given_up_is_not_blocked_any_more() -> None:
    """A thread that leaves its wait while it is blocked is counted as blocked no longer."""
    _, session, clock, taken = begun()
    next(taken)
    clock.now = NOW + BLOCKED_AFTER_S
    next(taken)
    taken.close()

    assert [one for one in session.said if one in (1, -1)] == [1, -1]


def test_a_wait_ends_when_its_tasks_are_done() -> None:
    """A wait takes no step once what it waits for is there."""
    waiting, session = Waiting(NOW, None), Session()

    assert list(waiting.steps(session, deque([7]), lambda: True, Clock())) == []
    assert session.said == []


@given(
    st.one_of(st.none(), st.floats(0.001, 2.0)),
    st.lists(st.tuples(st.floats(0, 0.5), st.booleans(), st.booleans()), max_size=30),
)
def test_it_always_comes_to_rest(timeout, happenings) -> None:
    """A wait always rests until later than now, and BLOCK and UNBLOCK alternate."""
    waiting = Waiting(NOW, timeout)
    now, said = NOW, Step.UNBLOCK
    for pause, is_held, could_run in happenings:
        now += pause
        done = steps(waiting, now, is_held=is_held)
        for step in done:
            if step in (Step.BLOCK, Step.UNBLOCK):
                assert step is not said
                said = step
        assert waiting.is_blocked is (said is Step.BLOCK)
        if done[-1] is Step.STOP:
            assert timeout is not None
            assert now >= NOW + timeout
        elif done[-1] is Step.REST:
            assert waiting.until > now
        elif could_run:
            assert not waiting.is_blocked
            waiting.ran(now)
        else:
            waiting.could_not_run(now)

"""A thread that waits for tasks: when it runs them, asks for them, says that it is blocked."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.waiting import BLOCKED_AFTER_S, PATIENCE_S, RECALL_MIN_S, Step, Waiting

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
    """Without a word to anybody."""
    assert steps(Waiting(NOW, None), NOW, is_held=True) == [Step.RUN]


def test_what_is_away_is_asked_for() -> None:
    """At once, and again and again, ever more seldom."""
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
    """And no more when there is something to run; then that is said before it runs."""
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
    """It is blocked meanwhile; and it stops in time."""
    waiting = Waiting(NOW, 1.0)
    assert steps(waiting, NOW, is_held=True) == [Step.REST]
    assert Step.BLOCK in steps(waiting, NOW + PATIENCE_S / 2, is_held=True)
    assert steps(waiting, NOW + PATIENCE_S, is_held=True) == [Step.UNBLOCK, Step.RUN]
    assert steps(waiting, NOW + 1.0) == [Step.STOP]


def test_another_thread_runs_something() -> None:
    """It rests a little before it tries again."""
    waiting = Waiting(NOW, None)
    steps(waiting, NOW, is_held=True)
    waiting.could_not_run(NOW)

    assert steps(waiting, NOW, is_held=True) == [Step.REST]
    assert waiting.until > NOW


@given(
    st.one_of(st.none(), st.floats(0.001, 2.0)),
    st.lists(st.tuples(st.floats(0, 0.5), st.booleans(), st.booleans()), max_size=30),
)
def test_it_always_comes_to_rest(timeout, happenings) -> None:
    """Whatever happens when: it rests until later than now, and BLOCK and UNBLOCK alternate."""
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

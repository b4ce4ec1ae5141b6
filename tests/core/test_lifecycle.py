"""The transition table: each legal move, each illegal one."""

from __future__ import annotations

import pytest

from scaler_cluster.core.records.lifecycle import ENDS, TRANSITIONS, Event, State
from scaler_cluster.core.records.workers import Run
from scaler_cluster.errors import LocalProtocolError
from scaler_cluster.testing.bench import function_id, payloads_of
from scaler_cluster.wire import messages as m

PAIRS = [(state, event) for state in State for event in Event]
LEGAL = [(state, event) for state, event in PAIRS if event in TRANSITIONS.get(state, {})]
ILLEGAL = [pair for pair in PAIRS if pair not in LEGAL]


def make_run(state: State) -> Run:
    return Run(3, 7, function_id("f"), 0, m.DEFAULT_OPTIONS, payloads_of(7, 2), state=state)


def names(pair) -> str:
    return "-".join(part.name for part in pair)


@pytest.mark.parametrize("pair", LEGAL, ids=names)
def test_legal_moves_lead_where_the_table_says(pair):
    """A legal event moves the run to the state of the table, and returns it."""
    state, event = pair
    run = make_run(state)

    assert run.move(event) is TRANSITIONS[state][event]
    assert run.state is TRANSITIONS[state][event]


@pytest.mark.parametrize("pair", ILLEGAL, ids=names)
def test_illegal_moves_raise_with_the_story(pair):
    """An illegal event raises LocalProtocolError that tells the run's story, and moves nothing."""
    state, event = pair
    run = make_run(state)

    with pytest.raises(LocalProtocolError) as caught:
        run.move(event)

    assert run.state is state
    for part in (event.name, state.name, "7..8", "session 3", "tries 0", "losses 0"):
        assert part in str(caught.value)


def test_the_ends_have_no_way_out():
    """DONE, FAILED and CANCELLED know no event at all."""
    assert not set(ENDS) & set(TRANSITIONS)


def test_every_state_can_end():
    """From every state some events lead to an end: no task can be stuck by the table."""
    for start in State:
        reached, grown = {start}, True
        while grown:
            more = {to for state in reached for to in TRANSITIONS.get(state, {}).values()}
            grown = not more <= reached
            reached |= more
        assert reached & set(ENDS)


def test_nothing_leads_back_from_cancelling():
    """A task that is being stopped can only be stopped: its future has been told."""
    assert set(TRANSITIONS[State.CANCELLING].values()) == {State.CANCELLING, State.CANCELLED}

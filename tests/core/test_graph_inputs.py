"""The inputs of the graphs that tasks submit: when the scheduler is to be told of each."""

from __future__ import annotations

import pytest

from scaler_cluster.core.worker.graph_inputs import GraphInputs

GRAPH = 1 << 40


def yes(_):
    return True


def no(_):
    return False


@pytest.fixture
def inputs():
    """Those of one graph, whose two inputs are what tasks 5 and 6 return."""
    made = GraphInputs()
    made.expect(GRAPH, [5, 6])
    return made


def test_an_input_that_came_back_is_supplied_at_once(inputs) -> None:
    """An input that the scheduler lacks is supplied at once if its task has come back."""
    assert inputs.answer(GRAPH, [1], no, no) == [1]
    assert inputs.is_empty


def test_an_input_that_is_pending_is_owed(inputs) -> None:
    """An input that the scheduler lacks is told when its task comes back, and then no more."""
    assert inputs.answer(GRAPH, [0], no, yes) == []
    assert not inputs.is_empty
    assert list(inputs.pay(6)) == []
    assert list(inputs.pay(5)) == [GRAPH]
    assert list(inputs.pay(5)) == []
    assert inputs.is_empty


def test_an_input_that_the_scheduler_has_is_told_once_it_has_it_no_more(inputs) -> None:
    """An input that the scheduler has itself is owed when its task is here again."""
    assert inputs.answer(GRAPH, [], yes, yes) == []
    assert not inputs.is_empty
    inputs.is_here_again(6)
    inputs.is_here_again(7)

    assert list(inputs.pay(5)) == []
    assert not inputs.is_empty
    assert list(inputs.pay(6)) == [GRAPH + 1]
    assert inputs.is_empty


def test_inputs_are_not_empty_before_the_scheduler_has_answered(inputs) -> None:
    """The inputs of a graph are left until the scheduler has said which it knows."""
    assert not inputs.is_empty
    assert inputs.answer(GRAPH, [], no, no) == []
    assert inputs.is_empty

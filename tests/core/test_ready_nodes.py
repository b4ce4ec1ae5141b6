"""Ready nodes of a graph: which come first, for any worker and for the one that they are bound to."""

from __future__ import annotations

import pytest

from scaler_cluster.core.graph.ready_nodes import LOOK_BACK, ReadyNodes
from scaler_cluster.core.records.accounts import Account
from scaler_cluster.core.records.lifecycle import State
from scaler_cluster.testing.bench import function_id
from scaler_cluster.wire import messages as m

COUNT = 40


class Group:
    """Ready nodes with the states of their graph, which come and go together here."""

    def __init__(self) -> None:
        self.states = bytearray([int(State.WAITING)] * COUNT)
        self.nodes = ReadyNodes(1, 0, function_id("g"), Account(), m.DEFAULT_OPTIONS, self.states)

    def free(self, *some: int) -> None:
        for node in some:
            self.states[node] = State.READY
            self.nodes.push(node)

    def bind(self, peer: bytes, *some: int) -> None:
        for node in some:
            self.states[node] = State.READY
            self.nodes.bind(node, peer)

    def leave(self, *some: int) -> None:
        for node in some:
            self.states[node] = State.WAITING
            self.nodes.leave(node)

    def assign(self, first: int, stop: int) -> None:
        self.nodes.leave_all(first, stop)
        self.states[first:stop] = bytes([int(State.ASSIGNED)]) * (stop - first)


@pytest.fixture
def group():
    """No node is ready."""
    return Group()


def test_free_nodes_come_in_order(group):
    """Any worker gets the first free node, whenever that became ready."""
    group.free(5, 2, 9)

    assert group.nodes.peek() == 2
    assert [group.nodes.pop() for _ in range(4)] == [2, 5, 9, -1]


def test_bound_nodes_are_not_for_others(group):
    """A node that is bound to a worker is ready, but no other worker comes to it."""
    group.bind(b"W1", 1, 0)
    group.free(7)

    assert group.nodes.count == 3
    assert group.nodes.nodes() == [0, 1, 7]
    assert [group.nodes.pop(), group.nodes.pop()] == [7, -1]
    assert group.nodes.pop_bound(b"W2") == -1
    assert [group.nodes.pop_bound(b"W1") for _ in range(3)] == [0, 1, -1]
    assert not group.nodes.bound


def test_a_group_with_nothing_but_bound_nodes_is_ready(group):
    """A group waits only if none of its nodes is ready, bound or free."""
    seen = [group.nodes.state]
    group.bind(b"W1", 3)
    seen.append(group.nodes.state)
    group.leave(3)
    seen.append(group.nodes.state)

    assert seen == [State.WAITING, State.READY, State.WAITING]


def test_what_left_is_passed_over(group):
    """Nodes that are not ready any more are not found, free or bound."""
    group.free(1, 2)
    group.bind(b"W1", 3, 4)
    group.leave(1, 3)

    assert group.nodes.count == 2
    assert (group.nodes.pop(), group.nodes.pop_bound(b"W1")) == (2, 4)


def test_a_node_moves_from_one_worker_to_another(group):
    """A node that was bound again is found for its last worker alone."""
    group.bind(b"W1", 3)
    group.leave(3)
    group.bind(b"W2", 3)

    assert list(group.nodes.bound_to(b"W1")) == []
    assert group.nodes.pop_bound(b"W1") == -1
    assert (group.nodes.count, group.nodes.pop_bound(b"W2")) == (1, 3)


def test_a_bound_node_becomes_free(group):
    """A node that was bound and is free now is found for all, once."""
    group.bind(b"W1", 3)
    group.leave(3)
    group.free(3)

    assert group.nodes.homes == {}
    assert group.nodes.pop_bound(b"W1") == -1
    assert [group.nodes.pop(), group.nodes.pop()] == [3, -1]


def test_a_free_node_becomes_bound(group):
    """A node that was free and is bound now is found for its worker alone."""
    group.free(3)
    group.leave(3)
    group.bind(b"W1", 3)

    assert (group.nodes.pop(), group.nodes.pop_bound(b"W1")) == (-1, 3)


def test_contiguous_nodes_leave_together(group):
    """Nodes that go to a worker leave, whatever they were bound to."""
    group.free(1, 6)
    group.bind(b"W1", 2, 3)
    group.assign(1, 4)

    assert (group.nodes.count, group.nodes.nodes(), group.nodes.homes) == (1, [6], {})
    assert group.nodes.pop_bound(b"W1") == -1


def test_a_node_that_moves_is_one_of_the_last(group):
    """For another worker one of the last nodes is taken that are bound to a worker; it stays."""
    group.bind(b"W1", *range(20))
    late = group.nodes.late_bound(b"W1")

    assert late >= 20 - LOOK_BACK
    assert group.nodes.late_bound(b"W1") == late
    assert group.nodes.count == 20


def test_a_node_that_moves_is_found_behind_what_left(group):
    """However many of the last nodes have left, one that is bound still is found."""
    group.bind(b"W1", *range(30))
    group.leave(*range(1, 30))

    assert group.nodes.late_bound(b"W1") == 0
    assert group.nodes.pop_bound(b"W1") == 0
    assert group.nodes.late_bound(b"W1") == -1


def test_each_node_of_a_worker_is_named_once(group):
    """A node that was bound to the same worker again is named once."""
    group.bind(b"W1", 1, 2)
    group.leave(1)
    group.bind(b"W1", 1)

    assert sorted(group.nodes.bound_to(b"W1")) == [1, 2]

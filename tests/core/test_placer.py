"""On which worker a node runs that needs what only workers have, and when it moves to another one."""

from __future__ import annotations

import pytest

from scaler_cluster.core.graph.graph import GraphRecord
from scaler_cluster.core.graph.layers import Layers
from scaler_cluster.core.graph.node_states import READY, WAITING
from scaler_cluster.core.graph.placer import (
    COMING_MAX,
    DEAR_WORTH,
    MOVE_BYTES_PER_S,
    MOVE_S,
    WORTH,
)
from scaler_cluster.core.graph.topology import GraphPart
from scaler_cluster.core.records.accounts import Account
from scaler_cluster.core.records.functions import FunctionRecord
from scaler_cluster.core.records.totals import Names
from scaler_cluster.core.records.workers import WorkerPool, WorkerRecord
from scaler_cluster.testing.bench import function_id, graph_of
from scaler_cluster.wire import messages as m

MB = 1_000_000
UNIT_S = 0.012


class Cluster:
    """A graph, and workers W1, W2 and W3 that keep what its nodes returned."""

    def __init__(self, *nodes: str, wanted: str = "", **fields) -> None:
        self.timing = FunctionRecord(b"", mean_s=UNIT_S)
        self.graph = GraphRecord(
            1, 0, function_id("g"), self.timing, Account(), Layers(Names(), "g")
        )
        self.graph.add(GraphPart(graph_of(0, *nodes, wanted=wanted, **fields)), 0)
        self.nodes, self.placer = self.graph.nodes, self.graph.placer
        self.workers = [WorkerRecord(b"W%d" % n, b"S1", n, "host", 0) for n in (1, 2, 3)]
        self.w1, self.w2, self.w3 = self.workers

    def keep(self, node: int, worker: WorkerRecord, nbytes: int) -> None:
        """A worker ran a node, and has what that returned."""
        self.nodes.assign(node, node + 1)
        self.graph._holders[node] = worker
        self.nodes.returned(node, [b""], [nbytes])

    def share(self, node: int) -> None:
        """What a worker had has come."""
        self.placer.shared(node, b"r", ())
        self.placer.place()

    def place(self) -> dict[int, bytes]:
        """Return the nodes that are bound, with their workers."""
        self.placer.place()
        return {node: peer for group in self.nodes.groups for node, peer in group.homes.items()}

    def target(self, node: int) -> WorkerRecord | None:
        """Return where a node is to run that waits for what other workers have."""
        return self.placer._targets.get(node)

    def take_over(self, loaded: WorkerRecord, idle: WorkerRecord, busy_s: float = 0.0) -> bool:
        return self.placer.take_over(self.nodes.groups[0], loaded, idle, busy_s)


# -- where a node runs first -----------------------------------------------------------------


def test_a_node_runs_where_most_of_its_bytes_are():
    """A node goes to the worker that has most of what it needs, all of it counted."""
    made = Cluster("", "", "", "0 1 2")
    made.keep(0, made.w1, 50 * MB)
    made.keep(1, made.w2, 30 * MB)
    made.keep(2, made.w2, 40 * MB)

    assert made.place() == {}
    assert made.target(3) is made.w2
    assert made.nodes.sharing == {0: [3]}


def test_what_a_node_names_twice_comes_once():
    """A node that names a result several times runs when that has come."""
    made = Cluster("", "", "0 0 0 1")
    made.keep(0, made.w1, 1 * MB)
    made.keep(1, made.w2, 60 * MB)
    made.place()
    assert made.graph.placer.take_to_share() == {made.w1: [0]}

    made.share(0)
    assert made.place() == {2: b"W2"}


def test_a_busy_worker_is_left_where_moving_is_cheaper():
    """A worker that is busy for longer than its bytes take to move does not get the node."""
    made = Cluster("", "", "0 1")
    made.keep(0, made.w1, 50 * MB)
    made.keep(1, made.w2, 1 * MB)
    made.w1.backlog_s = 1.0
    made.place()

    assert made.target(2) is made.w2
    assert made.nodes.sharing == {0: [2]}


def test_a_busy_worker_is_waited_for_where_moving_costs_more():
    """A worker that is busy for less than its bytes take to move gets the node."""
    made = Cluster("", "", "0 1")
    made.keep(0, made.w1, 50 * MB)
    made.keep(1, made.w2, 1 * MB)
    made.w1.backlog_s = 0.04
    made.place()

    assert made.target(2) is made.w1


def test_what_is_bound_to_a_worker_counts_as_its_work():
    """A worker to which many nodes are bound counts as busy with them."""
    made = Cluster("", "", *["0"] * 100, "0 1", wanted=" ".join(map(str, range(2, 103))))
    made.keep(0, made.w1, 50 * MB)
    assert len(made.place()) == 100
    made.keep(1, made.w2, 1 * MB)
    made.place()

    assert made.target(102) is made.w2


def test_equals_are_taken_in_order_of_need():
    """Of workers that are as good the one is taken that has what the node names first."""
    for needs, first in (("0 1", 0), ("1 0", 1)):
        made = Cluster("", "", needs)
        made.keep(0, made.w1, 5 * MB)
        made.keep(1, made.w2, 5 * MB)
        made.place()

        assert made.target(2) is made.workers[first]


def test_a_worker_that_has_all_needs_nothing_moved():
    """A worker that has all is better than one that has all but little, however much that is."""
    made = Cluster("", "", "0 1", "0", wanted="2 3")
    made.keep(0, made.w1, 5 * MB)
    made.keep(1, made.w1, 1)

    assert made.place() == {2: b"W1", 3: b"W1"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("retiring", True), ("killed", "why"), ("blocked", True), ("asleep_at", 100.0)],
)
def test_a_worker_that_takes_no_work_gets_no_node(field, value):
    """A worker that retires, is killed, is blocked or sleeps is not waited for."""
    made = Cluster("", "", "0 1")
    made.keep(0, made.w1, 50 * MB)
    made.keep(1, made.w2, 1 * MB)
    setattr(made.w1, field, value)
    made.place()

    assert made.target(2) is made.w2


def test_a_worker_that_lacks_what_a_node_demands_does_not_get_it():
    """A node goes to no worker that has not what it demands, however much is there."""
    options = [m.DEFAULT_OPTIONS, m.TaskOptions(capabilities=(("gpu", 1),))]
    made = Cluster("", "", "0 1", options=options, kinds=[0, 0, 1])
    made.w2.pool = WorkerPool((("gpu", 1),))
    made.keep(0, made.w1, 50 * MB)
    made.keep(1, made.w2, 1 * MB)
    made.place()

    assert made.target(2) is made.w2


def test_if_no_holder_takes_it_all_is_sent():
    """A node that no worker can run which has some of its needs waits for all of them."""
    made = Cluster("", "", "0 1")
    made.keep(0, made.w1, 50 * MB)
    made.keep(1, made.w2, 1 * MB)
    made.w1.retiring = made.w2.blocked = True
    made.place()
    assert (made.target(2), made.nodes.sharing) == (None, {0: [2], 1: [2]})

    made.share(0)
    assert made.nodes.states[2] == WAITING
    made.share(1)
    assert made.nodes.states[2] == READY
    assert made.nodes.groups[0].peek() == 2


# -- when what was to come has come -----------------------------------------------------------


def test_a_node_stays_with_the_worker_it_was_meant_for():
    """A node runs on the worker for which its needs were moved, busy or not."""
    made = Cluster("", "", "0 1")
    made.keep(0, made.w1, 50 * MB)
    made.keep(1, made.w2, 60 * MB)
    made.place()
    made.w2.backlog_s = 10.0
    made.share(0)

    assert made.place() == {2: b"W2"}
    assert made.target(2) is None


def test_a_node_looks_again_if_its_worker_takes_no_work_any_more():
    """A node whose worker retires before all has come is placed again."""
    made = Cluster("", "", "0 1")
    made.keep(0, made.w1, 50 * MB)
    made.keep(1, made.w2, 60 * MB)
    made.place()
    made.w2.retiring = True
    made.share(0)

    assert made.nodes.sharing == {1: [2]}
    made.share(1)
    assert made.nodes.groups[0].peek() == 2


def test_a_node_whose_target_is_lost_is_placed_again():
    """A node that was to run on a worker which is gone runs where the rest of its needs is."""
    made = Cluster("", "", "", "0 1 2")
    made.keep(0, made.w1, 5 * MB)
    made.keep(1, made.w2, 60 * MB)
    made.keep(2, made.w3, 6 * MB)
    made.place()
    assert made.target(3) is made.w2
    made.graph.placer.worker_lost(made.w2)
    assert made.target(3) is None
    made.share(0)
    made.share(2)
    made.place()
    assert made.nodes.states[3] == WAITING

    made.keep(1, made.w1, 60 * MB)
    assert made.place() == {3: b"W1"}


# -- idle workers take over --------------------------------------------------------------------


@pytest.fixture
def loaded():
    """Six nodes are bound to W1, each of which needs 10 MB that W1 has."""
    made = Cluster("", *["0"] * 6, wanted=" ".join(map(str, range(1, 7))))
    made.keep(0, made.w1, 10 * MB)
    assert len(made.place()) == 6
    return made


COST_S = MOVE_S + 10 * MB / MOVE_BYTES_PER_S


def test_an_idle_worker_takes_over(loaded):
    """An idle worker takes over a node of one that is busy for long, and its needs are moved."""
    loaded.w1.backlog_s = 1.0

    assert loaded.take_over(loaded.w1, loaded.w2)
    (node,) = loaded.nodes.sharing[0]
    assert loaded.target(node) is loaded.w2
    assert len(loaded.place()) == 5


@pytest.mark.parametrize(("factor", "moves"), [(0.9, False), (1.1, True)])
def test_a_node_moves_only_if_that_is_worth_it(factor, moves):
    """A node moves if it would wait WORTH times as long as moving its needs takes."""
    made = Cluster("", "0")
    made.keep(0, made.w1, 10 * MB)
    made.place()
    made.w1.backlog_s = WORTH * COST_S * factor - UNIT_S

    assert made.take_over(made.w1, made.w2) is moves
    assert bool(made.nodes.sharing) is moves


@pytest.mark.parametrize("mean_s", [0.001, 0.1])
@pytest.mark.parametrize(("factor", "moves"), [(0.9, False), (1.1, True)])
def test_what_is_dear_to_move_waits_until_it_is_seen_that_nodes_take_long(mean_s, factor, moves):
    """If moving costs more than a mean node, what queues is taken to last as the running one has.

    A mean of 0.1 s may come from the one long node that made what the others need.
    """
    made = Cluster("", *["0"] * 6, wanted=" ".join(map(str, range(1, 7))))
    made.keep(0, made.w1, 100 * MB)
    made.place()
    made.timing.mean_s = mean_s
    made.w1.backlog_s = 1.0
    busy_s = DEAR_WORTH * (MOVE_S + 100 * MB / MOVE_BYTES_PER_S) / 6 * factor

    assert made.take_over(made.w1, made.w2, busy_s) is moves


def test_how_long_a_task_runs_already_counts():
    """A worker that has been in one task for long is taken to stay in it as long again."""
    made = Cluster("", "0")
    made.keep(0, made.w1, 10 * MB)
    made.place()

    assert not made.take_over(made.w1, made.w2, busy_s=0.0)
    assert made.take_over(made.w1, made.w2, busy_s=1.0)


def test_a_worker_that_takes_no_work_gives_its_nodes_away(loaded):
    """What is bound to a worker that takes no work moves at once."""
    loaded.w1.blocked = True

    assert loaded.take_over(loaded.w1, loaded.w2)
    assert list(loaded.nodes.sharing) == [0]


def test_few_nodes_move_at_once(loaded):
    """A worker takes over no more while COMING_MAX nodes are on their way to it."""
    loaded.w1.backlog_s = 1.0
    for _ in range(COMING_MAX + 3):
        assert loaded.take_over(loaded.w1, loaded.w2)
    assert len(loaded.nodes.sharing[0]) == COMING_MAX

    assert loaded.take_over(loaded.w1, loaded.w3)
    assert len(loaded.nodes.sharing[0]) == COMING_MAX + 1


def test_the_next_nodes_move_when_the_first_have_come(loaded):
    """Once a worker was given the nodes that it takes over, these are no longer on their way."""
    loaded.w1.backlog_s = 1.0
    for _ in range(COMING_MAX):
        loaded.take_over(loaded.w1, loaded.w2)
    coming = list(loaded.nodes.sharing[0])
    loaded.share(0)
    for node in coming:
        loaded.nodes.assign(node, node + 1)
        loaded.placer.assigned(node, node + 1)

    assert not any(map(loaded.target, range(7)))
    assert not loaded.placer._has_enough_coming(loaded.w2)


def test_nodes_that_ended_are_not_on_their_way(loaded):
    """Nodes that were cancelled on their way to a worker do not keep it from taking over more."""
    loaded.w1.backlog_s = 1.0
    for _ in range(COMING_MAX):
        loaded.take_over(loaded.w1, loaded.w2)
    loaded.nodes.give_up(loaded.nodes.sharing[0])
    loaded.take_over(loaded.w1, loaded.w2)

    assert len(loaded.nodes.sharing[0]) == COMING_MAX + 1


def test_there_may_be_nothing_to_take_over(loaded):
    """A worker to which nothing is bound has nothing to give."""
    assert loaded.take_over(loaded.w3, loaded.w2)
    assert not loaded.nodes.sharing


# -- a task waits for a node -------------------------------------------------------------------


def test_all_is_sent_for_a_node_that_a_task_waits_for(loaded):
    """The first bound node that a task waits for becomes free when all has come."""
    loaded.placer.free_first(5)
    assert (loaded.nodes.sharing, loaded.target(1)) == ({0: [1]}, None)

    loaded.share(0)
    assert loaded.nodes.groups[0].peek() == 1


def test_later_nodes_are_not_freed_for_a_task(loaded):
    """Nodes after the one that a task waits for stay where they are."""
    loaded.placer.free_first(0)

    assert not loaded.nodes.sharing
    assert len(loaded.place()) == 6

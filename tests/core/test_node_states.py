"""What only workers have of a graph: who needs it, who waits for it, and what its loss brings back."""

from __future__ import annotations

import pytest

from scaler_cluster.core.graph.graph import GraphRecord
from scaler_cluster.core.graph.layers import Layers
from scaler_cluster.core.graph.losses import lose
from scaler_cluster.core.graph.node_states import ASSIGNED, CANCELLED, DONE, FAILED, READY, WAITING
from scaler_cluster.core.graph.topology import GraphPart
from scaler_cluster.core.records.accounts import Account
from scaler_cluster.core.records.functions import FunctionRecord
from scaler_cluster.core.records.totals import Names
from scaler_cluster.core.records.workers import WorkerRecord
from scaler_cluster.testing.bench import function_id, graph_of
from scaler_cluster.wire import messages as m

KB = 1000
W1, W2 = b"W1", b"W2"
WRONG = m.Failed(0, m.FAILED_RESULT, b"why")


class Graph:
    """A graph whose nodes are given by the numbers they depend on."""

    def __init__(self, *nodes: str, wanted: str = "", inputs: int = 0, **fields) -> None:
        self.record = GraphRecord(
            1, 0, function_id("g"), FunctionRecord(b""), Account(), Layers(Names(), "g")
        )
        self.nodes = self.record.nodes
        self.record.add(GraphPart(graph_of(0, *nodes, wanted=wanted, **fields)), inputs)
        self.workers: dict[bytes, WorkerRecord] = {}

    def worker(self, peer: bytes) -> WorkerRecord:
        return self.workers.setdefault(peer, WorkerRecord(peer, b"S1", 1, "host", 0))

    def give(self, first: int, stop: int, peer: bytes = W1) -> None:
        """Let a worker have nodes."""
        self.nodes.assign(first, stop)
        self.record._holders[first:stop] = [self.worker(peer)] * (stop - first)

    def run(self, node: int, size: int = 0, peer: bytes = W1) -> None:
        """Let a worker run a node; it keeps so many bytes (0: it sends the result)."""
        self.give(node, node + 1, peer)
        self.nodes.returned(node, [b"" if size else b"r%d" % node], [size])
        self.place()

    def place(self) -> None:
        self.record.placer.place()

    def states(self) -> list[int]:
        return list(self.nodes.states)


# -- what is kept ----------------------------------------------------------------------------


def test_what_is_kept_is_no_result():
    """Of what a worker keeps only the size is known."""
    graph = Graph("", "", "0 1")
    graph.give(0, 2)
    graph.nodes.returned(0, [b"", b"r1"], [9 * KB, 0])

    assert graph.nodes.kept == {0: 9 * KB}
    assert graph.nodes.results == {1: (b"r1", ())}


def test_what_is_kept_in_vain_is_to_be_dropped():
    """A result that nobody needs any more by the time it was made is not kept."""
    graph = Graph("", "", wanted="0 1")
    graph.give(0, 2)
    graph.nodes.give_up([0])
    graph.nodes.returned(1, [b"r1"])

    assert graph.nodes.outdated == [1]
    assert (graph.nodes.kept, graph.nodes.results) == ({}, {})


def test_what_is_kept_is_dropped_with_its_last_use():
    """What a worker keeps is to be dropped when the last node has run that needs it."""
    graph = Graph("", "0", "0", wanted="1 2")
    graph.run(0, 9 * KB)
    graph.run(1)
    assert (list(graph.nodes.kept), graph.nodes.outdated) == ([0], [1])

    graph.run(2)
    assert (list(graph.nodes.kept), graph.nodes.outdated) == ([], [1, 2, 0])


def test_a_node_without_far_needs_is_free():
    """A node that needs nothing which only a worker has can run anywhere."""
    graph = Graph("", "", "0", wanted="1 2")
    graph.run(1, 9 * KB)
    graph.run(0)

    assert graph.states()[2] == READY
    assert graph.nodes.groups[0].peek() == 2


def test_a_node_is_bound_to_who_has_what_it_needs():
    """A node that needs what only one worker has is ready for that worker alone."""
    graph = Graph("", "0")
    graph.run(0, 9 * KB)

    group = graph.nodes.groups[0]
    assert (group.homes, group.peek()) == ({1: W1}, -1)


def test_nodes_of_a_later_part_are_bound_as_well():
    """A node that comes when what it needs has been made is bound to who has that."""
    whole = graph_of(0, "", "0", "0", wanted="1 2")
    first = m.Graph(
        0, 0, whole.function, whole.options, whole.batch.cut(0, 2), bytes(whole.ends)[:8],
        bytes(whole.dependencies)[:4], bytes(whole.uses)[:8], b"\0\1", b"", (), b"", is_last=False,
    )  # fmt: skip
    rest = m.Graph(
        0, 2, whole.function, (), whole.batch.cut(2, 3), b"\1\0\0\0", b"\0\0\0\0",
        bytes(whole.uses)[8:], b"\1", b"", (), b"", is_last=True,
    )  # fmt: skip
    graph = Graph("", "0")
    graph.record = GraphRecord(
        1, 0, function_id("g"), FunctionRecord(b""), Account(), Layers(Names(), "g")
    )
    graph.nodes = graph.record.nodes
    graph.record.add(GraphPart(first), 0)
    graph.run(0, 9 * KB)
    graph.record.add(GraphPart(rest), 0)
    graph.place()

    assert graph.nodes.groups[0].homes == {1: W1, 2: W1}


# -- what is asked for -----------------------------------------------------------------------


@pytest.fixture
def apart():
    """Node 2 needs what W1 and W2 have, and runs where there is more of it: on W2."""
    graph = Graph("", "", "0 1")
    graph.run(0, 9 * KB, W1)
    graph.run(1, 900 * KB, W2)
    return graph


def test_a_node_waits_for_what_is_asked_for(apart):
    """What a node needs of other workers is asked for once, and the node waits for it."""
    nodes = apart.nodes
    assert (nodes.to_share, nodes.sharing, nodes.missing[2]) == ([0], {0: [2]}, 1)
    assert apart.states()[2] == WAITING
    assert apart.record.placer.take_to_share() == {apart.worker(W1): [0]}
    assert apart.record.placer.take_to_share() == {}


def test_what_came_lets_a_node_run(apart):
    """When all has come that was asked for, the node is bound to who has the rest."""
    assert apart.record.placer.shared(0, b"r0", ())
    apart.place()

    assert apart.nodes.results == {0: (b"r0", ())}
    assert apart.nodes.groups[0].homes == {2: W2}
    assert not apart.nodes.sharing


def test_what_two_nodes_wait_for_is_asked_for_once():
    """A second node that needs what was asked for waits for the same answer."""
    graph = Graph("", "", "0 1", "0 1", wanted="2 3")
    graph.run(0, 9 * KB, W1)
    graph.run(1, 900 * KB, W2)
    assert (graph.nodes.to_share, graph.nodes.sharing) == ([0], {0: [2, 3]})

    graph.record.placer.shared(0, b"r0", ())
    graph.place()
    assert graph.nodes.groups[0].homes == {2: W2, 3: W2}


def test_what_was_shared_frees_the_nodes_that_need_nothing_else():
    """A ready node is not bound to a worker any more when what that kept is everywhere."""
    graph = Graph("", "0", "0", wanted="1 2")
    graph.run(0, 9 * KB)
    graph.give(1, 2)
    graph.record.placer.shared(0, b"r0", ())

    assert graph.states() == [DONE, ASSIGNED, READY]
    assert (graph.nodes.groups[0].homes, graph.nodes.groups[0].peek()) == ({}, 2)


def test_what_came_too_late_is_not_taken(apart):
    """What was dropped meanwhile is not taken when it comes after all."""
    apart.nodes.give_up([2])

    assert not apart.record.placer.shared(0, b"r0", ())
    assert (apart.nodes.results, apart.nodes.kept, apart.nodes.sharing) == ({}, {}, {})
    assert sorted(apart.nodes.outdated) == [0, 1]


def test_what_was_dropped_is_not_asked_for(apart):
    """A worker is not asked for what it is told to drop at the same time."""
    apart.nodes.give_up([2])

    assert apart.record.placer.take_to_share() == {}
    assert apart.record.placer.take_outdated() == {apart.worker(W1): [0], apart.worker(W2): [1]}


def test_nodes_fail_that_wait_for_what_cannot_be_sent():
    """Nodes that wait for what cannot be sent fail; those where it is can run."""
    graph = Graph("", "", "0 1", "0", "2", wanted="3 4")
    graph.run(0, 9 * KB, W1)
    graph.run(1, 900 * KB, W2)
    graph.record.placer.cannot_share(0, WRONG)

    assert graph.states() == [DONE, DONE, FAILED, READY, FAILED]
    assert graph.nodes.ended == [(4, WRONG)]
    assert graph.nodes.groups[0].homes == {3: W1}
    assert list(graph.nodes.kept) == [0]


def test_all_fail_that_need_what_a_leaving_worker_cannot_send():
    """If nobody asked for what cannot be sent, its worker leaves: all fail that need it."""
    graph = Graph("", "0", "", wanted="1 2")
    graph.run(0, 9 * KB)
    graph.record.placer.cannot_share(0, WRONG)

    assert graph.states() == [DONE, FAILED, READY]
    assert graph.nodes.ended == [(1, WRONG)]


def test_what_cannot_be_sent_may_be_asked_for_again():
    """A node that is to run elsewhere later asks again for what could not be sent."""
    graph = Graph("", "", "", "0 1", "0 2", wanted="3 4")
    graph.run(0, 9 * KB, W1)
    graph.run(1, 900 * KB, W2)
    graph.record.placer.take_to_share()
    graph.record.placer.cannot_share(0, WRONG)
    graph.run(2, 900 * KB, W2)

    assert graph.record.placer.take_to_share() == {graph.worker(W1): [0]}


# -- what is lost ----------------------------------------------------------------------------


def test_only_what_is_still_needed_runs_again():
    """When a worker is gone only the kept results are made again that some node still needs."""
    graph = Graph("", "", "0", "1", wanted="2 3")
    graph.run(0, 9 * KB)
    graph.run(1, 9 * KB)
    graph.run(2)
    graph.record.placer.worker_lost(graph.worker(W1))
    graph.place()

    assert graph.states() == [DONE, READY, DONE, WAITING]
    assert graph.nodes.groups[0].peek() == 1
    assert not graph.nodes.groups[0].homes


def test_what_others_keep_stays():
    """When a worker is gone, what others keep is not made again."""
    graph = Graph("", "", "0 1")
    graph.run(0, 9 * KB, W1)
    graph.run(1, 900 * KB, W2)
    graph.record.placer.worker_lost(graph.worker(W1))
    graph.place()
    assert (graph.states(), list(graph.nodes.kept)) == ([READY, DONE, WAITING], [1])

    graph.run(0, 0, W2)
    assert graph.nodes.groups[0].homes == {2: W2}


def test_what_was_dropped_is_made_again_for_what_was_lost():
    """What a lost node needed runs again before it, as far back as results were dropped."""
    graph = Graph("", "0", "1", "2")
    graph.run(0, 9 * KB)
    graph.run(1)
    graph.run(2, 9 * KB)
    graph.record.placer.worker_lost(graph.worker(W1))
    graph.place()

    assert graph.states() == [READY, WAITING, WAITING, WAITING]
    assert graph.nodes.live == graph.nodes.open == 4


def test_what_is_needed_of_another_worker_is_kept_for_what_runs_again():
    """A lost node that needs what another worker has is bound to that one."""
    graph = Graph("", "0", "0 1")
    graph.run(0, 9 * KB, W1)
    graph.run(1, 9 * KB, W2)
    graph.record.placer.shared(0, b"r0", ())
    graph.record.placer.worker_lost(graph.worker(W2))
    graph.place()

    assert graph.states() == [DONE, READY, WAITING]
    assert graph.nodes.losses == 1


def test_who_waited_for_what_was_lost_waits_for_its_node(apart):
    """A node that waits for what is lost on its way waits until that was made again."""
    apart.record.placer.worker_lost(apart.worker(W1))
    apart.place()
    assert apart.states() == [READY, DONE, WAITING]
    assert (apart.nodes.sharing, apart.nodes.missing[2]) == ({}, 1)

    apart.run(0, 0, W2)
    assert apart.nodes.groups[0].homes == {2: W2}


def test_nodes_bound_to_a_lost_worker_wait_for_what_they_need():
    """A node that was ready for a worker which is gone is not ready any more."""
    graph = Graph("", "0", "0", wanted="1 2")
    graph.run(0, 9 * KB)
    graph.give(2, 3)
    graph.record.placer.worker_lost(graph.worker(W1))

    assert graph.states() == [READY, WAITING, ASSIGNED]
    assert list(graph.nodes.lost_input) == [2]
    assert not graph.nodes.groups[0].homes


def test_what_must_not_run_again_is_named():
    """A lost node with at_most_once is named: it would run a second time."""
    graph = Graph("", "0", options=[m.TaskOptions(at_most_once=True)])
    graph.run(0, 9 * KB)

    assert graph.record.placer.worker_lost(graph.worker(W1)) == [0]


def test_inputs_are_never_lost():
    """What the client brought stays until the graph is over, also when nobody needs it."""
    graph = Graph("", "0", "1", inputs=1)
    graph.nodes.returned(0, [b"x"])
    graph.run(1, 9 * KB)
    assert graph.nodes.results == {0: (b"x", ())}

    graph.record.placer.worker_lost(graph.worker(W1))
    graph.place()
    assert graph.states() == [DONE, READY, WAITING]


# -- what is to run again while a worker still stops it ---------------------------------------


@pytest.fixture
def stopping():
    """Node 2 was cancelled on W1, has not been stopped there, and must run again for node 4."""
    graph = Graph("", "0", "", "2", "2", "3", "4", wanted="1 5 6", inputs=1)
    graph.run(2, 9 * KB)
    graph.run(3, 9 * KB, W1)
    graph.run(4, 9 * KB, W2)
    graph.record.placer.worker_lost(graph.worker(W1))
    graph.workers.clear()
    graph.place()
    graph.give(2, 3, W1)
    graph.nodes.give_up([5])
    assert graph.states()[2:4] == [CANCELLED, CANCELLED]
    lose(graph.nodes, graph.record.topology, [4])
    graph.place()
    return graph


def test_a_node_waits_until_it_was_stopped(stopping):
    """A node that must run again after all waits until its worker has stopped it."""
    assert stopping.nodes.stopped == [2]
    assert (stopping.states()[2], stopping.nodes.missing[2]) == (WAITING, 1)

    stopping.nodes.off_worker(2, 3)
    assert (stopping.states()[2], stopping.nodes.missing[2]) == (READY, 0)
    assert not stopping.nodes.stopping


def test_a_node_that_is_being_stopped_goes_with_no_others(stopping):
    """No worker is given such a node along with those before it."""
    stopping.nodes.returned(0, [b"x"])
    group = stopping.nodes.groups[0]
    run = stopping.record.cut_head(group, 10, stopping.worker(b"W3"), 1)

    assert (run.first, run.count) == (1, 1)


def test_a_node_that_stays_cancelled_is_forgotten_when_it_was_stopped():
    """A cancelled node that nobody needs again does not come back when it was stopped."""
    graph = Graph("", "", wanted="0 1")
    graph.give(0, 2)
    graph.nodes.give_up([1])
    graph.nodes.off_worker(0, 2)

    assert graph.states() == [ASSIGNED, CANCELLED]
    assert not graph.nodes.stopping

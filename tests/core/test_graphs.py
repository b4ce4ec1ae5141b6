"""Graphs in the scheduler, by example: what goes out when, what is told, what is kept."""

from __future__ import annotations

import pytest

from scaler_cluster.core.records.credit import STALL_S
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import first_task_id
from scaler_cluster.testing.bench import function_id, graph_of, payloads_of, segment
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import numbers

SHORT_S = 0.00001


@pytest.fixture
def known(one):
    """As ``one``; the functions of graphs are known to be short."""
    one.graph(900, "")
    one.done(900, each_s=SHORT_S)
    return one


# -- what goes out ---------------------------------------------------------------------------


def test_nodes_that_follow_each_other_go_together(known):
    """A worker gets nodes with what they depend on before them; only the wanted one is told."""
    sent = known.graph(0, "", "", "0 1", "2")

    assert sent == {"W1": ["AssignNodes 1:0-3 g"]}
    assert known.done(0, 4, each_s=SHORT_S) == {"C1": ["Results 3 [r3]"], "W1": ["GraphOver 1:0"]}


def test_what_was_returned_is_where_it_was_made(one):
    """A node that goes out later finds what nodes before it returned on its worker."""
    assert one.graph(0, "", "", "0 1 0")["W1"][1:] == ["AssignNodes 1:0 g", "AssignNodes 1:1 g"]
    one.done(0, each_s=1.0)

    assert one.done(1, each_s=1.0) == {"W1": ["AssignNodes 1:2 g"]}
    assert one.done(2)["C1"] == ["Results 2 [r2]"]


def test_what_was_returned_travels_with_what_needs_it(two):
    """A node comes with the results it needs of other workers, each once."""
    two.graph(0, "", "", "", "0 2 1 0")
    two.done(0, peer=b"W2", each_s=1.0)
    two.done(2, peer=b"W2", each_s=1.0)

    assert two.done(1, each_s=1.0) == {"W1": ["AssignNodes 1:3 g 0=r0 2=r2"]}


def test_what_follows_goes_to_the_same_worker(two):
    """A worker with nodes under way is given what follows on them before it is ready."""
    two.graph(900, "")
    two.done(900, peer=b"W2", each_s=0.003)
    assert two.graph(0, "", *map(str, range(20))) == {"W2": ["AssignNodes 1:0-3 g"]}

    sent = two.done(0, 2, peer=b"W2", each_s=0.003)
    assert sent == {"W2": ["DropResults 1:0 [0]", "AssignNodes 1:4 g"]}


def test_what_is_needed_together_is_made_by_one_worker(two):
    """Workers begin long nodes at different places, if these are needed by different nodes."""
    sent = two.graph(0, "", "", "0 1", "", "", "3 4", "2 5")

    assert sent["W2"] == ["Function g", "AssignNodes 1:0 g", "AssignNodes 1:1 g"]
    assert sent["W1"] == ["Function g", "AssignNodes 1:3 g", "AssignNodes 1:4 g"]


def test_no_worker_is_idle_for_what_is_needed_together(two):
    """If there is nothing else to run, workers divide what one node needs together."""
    sent = two.graph(0, "", "", "", "0 1 2")

    assert sent["W2"] == ["Function g", "AssignNodes 1:0 g", "AssignNodes 1:2 g"]
    assert sent["W1"] == ["Function g", "AssignNodes 1:1 g"]


def test_long_nodes_go_to_whoever_is_free(two):
    """Nodes that take long are given one by one to any free worker, as soon as they are ready."""
    two.graph(900, "")
    two.done(900, peer=b"W2", each_s=1.0)
    sent = two.graph(0, "", "0", "0", "1 2")
    assert sent == {"W2": ["AssignNodes 1:0 g"]}

    sent = two.done(0, peer=b"W2", each_s=1.0)
    assert sent == {
        "W2": ["AssignNodes 1:1 g"],
        "W1": ["Function g", "AssignNodes 1:2 g 0=r0"],
    }
    two.done(1, peer=b"W2", each_s=1.0)
    assert two.done(2, each_s=1.0) == {
        "W1": ["AssignNodes 1:3 g 1=r1"], "W2": ["DropResults 1:0 [0]"]
    }  # fmt: skip


def test_few_short_nodes_are_left_to_who_comes_to_them(two):
    """A few short nodes stay for the worker that will come to them, unless they wait long."""
    two.graph(900, "")
    two.done(900, peer=b"W2", each_s=SHORT_S)
    # Pairs that each need what the other worker is about to make.
    nodes = ["", *["0" if n % 2 else "" for n in range(1, 400)], "0"]
    sent = two.graph(0, *nodes, wanted=" ".join(map(str, range(1, 401))))
    first = {peer: lines[-1] for peer, lines in sent.items()}
    assert list(first) == ["W2"]

    assert "W1" in two.wait(2 * STALL_S)


def test_a_graph_in_parts(known):
    """A graph may come in several messages; nodes run before all of it is there."""
    whole = graph_of(0, "", "0", "1")
    part = m.Graph(
        0, 0, whole.function, whole.options, payloads_of(0, 1), bytes(whole.ends)[:4], b"",
        bytes(whole.uses)[:4], b"\0", b"", (), b"", is_last=False,
    )  # fmt: skip
    rest = m.Graph(
        0, 1, whole.function, whole.options, payloads_of(1, 2), b"\1\0\0\0\2\0\0\0",
        whole.dependencies, bytes(whole.uses)[4:], b"\0\1", b"", (), b"", is_last=True,
    )  # fmt: skip

    assert known.feed(b"C1", m.Function(function_id("g"), b"g"), part) == {
        "W1": ["AssignNodes 1:0 g"]
    }
    known.done(0, each_s=SHORT_S)
    assert known.feed(b"C1", rest) == {"W1": ["AssignNodes 1:1-2 g"]}


def test_only_what_wanted_nodes_took_is_told(known):
    """The client is told what wanted nodes took, as it has no futures of the others."""
    known.graph(0, "", "0", wanted="1")
    sent = known.feed(b"W1", m.Profile(1, 0, 0.5, 0.25, 1), m.Profile(1, 1, 0.5, 0.25, 1))

    assert sent == {"C1": ["Profile 1:1 0.5 s"]}


# -- failures --------------------------------------------------------------------------------


def test_what_depends_on_a_failure_fails(one):
    """All that needs a failed node fails with its exception; the rest goes on."""
    one.graph(0, "", "0", "1", "", wanted="2 3")
    sent = one.feed(b"W1", m.Erred(1, 0, 0.001, m.FAILED_EXCEPTION, b"boom", {}))
    (failed,) = [line for line in sent["C1"] if line.startswith("Failed")]

    assert failed == "Failed 2 exception"
    assert one.core.table.session_by_number[1].graphs[0].nodes.live == 1


def test_nodes_behind_a_failure_are_stopped(known):
    """A worker that has what depends on a failed node is told to drop it."""
    known.graph(0, "", "0", "1", "", wanted="2 3")
    sent = known.erred(0)

    assert sent["W1"] == ["Abort 1:1-2"]
    assert sent["C1"] == ["Failed 2 exception"]
    assert known.feed(b"W1", m.Skipped(1, 1), m.Skipped(1, 2)) == {}
    assert known.done(3)["C1"] == ["Results 3 [r3]"]


def test_what_follows_on_a_retried_node_goes_behind_it_again(known):
    """What a worker could not run as the node before raised is given to it behind the retry."""
    known.graph(0, "", "0", options=[m.TaskOptions(retries=1)])
    known.erred(0)
    assert known.feed(b"W1", m.Skipped(1, 1)) == {"W1": ["AssignNodes 1:1 g"]}

    known.done(0, each_s=SHORT_S)
    assert known.done(1, each_s=SHORT_S)["C1"] == ["Results 1 [r1]"]


def test_a_death_fails_what_depends_on_it(known):
    """The node that a dead worker ran fails, with its dependants; others run elsewhere."""
    known.graph(0, "", "0", "", wanted="1 2")
    assert known.died(0) == {"C1": ["Failed 1 worker_died"]}

    assert known.worker(b"W2")["W2"][1:] == ["Function g", "AssignNodes 1:2 g"]


def test_results_lost_with_a_machine_are_made_again(bench):
    """A needed node whose result was lost with a machine runs again."""
    bench.supervisor(b"S1")
    bench.supervisor(b"S2")
    bench.client()
    bench.worker(b"W1", b"S1", disk="/1")
    bench.graph(0, "", "", "0 1")
    bench.feed(b"W1", m.Stored(1, 0, 1.0, b"r0", (segment(b"W1", 1),), (7,)))
    bench.lose(b"S1")
    sent = bench.worker(b"W2", b"S2", disk="/2")

    assert sent["W2"][2:] == ["AssignNodes 1:0 g"]
    bench.done(0, peer=b"W2")
    bench.done(1, peer=b"W2")
    assert bench.done(2, peer=b"W2")["C1"] == ["Results 2 [r2]"]


def test_what_an_input_brought_stays(bench):
    """A node whose result was lost runs again with its input, though nothing else needed that."""
    bench.supervisor(b"S1")
    bench.supervisor(b"S2")
    bench.client()
    bench.worker(b"W1", b"S1", disk="/1")
    bench.graph(10, "", "0", "1", "", wanted="2 3", inputs=[0])
    bench.feed(b"C1", m.ProvideInputs(10, "", b"x"))
    bench.feed(b"W1", m.Stored(1, 11, 1.0, b"r", (segment(b"W1", 1),), (7,)))

    assert bench.lose(b"S1") == {}
    sent = bench.worker(b"W2", b"S2", disk="/2")["W2"]
    assert [line for line in sent if line.startswith("AssignNodes")] == ["AssignNodes 1:11 g 0=x"]


@pytest.mark.parametrize("wanted", ["1", "0 1"])
def test_a_lost_result_is_not_made_again_of_what_runs_at_most_once(bench, wanted):
    """A node with at_most_once never runs again: what still needs its lost result fails."""
    bench.supervisor(b"S1")
    bench.supervisor(b"S2")
    bench.client()
    bench.worker(b"W1", b"S1", disk="/1", task_limit=1)
    bench.graph(0, "", "0", wanted=wanted, options=[m.TaskOptions(at_most_once=True)])
    bench.feed(b"W1", m.Stored(1, 0, 1.0, b"r0", (segment(b"W1", 1),), (7,)))

    assert bench.lose(b"S1")["C1"] == ["Failed 1 lost"]
    assert "AssignNodes" not in " ".join(bench.worker(b"W2", b"S2", disk="/2")["W2"])
    assert not bench.core.table.sessions[b"C1"].graphs


def test_what_is_lost_on_its_way_to_a_node_is_no_failure(bench):
    """A node runs again that was given out when its input was lost, however late it says so."""
    for machine in (b"S1", b"S2"):
        bench.supervisor(machine)
    bench.client()
    bench.worker(b"W1", b"S1", disk="/1", task_limit=1)
    bench.graph(0, "", "0")
    bench.worker(b"W2", b"S2", disk="/2")
    sent = bench.feed(b"W1", m.Stored(1, 0, 1.0, b"r0", (segment(b"W1", 1),), (7,)))
    assert sent["W2"][-1].startswith("AssignNodes 1:1 g with")

    bench.lose(b"S1")
    bench.worker(b"W3", b"S2", disk="/2")
    bench.done(0, peer=b"W3")

    sent = bench.erred(1, peer=b"W2", kind=m.FAILED_MISSING)
    assert list(sent) == ["W2"]
    assert sent["W2"][-1] == "AssignNodes 1:1 g 0=r0"


def test_nodes_go_where_their_data_is(bench):
    """A node that takes a large result goes to a free worker of the machine that has it."""
    bench.supervisor(b"S1")
    bench.supervisor(b"S2")
    bench.client()
    bench.worker(b"W1", b"S1", disk="/1")
    bench.graph(0, "", wanted="0")
    bench.done(0, each_s=1.0)
    bench.graph(10, "", "0", "0", wanted="1 2")
    bench.worker(b"W2", b"S2", disk="/2")
    bench.worker(b"W3", b"S1", disk="/1")
    sent = bench.feed(b"W1", m.Stored(1, 10, 1.0, b"r", (segment(b"W1", 1),), (7,)))

    assert {peer: lines[-1].split()[1] for peer, lines in sent.items()} == {
        "W1": "1:11", "W3": "1:12"
    }  # fmt: skip


def test_segments_are_removed_with_the_last_use(two):
    """What a node stored comes with what needs it elsewhere, and goes once nothing needs it."""
    two.graph(0, "", "0", "0", wanted="1 2")
    sent = two.feed(b"W2", m.Stored(1, 0, 1.0, b"r0", (segment(b"W2", 1),), (7,)))
    assert sent["W2"][-1] == "AssignNodes 1:1 g"
    assert sent["W1"][-1].startswith("AssignNodes 1:2 g with")
    two.done(1, peer=b"W2")
    assert len(two.core.table.objects.records) == 1

    two.done(2)
    assert not two.core.table.objects.records


# -- cancellation ----------------------------------------------------------------------------


def test_cancelling_ends_what_only_it_needed(known):
    """A cancelled node takes with it what nobody else needs."""
    known.graph(0, "", "", "0", "0 1", wanted="2 3")
    sent = known.feed(b"C1", m.Cancel(3, 1))

    assert sent == {"W1": ["Abort 1:1", "Abort 1:3"]}
    known.feed(b"W1", m.Aborted(1, 1, 1), m.Aborted(1, 3, 1))
    known.done(0, each_s=SHORT_S)
    assert known.done(2, each_s=SHORT_S)["C1"] == ["Results 2 [r2]"]


def test_a_client_that_leaves_takes_its_graphs(known):
    """Nothing of a graph is left when its client is gone."""
    known.graph(0, "", "0")
    known.lose(b"C1")

    assert known.core.table.backlog.count == 0
    known.feed(b"W1", m.Aborted(1, 0, 2))
    assert not known.core.table.functions


# -- inputs ----------------------------------------------------------------------------------


def test_a_pending_task_as_an_input(one):
    """The result of a task that is an input goes to the client and to the node."""
    one.submit(0)
    assert one.graph(10, "", "0", inputs=[0])["C1"] == ["RequestInputs 10: []"]
    sent = one.done(0)

    assert sent["C1"] == ["Results 0 [r0]"]
    assert sent["W1"][-1] == "AssignNodes 1:11 g 0=r0"


def test_an_input_that_came_back_is_asked_for(one):
    """The scheduler asks the client for an input whose result it no longer has."""
    one.submit(0)
    one.done(0)
    assert one.graph(10, "", "0", inputs=[0]) == {"C1": ["RequestInputs 10: [0]"]}
    sent = one.feed(b"C1", m.ProvideInputs(10, "", b"x"))

    assert sent["W1"][-1] == "AssignNodes 1:11 g 0=x"


def test_inputs_that_fail_or_are_cancelled(one):
    """A node whose input fails or is cancelled fails or is cancelled like it."""
    one.submit(0)
    one.submit(1)
    one.graph(10, "", "0", inputs=[0])
    one.graph(20, "", "0", inputs=[1])

    assert one.erred(0)["C1"] == ["Failed 0 exception", "Failed 11 exception"]
    assert one.feed(b"C1", m.Cancel(1, 1))["C1"] == ["Cancelled 21"]


def test_an_input_is_forgotten_with_its_task(one):
    """A pending input is forgotten when its task ends, even after the graph that it was for."""
    one.submit(0)
    one.graph(10, "", "0", inputs=[0])
    one.feed(b"C1", m.Cancel(11, 1))
    one.feed(b"C1", m.Cancel(0, 1))

    assert not one.core.table.sessions[b"C1"].watched


def test_a_wanted_node_as_an_input(known):
    """A node of one graph may be the input of another."""
    known.graph(0, "", "0")
    known.graph(10, "", "0", inputs=[1])
    sent = known.done(0, 2, each_s=SHORT_S)

    assert sent["C1"] == ["Results 1 [r1]"]
    assert sent["W1"] == ["GraphOver 1:0", "AssignNodes 1:11 g 0=r1"]


# -- who misbehaves --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("dependencies", b"\2\0\0\0", "a node that depends on a later one"),
        ("dependencies", b"\1\0\0\0", "a node that depends on a later one"),
        ("ends", b"\0\0\0\0\2\0\0\0", "dependencies of a graph out of bounds"),
        ("ends", b"\0\0\0\0", "a graph whose parts are of different lengths"),
        ("uses", b"\0\0\0\0\1\0\0\0", "a node that more depend on than was said"),
        ("wanted", b"\0\2", "a graph in which a node is wanted and of no use"),
        ("start", 1, "the rest of a graph that has not begun"),
        ("first", first_task_id(1 << 23) - 2, "a graph of tasks that are not its own"),
        ("inputs", b"\0" * 24, "a graph of tasks that are not its own"),
        ("owners", b"\0\0\0\0", "objects of a graph that belong to no node"),
        ("function", function_id("h"), "a graph whose functions were not sent"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(one, field, value, reason):
    """A client whose graph contradicts itself is dropped, and nothing of it stays."""
    graph = graph_of(0, "", "0")
    setattr(graph, field, value)
    with pytest.raises(RemoteProtocolError, match=reason):
        one.core.receive(b"C1", [m.Function(function_id("g"), b"g"), graph], one.now)
    one.lose(b"C1")

    assert not one.core.table.functions
    assert one.core.table.backlog.count == 0


def test_tasks_have_one_number(one):
    """Neither a graph nor a run may have the numbers of another."""
    one.graph(0, "", "0")
    with pytest.raises(RemoteProtocolError, match="a graph of tasks that are not its own"):
        one.graph(1, "")
    with pytest.raises(RemoteProtocolError, match="task 1 was submitted twice"):
        one.submit(1)


def test_numbers_are_little_endian():
    """The numbers that describe a graph are little-endian and have 32 bits."""
    assert numbers(graph_of(0, "", "0", "0 1").dependencies) == [0, 0, 1]

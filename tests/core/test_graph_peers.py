"""Graphs at both ends: what a worker keeps for the nodes it is given, what a client answers."""

from __future__ import annotations

import math
from array import array

import pytest

from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.core.client.events import InputWanted
from scaler_cluster.core.worker.kept_results import KeptGraphs, Pickled
from scaler_cluster.core.worker.reports import Kept
from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import first_task_id
from scaler_cluster.testing.bench import function_id, graph_of, payloads_of
from scaler_cluster.testing.describe import describe
from scaler_cluster.testing.worker_driver import WorkerDriver
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

G = function_id("g")


def nodes(first: int, count: int, *, graph: int = 0, sent: bytes = b"", **inputs: bytes):
    """Return nodes for a worker, with the results of others as ``n0=b"..."``."""
    numbers = b"".join(int(name[1:]).to_bytes(4, "little") for name in inputs)
    results = Batch.of([*inputs.values()] or [b""])
    batch = payloads_of(first, count)
    return m.AssignNodes(
        1, graph, first, G, False, False, batch, (), numbers, results, sent=sent
    )  # fmt: skip


@pytest.fixture
def hands():
    """A worker that knows the functions of a graph."""
    core = WorkerCore()
    core.receive([m.Welcome(0, 0), m.Function(G, b"g")])
    return WorkerDriver(core)


def run(hands, count=1):
    for _ in range(count):
        hands.take_up(0.0)
        hands.returned(b"r%d" % hands.task[1], 0.0)
    hands.take_up(0.0)


def kept(hands, graph=0):
    """Return the nodes of a graph whose results a worker keeps."""
    found = hands.core.kept.graphs.get((1, graph))
    return sorted(found.values) if found is not None else []


def ids(*some: int) -> bytes:
    """Return the numbers of nodes as they travel."""
    return array("I", some).tobytes()


def keep(hands, value, nbytes=100_000):
    """Let the next node return a value that the worker keeps."""
    work = hands.take_up(0.0)
    work.kept.values[work.node] = value
    hands.end(Kept(nbytes), 0.0)
    hands.take_up(0.0)


def lines(hands):
    """Return what a worker has to say."""
    hands.core.reports.flush()
    return [describe(one) for one in hands.core.take_actions()]


# -- the worker ------------------------------------------------------------------------------


def test_inputs_come_with_their_segments(hands):
    """Each input is found by its node, with the segments of its large buffers."""
    message = nodes(2, 1, n0=b"a", n1=b"b")
    message.segments, message.segment_ends = (b"s1", b"s2"), b"\0\0\0\0\2\0\0\0"
    hands.core.receive([message])

    values = {
        node: (bytes(data), found) for node, (data, found) in hands.core.queue[0].values.items()
    }
    assert values == {0: (b"a", ()), 1: (b"b", (b"s1", b"s2"))}


def test_results_are_there_for_what_follows(hands):
    """What nodes returned here is kept for later ones of the graph, until that is over."""
    hands.core.receive([nodes(0, 2)])
    run(hands, 2)
    hands.core.receive([nodes(2, 1)])
    assert hands.core.queue[0].kept.values == {0: Pickled(b"r0", ()), 1: Pickled(b"r1", ())}

    run(hands)
    hands.core.receive([m.GraphOver(1, 0)])
    assert kept(hands) == []


def test_results_that_nobody_can_need_are_dropped(hands):
    """A worker drops results when the scheduler says so, and keeps all others."""
    hands.core.receive([nodes(0, 2)])
    run(hands, 2)
    hands.core.receive([nodes(2, 2), nodes(9, 1, graph=7)])
    run(hands, 3)
    assert kept(hands) == [0, 1, 2, 3]

    hands.core.receive([m.DropResults(1, 0, ids(0, 3))])
    assert kept(hands) == [1, 2]
    hands.core.receive([m.DropResults(1, 7, ids(1, 2))])
    assert (kept(hands), kept(hands, 7)) == ([1, 2], [])


def test_what_is_not_there_is_dropped_in_silence(hands):
    """A worker may be told to drop what it does not have, of a graph it does not know."""
    hands.core.receive([m.DropResults(1, 0, ids(0))])
    hands.core.receive([nodes(0, 2), m.DropResults(1, 0, ids(0, 1, 5))])
    run(hands, 2)

    assert kept(hands) == [0, 1]
    assert lines(hands) == ["Done 1:0-1 [r0 r1]"]


def test_nodes_that_are_given_back_keep_their_values(hands):
    """Nodes cut off from others by a Revoke find what those returned."""
    hands.core.receive([nodes(0, 4)])
    hands.core.receive([m.Revoke(1, 1, 1)])
    first, rest = hands.core.queue

    assert rest.kept is first.kept
    assert (rest.first, rest.stop) == (2, 2)


def test_a_node_that_cannot_run_is_skipped(hands):
    """A skipped node is reported by itself, after what was done before it."""
    hands.core.receive([nodes(0, 2)])
    hands.take_up(0.0)
    hands.returned(b"r0", 0.0)
    hands.take_up(0.0)
    hands.skipped(0.0)

    assert [describe(one) for one in hands.core.take_actions()] == ["Done 1:0 [r0]", "Skipped 1:1"]


def test_nodes_without_their_functions_are_refused(hands):
    """Nodes of a table that was not sent are a scheduler's fault."""
    message = nodes(0, 1)
    message.function = function_id("h")
    with pytest.raises(RemoteProtocolError, match="functions were not sent"):
        hands.core.receive([message])


# -- what only this worker has ---------------------------------------------------------------


def test_what_is_kept_is_reported_with_its_size(hands):
    """A report says of each result that was not sent how large it is."""
    hands.core.receive([nodes(0, 3)])
    run(hands)
    keep(hands, "live", 70_000)
    run(hands)

    assert lines(hands) == ["DoneNodes 1:0-2 [r0  r2] kept [0, 70000, 0]"]


def test_what_is_kept_is_shared_once(hands):
    """A result that only this worker has is sent when it is asked for, and is there still."""
    hands.core.receive([nodes(0, 1)])
    keep(hands, "live")
    hands.core.receive([m.Share(1, 0, ids(0)), m.Share(1, 0, ids(0))])

    assert hands.core.kept.take_to_share() == (1, 0, "live")
    assert hands.core.kept.take_to_share() == (1, 0, None)
    assert hands.core.kept.take_to_share() is None
    assert hands.core.kept.graphs[1, 0].values == {0: "live"}


def test_what_was_dropped_is_not_shared(hands):
    """A worker that was told to drop a result meanwhile says that it has not got it."""
    hands.core.receive([nodes(0, 2), nodes(5, 1, graph=5)])
    for value in "abc":
        keep(hands, value)
    hands.core.receive([m.Share(1, 0, ids(0, 1)), m.Share(1, 5, ids(0))])
    hands.core.receive([m.DropResults(1, 0, ids(0)), m.GraphOver(1, 5)])

    found = [hands.core.kept.take_to_share() for _ in range(4)]
    assert found == [(1, 0, None), (1, 1, "b"), (1, 5, None), None]


def test_only_what_nobody_else_has_is_shared(hands):
    """What was sent with its report is not sent again."""
    hands.core.receive([nodes(0, 1), m.Share(1, 0, ids(0))])
    run(hands)

    assert hands.core.kept.take_to_share() == (1, 0, None)


def test_the_loop_shares_between_two_tasks():
    """A worker that runs one node after the other sends meanwhile what others wait for."""
    core, shared = WorkerCore(), []
    hands = WorkerDriver(core, share=lambda: shared.append(core.kept.take_to_share()))
    core.receive([m.Welcome(0, 0), m.Function(G, b"g"), nodes(0, 3)])
    keep(hands, "live")
    core.receive([m.Share(1, 0, ids(0))])
    assert shared == []

    hands.returned(b"r1", 1.0)
    assert shared == [(1, 0, "live")]


def test_a_worker_that_retires_shares_all_it_keeps(hands):
    """What only a worker has is to be sent before it leaves; what it was told to drop is not."""
    hands.core.receive([nodes(0, 3), nodes(9, 1, graph=7)])
    for value in "abcd":
        keep(hands, value)
    hands.core.receive([m.DropResults(1, 0, ids(1)), m.Retire()])

    found = [hands.core.kept.take_to_share() for _ in range(4)]
    assert found == [(1, 0, "a"), (1, 2, "c"), (1, 9, "d"), None]


@pytest.mark.parametrize("message", [m.Goodbye("the cluster was shut down"), m.Unknown()])
def test_a_worker_whose_cluster_ends_shares_nothing(hands, message):
    """What a worker keeps is lost with a cluster that ends, or that has forgotten the worker."""
    hands.core.receive([nodes(0, 1)])
    keep(hands, "live")
    hands.core.receive([message])

    assert hands.core.kept.take_to_share() is None


@pytest.mark.parametrize(("sent", "must"), [(b"", [False, False]), (b"\0\1", [False, True])])
def test_a_worker_is_told_what_must_come(hands, sent, must):
    """A worker is told of each node whether its result must come with the report."""
    hands.core.receive([nodes(0, 2, sent=sent)])
    found = []
    for _ in range(2):
        found.append(hands.take_up(0.0).must_send)
        hands.returned(b"r", 0.0)

    assert found == must


def test_what_must_come_is_known_after_a_revoke(hands):
    """The rest of what was given back in part knows which of its results must come."""
    hands.core.receive([nodes(0, 3, sent=b"\0\0\1"), m.Revoke(1, 1, 1)])
    hands.take_up(0.0)
    hands.returned(b"r", 0.0)

    assert hands.take_up(0.0).must_send
    assert hands.standing.node == 2


def look(hands, room=math.inf):
    """Look for room, of which the machine has so much; return for how much it was asked."""
    graphs = hands.core.kept
    assert graphs.is_due
    wanted = graphs.room_wanted()
    graphs.have_room(min(wanted, room))
    return wanted


def written_out(hands):
    """Return the values that are to be written out."""
    found = iter(hands.core.kept.take_excess, None)
    return [value for _, _, value in found]


def test_what_takes_too_much_room_is_written_out(hands):
    """Beyond the limit the oldest results are written out, until the rest has room."""
    hands.core.kept.limit_bytes = 250_000
    hands.core.receive([nodes(0, 4)])
    for value in "abcd":
        keep(hands, value)

    assert look(hands) == 250_000
    assert written_out(hands) == ["a", "b"]
    assert list(hands.core.kept.graphs[1, 0].alone) == [2, 3]


def test_what_the_machine_has_no_room_for_is_written_out(hands):
    """Below the limit, too, what lives here is written out if others use up the room for it."""
    hands.core.kept.limit_bytes = 800_000
    hands.core.receive([nodes(0, 4)])
    for value in "abcd":
        keep(hands, value)

    assert look(hands, room=350_000) == 450_000
    assert written_out(hands) == ["a"]


def test_what_others_have_as_well_is_forgotten_first(hands):
    """What was sent takes room until there is too little; then it is read like elsewhere."""
    sent = Pickled(b"a", (b"s",))
    hands.core.kept.limit_bytes = 250_000
    hands.core.receive([nodes(0, 3), m.Share(1, 0, ids(0))])
    for value in "abc":
        keep(hands, value)
    assert hands.core.kept.take_to_share() == (1, 0, "a")
    hands.core.kept.sent(1, 0, sent, 100_000)

    look(hands)
    assert written_out(hands) == []
    assert hands.core.kept.graphs[1, 0].values == {0: sent, 1: "b", 2: "c"}


def test_what_must_come_takes_room_as_well(hands):
    """A result that lives here and was stored for others, too, is counted, and forgotten first."""
    hands.core.kept.limit_bytes = 150_000
    hands.core.receive([nodes(0, 2, sent=b"\1\0")])
    hands.take_up(0.0).kept.values[0] = "live"
    hands.stored(b"stored", (b"s",), 0.0, nbytes=100_000)
    keep(hands, "b")

    look(hands)
    assert written_out(hands) == []
    assert hands.core.kept.graphs[1, 0].values == {0: Pickled(b"stored", (b"s",)), 1: "b"}


def test_what_was_written_out_is_taken_from_there(hands):
    """A node that needs a result which was written out reads it, as nodes elsewhere do."""
    hands.core.kept.limit_bytes = 50_000
    hands.core.receive([nodes(0, 1)])
    keep(hands, "live")
    look(hands)
    assert hands.core.kept.take_excess() == (1, 0, "live")
    hands.core.kept.written_out(1, 0, Pickled(b"live", (b"s",)))

    assert hands.core.kept.graphs[1, 0].values == {0: Pickled(b"live", (b"s",))}
    hands.core.receive([m.DropResults(1, 0, ids(0))])
    assert kept(hands) == []


def test_what_is_written_out_was_reported(hands):
    """The scheduler hears that a node returned before it hears where that was written to."""
    hands.core.receive([nodes(0, 1)])
    keep(hands, "live")

    hands.core.reports.shared(m.Shared(1, 0, "", b"live", (), (), {}))
    assert lines(hands) == ["DoneNodes 1:0 [] kept [100000]", "Shared 1:0 "]


def test_what_cannot_be_written_out_stays(hands):
    """What cannot be sent is not tried again and again when there is too little room."""
    hands.core.kept.limit_bytes = 50_000
    hands.core.receive([nodes(0, 2)])
    keep(hands, "locked")
    look(hands)
    assert written_out(hands) == ["locked"]
    hands.core.kept.put_back(1, 0)

    keep(hands, "live")
    look(hands)
    assert written_out(hands) == ["live"]


@pytest.fixture
def writing(hands):
    """Results kept, of which one is being written out, and was asked for meanwhile."""
    hands.core.kept.limit_bytes = 50_000
    hands.core.receive([nodes(0, 1)])
    keep(hands, "value")
    look(hands)
    assert written_out(hands) == ["value"]
    hands.core.receive([m.Share(1, 0, ids(0))])
    assert hands.core.kept.take_to_share() is None
    return hands.core.kept


def test_what_is_being_written_out_is_not_missed(writing):
    """What is asked for while it is being written out is sent once."""
    writing.written_out(1, 0, Pickled(b"value", ()))

    assert writing.take_to_share() is None


def test_what_was_asked_for_and_cannot_be_written_out_is_answered(writing):
    """If what is being written out turns out not to be sendable, those who asked hear so."""
    writing.put_back(1, 0)

    assert writing.take_to_share() == (1, 0, "value")


def test_a_graph_that_ends_does_not_hide_that_there_is_too_little_room(hands):
    """If another graph ends, a worker still looks for room for what it was about to."""
    hands.core.kept.limit_bytes = 50_000
    hands.core.receive([nodes(0, 1)])
    keep(hands, "live")
    hands.core.kept.of(1, 100)

    hands.core.receive([m.GraphOver(1, 100)])
    look(hands)
    assert written_out(hands) == ["live"]


@pytest.mark.parametrize("over", [m.DropResults(1, 0, ids(0)), m.GraphOver(1, 0)])
def test_room_is_given_back(hands, over):
    """Once nothing lives here any more, the worker gives back the room for it."""
    hands.core.kept.limit_bytes = 500_000
    hands.core.receive([nodes(0, 1)])
    keep(hands, "live")
    assert look(hands) == 131_250

    hands.core.receive([over])
    assert look(hands) == 0
    assert not hands.core.kept.is_due


@pytest.mark.parametrize(("limit", "due"), [(math.inf, False), (1e9, False), (1e6, True)])
def test_what_is_kept_is_not_added_up_each_time(limit, due):
    """Whether there is room is looked at once a sixteenth of it was added."""
    graphs = KeptGraphs()
    graphs.limit_bytes = limit
    graphs.add(100_000)

    assert graphs.is_due is due


def test_room_that_was_given_is_used_before_more_is_asked_for(hands):
    """A worker looks for room again when what it was given does not do any more."""
    hands.core.kept.limit_bytes = 3_200_000
    hands.core.receive([nodes(0, 6)])
    for value in "abc":
        keep(hands, value)
    assert look(hands) == 500_000

    keep(hands, "d")
    keep(hands, "e")
    assert not hands.core.kept.is_due
    keep(hands, "f")
    assert hands.core.kept.is_due


# -- the client ------------------------------------------------------------------------------


@pytest.fixture
def core():
    """A client that was welcomed."""
    made = ClientCore()
    made.receive([m.Welcome(1, 2)], 0.0)
    return made


def test_nodes_settle_their_waiters(core):
    """What comes back for a wanted node goes to that node's waiter."""
    first = core.requests.open_call()
    part = graph_of(first, "", "0", "1", "")
    core.submit_graph(
        (G, b"g", (), "g"), part, {first + 1: "one", first + 2: "two", first + 3: "x"}, ()
    )
    assert [type(one).__name__ for one in core.take_actions()] == ["Function", "Graph"]
    failed = m.Failed(first + 2, m.FAILED_EXCEPTION)
    core.receive([m.Results(first + 1, payloads_of(1, 1)), failed, m.Cancelled(first + 3, 1)], 0.0)

    (settled,) = core.events.take()
    (one, data), two, gone = settled.pairs
    assert (one, bytes(data)) == ("one", b"p1")
    assert (two, gone) == (("two", failed), ("x", None))
    assert not core.busy


def test_graphs_and_maps_are_numbered_together(core):
    """No two calls have one number, and a single node takes a number of single tasks."""
    assert [core.requests.open_call(), core.requests.open_call()] == [
        first_task_id(1),
        first_task_id(2),
    ]
    assert [core.requests.reserve(3), core.requests.reserve(1)] == [0, 3]
    assert core.requests.next_task == 4


def test_unmet_inputs_are_noted(core):
    """The scheduler says once for each graph which of its inputs it does not know."""
    first = core.requests.open_call()
    core.submit_graph(
        (G, b"g", (), "g"),
        graph_of(first, "", "", "0 1", inputs=(1, 2)),
        {first + 2: "w"},
        ["f", "g"],
    )
    core.receive([m.RequestInputs(first, b"\1\0\0\0")], 0.0)

    assert core.events.take() == [InputWanted(first + 1, "g")]
    core.receive([m.RequestInputs(first, b"")], 0.0)
    assert core.events.take() == []

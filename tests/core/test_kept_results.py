"""What workers keep of a graph, from end to end in the scheduler: who is asked, told, and what dies."""

from __future__ import annotations

from array import array

import pytest

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import function_id, graph_of, hello, payloads_of, segment
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

KB, MB = 1000, 1_000_000
DEEP = m.TaskOptions(depth=1)
FAILED = m.Shared(1, 0, m.FAILED_RESULT, b"why", (), (), {})


def kept(bench, first, *sizes, peer=b"W1", session=1, each_s=1.0):
    """Let a worker report nodes of which it keeps so many bytes each (0: it sends the result)."""
    results = [b"" if size else b"r%d" % node for node, size in enumerate(sizes, first)]
    packed = array("Q", sizes).tobytes()
    busy_s = each_s * len(sizes)
    return bench.feed(peer, m.DoneNodes(session, first, busy_s, Batch.of(results), packed))


def shared(bench, task, *, peer=b"W1", session=1, number=0, nbytes=7):
    """Let a worker send what it kept, in a segment if that has a number."""
    names = (segment(peer, number),) if number else ()
    sizes = (nbytes,) * len(names)
    return bench.feed(peer, m.Shared(session, task, "", b"r%d" % task, names, sizes, {}))


def died(bench, peer=b"W1"):
    """Let a worker die that runs nothing."""
    return bench.died(worker=peer)


def nodes(bench):
    """Return what is known of the one graph that there is."""
    (session,) = bench.core.table.sessions.values()
    (graph,) = session.graphs.values()
    return graph.nodes


@pytest.fixture
def apart(two):
    """Node 2 is to run on W2, which keeps node 1; W1 keeps node 0, and was asked for it."""
    two.graph(0, "", "", "0 1")
    kept(two, 0, 900 * KB, peer=b"W2")
    sent = kept(two, 1, 9 * KB)
    assert sent == {"W1": ["Share 1:0 [1]"]}
    return two


# -- what is asked for -----------------------------------------------------------------------


def test_what_follows_runs_where_its_needs_are(two):
    """A node that needs what a worker keeps goes there, and nothing travels."""
    two.graph(0, "", "0")

    assert kept(two, 0, 9 * KB, peer=b"W2") == {"W2": ["AssignNodes 1:1 g"]}
    assert two.done(1, peer=b"W2") == {"C1": ["Results 1 [r1]"], "W2": ["GraphOver 1:0"]}


def test_what_a_node_needs_elsewhere_is_asked_for_and_comes(apart):
    """A node runs where most of its needs are once the others have sent the rest."""
    assert shared(apart, 1) == {"W2": ["AssignNodes 1:2 g 1=r1"]}
    assert apart.done(2, peer=b"W2") == {
        "C1": ["Results 2 [r2]"], "W1": ["GraphOver 1:0"], "W2": ["GraphOver 1:0"]
    }  # fmt: skip


def test_what_comes_in_segments_is_removed_with_its_last_use(apart):
    """What a worker sends in segments comes with the node that needs it, and goes with it."""
    (line,) = shared(apart, 1, number=1)["W2"]
    assert line.startswith("AssignNodes 1:2 g with")
    assert line.endswith("1=r1")
    assert len(apart.core.table.objects.records) == 1

    apart.done(2, peer=b"W2")
    assert not apart.core.table.objects.records


def test_what_came_once_is_there_for_all(two):
    """What a worker has sent is not asked for again, whoever needs it."""
    two.graph(0, "", "", "0 1", "0 1", wanted="2 3")
    kept(two, 0, 900 * KB, peer=b"W2")
    assert kept(two, 1, 9 * KB) == {"W1": ["Share 1:0 [1]"]}

    assert "Share 1:0 [1]" not in shared(two, 1)["W2"]


def test_an_idle_worker_has_sent_to_it_what_a_busy_one_keeps(two):
    """Many long nodes that need what one worker keeps are run by the others as well."""
    two.graph(0, "", *["0"] * 10, wanted=" ".join(map(str, range(1, 11))))
    sent = kept(two, 0, 9 * KB, peer=b"W2")
    assert sent == {"W2": ["AssignNodes 1:1 g", "Share 1:0 [0]"]}

    (line,) = shared(two, 0, peer=b"W2")["W1"][1:]
    assert line.startswith("AssignNodes 1:")
    assert line.endswith("g 0=r0")


def test_what_no_worker_may_run_here_is_sent(one):
    """A node that demands what the worker that has its needs lacks waits for these."""
    gpu = m.TaskOptions(capabilities=(("gpu", 1),))
    one.worker(b"W2", capabilities=(("gpu", 1),))
    one.graph(0, "", "0", options=[m.TaskOptions(workers=("one",)), gpu], kinds=[0, 1])
    one.worker(b"W3", name="one")

    assert kept(one, 0, 9 * KB, peer=b"W3") == {"W3": ["Share 1:0 [0]"]}
    assert shared(one, 0, peer=b"W3")["W2"][-1] == "AssignNodes 1:1 g 0=r0"


def test_what_came_too_late_is_removed(apart):
    """Segments of a result that nobody needs any more are removed, also without the graph."""
    apart.feed(b"C1", m.Cancel(2, 1))
    assert not apart.core.table.sessions[b"C1"].graphs

    shared(apart, 1, number=1)
    assert not apart.core.table.objects.records


def test_what_comes_after_its_client_left_is_removed(apart):
    """What a worker sends for a client that has left is taken in and forgotten."""
    apart.lose(b"C1")

    assert shared(apart, 1, number=1) == {}
    assert not apart.core.table.objects.records


# -- what is dropped -------------------------------------------------------------------------


def test_a_worker_is_told_what_it_may_drop(two):
    """A worker that keeps what nobody needs any more is told so, before the graph is over."""
    two.graph(0, "", "0", "", wanted="1 2")
    kept(two, 0, 9 * KB, peer=b"W2")

    assert "DropResults 1:0 [1, 0]" in two.done(1, peer=b"W2")["W2"]


def test_what_was_cancelled_and_kept_is_dropped(one):
    """A worker that keeps what a cancelled node returned is told to drop it."""
    one.graph(0, "", "", wanted="0 1")
    one.feed(b"C1", m.Cancel(0, 1))

    assert kept(one, 0, 9 * KB)["W1"] == ["DropResults 1:0 [0]"]


# -- what must always come -------------------------------------------------------------------


def assigned(bench, peer):
    """Return the nodes that a worker is given now."""
    sent = bench.act_raw().get(peer, [])
    return [one for one in sent if isinstance(one, m.AssignNodes)]


def submit_raw(bench, *below, **fields):
    """Let the client submit a graph; return what W1 is given of it."""
    function = m.Function(function_id("g"), b"g", name="g")
    bench.core.receive(b"C1", [function, graph_of(0, *below, **fields)], bench.now)
    return assigned(bench, b"W1")


def test_what_the_client_wants_always_comes(one):
    """A worker is told of each node that its client waits for."""
    one.graph(900, "")
    one.done(900, each_s=1e-5)
    (message,) = submit_raw(one, "", "0", "0", wanted="1 2")

    assert bytes(message.sent) == b"\0\1\1"


def test_what_nobody_waits_for_may_stay(one):
    """Of nodes that the client does not wait for nothing is said."""
    sent = submit_raw(one, "", "", "0 1")

    assert [bytes(message.sent) for message in sent] == [b"", b""]


def test_what_runs_at_most_once_always_comes(one):
    """What could not be made again comes with its report, wanted or not."""
    sent = submit_raw(one, "", "", "0 1", options=[m.TaskOptions(at_most_once=True)])

    assert [bytes(message.sent) for message in sent] == [b"\1", b"\1"]


def test_what_is_wanted_of_a_graph_that_shares_is_told(one):
    """Workers are told if nodes are to take the very objects that others returned."""
    graph = graph_of(0, "", "0")
    graph.is_shared = True
    function = m.Function(function_id("g"), b"g", name="g")
    one.core.receive(b"C1", [function, graph], one.now)

    assert [message.is_shared for message in assigned(one, b"W1")] == [True]


# -- who dies --------------------------------------------------------------------------------


def test_what_a_dead_worker_kept_is_made_again(apart):
    """What only a dead worker had runs again, and nothing else."""
    assert died(apart, b"W1") == {"W2": ["AssignNodes 1:1 g"]}
    assert kept(apart, 1, 9 * KB, peer=b"W2") == {"W2": ["AssignNodes 1:2 g"]}
    assert apart.done(2, peer=b"W2")["C1"] == ["Results 2 [r2]"]


def test_what_a_dead_worker_had_sent_stays(apart):
    """What a dead worker had sent is not made again."""
    shared(apart, 1)
    died(apart, b"W1")

    assert apart.done(2, peer=b"W2")["C1"] == ["Results 2 [r2]"]


def test_a_chain_on_a_dead_worker_runs_again_from_its_beginning(one):
    """What was dropped runs again too, if what needed it is lost and needed."""
    one.graph(0, "", "0", "1")
    kept(one, 0, 9 * KB)
    kept(one, 1, 9 * KB)
    assert died(one) == {}
    assert one.worker(b"W2")["W2"][-1] == "AssignNodes 1:0 g"


def test_a_lost_machine_takes_what_its_workers_keep(bench):
    """What workers of a lost machine kept is made again elsewhere."""
    for machine in (b"S1", b"S2"):
        bench.supervisor(machine)
    bench.client()
    bench.worker(b"W1", b"S1", disk="/1", task_limit=1)
    bench.graph(0, "", "0")
    kept(bench, 0, 9 * KB)
    bench.lose(b"S1")

    assert bench.worker(b"W2", b"S2", disk="/2")["W2"][-1] == "AssignNodes 1:0 g"


# -- workers that leave ----------------------------------------------------------------------


@pytest.fixture
def leaving(bench):
    """W1 ran node 0, keeps it, and is to leave; node 1 needs that."""
    bench.supervisor()
    bench.client()
    bench.worker(task_limit=1)
    bench.graph(0, "", "0", "1")
    assert kept(bench, 0, 9 * KB) == {"W1": ["Retire"]}
    return bench


def test_what_a_leaving_worker_sends_is_not_made_again(leaving):
    """A worker that leaves sends what it keeps, and others go on with that."""
    shared(leaving, 0)
    assert leaving.feed(b"W1", m.Goodbye()) == {}

    assert leaving.worker(b"W2")["W2"][-1] == "AssignNodes 1:1 g 0=r0"


def test_what_a_leaving_worker_cannot_send_fails_what_needs_it(leaving):
    """What needs a result that a leaving worker cannot send fails: it would for ever run again."""
    assert leaving.feed(b"W1", FAILED, m.Goodbye())["C1"] == ["Failed 2 result"]
    assert "AssignNodes" not in str(leaving.worker(b"W2"))


def test_a_worker_that_leaves_without_a_word_is_lost(leaving):
    """What a worker kept that left without sending it is made again."""
    leaving.feed(b"W1", m.Goodbye())
    leaving.feed(b"S1", m.WorkerLost(b"W1", 1, 0, {"exit_code": 0}))

    assert leaving.worker(b"W2")["W2"][-1] == "AssignNodes 1:0 g"


# -- what cannot be sent ---------------------------------------------------------------------


def test_what_needs_elsewhere_what_cannot_be_sent_fails(apart):
    """A node whose needs cannot be sent to it fails with the reason."""
    refused = m.Shared(1, 1, m.FAILED_RESULT, b"why", (), (), {"what": 1})
    apart.core.receive(b"W1", [refused], apart.now)

    assert apart.act_raw()[b"C1"] == [m.Failed(2, m.FAILED_RESULT, b"why", {"what": 1})]


# -- tasks that wait for nodes ---------------------------------------------------------------


def test_a_cancelled_node_that_a_task_gives_back_runs_if_it_is_needed(bench):
    """A node that was handed to a task, cancelled and is needed again runs when it comes back."""
    bench.supervisor()
    bench.client()
    bench.worker()
    bench.submit(0)
    bench.feed(b"N1", hello(m.CLIENT, worker=b"W1"))
    bench.graph(0, "", "0", "0", "1", "2", wanted="3 4", peer=b"N1", options=[DEEP])
    bench.worker(b"W2", task_limit=2)
    bench.done(0, peer=b"W2", session=2, each_s=1.0)
    kept(bench, 1, 9 * KB, peer=b"W2", session=2)
    bench.worker(b"W3", task_limit=1)
    kept(bench, 2, 9 * KB, peer=b"W3", session=2)
    died(bench, b"W2")
    assert bench.feed(b"N1", m.Cancel(3, 1, queued_only=True)) == {"N1": ["AssignNodes 2:0 g"]}
    bench.feed(b"N1", m.Cancel(3, 1))
    died(bench, b"W3")
    bench.feed(b"N1", m.ProvideInputs(0, m.NOT_RUN, b""))

    assert bench.worker(b"W4")["W4"][-1] == "AssignNodes 2:0 g"


def test_what_a_task_waits_for_is_sent_to_its_worker(bench):
    """A task that waits for a node is handed it once others have sent what it needs."""
    bench.supervisor()
    bench.client()
    bench.worker()
    bench.submit(0)
    bench.feed(b"N1", hello(m.CLIENT, worker=b"W1"))
    bench.graph(0, "", "0", peer=b"N1", options=[DEEP])
    bench.worker(b"W2", task_limit=1)
    assert kept(bench, 0, 9 * KB, peer=b"W2", session=2) == {"W2": ["Retire"]}
    assert bench.feed(b"N1", m.Cancel(1, 1, queued_only=True)) == {"W2": ["Share 2:0 [0]"]}
    shared(bench, 0, peer=b"W2", session=2)

    sent = bench.feed(b"N1", m.Cancel(1, 1, queued_only=True))
    assert sent == {"N1": ["AssignNodes 2:1 g 0=r0"]}


# -- who misbehaves --------------------------------------------------------------------------


def test_who_keeps_what_is_wanted_is_dropped(one):
    """A worker that keeps what its client waits for breaks the protocol."""
    one.graph(0, "")
    with pytest.raises(RemoteProtocolError, match="keeps a result that is wanted"):
        kept(one, 0, 9 * KB)


@pytest.mark.parametrize("sizes", [b"", bytes(16)])
def test_sizes_must_be_as_many_as_results(one, sizes):
    """A worker whose report has more sizes than results, or fewer, breaks the protocol."""
    one.graph(0, "", "0")
    with pytest.raises(RemoteProtocolError, match="more sizes or fewer"):
        one.feed(b"W1", m.DoneNodes(1, 0, 0.1, payloads_of(0, 1, "r"), sizes))


def test_segments_of_somebody_else_are_refused(apart):
    """A worker that sends what it kept in segments of another one breaks the protocol."""
    with pytest.raises(RemoteProtocolError, match="somebody else wrote"):
        apart.feed(b"W1", m.Shared(1, 1, "", b"r", (segment(b"W2", 1),), (7,), {}))


def test_segments_have_one_size_each(apart):
    """A worker that sends segments without their sizes breaks the protocol."""
    with pytest.raises(RemoteProtocolError, match="more segments or fewer"):
        apart.feed(b"W1", m.Shared(1, 1, "", b"r", (segment(b"W1", 1),), (), {}))


def test_a_segment_holds_one_result(apart):
    """A worker that sends a second result in the same segment breaks the protocol."""
    shared(apart, 1, number=1)
    with pytest.raises(RemoteProtocolError, match="hold another one"):
        shared(apart, 1, number=1)


def test_only_who_keeps_a_result_can_send_it(apart):
    """What a worker sends that another one keeps is not taken."""
    shared(apart, 1, peer=b"W2", number=1)

    assert not apart.core.table.objects.records
    assert nodes(apart).kept.keys() == {0, 1}


def test_only_workers_share(apart):
    """Nobody but a worker sends what nodes returned."""
    with pytest.raises(RemoteProtocolError):
        apart.feed(b"C1", m.Shared(1, 1, "", b"r", (), (), {}))


def test_plain_tasks_are_not_kept(one):
    """A worker that says it keeps what a task of no graph returned is dropped."""
    one.submit(0)
    with pytest.raises(RemoteProtocolError, match="what is no node"):
        kept(one, 0, 9 * KB)

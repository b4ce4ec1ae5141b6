"""Tasks that submit tasks: their session, who gets what they submit, and who takes their place."""

from __future__ import annotations

import pytest

from scaler_cluster.core.scheduler.spares import SLEEP_MAX_S
from scaler_cluster.core.supervisor.headcount import SPARES_MIN
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import (
    function_id,
    graph_of,
    hello,
    object_id,
    segment,
    submission,
)
from scaler_cluster.wire import messages as m

DEEP = m.TaskOptions(depth=1)
MADE = segment(b"W2", 1)


def nest(bench, worker=b"W1", peer=b"N1"):
    """Let the tasks of a worker open their session."""
    return bench.feed(peer, hello(m.CLIENT, worker=worker))


def spare(bench, peer=b"X1", supervisor=b"S1"):
    """Let a spare worker come."""
    return bench.feed(peer, hello(m.WORKER, supervisor=supervisor, spare=True))


@pytest.fixture
def nested(one):
    """W1 runs task 0 of C1, and its session N1 (2) is there."""
    one.submit(0)
    nest(one)
    return one


def test_what_a_task_submits_does_not_go_to_its_own_worker(nested) -> None:
    """What a task submits goes to another worker: on its own it would wait behind the task."""
    assert nested.submit(0, peer=b"N1", options=DEEP) == {}

    assert nested.worker(b"W2")["W2"][-1].startswith("Assign 2:0")


def test_other_work_of_other_workers_goes_on(two) -> None:
    """With two workers, each gets what the other's task submitted."""
    for worker, peer in ((b"W1", b"N1"), (b"W2", b"N2")):
        nest(two, worker, peer)
    two.submit(0)
    two.submit(1)
    assert {"W1"} <= set(two.submit(0, peer=b"N2", options=DEEP))
    assert {"W2"} <= set(two.submit(0, peer=b"N1", options=DEEP))


def test_an_idle_worker_gets_what_its_last_task_left(nested) -> None:
    """A worker may run what its last task left, as no task of it waits any more."""
    nested.submit(0, peer=b"N1", options=DEEP)

    assert nested.done(0)["W1"][-1].startswith("Assign 2:0")


def test_deeper_tasks_go_first(two) -> None:
    """Deeper tasks go first among equal priorities; a higher priority goes before."""
    nest(two)
    two.submit(0, 100)
    two.submit(100, options=m.TaskOptions(priority=1))
    two.submit(0, peer=b"N1", options=m.TaskOptions(depth=1))
    two.submit(1, peer=b"N1", options=m.TaskOptions(depth=2))

    (ready,) = two.core.table.backlog.queues()
    order = []
    while (run := ready.peek()) is not None:
        order.append((run.session, run.first))
        ready.take(run, run.count)
    for session, first in order:
        run = two.core.table.session_by_number[session].runs[first]
        ready.push(run)

    assert order.index((1, 100)) < order.index((2, 1)) < order.index((2, 0))


def test_the_depth_reaches_the_worker(nested) -> None:
    """What a task submits is one deeper than the task itself."""
    nested.worker(b"W2")

    sent = nested.submit(0, peer=b"N1", options=m.TaskOptions(depth=3))

    assert sent["W2"][-1] == "Assign 2:0 f at depth 3"


def test_the_session_ends_with_its_worker(two) -> None:
    """The tasks of a task's session are cancelled everywhere when its worker is lost."""
    two.submit(0)
    nest(two)
    two.submit(0, 3, peer=b"N1", options=DEEP)

    sent = two.died(0)

    assert any(line.startswith("Abort 2:") for line in sent["W2"])
    assert b"N1" not in two.core.table.sessions
    queues = two.core.table.backlog.queues()
    assert not [run for queue in queues for run in queue if run.session == 2]


def test_what_it_said_before_is_no_offence(nested) -> None:
    """A message of a session that ended in the same turn is not heard."""
    nested.core.receive(b"S1", [m.WorkerLost(b"W1", 1, 0, {"signal": 9})], nested.now)
    nested.core.receive(b"N1", [m.Cancel(0, 1), m.Blocked(True)], nested.now)

    assert not nested.core.table.sessions.get(b"N1")


def test_a_session_of_a_dead_worker_is_refused(one) -> None:
    """A session is refused whose Hello comes after the report of its worker's death."""
    one.died()

    assert nest(one)["N1"][0].startswith("Refused")


def test_a_second_session_takes_the_place_of_the_first(nested) -> None:
    """A worker has one session: a second one takes the place of the first."""
    nest(nested, peer=b"N9")

    assert b"N1" not in nested.core.table.sessions
    assert nested.core.table.workers[b"W1"].session == b"N9"


def test_tasks_are_taken_back_whoever_is_to_come(bench) -> None:
    """A task may take back what it wants to run, though workers are still to come."""
    bench.supervisor(workers=4)
    bench.client()
    bench.worker()
    bench.submit(0)
    nest(bench)
    bench.submit(0, 2, peer=b"N1", options=DEEP)

    sent = bench.feed(b"N1", m.Cancel(0, 2, queued_only=True))

    assert sent["N1"] == ["Cancelled 0-1"]


def test_a_blocked_worker_gives_its_place_away(nested) -> None:
    """A blocked worker's queue is asked back, and its supervisor is to start a spare worker."""
    nested.submit(1)

    sent = nested.feed(b"N1", m.Blocked(True))

    assert sent["W1"] == ["Revoke 1:1"]
    assert sent["S1"] == ["Spares 1"]
    nested.feed(b"W1", m.Revoked(1, 1, 1, 0))
    assert spare(nested)["X1"][-1].startswith("Assign 1:1")


def test_the_spare_worker_sleeps_when_it_is_over(nested) -> None:
    """A spare worker finishes what it has, sleeps, wakes if needed, and ends in the end."""
    nested.feed(b"N1", m.Blocked(True))
    spare(nested)
    nested.submit(1)
    nested.feed(b"N1", m.Blocked(False))
    assert "X1" not in nested.done(1, peer=b"X1")
    assert "X1" not in nested.submit(2, 50)

    sent = nested.feed(b"N1", m.Blocked(True))
    assert "S1" not in sent
    assert sent["X1"][-1].startswith("Assign 1:")
    nested.feed(b"N1", m.Blocked(False))
    for run in list(nested.core.table.workers[b"X1"].runs):
        nested.done(run.first, run.count, peer=b"X1")

    sent = nested.wait(SLEEP_MAX_S + 1)

    assert sent["X1"] == ["Retire"]
    assert sent["S1"] == ["Spares 0"]


def test_a_spare_worker_that_works_does_not_end(nested) -> None:
    """A spare worker that sleeps with a task ends when the task has, and not before its time."""
    nested.feed(b"N1", m.Blocked(True))
    spare(nested)
    nested.submit(1)
    nested.feed(b"N1", m.Blocked(False))
    assert "X1" not in nested.wait(SLEEP_MAX_S - 1)
    for peer in (b"S1", b"C1"):
        nested.feed(peer, m.Heartbeat())
    assert "X1" not in nested.wait(2.0)
    nested.done(1, peer=b"X1")

    assert nested.wait(SLEEP_MAX_S + 1)["X1"] == ["Retire"]


def test_a_spare_worker_too_many_ends_as_well(nested) -> None:
    """A spare worker that was started just before one less was wanted ends."""
    nested.feed(b"N1", m.Blocked(True))
    spare(nested)
    nested.feed(b"N1", m.Blocked(False))
    assert nested.wait(SLEEP_MAX_S + 1)["S1"] == ["Spares 0"]
    nested.died(worker=b"X1")
    nested.feed(b"S1", m.Heartbeat())
    spare(nested, b"X2")

    assert nested.wait(SLEEP_MAX_S + 1) == {"X2": ["Retire"]}


def test_a_blocked_spare_worker_is_replaced(nested) -> None:
    """There are as many spare workers as blocked ones, and one of them awake for each place."""
    nested.feed(b"N1", m.Blocked(True))
    spare(nested)
    nested.submit(1)
    nest(nested, b"X1", b"N2")

    assert nested.feed(b"N2", m.Blocked(True))["S1"] == ["Spares 2"]


def test_spare_workers_are_bounded(nested) -> None:
    """Blocked workers beyond the bound get no spare workers."""
    nested.feed(b"N1", m.Blocked(True))
    for number in range(SPARES_MIN + 2):
        peer, session = b"X%d" % number, b"M%d" % number
        spare(nested, peer)
        nested.submit(10 + number)
        nest(nested, peer, session)
        nested.feed(session, m.Blocked(True))

    assert nested.core.table.supervisors[b"S1"].spares_wanted == SPARES_MIN


def test_the_death_of_a_blocked_worker_frees_its_place(nested) -> None:
    """The spare worker of a blocked one that died sleeps when the place is taken again."""
    nested.feed(b"N1", m.Blocked(True))
    spare(nested)
    nested.died(0)

    assert nested.core.table.workers[b"X1"].asleep_at == nested.now
    assert "X1" not in nested.submit(1)


def test_the_end_of_its_session_unblocks_a_worker(nested) -> None:
    """A worker is no longer blocked once the session of its task has ended."""
    nested.feed(b"N1", m.Blocked(True))
    nested.feed(b"N1", m.Goodbye())

    assert not nested.core.table.workers[b"W1"].blocked


def test_only_the_session_of_a_worker_is_blocked(one) -> None:
    """An ordinary client that says it is blocked breaks the protocol."""
    with pytest.raises(RemoteProtocolError, match="only a client inside of a task says this"):
        one.feed(b"C1", m.Blocked(True))


# -- nodes that the task runs itself which waits for them -------------------------------------


def recall(bench, task, count=1):
    """Let the task of W1 ask for what it waits for."""
    return bench.feed(b"N1", m.Cancel(task, count, queued_only=True))


def supply(bench, task, kind="", payload=b""):
    """Let it say what became of a node."""
    return bench.feed(b"N1", m.ProvideInputs(task, kind, payload or b"r%d" % task))


def graphs(bench):
    """Return the live graphs of the task."""
    return bench.core.table.sessions[b"N1"].graphs


def test_nodes_are_lent_to_the_task_that_waits(nested) -> None:
    """A waiting task is handed ready nodes one by one, with their inputs."""
    assert nested.graph(0, "", "", "0 1", peer=b"N1", options=[DEEP]) == {}

    assert recall(nested, 2) == {"N1": ["AssignNodes 2:0 g"]}
    assert recall(nested, 2) == {"N1": ["AssignNodes 2:1 g"]}
    assert recall(nested, 2) == {}
    supply(nested, 1)
    supply(nested, 0)
    assert recall(nested, 2) == {"N1": ["AssignNodes 2:2 g 0=r0 1=r1"]}
    assert supply(nested, 2) == {"W1": ["GraphOver 2:0"]}
    assert not graphs(nested)


def test_what_comes_after_is_not_lent(nested) -> None:
    """A task runs nothing that the node it waits for cannot need."""
    nested.graph(0, "", "", peer=b"N1", options=[DEEP], wanted="0 1")
    recall(nested, 0)

    assert recall(nested, 0) == {}
    assert recall(nested, 1) == {"N1": ["AssignNodes 2:1 g"]}


def test_who_is_free_comes_before_the_task_that_waits(nested) -> None:
    """A waiting task is handed only what free workers have no time for."""
    nested.worker(b"W2")
    messages = [
        m.Function(function_id("g"), b"g"),
        graph_of(0, *[""] * 9, wanted="0 1 2 3 4 5 6 7 8", options=[DEEP]),
    ]

    sent = nested.feed(b"N1", *messages, m.Cancel(8, 1, queued_only=True))

    assert sent["W2"][1:] == ["AssignNodes 2:0 g", "AssignNodes 2:1 g"]
    assert sent["N1"] == ["AssignNodes 2:2 g"]


def test_a_task_is_lent_what_its_worker_can_run(nested) -> None:
    """A task is not handed a node that demands what its worker has not."""
    gpu = m.TaskOptions(depth=1, capabilities=(("gpu", 1),))
    nested.graph(0, "", "", peer=b"N1", options=[gpu, DEEP], kinds=[0, 1], wanted="0 1")

    assert recall(nested, 1) == {"N1": ["AssignNodes 2:1 g"]}
    assert recall(nested, 1) == {}


def test_a_lent_node_that_is_given_back_goes_elsewhere(nested) -> None:
    """A handed over node that is given back runs elsewhere, as if it had never been handed over."""
    nested.graph(0, "", peer=b"N1", options=[DEEP])
    recall(nested, 0)
    supply(nested, 0, m.NOT_RUN)

    assert nested.worker(b"W2")["W2"][-1] == "AssignNodes 2:0 g"
    assert nested.done(0, peer=b"W2", session=2)["N1"] == ["Results 0 [r0]"]


@pytest.fixture
def apart(bench):
    """W1 runs task 0 of C1, its session is N1; node 0 of N1 returned what lies with W2."""
    bench.client()
    for machine, worker in ((b"S1", b"W1"), (b"S2", b"W2")):
        bench.supervisor(machine)
        limit = {"task_limit": 1} if worker == b"W2" else {}
        bench.worker(worker, machine, disk=f"/{machine.decode()}", **limit)
        bench.submit(0) if worker == b"W1" else nest(bench)
    bench.storage(b"O1", supervisor=b"S1", memory_limit=10)
    bench.graph(0, "", "0", "0", peer=b"N1", options=[DEEP], wanted="1 2")
    bench.feed(b"W2", m.Stored(2, 0, 1.0, b"large", (MADE,), (7,)))
    return bench


def test_what_is_lent_is_on_the_machine(apart) -> None:
    """A node is handed over once its inputs are on the machine of the task that waits."""
    assert list(recall(apart, 1)) == ["O1"]
    assert recall(apart, 1) == {}
    apart.feed(b"O1", m.Transferred(MADE))

    assert recall(apart, 1)["N1"][0].startswith("AssignNodes 2:1 g with")


def test_what_a_lent_node_needs_is_not_removed(apart) -> None:
    """The scheduler keeps the copy that a node that was handed over needs, though others have no room."""
    recall(apart, 1)
    apart.feed(b"O1", m.Transferred(MADE))
    recall(apart, 1)
    apart.feed(b"N1", m.Object(object_id("a"), segment(b"N1", 1), 7))
    urgent = m.TaskOptions(priority=1, depth=1)
    apart.feed(b"N1", *submission(100, options=urgent, objects="a"))

    sent = apart.worker(b"W3", b"S1", disk="/S1", task_limit=1)

    assert [line.split()[0] for line in sent["O1"]] == ["Copy"]
    assert "N1" not in supply(apart, 1)


def test_what_a_lent_node_needed_is_removed_afterwards(apart) -> None:
    """The scheduler makes room with the copy that a node that was handed over needed, once that has run."""
    recall(apart, 1)
    apart.feed(b"O1", m.Transferred(MADE))
    recall(apart, 1)
    supply(apart, 1, m.NOT_RUN)
    apart.feed(b"N1", m.Object(object_id("a"), segment(b"N1", 1), 7))
    urgent = m.TaskOptions(priority=1, depth=1)
    apart.feed(b"N1", *submission(100, options=urgent, objects="a"))

    sent = apart.worker(b"W3", b"S1", disk="/S1", task_limit=1)

    assert [line.split()[0] for line in sent["O1"]] == ["Release", "Copy"]


def test_a_lent_node_fails(nested) -> None:
    """What depends on a node that was handed over fails with it."""
    nested.graph(0, "", "0", "1", peer=b"N1", options=[DEEP])
    recall(nested, 2)

    assert supply(nested, 0, m.FAILED_EXCEPTION)["N1"] == ["Failed 2 exception"]
    assert not graphs(nested)


def test_a_lent_node_is_not_wanted_any_more(nested) -> None:
    """What becomes of a node that was handed over does not matter once nobody wants it."""
    nested.graph(0, "", peer=b"N1", options=[DEEP])
    recall(nested, 0)
    nested.feed(b"N1", m.Cancel(0, 1))

    assert supply(nested, 0) == {}
    assert not graphs(nested)


def test_a_lent_node_is_an_input_of_another_graph(nested) -> None:
    """Another graph goes on with the result of a node that was handed over."""
    nested.graph(0, "", peer=b"N1", options=[DEEP])
    nested.graph(10, "", "0", peer=b"N1", options=[DEEP], inputs=[0])
    recall(nested, 0)
    supply(nested, 0)

    assert recall(nested, 11) == {"N1": ["AssignNodes 2:11 g 0=r0"]}


def test_a_recalled_input_is_not_cancelled(nested) -> None:
    """An input that a task recalled is not cancelled: the task says what became of it."""
    nested.submit(0, peer=b"N1", options=DEEP)
    assert nested.graph(10, "", "0", peer=b"N1", options=[DEEP], inputs=[0])["N1"] == [
        "RequestInputs 10: []"
    ]

    assert recall(nested, 0) == {"N1": ["Cancelled 0"]}
    assert recall(nested, 11) == {}
    supply(nested, 10)
    assert recall(nested, 11) == {"N1": ["AssignNodes 2:11 g 0=r10"]}


def test_nothing_is_lent_to_other_clients(bench) -> None:
    """A node that an ordinary client takes back is cancelled, not handed over."""
    bench.client()
    bench.graph(0, "", "0")

    assert bench.feed(b"C1", m.Cancel(0, 2, queued_only=True)) == {"C1": ["Cancelled 1"]}


def test_a_task_that_waits_for_others_does_not_hang(nested):
    """A worker whose task waits for tasks that run elsewhere is not killed for doing nothing."""
    quiet = m.Stuck(b"W1", 7, 1, 0, 60.0, m.QUIET, True, 0.0)
    nested.feed(b"N1", m.Blocked(True))
    assert nested.feed(b"S1", quiet) == {}

    nested.feed(b"N1", m.Blocked(False))
    assert nested.feed(b"S1", quiet) == {"S1": ["Kill W1: its task used no CPU time for 60.0 s"]}

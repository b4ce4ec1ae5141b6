"""What operators do to tasks and workers of others, and who is obeyed."""

from __future__ import annotations

import math

import pytest

from scaler_cluster.core.scheduler.operator_handlers import OPERATORS_MAX
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import EVENTS, SESSION_BITS, alias_of
from scaler_cluster.testing.bench import hello
from scaler_cluster.wire import feed
from scaler_cluster.wire import messages as m

OPERATOR = b"P1"
USER = "operator:ann"


def operate(bench, action, kind, target, **flags):
    """Let the operator ask; return what the scheduler sends to whom."""
    return bench.feed(OPERATOR, m.Operate(1, action, kind, target, **flags))


def answer(sent):
    """Return the one answer of the operator, without its number."""
    (line,) = sent["P1"]
    return line.removeprefix("Operated 1 ")


def log(bench):
    """Return the lines of the log since the last time."""
    return [text for _, text in bench.core.table.journal.take(bench.now)]


@pytest.fixture
def ops(two):
    """Client C1, workers W1 and W2 of supervisor S1, and an operator."""
    two.users[OPERATOR] = USER
    two.feed(OPERATOR, hello(m.OPERATOR))
    log(two)
    return two


# -- who is obeyed -----------------------------------------------------------------------------


def test_without_keys_nobody_is_obeyed(one):
    """The scheduler refuses, and says why."""
    sent = one.feed(OPERATOR, hello(m.OPERATOR))

    assert sent["P1"] == [
        "Refused: This scheduler has no keys: only one that knows an operator's key obeys it."
    ]
    with pytest.raises(RemoteProtocolError, match="only an operator"):
        operate(one, m.CANCEL, m.SESSION, "1")


@pytest.mark.parametrize(
    "user", ["client:bob", "worker:w", "monitor:eve", "owner:me", "scheduler:s", "storage:s"]
)
def test_no_other_key_makes_an_operator(one, user):
    """Nor does an operator's key make anything else."""
    one.users[OPERATOR] = user
    with pytest.raises(RemoteProtocolError, match="operator with the key of"):
        one.feed(OPERATOR, hello(m.OPERATOR))

    one.users[OPERATOR] = USER
    for role in (m.CLIENT, m.WORKER, m.SUPERVISOR, m.MANAGER, m.STORAGE):
        with pytest.raises(RemoteProtocolError, match="with the key of operator"):
            one.feed(OPERATOR, hello(role))


def test_operators_have_a_bound(one):
    """The first that is too many is refused; one that leaves makes room."""
    peers = [b"P%d" % number for number in range(OPERATORS_MAX + 1)]
    for peer in peers:
        one.users[peer] = USER
        sent = one.feed(peer, hello(m.OPERATOR))
    assert sent[peers[-1].decode()] == ["Refused: too many operators are here already"]

    one.feed(peers[0], m.Goodbye())
    assert one.feed(peers[-1], hello(m.OPERATOR))[peers[-1].decode()][0].startswith("Welcome")


def test_a_silent_operator_is_forgotten(ops):
    """One that speaks is not."""
    for _ in range(3):
        ops.wait(ops.core.config.client_timeout_s * 0.6)
        ops.feed(OPERATOR, m.Heartbeat())
    assert OPERATOR in ops.core.table.operators

    ops.wait(ops.core.config.client_timeout_s + 1)
    assert OPERATOR not in ops.core.table.operators


@pytest.mark.parametrize(
    "order",
    [
        m.Operate(1, "explode", m.SESSION, "1"),
        m.Operate(1, m.CANCEL, m.MACHINE, "host"),
        m.Operate(1, m.PAUSE, m.TASK, "1:0"),
        m.Operate(1, m.PAUSE, m.MACHINE, "host", is_forced=True),
    ],
)
def test_what_is_no_action_breaks_the_protocol(ops, order):
    """The scheduler drops who says it, and nothing else happens."""
    with pytest.raises(RemoteProtocolError):
        ops.feed(OPERATOR, order)


# -- cancelling --------------------------------------------------------------------------------


def test_a_task_that_waits_is_cancelled_for_its_client(ops):
    """The client hears of it, and who did it; the log has it, and no worker is spoken to."""
    ops.submit(0, 100)
    waiting = max(run.first for run in ops.core.table.sessions[b"C1"].runs.values())

    sent = operate(ops, m.CANCEL, m.TASK, f"1:{waiting}")

    assert answer(sent) == "1: 1 task of 1 client"
    said = f"{USER} has cancelled task 1:{waiting}: 1 task of 1 client"
    assert sent["C1"] == [f"Cancelled {waiting}", f"Notice {said}"]
    assert log(ops) == [said]
    assert ops.core.table.sessions[b"C1"].totals.cancelled == 1


def test_a_running_task_is_stopped(ops):
    """Its worker is told to, as if the client had cancelled it."""
    ops.submit(0)
    runs = ops.core.table.workers[b"W1"].runs or ops.core.table.workers[b"W2"].runs
    worker = runs[0].worker.peer.decode()

    sent = operate(ops, m.CANCEL, m.TASK, "1:0")

    assert sent[worker] == ["Abort 1:0"]
    assert sent["C1"][0] == "Cancelled 0"


def test_a_function_is_cancelled_for_all_clients(ops):
    """Tasks of other functions go on."""
    ops.client(b"C2")
    ops.submit(0, 3)
    ops.submit(0, 2, peer=b"C2")
    ops.submit(10, 4, peer=b"C2", function="g")

    sent = operate(ops, m.CANCEL, m.FUNCTION, "f")

    assert answer(sent) == "5: 5 tasks of 2 clients"
    for client in ("C1", "C2"):
        assert any(line.startswith("Notice") for line in sent[client])
    left = ops.core.table.sessions[b"C2"].runs.values()
    assert {run.first for run in left if run.state.name != "CANCELLING"} == {
        run.first for run in left if run.first >= 10
    }


def test_a_graph_is_cancelled_by_any_of_its_nodes(ops):
    """The client hears of the nodes that it wants."""
    ops.graph(5, "", "", "0 1", "2", wanted="2 3")

    sent = operate(ops, m.CANCEL, m.GRAPH, "1:7")

    assert answer(sent) == "4: 4 tasks of 1 client"
    assert {"Cancelled 7", "Cancelled 8"} <= set(sent["C1"])
    assert "Cancelled 5" not in sent["C1"]


def test_one_node_takes_along_what_needs_it(ops):
    """Others of the graph go on."""
    ops.graph(0, "", "", "0", "1", wanted="2 3")

    sent = operate(ops, m.CANCEL, m.TASK, "1:0")

    assert [line for line in sent["C1"] if line.startswith("Cancelled")] == ["Cancelled 2"]
    (graph,) = ops.core.table.sessions[b"C1"].graphs.values()
    assert graph.nodes.is_live(1)
    assert graph.nodes.is_live(3)


def test_all_work_of_a_client_is_cancelled(ops):
    """Its tasks and its graphs; it stays, and may submit again."""
    ops.client(b"C2")
    ops.submit(0, 3)
    ops.graph(100, "", "0")
    ops.submit(0, 3, peer=b"C2")

    sent = operate(ops, m.CANCEL, m.SESSION, "1")

    assert answer(sent) == "5: 5 tasks of 1 client"
    assert "C2" not in sent
    ops.submit(200)
    assert ops.core.table.sessions[b"C1"].runs[200].count == 1


def test_a_trial_does_nothing(ops):
    """It says what would be met, and no log has it."""
    ops.submit(0, 3)

    sent = operate(ops, m.CANCEL, m.SESSION, "1", is_trial=True)

    assert sent == {"P1": ["Operated 1 3: 3 tasks of 1 client"]}
    assert log(ops) == []


@pytest.mark.parametrize(
    ("kind", "target", "text"),
    [
        (m.TASK, "1:77", "no task 1:77 has tasks that have not ended"),
        (m.TASK, "1", "'1' is no CLIENT, or no CLIENT:TASK"),
        (m.TASK, "1:-5", "'1:-5' is no CLIENT, or no CLIENT:TASK"),
        (m.TASK, "1:" + "9" * 30, f"'1:{'9' * 30}' is no CLIENT, or no CLIENT:TASK"),
        (m.GRAPH, "1:0", "no graph 1:0 has tasks that have not ended"),
        (m.FUNCTION, "nothing", "no function nothing has tasks that have not ended"),
        (m.SESSION, "9", "there is no client 9"),
        (m.SESSION, "1", "no client 1 has tasks that have not ended"),
    ],
)
def test_what_is_not_there_is_said(ops, kind, target, text):
    """In one sentence, and nothing is done."""
    assert answer(operate(ops, m.CANCEL, kind, target)) == f"0: {text}"
    assert log(ops) == []


def test_what_was_cancelled_is_not_counted_again(ops):
    """The worker is about to stop it."""
    ops.submit(0)
    operate(ops, m.CANCEL, m.TASK, "1:0")

    assert "have not ended" in answer(operate(ops, m.CANCEL, m.TASK, "1:0"))


# -- workers -----------------------------------------------------------------------------------


def test_a_paused_worker_gets_nothing_more(ops):
    """It finishes what it runs; resumed, it is given tasks again."""
    sent = operate(ops, m.PAUSE, m.WORKER, alias_of(b"W1").hex())
    assert answer(sent) == "1: 1 worker, of which 0 run tasks"

    ops.submit(0, 50)
    workers = ops.core.table.workers
    assert workers[b"W1"].count == 0
    assert workers[b"W2"].count > 0

    operate(ops, m.RESUME, m.WORKER, alias_of(b"W1").hex())
    assert workers[b"W1"].count > 0


def test_what_a_paused_worker_has_not_begun_is_asked_back(ops):
    """Others run it."""
    ops.submit(0, 200)
    assert ops.core.table.workers[b"W1"].count > 1

    sent = operate(ops, m.PAUSE, m.WORKER, alias_of(b"W1").hex())

    assert any(line.startswith("Revoke") for line in sent["W1"])


def test_a_machine_is_paused_with_workers_that_come_later(ops):
    """All that it has, by the name of the machine."""
    ops.wait(1)
    assert answer(operate(ops, m.PAUSE, m.MACHINE, "host")).startswith("2: 2 workers")
    ops.worker(b"W3")

    assert all(one.paused for one in ops.core.table.workers.values())
    ops.submit(0, 5)
    assert not any(one.count for one in ops.core.table.workers.values())

    operate(ops, m.RESUME, m.MACHINE, "host")
    assert sum(one.count for one in ops.core.table.workers.values()) == 5


def test_the_feed_says_that_a_worker_is_paused(ops):
    """And that it takes nothing."""
    operate(ops, m.PAUSE, m.WORKER, alias_of(b"W1").hex())

    rows = {row.worker: row for row in ops.snapshot().workers}
    assert (rows[alias_of(b"W1")].is_paused, rows[alias_of(b"W1")].free) == (True, 0)
    assert not rows[alias_of(b"W2")].is_paused
    assert rows[alias_of(b"W2")].free


def test_a_drained_worker_leaves_for_good(ops):
    """Its supervisor is to have one less, and it goes once it has nothing."""
    ops.submit(0)
    busy = next(one for one in ops.core.table.workers.values() if one.count).peer

    sent = operate(ops, m.DRAIN, m.WORKER, alias_of(busy).hex())
    assert sent["S1"] == ["Wanted 0"]
    assert "Retire" not in str(ops.wait(1.0))

    ops.done(0, peer=busy)
    assert ops.wait(1.0)[busy.decode()] == ["Retire"]


def test_a_restarted_worker_is_made_up_for(ops):
    """It leaves in order, and its supervisor keeps its number of workers."""
    sent = operate(ops, m.RESTART, m.WORKER, alias_of(b"W1").hex())

    assert "S1" not in sent
    assert ops.wait(1.0)["W1"] == ["Retire"]


def test_by_force_workers_are_killed(ops):
    """At once, and the log says by whom."""
    ops.wait(1)
    sent = operate(ops, m.RESTART, m.MACHINE, "host", is_forced=True)

    assert sent["S1"] == [f"Kill W1: {USER} restarted it", f"Kill W2: {USER} restarted it"]
    assert log(ops) == [
        f"{USER} has restarted machine host by force: 2 workers, of which 0 run tasks"
    ]


def test_a_drained_machine_leaves(ops):
    """After its workers."""
    sent = operate(ops, m.DRAIN, m.MACHINE, alias_of(b"S1").hex())
    assert sent["S1"] == ["Wanted 0"]

    later = ops.wait(1.0)
    assert later["W1"] == later["W2"] == ["Retire"]
    for worker in (b"W1", b"W2"):
        ops.feed(b"S1", m.WorkerLost(worker, 0, 0, {"exit_code": 0}))
    assert ops.wait(1.0)["S1"][0].startswith("Goodbye")


def test_the_worker_of_an_actor_is_not_drained(ops):
    """Its state would be lost; by force it is."""
    ops.submit(0, options=m.TaskOptions(creates="actor:A:1"))
    host = next(one for one in ops.core.table.workers.values() if one.actor).peer

    for action in (m.DRAIN, m.RESTART):
        said = answer(operate(ops, action, m.WORKER, alias_of(host).hex()))
        assert "the actor:A:1 lives in worker" in said
    sent = operate(ops, m.RESTART, m.WORKER, alias_of(host).hex(), is_forced=True)
    assert any(line.startswith("Kill") for line in sent["S1"])


@pytest.mark.parametrize(
    ("kind", "text"), [(m.WORKER, "there is no worker x"), (m.MACHINE, "there is no machine x")]
)
def test_unknown_places_are_said(ops, kind, text):
    """In one sentence."""
    assert answer(operate(ops, m.PAUSE, kind, "x")) == f"0: {text}"


def test_every_action_is_in_the_log_and_the_feed(ops):
    """However many there are in a second: others' lines are left out then, these never."""
    ops.watch(EVENTS)
    for _ in range(60):
        operate(ops, m.PAUSE, m.WORKER, alias_of(b"W1").hex())

    assert len([line for line in log(ops) if line.startswith(USER)]) == 60
    events = [one for one in ops.events() if isinstance(one, feed.Operated)]
    assert events[0].user == USER
    assert (events[0].action, events[0].count) == (m.PAUSE, 1)
    assert events[0].target == f"worker {alias_of(b'W1').hex()}"
    assert ops.core.deadline < math.inf


# -- where a policy says how many workers there are ----------------------------------------------


@pytest.fixture
def elastic(bench):
    """A supervisor that has as many workers as a policy wants, with one; and an operator."""
    bench.feed(b"S1", hello(m.SUPERVISOR, workers=1), m.Offer("native", 1, 4, 1, 0.0, (), wanted=1))
    bench.worker()
    bench.users[OPERATOR] = USER
    bench.feed(OPERATOR, hello(m.OPERATOR))
    bench.wait(1.0)
    return bench


def test_a_policy_does_not_undo_a_restart(elastic):
    """The worker is wanted, but not this process."""
    worker = elastic.core.table.workers[b"W1"]
    elastic.client()
    elastic.submit(0)
    operate(elastic, m.RESTART, m.WORKER, alias_of(b"W1").hex())
    elastic.wait(2.0)
    assert worker.retiring

    elastic.done(0)
    assert elastic.wait(1.0)["W1"] == ["Retire"]


def test_a_policy_does_not_undo_that_a_machine_drains(elastic):
    """It is told of no number of workers any more, and leaves after what it runs."""
    elastic.client()
    elastic.submit(0)
    operate(elastic, m.DRAIN, m.MACHINE, "host")
    assert "S1" not in elastic.wait(2.0)
    assert elastic.core.table.workers[b"W1"].retiring

    elastic.done(0)
    assert elastic.wait(1.0)["W1"] == ["Retire"]
    elastic.feed(b"S1", m.WorkerLost(b"W1", 0, 0, {"exit_code": 0}))
    assert [line.split(":")[0] for line in elastic.wait(1.0)["S1"]] == ["Goodbye"]


def test_a_worker_whose_number_a_policy_chooses_is_not_drained_alone(elastic):
    """Another one would come."""
    said = answer(operate(elastic, m.DRAIN, m.WORKER, alias_of(b"W1").hex()))

    assert "a policy says how many workers" in said


def test_the_last_worker_of_a_unit_takes_the_unit_along(bench):
    """A unit without workers would only cost."""
    bench.feed(b"S1", hello(m.SUPERVISOR, workers=1, manager="cloud", unit="cloud-1"))
    bench.worker()
    bench.users[OPERATOR] = USER
    bench.feed(OPERATOR, hello(m.OPERATOR))

    operate(bench, m.DRAIN, m.WORKER, alias_of(b"W1").hex())

    assert bench.core.table.supervisors[b"S1"].is_draining


def test_clients_of_one_name_are_not_mistaken_for_each_other(ops):
    """Schedulers that follow one another count their clients from one: the whole number tells."""
    ops.client(b"C2")
    table = ops.core.table
    other = table.sessions[b"C2"]
    del table.session_by_number[other.number]
    other.number = (1 << SESSION_BITS) + 1
    table.session_by_number[other.number] = other
    ops.submit(0)
    ops.submit(0, peer=b"C2")

    said = answer(operate(ops, m.CANCEL, m.SESSION, "1"))
    assert said.startswith("0: several clients are called 1")
    sent = operate(ops, m.CANCEL, m.SESSION, str(other.number))
    assert answer(sent) == "1: 1 task of 1 client"
    assert "C1" not in sent

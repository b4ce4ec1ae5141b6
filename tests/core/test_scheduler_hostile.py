"""Peers that say what they must not: RemoteProtocolError, and nobody else notices."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler_cluster.core.scheduler import client_handlers as module
from scaler_cluster.core.scheduler import graph_moves
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import TASK_ID_MAX
from scaler_cluster.testing.bench import SchedulerBench, function_id, payloads_of, submission
from scaler_cluster.wire import messages as m

F = function_id("f")
RESULT = payloads_of(0, 1, "r")

FROM_CLIENTS = [
    m.Function(F, b"f"),
    m.Forget(F),
    m.Submit(0, F, 0, m.DEFAULT_OPTIONS, payloads_of(0, 1)),
    m.Cancel(0, 1),
    m.Keep("", (), (), ()),
    m.Coordinate(1, m.LOCK, m.ACQUIRE, ("x",)),
    m.Withdraw(1),
    m.EndActor("actor:A:1"),
    m.ListWorkers(1),
]
FROM_WORKERS = [
    m.Done(1, 0, 0.001, RESULT),
    m.Erred(1, 0, 0.001, m.FAILED_EXCEPTION, b"", {}),
    m.Revoked(1, 0, 1, 0),
    m.Aborted(1, 0, 1),
    m.Started(1, 0),
    m.Profile(1, 0, 0.5, 0.25, 1000),
    m.LogLines(),
    m.Sampled(1),
]
FROM_SUPERVISORS = [
    m.WorkerLost(b"W1", 0, 0, {}),
    m.Stuck(b"W1", 1, 0, 0, 5.0, m.STOPPED, True, 25.0),
]
FROM_SCHEDULERS = [
    m.Welcome(1, 1),
    m.Refused("no"),
    m.Unknown(),
    m.Results(0, RESULT),
    m.Failed(0, "exception"),
    m.FailedRange(0, 2, "missing"),
    m.Output(0, "stdout", ""),
    m.Broken("no"),
    m.Cancelled(0, 1),
    m.Assign(1, 0, F, 0, False, False, RESULT),
    m.Revoke(1, 0, 1),
    m.Abort(1, 0, 1),
    m.Retire(),
    m.TailLogs(3.0, 10),
    m.Sample(1, 0.01, 3.0),
    m.WorkerList(1, ("a",), ("",), ("host",), (1,)),
    m.Kill(b"W1", "no"),
    m.Wanted(1),
    m.UnitBroken("cloud-1", "no"),
    m.Coordinated(1, 1),
    m.Lapsed(1),
    m.Operated(1, 0, ""),
    m.Notice("no"),
]
FROM_OPERATORS = [m.Operate(1, m.CANCEL, m.SESSION, "1")]


def name(message):
    return type(message).__name__


@pytest.mark.parametrize("message", FROM_SCHEDULERS, ids=name)
@pytest.mark.parametrize("peer", [b"C1", b"W1", b"S1", b"X"])
def test_nobody_sends_what_a_scheduler_sends(one, peer, message):
    """A message that only a scheduler sends is refused from every peer."""
    with pytest.raises(RemoteProtocolError, match="not for a scheduler"):
        one.feed(peer, message)


@pytest.mark.parametrize(
    ("peer", "message"),
    [
        *[(peer, each) for peer in (b"W1", b"S1", b"X") for each in FROM_CLIENTS],
        *[(peer, each) for peer in (b"C1", b"S1", b"X") for each in FROM_WORKERS],
        *[(peer, each) for peer in (b"C1", b"W1", b"X") for each in FROM_SUPERVISORS],
        *[(peer, each) for peer in (b"C1", b"W1", b"S1", b"X") for each in FROM_OPERATORS],
        (b"X", m.Heartbeat()),
        (b"W1", m.Heartbeat()),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else name(value),
)
def test_each_role_has_its_messages(one, peer, message):
    """The scheduler refuses a message from a peer whose role does not send it."""
    one.submit(0)

    with pytest.raises(RemoteProtocolError, match=r"^only an? \w+ (says this|reports on tasks)$"):
        one.feed(peer, message)
    assert one.core.table.workers[b"W1"].count == 1


def test_a_stranger_cannot_break_the_cluster(one):
    """Only a supervisor may report that initializers fail."""
    for peer in (b"C1", b"W1", b"X"):
        with pytest.raises(RemoteProtocolError, match="only a supervisor says this"):
            one.feed(peer, m.InitializerFailed("no"))

    assert one.submit(0)["W1"][1:] == ["Assign 1:0 f"]


def test_a_task_cannot_be_submitted_twice(one):
    """Ids of live tasks may not overlap."""
    one.submit(0, 10)

    for first, count in ((0, 1), (9, 5), (5, 1), (0, 100)):
        with pytest.raises(RemoteProtocolError, match="submitted twice"):
            one.submit(first, count)


def test_a_function_must_be_known(one):
    """A task names a function that its own session was taught."""
    with pytest.raises(RemoteProtocolError, match="function was not sent"):
        one.feed(b"C1", submission(0)[1])


def test_forgetting_what_is_unknown_is_refused(one):
    """A client may forget only what it taught."""
    with pytest.raises(RemoteProtocolError, match="a function that it has not sent"):
        one.feed(b"C1", m.Forget(F))


def test_a_client_must_forget(one, monkeypatch):
    """A client that teaches without end is refused; what it knows already costs nothing."""
    monkeypatch.setattr(module, "SESSION_FUNCTIONS_MAX", 3)
    for letter in "abc":
        one.feed(b"C1", m.Function(function_id(letter), letter.encode()))
    one.feed(b"C1", m.Function(function_id("a"), b"a"))

    with pytest.raises(RemoteProtocolError, match="never forgets"):
        one.feed(b"C1", m.Function(function_id("d"), b""))


def test_ids_end(one):
    """Tasks beyond the last id are refused: nobody could be told of them."""
    one.submit(TASK_ID_MAX - 1)
    with pytest.raises(RemoteProtocolError, match="beyond the last id"):
        one.submit(TASK_ID_MAX - 2, 4)


@pytest.mark.parametrize(
    "message",
    [
        m.Done(1, 5, 0.001, payloads_of(5, 1, "r")),
        m.Done(1, 1, 0.001, payloads_of(1, 1, "r")),
        m.Done(2, 0, 0.001, RESULT),
        m.Done(1, 0, 0.001, payloads_of(0, 3, "r")),
        m.Erred(1, 7, 0.001, m.FAILED_EXCEPTION, b"", {}),
    ],
    ids=["not its own", "not next", "of another session", "too many", "failed, not its own"],
)
def test_a_worker_reports_what_it_has(two, message):
    """A worker that reports what it was not given is wrong; all it had goes to others."""
    two.submit(0, 2)  # 0 to W2, 1 to W1
    two.submit(2, 2)  # 2 to W2, 3 to W1
    with pytest.raises(RemoteProtocolError, match="is not next on this worker"):
        two.feed(b"W2", message)
    two.lose(b"W2")

    finished = len(getattr(message, "batch", ())) == 3
    assert two.core.table.in_flight + two.core.table.backlog.count == 4 - finished


def test_a_dropped_client_takes_only_its_own_tasks(one):
    """When a client is dropped, others' tasks go on."""
    one.client(b"C2")
    one.submit(0, peer=b"C1")
    one.submit(0, peer=b"C2")
    with pytest.raises(RemoteProtocolError, match="task 0 was submitted twice"):
        one.submit(0, peer=b"C2")
    one.lose(b"C2")

    assert one.done(0, session=1) == {"C1": ["Results 0 [r0]"]}


numbers = st.integers(0, 12) | st.just(TASK_ID_MAX)
sessions = st.integers(0, 3)
anything = st.one_of(
    st.sampled_from([*FROM_CLIENTS, *FROM_WORKERS, *FROM_SUPERVISORS, m.Heartbeat(), m.Goodbye()]),
    st.builds(m.Cancel, numbers, numbers, st.booleans()),
    st.builds(lambda first, count: m.Submit(first, F, 0, m.TaskOptions(retries=1),
                                            payloads_of(first, count)),
              numbers, st.integers(1, 4)),
    st.builds(lambda session, first, count: m.Done(session, first, 0.001,
                                                   payloads_of(first, count, "r")),
              sessions, numbers, st.integers(1, 4)),
    st.builds(m.Erred, sessions, numbers, st.just(0.001), st.just(m.FAILED_EXCEPTION),
              st.just(b""), st.just({})),
    st.builds(m.Revoked, sessions, numbers, numbers, numbers),
    st.builds(m.Aborted, sessions, numbers, numbers),
    st.builds(m.Started, sessions, numbers),
    st.builds(m.WorkerLost, st.sampled_from([b"W1", b"W2", b"C1"]), sessions, numbers, st.just({})),
    st.sampled_from([m.Hello(role, m.PROTOCOL_VERSION, "3.11", 1, "h", supervisor, limit, 2)
                     for role in (m.CLIENT, m.WORKER, m.SUPERVISOR)
                     for supervisor in (b"", b"S1", b"S2", b"C1") for limit in (0, 1)]),
)  # fmt: skip
peers = st.sampled_from([b"C1", b"C2", b"W1", b"W2", b"S1", b"S2", b"X"])


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(st.tuples(peers, anything, st.sampled_from([0.0, 0.001, 0.02, 0.6]))))
def test_whatever_is_said_the_books_stay_right(story):
    """Any peer may say anything at any time: an honest client and worker get their work done."""
    bench = SchedulerBench()
    bench.supervisor()
    bench.client()
    bench.worker()
    for peer, message, pause_s in story:
        try:
            bench.feed(peer, message)
        except RemoteProtocolError:
            bench.lose(peer)
        bench.core.take_gone()
        bench.wait(pause_s)

    bench.supervisor(b"S9")
    bench.client(b"C9")
    for peer in list(bench.core.table.workers):
        bench.lose(peer)
    sent = {**bench.worker(b"W9", supervisor=b"S9"), **bench.submit(0, peer=b"C9")}
    results = []
    for _ in range(500):
        runs = bench.core.table.workers[b"W9"].runs
        if not runs:
            break
        run = runs[0]
        results += bench.done(run.first, peer=b"W9", session=run.session).get("C9", [])
    assert results == ["Results 0 [r0]"], sent
    assert bench.core.table.backlog.count == 0


def test_a_submit_has_a_limit(one):
    """More tasks in one message than any client sends are refused: others would wait for them."""
    count = module.SUBMIT_TASKS_MAX + 1
    with pytest.raises(RemoteProtocolError, match="more than 65536 tasks in one message"):
        one.submit(0, count)
    with pytest.raises(RemoteProtocolError, match="more than 65536 tasks in one message"):
        one.submit(0, count, objects="A")
    # What is allowed and fails at once is one message.
    assert len(one.submit(0, count - 1, objects="A")["C1"]) == 1
    assert "Assign" in str(one.submit(0, count - 1)["W1"])


def test_a_part_of_a_graph_has_a_limit(one, monkeypatch):
    """More nodes or inputs in one message than any client sends are refused."""
    monkeypatch.setattr(graph_moves, "GRAPH_NODES_MAX", 3)
    monkeypatch.setattr(graph_moves, "GRAPH_INPUTS_MAX", 2)
    with pytest.raises(RemoteProtocolError, match="too many nodes or inputs"):
        one.graph(0, "", "", "", "0 1 2")
    with pytest.raises(RemoteProtocolError, match="too many nodes or inputs"):
        one.graph(0, "", "", "", "0 1 2", inputs=(TASK_ID_MAX,) * 3)
    assert "W1" in one.graph(0, "", "", "", "0 1 2", inputs=(2**64 - 1,), wanted="3")

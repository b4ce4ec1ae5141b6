"""Who comes and goes: clients, supervisors, workers; and who is not taken in."""

from __future__ import annotations

import math

import pytest

from scaler_cluster import __version__
from scaler_cluster.core.scheduler import supervisor_handlers as module
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.supervisor_handlers import LOST_MAX
from scaler_cluster.core.scheduler.worker_handlers import WAIT_S
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import PYTHON, SchedulerBench, hello, submission
from scaler_cluster.wire import messages as m

CONFIG = SchedulerConfig("3.11")
CLIENT_TIMEOUT_S = CONFIG.client_timeout_s
SUPERVISOR_TIMEOUT_S = CONFIG.supervisor_timeout_s


# -- coming ----------------------------------------------------------------------------------


def test_sessions_are_numbered(bench):
    """Each client gets the next session number, and is told how many workers there are to be."""
    bench.supervisor(b"S1", workers=2)
    bench.supervisor(b"S2", workers=3)

    assert bench.client(b"C1") == {"C1": ["Welcome 1, 5 workers"]}
    assert bench.client(b"C2") == {"C2": ["Welcome 2, 5 workers"]}


def test_clients_are_told_where_to_watch():
    """A client learns where the scheduler is watched, and the link of its dashboard."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, monitor="tcp://m:1", dashboard="http://d:2/"))

    bench.core.receive(b"C1", [hello(m.CLIENT)], bench.now)

    assert bench.act_raw()[b"C1"] == [
        m.Welcome(1, 0, (m.NOWHERE,), False, "tcp://m:1", "http://d:2/")
    ]


def test_a_client_that_says_hello_again_starts_over(one):
    """A client that was started again gets a new session; the tasks of the old one are stopped."""
    one.submit(0, 3)

    assert one.feed(b"C1", hello(m.CLIENT)) == {
        "C1": ["Welcome 2, 1 workers"],
        "W1": ["Abort 1:0", "Abort 1:1"],
    }


@pytest.mark.parametrize("named", [b"", b"C1", b"W1", b"W2", b"S2"])
def test_a_worker_needs_a_supervisor_that_is_here(one, named):
    """A worker waits for a while for who could tell of its death, and then leaves."""
    said = one.worker(b"W2", supervisor=named)

    for _ in range(3):
        assert "W2" not in said
        one.feed(b"S1", m.Heartbeat())
        said = one.wait(WAIT_S / 3)
    assert said["W2"] == ["Goodbye: its supervisor is not here"]
    assert one.core.take_gone() == [b"W2"]
    assert list(one.core.table.workers) == [b"W1"]


def test_another_protocol_is_refused(bench):
    """A peer that speaks another version gets one sentence, and is forgotten."""
    message = hello(m.CLIENT)
    message.protocol = 999

    (sentence,) = bench.feed(b"C1", message)["C1"]

    ours = f"this scheduler (scaler-exec {__version__}) {m.PROTOCOL_VERSION}:"
    assert sentence.startswith("Refused: The client (scaler-exec ")
    assert f") speaks protocol 999, {ours}" in sentence
    assert bench.core.take_gone() == [b"C1"]


@pytest.mark.parametrize("role", [m.CLIENT, m.WORKER, m.SUPERVISOR])
def test_another_python_is_refused(bench, role):
    """A peer on another Python minor version is refused, whatever its role."""
    message = hello(role, supervisor=b"S9")
    message.python = "2.7"

    (sentence,) = bench.feed(b"X", message)["X"]

    who = "cluster" if role == m.SUPERVISOR else role
    assert sentence.startswith(f"Refused: The {who} runs Python 2.7, this scheduler 3.11")
    assert not bench.core.table.knows(b"X")


@pytest.mark.parametrize("role", [m.CLIENT, m.SUPERVISOR])
def test_no_python_is_welcome(bench, role):
    """Who has none speaks of named calls alone."""
    message = hello(role)
    message.python = ""

    bench.feed(b"X", message)

    assert bench.core.table.knows(b"X")


def test_nobody_has_an_unknown_role(bench):
    """A Hello of an unknown role breaks the protocol."""
    with pytest.raises(RemoteProtocolError, match="nobody has the role"):
        bench.feed(b"X", hello("president"))


def test_nobody_has_two_roles(one):
    """A peer that says Hello in another role leaves its first one."""
    one.feed(b"C1", hello(m.SUPERVISOR))
    one.feed(b"W1", hello(m.CLIENT))

    assert list(one.core.table.sessions) == [b"W1"]
    assert list(one.core.table.supervisors) == [b"S1", b"C1"]
    assert not one.core.table.workers


# -- heartbeats and expiry -------------------------------------------------------------------


def test_a_client_is_answered(one):
    """A client's heartbeat is answered, so that it knows whether we live; a supervisor's is not."""
    assert one.feed(b"C1", m.Heartbeat()) == {"C1": ["Heartbeat"]}
    assert one.feed(b"S1", m.Heartbeat()) == {}


def test_a_silent_client_is_given_up(one):
    """After client_timeout_s without a word a client's tasks are stopped and its session ends."""
    one.submit(0, 3)
    one.wait(1.0)
    one.feed(b"W1", m.Revoked(1, 1, 1, 1))
    for _ in range(math.ceil(CLIENT_TIMEOUT_S) - 2):
        assert one.wait(1.0) == {}
        one.feed(b"S1", m.Heartbeat())

    assert one.wait(2.0)["W1"] == ["Abort 1:0", "Abort 1:1"]
    assert not one.core.table.sessions
    assert one.core.take_gone() == [b"C1"]


def test_a_task_may_be_silent_as_long_as_its_worker_lives(one):
    """The session of a task does not end before its worker, however long the task is silent."""
    one.feed(b"N1", hello(m.CLIENT, worker=b"W1"))
    for _ in range(math.ceil(CLIENT_TIMEOUT_S) + 2):
        one.wait(1.0)
        one.feed(b"S1", m.Heartbeat())
        one.feed(b"C1", m.Heartbeat())

    assert list(one.core.table.sessions) == [b"C1", b"N1"]
    one.died()
    assert list(one.core.table.sessions) == [b"C1"]


def test_a_client_that_speaks_is_kept(one):
    """Heartbeats, submissions and cancellations all show that a client lives."""
    for message in (m.Heartbeat(), m.Cancel(0, 1), *submission(0)[1:]):
        one.feed(b"C1", submission(0)[0])
        one.wait(CLIENT_TIMEOUT_S - 1)
        one.feed(b"C1", message)
        one.wait(CLIENT_TIMEOUT_S - 1)
        one.feed(b"C1", m.Heartbeat())

    assert one.core.table.sessions


def test_a_silent_supervisor_is_given_up_with_its_workers(two):
    """After supervisor_timeout_s a supervisor is gone, and what its workers had is free again."""
    two.submit(0, 4)
    two.wait(SUPERVISOR_TIMEOUT_S + 0.5)

    assert not two.core.table.supervisors
    assert not two.core.table.workers
    assert two.core.table.backlog.count == 4
    assert sorted(two.core.take_gone()) == [b"S1", b"W1", b"W2"]


def test_our_own_lag_expires_nobody(two):
    """Silence of peers does not count while this process was stopped."""
    two.sleep(SUPERVISOR_TIMEOUT_S * 10)
    two.sleep(CLIENT_TIMEOUT_S * 10)

    assert two.core.table.supervisors
    assert two.core.table.sessions


def test_lag_grants_no_more_than_itself(two):
    """After a lag the peers' time runs on from where it stood."""
    two.wait(SUPERVISOR_TIMEOUT_S - 1)
    two.sleep(100.0)
    two.wait(0.5)
    assert two.core.table.supervisors

    two.wait(1.0)
    assert not two.core.table.supervisors


# -- leaving ---------------------------------------------------------------------------------


def test_a_client_that_leaves_takes_its_tasks_along(one):
    """After a client's Goodbye what runs is stopped, what waits is gone, nobody is answered."""
    one.submit(0, 5)

    assert one.feed(b"C1", m.Goodbye()) == {"W1": ["Abort 1:0", "Abort 1:1"]}
    assert one.core.table.backlog.count == 0
    assert one.feed(b"W1", m.Aborted(1, 1, 1), m.Aborted(1, 0, 1)) == {}
    assert not one.core.table.functions
    assert one.core.take_gone() == [b"C1"]


def test_a_supervisor_that_leaves_is_lost_with_its_workers(one):
    """After a supervisor's Goodbye its workers' tasks are free again."""
    one.submit(0, 2)
    one.feed(b"S1", m.Goodbye())

    assert one.core.table.backlog.count == 2
    assert sorted(one.core.take_gone()) == [b"S1", b"W1"]


def test_a_worker_that_leaves_gets_no_more(two):
    """After a worker's Goodbye nothing is sent to it; its supervisor will report its end."""
    two.feed(b"W1", m.Goodbye())

    assert list(two.submit(0, 3)) == ["W2"]


def test_who_comes_back_is_not_forgotten(one):
    """A peer that left and came back within one turn is not forgotten."""
    one.core.receive(b"C1", [m.Goodbye(), hello(m.CLIENT)], one.now)
    one.act()

    assert one.core.take_gone() == []


def test_peers_are_forgotten_once(one):
    """What take_gone returned is not returned again."""
    one.feed(b"C1", m.Goodbye())

    assert [one.core.take_gone(), one.core.take_gone()] == [[b"C1"], []]


def test_the_dead_do_not_come_back(one):
    """A worker whose death was reported before its Hello arrived is sent away, and gets nothing."""
    one.died(worker=b"W2")

    assert one.worker(b"W2") == {"W2": ["Goodbye: its supervisor said that it had died"]}
    assert list(one.core.table.workers) == [b"W1"]
    assert one.core.take_gone() == [b"W2"]


def test_what_the_dead_held_is_not_listened_to(one):
    """A worker that comes back to a scheduler may have died before that hears it."""
    one.died(worker=b"W2")
    hi = hello(m.WORKER, supervisor=b"S1", resume=1)
    holding = m.Holding(1, 0, 1, 1, 0.1)

    assert one.feed(b"W2", hi, holding, m.Held(b"", is_whole=True, first_segment=0)) == {
        "W2": ["Goodbye: its supervisor said that it had died"]
    }


def test_the_dead_are_remembered_within_bounds(one):
    """The last LOST_MAX dead workers of a supervisor are remembered."""
    for number in range(LOST_MAX + 5):
        one.died(worker=b"W%d" % (number + 10))

    assert len(one.core.table.supervisors[b"S1"].lost) == LOST_MAX


def test_the_dead_that_are_forgotten_do_not_come_back_either(one, monkeypatch):
    """A worker as old as dead ones that are forgotten is sent away; a younger one is let in.

    Else it would get tasks and never return them, should it be one of them.
    """
    monkeypatch.setattr(module, "LOST_MAX", 1)
    one.died(worker=b"W3")
    one.died(worker=b"W4")

    sent_away = ["Goodbye: its supervisor said that it had died"]
    assert [one.worker(name.encode())[name] for name in ("W2", "W3", "W4")] == [sent_away] * 3
    assert one.worker(b"W5") == {"W5": ["Welcome 0, 0 workers"]}


def test_who_was_named_living_comes_back_however_many_have_died(bench, monkeypatch):
    """Of the workers that a supervisor brings from another scheduler, it names those that live."""
    monkeypatch.setattr(module, "LOST_MAX", 1)
    bench.feed(
        b"S1", hello(m.SUPERVISOR, workers=3, resume=1), m.Roll((b"W1", b"W2"), is_whole=True)
    )
    for worker in (b"W2", b"W3", b"W4"):
        bench.died(worker=worker)

    bench.feed(
        b"W1",
        hello(m.WORKER, supervisor=b"S1", resume=1),
        m.Held(b"", is_whole=True, first_segment=0),
    )
    assert list(bench.core.table.workers) == [b"W1"]
    assert "Goodbye" in bench.feed(b"W2", hello(m.WORKER, supervisor=b"S1", resume=1))["W2"][0]


# -- broken clusters -------------------------------------------------------------------------


def test_a_failing_initializer_breaks_the_cluster(bench):
    """A failing initializer is told to every client, and what it had asked for is dropped."""
    bench.supervisor()
    bench.client()
    bench.submit(0, 3)

    sent = bench.feed(b"S1", m.InitializerFailed("ZeroDivisionError"))

    assert sent == {"C1": ["Broken: The initializer of the workers failed:\nZeroDivisionError"]}
    assert bench.core.table.backlog.count == 0


def test_who_comes_later_is_told_as_well(bench):
    """A client that comes to a broken cluster learns it with its welcome."""
    bench.supervisor()
    bench.feed(b"S1", m.InitializerFailed("why"))

    assert bench.client() == {
        "C1": ["Welcome 1, 0 workers", "Broken: The initializer of the workers failed:\nwhy"]
    }


def test_a_cluster_with_workers_elsewhere_is_not_broken(one):
    """A cluster breaks only when its last working machine is lost; a new machine mends it."""
    one.supervisor(b"S2")
    assert one.feed(b"S2", m.InitializerFailed("why")) == {}
    assert one.submit(0) == {"W1": ["Function f", "Assign 1:0 f"]}
    assert one.lose(b"S1") == {"C1": ["Broken: The initializer of the workers failed:\nwhy"]}

    one.supervisor(b"S3")
    assert one.client(b"C2") == {"C2": ["Welcome 2, 1 workers"]}


def test_a_broken_machine_that_leaves_takes_its_trouble_along(bench):
    """Clients that come after a broken machine has left wait for another one."""
    bench.supervisor()
    bench.feed(b"S1", m.InitializerFailed("why"), m.Goodbye())

    assert bench.client() == {"C1": ["Welcome 1, 0 workers"]}


# -- workers that take little ahead ----------------------------------------------------------


@pytest.mark.parametrize(("queue", "tasks_max"), [(3, 1000), (1000, 3), (3, 3)])
def test_a_worker_has_no_more_tasks_than_it_takes(queue, tasks_max):
    """A worker has no more tasks than its cluster allows, nor than the scheduler does."""
    bench = SchedulerBench(SchedulerConfig("3.11", tasks_max=tasks_max))
    bench.supervisor()
    bench.client()
    bench.worker(queue=queue)
    bench.submit(900)
    bench.done(900, each_s=1e-6)

    assert bench.submit(0, 10) == {"W1": ["Assign 1:0-2 f"]}
    assert bench.done(0)["W1"] == ["Assign 1:3 f"]


def test_a_worker_may_take_one_task_at_a_time(bench):
    """A worker that takes one task at a time waits for each."""
    bench.supervisor()
    bench.client()
    bench.worker(queue=1)
    bench.submit(900)
    bench.done(900, each_s=1e-6)

    assert bench.submit(0, 10) == {"W1": ["Assign 1:0 f"]}
    assert bench.done(0)["W1"] == ["Assign 1:1 f"]


# -- workers that retire ---------------------------------------------------------------------


def test_a_worker_retires_at_its_task_limit(bench):
    """A worker gets task_limit tasks in all, is retired when they are done, and then replaced."""
    bench.supervisor()
    bench.client()
    bench.worker(task_limit=2)

    assert bench.submit(0, 5) == {"W1": ["Function f", "Assign 1:0 f", "Assign 1:1 f"]}
    assert bench.done(0) == {"C1": ["Results 0 [r0]"]}
    assert bench.done(1) == {"C1": ["Results 1 [r1]"], "W1": ["Retire"]}
    assert bench.feed(b"W1", m.Goodbye()) == {}
    assert bench.died(1) == {}
    assert bench.worker(b"W2", task_limit=2)["W2"][1:] == ["Function f", "Assign 1:2-3 f"]


def test_what_a_worker_gives_back_does_not_count(bench):
    """Tasks that a worker never started leave room within its limit."""
    bench.supervisor()
    bench.client()
    bench.worker(task_limit=2)
    bench.submit(0, 3)
    assert bench.wait(0.05) == {"W1": ["Revoke 1:1"]}

    assert bench.feed(b"W1", m.Revoked(1, 1, 1, 0)) == {}
    assert bench.done(0) == {"C1": ["Results 0 [r0]"], "W1": ["Assign 1:1 f"]}


def test_idle_time_costs_nothing():
    """Without peers nothing is ever due."""
    assert SchedulerBench().core.deadline == math.inf


# -- the end ---------------------------------------------------------------------------------


def test_a_client_may_end_the_cluster():
    """A client may end a cluster that is not protected: all machines are told to leave."""
    bench = SchedulerBench(SchedulerConfig("3.11", protected=False))
    bench.supervisor()
    bench.supervisor(b"S2")
    bench.client()
    assert not bench.core.is_over

    assert bench.feed(b"C1", m.Shutdown()) == {
        "S1": ["Goodbye: the cluster was shut down"],
        "S2": ["Goodbye: the cluster was shut down"],
    }
    assert bench.core.is_over


def test_a_protected_cluster_goes_on(one):
    """A client that tries to end a protected cluster is told why it goes on."""
    (sentence,) = one.feed(b"C1", m.Shutdown())["C1"]

    assert sentence.startswith("Refused: the scheduler is in protected mode")
    assert not one.core.is_over
    assert one.submit(0) == {"W1": ["Function f", "Assign 1:0 f"]}


def test_nobody_else_ends_a_cluster(one):
    """A worker that tries to end the cluster is dropped."""
    with pytest.raises(RemoteProtocolError, match="only a client"):
        one.core.receive(b"W1", [m.Shutdown()], one.now)

"""What workers hold for a scheduler that knows nothing, and who asks for it again."""

from __future__ import annotations

from array import array

import pytest

from scaler_cluster.core.records.roster import Roster
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.resumption import GRACE_S, NUDGE_S, REMEMBER_S
from scaler_cluster.core.scheduler.worker_handlers import WAIT_S
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import (
    PYTHON,
    SchedulerBench,
    hello,
    object_id,
    payloads_of,
    segment,
    submission,
)
from scaler_cluster.wire import messages as m

ONCE = m.TaskOptions(at_most_once=True)
BEFORE = Roster((0,), frozenset({b"S1"}), True)
OLD = 7
"""Number that the client's session had with the scheduler before."""


@pytest.fixture
def bench() -> SchedulerBench:
    """Return a scheduler that takes the place of another one, which had one machine."""
    return SchedulerBench(SchedulerConfig(PYTHON, epoch=1, predecessor=BEFORE))


def machine_comes(bench, *workers, is_whole=True, peer=b"S1"):
    """Let a supervisor come back that had these workers."""
    roll = m.Roll(tuple(workers), is_whole)
    return bench.feed(peer, hello(m.SUPERVISOR, workers=2, resume=1), roll)


def worker_comes(bench, *holdings, peer=b"W1", started=(), is_whole=True):
    """Let a worker come back that holds this, and has started these runs once."""
    ledger = array("Q", [number for run in started for number in run]).tobytes()
    hi = hello(m.WORKER, supervisor=b"S1", resume=1)
    return bench.feed(peer, hi, *holdings, m.Held(ledger, is_whole, 0))


def client_comes(bench, *messages, resume=OLD):
    """Let a client come back that asks again for this."""
    return bench.feed(b"C1", hello(m.CLIENT, resume=resume), *messages, m.Resumed(0))


def done(first, count=1):
    return m.Done(OLD, first, 0.1, payloads_of(first, count, "r"))


RUNNING = m.Holding(OLD, 0, 2, 1, 3.0)
WELCOME = "Welcome 0, 0 workers"


def test_what_a_held_task_waits_for_is_copied_to_it():
    """A worker may hold a task whose object the scheduler before was having copied."""
    one, lies = object_id("a"), segment(b"C1", 0)
    homes = (m.StorageEndpoint("tcp://home"),)
    config = SchedulerConfig(PYTHON, epoch=1, predecessor=BEFORE, adopts=True, homes=homes)
    bench = SchedulerBench(config)
    bench.storage(b"O0", lies)
    machine_comes(bench, b"W1")
    bench.storage(b"O1", supervisor=b"S1")
    place = m.StorageEndpoint("tcp://S1", disk="/far")
    hi = hello(m.WORKER, supervisor=b"S1", resume=1, place=place)
    bench.feed(b"W1", hi, m.Holding(OLD, 0, 1, 0, 0.0), m.Held(b"", True, 0))
    keep = m.Keep("tcp://home", (one,), (lies,), (1000,))

    said = client_comes(bench, keep, *submission(0, objects="a"))

    assert said["W1"] == [WELCOME]
    assert said["O1"] == [f"Copy {lies.decode()} from tcp://home"]
    arrived = bench.feed(b"O1", m.Transferred(lies))
    assert arrived == {"W1": [f"Arrived {lies.decode()}"]}


@pytest.mark.parametrize("is_client_first", [True, False])
def test_what_a_worker_holds_stays_there(bench, is_client_first):
    """Tasks that a worker runs and has queued are asked for again, and not given to another."""
    if is_client_first:
        said = client_comes(bench, *submission(0, 3))
        assert said == {"C1": [f"Welcome {OLD}, 0 workers"]}
    machine_comes(bench, b"W1", b"W2")
    worker_comes(bench, peer=b"W2")
    said = worker_comes(bench, RUNNING)
    if not is_client_first:
        assert said == {}
        said = client_comes(bench, *submission(0, 3))

    assert said["W1"][0] == WELCOME
    assert not any("Assign 7:0" in line or "Abort" in line for line in said["W1"])
    assert said["W2"][-1].startswith("Assign 7:2")
    assert bench.feed(b"W1", done(0, 2))["C1"] == ["Results 0-1 [r0 r1]"]


def test_the_session_of_a_task_is_not_waited_for(bench):
    """It does not come back: what its tasks submitted is aborted as soon as all others are here."""
    machine_comes(bench, b"W1")
    nested = m.Holding(8, 5, 1, 0, 0.0, is_nested=True)
    worker_comes(bench, m.Holding(OLD, 0, 1, 0, 0.0), nested)

    assert client_comes(bench, *submission(0))["W1"] == ["Abort 8:5", WELCOME]


def test_what_nobody_holds_waits_for_a_while(bench):
    """While a worker is missing, nothing is given out; after a while it is not waited for."""
    bench.supervisor(b"S2", workers=1)
    bench.worker(b"W9", b"S2")
    machine_comes(bench, b"W1")
    client_comes(bench, *submission(0))

    early = bench.wait(GRACE_S - 0.1)
    late = bench.wait(0.2)

    assert not any("Assign" in line for line in early.get("W9", []))
    assert late["W9"][-1] == "Assign 7:0 f"


def test_workers_are_told_again_and_again_that_they_are_unknown(bench):
    """A worker of the roll that says nothing has not heard, or is not connected yet."""
    machine_comes(bench, b"W1", b"W2")
    worker_comes(bench, peer=b"W2")

    for _ in range(3):
        bench.wait(NUDGE_S)
        assert set(bench.core.to_nudge) == {b"W1"}
        bench.core.to_nudge.clear()
    bench.feed(b"S1", m.WorkerLost(b"W1", 0, 0, {}))
    bench.wait(NUDGE_S)

    assert not bench.core.to_nudge


def test_what_nobody_asks_for_is_aborted(bench):
    """The worker drops it; if what runs does not stop, the worker is killed."""
    client_comes(bench, *submission(1))
    machine_comes(bench, b"W1")

    said = worker_comes(bench, RUNNING, m.Holding(8, 5, 1, 0, 0.0))

    assert not said
    assert bench.wait(GRACE_S)["W1"] == ["Abort 7:0", "Abort 8:5", WELCOME]
    assert bench.wait(1)["S1"] == ["Kill W1: nobody asks for its task any more"]


def test_an_unwanted_task_that_has_ended_is_forgotten(bench):
    """The worker says that it has ended, and gets other tasks again."""
    client_comes(bench)
    machine_comes(bench, b"W1")
    worker_comes(bench, RUNNING)
    bench.submit(5)

    said = bench.feed(b"W1", m.Aborted(0, 0, 1))

    assert "S1" not in bench.wait(1)
    assert bench.core.table.in_flight == 1
    assert said == {}


def test_a_worker_that_dies_while_it_waits_is_missed(bench):
    """What it held runs elsewhere."""
    machine_comes(bench, b"W1", b"W2")
    worker_comes(bench, RUNNING)
    worker_comes(bench, peer=b"W2")
    bench.feed(b"S1", m.WorkerLost(b"W1", OLD, 0, {}))

    said = client_comes(bench, *submission(0))

    assert said["W2"][-1] == "Assign 7:0 f"


def test_a_timeout_goes_on(bench):
    """The time that a task has run before counts."""
    machine_comes(bench, b"W1")
    worker_comes(bench, m.Holding(OLD, 0, 1, 1, 3.0))
    client_comes(bench, *submission(0, options=m.TaskOptions(timeout_s=4.0)))

    assert bench.wait(0.9).get("C1") is None
    assert bench.wait(0.2)["C1"] == ["Failed 0 timeout"]


# -- at most once ------------------------------------------------------------------------------


def test_what_must_not_start_twice_and_has_not_started_runs(bench):
    """If all machines are back, a task is known to have started, or not."""
    machine_comes(bench, b"W1")
    worker_comes(bench, started=[(OLD, 1, 2)])

    said = client_comes(bench, *submission(0, 4, options=ONCE))

    assert said["C1"][1:] == ["Failed 1 lost", "Failed 2 lost"]
    given = {line.split(" f")[0] for line in said["W1"] if line.startswith("Assign")}
    assert given <= {"Assign 7:0", "Assign 7:3"}
    assert given


@pytest.mark.parametrize(
    "fault", ["dead worker", "long ledger", "no machine", "another machine", "new session"]
)
def test_what_may_have_started_is_lost(bench, fault):
    """A task that a dead worker may have started does not start again."""
    resume = OLD
    if fault == "no machine":
        bench.supervisor(workers=1)
        bench.worker()
    elif fault == "another machine":
        machine_comes(bench, peer=b"S2")
    else:
        machine_comes(bench, b"W1", is_whole=fault != "dead worker")
        worker_comes(bench, is_whole=fault != "long ledger")
    if fault == "new session":
        client_comes(bench, resume=OLD)
        bench.feed(b"C1", m.Goodbye())
    client_comes(bench, *submission(0, options=ONCE), resume=resume)

    bench.wait(GRACE_S)

    assert bench.core.table.sessions[b"C1"].totals.failed == 1
    assert not bench.core.table.backlog.count
    assert not bench.core.table.in_flight


def test_what_was_asked_for_later_is_new(bench):
    """What a client asks for after Resumed was never started."""
    client_comes(bench)
    bench.submit(0, options=ONCE)
    bench.supervisor(workers=1)

    assert bench.worker()["W1"] == [WELCOME]
    assert bench.wait(GRACE_S)["W1"][-1] == "Assign 7:0 f once"


def test_an_aborted_task_may_have_started(bench):
    """A client that comes after the grace finds its tasks aborted: they may have been started."""
    machine_comes(bench, b"W1")
    worker_comes(bench, m.Holding(OLD, 0, 1, 0, 0.0))
    assert bench.wait(GRACE_S)["W1"] == ["Abort 7:0", WELCOME]

    said = client_comes(bench, *submission(0, 2, options=ONCE))

    assert said["C1"][1:] == ["Failed 0 lost"]
    assert said["W1"][-1] == "Assign 7:1 f once"


def test_what_was_started_is_not_known_for_ever(bench):
    """After a while, whatever may have been started is lost."""
    machine_comes(bench, b"W1")
    worker_comes(bench)
    for _ in range(int(GRACE_S + REMEMBER_S) // 10 + 1):
        bench.feed(b"S1", m.Heartbeat())
        bench.wait(10)

    assert client_comes(bench, *submission(0, options=ONCE))["C1"][1:] == ["Failed 0 lost"]


# -- what a scheduler leaves to the next one -----------------------------------------------------


def follows(bench, epoch=2) -> SchedulerBench:
    """Return the scheduler that takes the place of this one, which is killed now."""
    return SchedulerBench(SchedulerConfig(PYTHON, epoch=epoch, predecessor=bench.core.roster))


def starts_again(bench) -> bool:
    """Return whether a task that must not start twice does, as nobody can have started it."""
    said = client_comes(bench, *submission(0, options=ONCE))
    said = {"C1": said["C1"] + bench.wait(GRACE_S).get("C1", [])}
    return "Failed 0 lost" not in said["C1"]


def test_all_machines_of_the_scheduler_before_have_come(bench):
    """The next scheduler waits for the machines that this one has, and knows all then."""
    machine_comes(bench)
    bench.wait(GRACE_S)
    assert bench.core.roster == Roster((0, 1), frozenset({b"S1"}), True)

    last = follows(bench)
    machine_comes(last)

    assert starts_again(last)


def test_who_was_not_back_yet_is_expected_by_the_next_scheduler(bench):
    """A scheduler that is killed while it waits leaves what it waited for."""
    machine_comes(bench, peer=b"S2")
    assert bench.core.roster == Roster((0, 1), frozenset({b"S1", b"S2"}), True)

    last = follows(bench)
    machine_comes(last, peer=b"S2")

    assert not starts_again(last)


def test_a_machine_that_never_came_may_have_started_tasks(bench):
    """What clients had asked of the first scheduler is never certain again; what is newer is."""
    machine_comes(bench, peer=b"S2")
    bench.wait(GRACE_S)
    assert bench.core.roster == Roster((1,), frozenset({b"S2"}), True)

    last = follows(bench)
    machine_comes(last, peer=b"S2")

    assert not starts_again(last)
    new = (1 << 24) + 1
    last.feed(b"C2", hello(m.CLIENT, resume=new), *submission(0, options=ONCE), m.Resumed(0))
    last.wait(GRACE_S)
    assert not last.core.table.sessions[b"C2"].totals.failed


def test_a_machine_that_was_lost_may_have_started_tasks(bench):
    """Its tasks failed, but their clients may not have heard of it."""
    machine_comes(bench)
    machine_comes(bench, peer=b"S2")
    bench.wait(GRACE_S)
    bench.lose(b"S2")
    assert bench.core.roster == Roster((0, 1), frozenset({b"S1"}), False)

    last = follows(bench)
    machine_comes(last)

    assert not starts_again(last)


# -- the same scheduler --------------------------------------------------------------------------


def test_a_machine_that_was_given_up_comes_back(bench):
    """What went elsewhere is aborted; what waits is left to it; nothing counts twice."""
    bench.supervisor(workers=1)
    bench.worker()
    bench.client()
    session = bench.core.table.sessions[b"C1"].number
    bench.submit(0, 2)
    bench.wait(GRACE_S)
    bench.lose(b"S1")
    bench.supervisor(b"S2", workers=1)
    assert bench.worker(b"W2", b"S2", queue=1)["W2"][-1].endswith(":0 f")

    machine_comes(bench, b"W1")
    said = worker_comes(bench, m.Holding(session, 0, 1, 1, 9.0), m.Holding(session, 1, 1, 0, 0.0))

    assert said["W1"] == [f"Abort {session}:0", WELCOME]
    assert bench.feed(b"W1", m.Aborted(0, 0, 1)) == {}
    bench.feed(b"W2", m.Done(session, 0, 0.1, payloads_of(0, 1, "r")))
    bench.feed(b"W1", m.Done(session, 1, 0.1, payloads_of(1, 1, "r")))
    assert bench.core.table.sessions[b"C1"].totals.done == 2


# -- numbers and faults --------------------------------------------------------------------------


def test_a_number_is_given_once(bench):
    """A client has its number again, once; numbers of different schedulers never collide."""
    new = (1 << 24) + 1
    assert client_comes(bench) == {"C1": [f"Welcome {OLD}, 0 workers"]}
    bench.feed(b"C1", m.Goodbye())

    assert client_comes(bench) == {"C1": [f"Welcome {new}, 0 workers"]}
    assert client_comes(bench, resume=new) == {"C1": [f"Welcome {new + 1}, 0 workers"]}


def test_a_client_that_asks_first_is_new():
    """Where few tasks may wait, a client asks again as if it was new."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, tasks_waiting_max=5))

    said = bench.feed(b"C1", hello(m.CLIENT, resume=OLD))

    assert said == {"C1": [f"Welcome {OLD}, 0 workers, ask first"]}
    assert not bench.core.table.deferred


def test_a_supervisor_is_waited_for(bench):
    """A worker whose supervisor is not back is heard once that is."""
    worker_comes(bench, RUNNING)
    client_comes(bench, *submission(0, 2))
    assert "W1" not in bench.wait(GRACE_S)

    assert machine_comes(bench, b"W1")["W1"] == [WELCOME]

    bench.lose(b"S1")
    worker_comes(bench)
    assert bench.wait(WAIT_S)["W1"] == ["Goodbye: its supervisor is not here"]


@pytest.mark.parametrize(
    "message", [RUNNING, m.Held(b"", True, 0), m.Roll((), True), m.Resumed(0)], ids=repr
)
def test_these_words_are_for_who_comes_back(bench, message):
    """Nobody says this who is known, or has another role."""
    bench.supervisor(workers=1)
    bench.worker()
    for peer in (b"W1", b"X1"):
        with pytest.raises(RemoteProtocolError):
            bench.feed(peer, message)


def test_a_broken_ledger_is_refused(bench):
    """It has three numbers for each run."""
    machine_comes(bench, b"W1")
    with pytest.raises(RemoteProtocolError, match="three numbers"):
        worker_comes(bench, started=[(1, 2)])


def test_a_client_that_breaks_the_protocol_while_it_waits_is_dropped(bench):
    """Others are heard all the same."""
    unknown = m.Submit(0, b"?" * 16, m.CALL_ARGS, m.DEFAULT_OPTIONS, payloads_of(0, 1))
    client_comes(bench, unknown)

    said = bench.wait(GRACE_S)

    assert said["C1"] == [
        "Goodbye: the scheduler dropped this client: a task whose function was not sent"
    ]
    assert not bench.core.table.sessions

"""When workers and machines die: who is charged, who moves, who is not started again."""

from __future__ import annotations

import pytest

from scaler_cluster.core.records.limits import WINDOW_S
from scaler_cluster.core.scheduler.deaths import LOSSES_MAX, REST_MAX_S, REST_S
from scaler_cluster.pickling.exceptions import failure_to_exception
from scaler_cluster.testing.bench import hello
from scaler_cluster.wire import messages as m

SHORT_S = WINDOW_S / 100
ONCE = m.TaskOptions(at_most_once=True)
ONCE_AND_RETRIES = m.TaskOptions(at_most_once=True, retries=5)


@pytest.fixture
def loaded(one):
    """W1 has 0 to 9; as far as we know it may run any of them. Nothing waits."""
    return load(one)


def load(bench, options=m.DEFAULT_OPTIONS):
    bench.submit(900)
    bench.done(900, each_s=SHORT_S)
    assert list(bench.submit(0, 10, options=options)) == ["W1"]
    return bench


def ready(bench):
    """Return the tasks that wait, in the order in which they are given out, and their histories."""
    return [
        (run.first, run.stop, run.tries, run.losses)
        for queue in bench.core.table.backlog.queues()
        for level in queue._levels.values()
        for runs in level.waiting.values()
        for run in runs
    ]


# -- one process -----------------------------------------------------------------------------


def test_the_task_that_ran_is_charged(loaded):
    """The task that a dead process ran fails with the story of the death, and only that one."""
    lost = m.WorkerLost(b"W1", 1, 3, {"signal": 11, "host": "h"})
    loaded.core.receive(b"S1", [lost], loaded.now)

    assert loaded.act_raw() == {
        b"C1": [m.Failed(3, "worker_died", b"", {"signal": 11, "host": "h"})]
    }


def test_what_was_queued_moves_uncharged(loaded):
    """Tasks queued behind the one that ran go to others, first of all, with a clean record."""
    loaded.died(0)

    assert ready(loaded) == [(1, 10, 0, 0)]


def test_what_was_finished_unreported_is_run_again(loaded):
    """Tasks before the one that ran had finished, but their results died with the process."""
    loaded.died(3)

    assert ready(loaded) == [(0, 3, 0, 0), (4, 10, 0, 0)]


def test_what_comes_back_is_next(loaded):
    """Tasks of a dead worker are given out before what was submitted later, in their order."""
    loaded.submit(20, 100)
    loaded.died(2)

    assert loaded.worker(b"W2")["W2"][2:4] == ["Assign 1:0-1 f", "Assign 1:3-9 f"]


def test_a_death_before_anything_ran_charges_nobody(loaded):
    """A worker that died before it started on its tasks leaves all of them uncharged."""
    assert loaded.died(None) == {}
    assert ready(loaded) == [(0, 10, 0, 0)]


def test_a_death_between_tasks_charges_nobody(loaded):
    """A worker that died after a task that it had reported leaves the others uncharged."""
    loaded.done(0, 4)

    assert loaded.died(3) == {}
    assert ready(loaded) == [(4, 10, 0, 0)]


def test_a_task_with_retries_survives_a_death(one):
    """A charged task that has retries is run again, and has one less."""
    load(one, m.TaskOptions(retries=1))

    assert one.died(4) == {}
    assert ready(one) == [(0, 4, 0, 0), (4, 5, 1, 0), (5, 10, 0, 0)]
    one.worker(b"W2")
    assert one.died(4, worker=b"W2") == {"C1": ["Failed 4 worker_died"]}


def test_a_cancelled_task_that_died_is_over(loaded):
    """The death of a task that was being stopped is no news to anybody."""
    loaded.feed(b"C1", m.Cancel(0, 2))

    assert loaded.died(0) == {}
    assert ready(loaded) == [(2, 10, 0, 0)]


def test_a_death_is_reported_once(loaded):
    """A second report of the same death changes nothing."""
    loaded.died(0)

    assert loaded.died(1) == {}
    assert ready(loaded) == [(1, 10, 0, 0)]


def test_other_sessions_tasks_move_as_well(bench):
    """A death charges the task of the session that the report names, not its namesake."""
    bench.supervisor()
    for peer in (b"C1", b"C2"):
        bench.client(peer)
    bench.worker()
    bench.submit(0, peer=b"C1")
    bench.submit(0, peer=b"C2")

    assert bench.died(0, session=2) == {"C2": ["Failed 0 worker_died"]}
    assert ready(bench) == [(0, 1, 0, 0)]


def test_the_tasks_of_a_client_that_left_end_with_the_worker(loaded):
    """Nothing of a session that left is run again."""
    loaded.feed(b"C1", m.Goodbye())
    loaded.died(3)

    assert ready(loaded) == []
    assert not loaded.core.table.functions


def test_results_after_the_death_do_not_count(loaded):
    """What a worker sent before its death is unknown when it arrives after the report."""
    loaded.died(5)

    assert loaded.core.take_gone() == [b"W1"]
    assert not loaded.core.table.knows(b"W1")


# -- one machine -----------------------------------------------------------------------------


def test_a_lost_machine_gives_everything_back(loaded):
    """When a machine is lost its tasks go elsewhere; the one at the head has one loss."""
    assert loaded.lose(b"S1") == {}

    assert ready(loaded) == [(0, 1, 0, 1), (1, 10, 0, 0)]


def test_a_task_is_lost_three_times_at_most(one):
    """A task whose machines keep vanishing fails in the end: it may be what brings them down."""
    one.submit(0)
    for turn in range(LOSSES_MAX):
        assert "C1" not in one.lose(b"S1" if turn == 0 else b"S%d" % (turn + 10))
        one.supervisor(b"S%d" % (turn + 11))
        one.worker(b"W%d" % (turn + 11), supervisor=b"S%d" % (turn + 11))

    assert one.lose(b"S%d" % (LOSSES_MAX + 10)) == {"C1": ["Failed 0 lost"]}


def test_a_lost_task_says_how_often(one):
    """The failure tells how many machines were lost."""
    one.submit(0, options=ONCE)
    one.core.peer_lost(b"S1", one.now)

    assert one.act_raw()[b"C1"] == [m.Failed(0, "lost", b"", {"losses": 1})]


def test_losses_cost_no_retries(one):
    """A task that was lost with its machine keeps its retries."""
    load(one, m.TaskOptions(retries=1))
    one.lose(b"S1")

    assert ready(one) == [(0, 1, 0, 1), (1, 10, 0, 0)]


def test_a_worker_that_breaks_the_protocol_is_killed_and_lost(loaded):
    """A worker that breaks the protocol is to be killed, and its tasks count as lost."""
    assert loaded.lose(b"W1") == {"S1": ["Kill W1: it broke the protocol"]}
    assert ready(loaded) == [(0, 1, 0, 1), (1, 10, 0, 0)]
    assert loaded.died(0) == {}


# -- at most once ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [ONCE, ONCE_AND_RETRIES], ids=["alone", "with retries"])
def test_a_task_at_most_once_that_may_have_run_is_not_run_again(one, options):
    """A dead worker's at_most_once tasks fail if they ran; those behind them move."""
    load(one, options)

    assert one.died(2) == {"C1": ["Failed 0 lost", "Failed 1 lost", "Failed 2 worker_died"]}
    assert ready(one) == [(3, 10, 0, 0)]


def test_at_most_once_tasks_of_a_lost_machine_fail(one):
    """No at_most_once task of a lost machine is run again: it may have run."""
    load(one, ONCE)

    assert one.lose(b"S1")["C1"] == [f"Failed {task} lost" for task in range(10)]
    assert ready(one) == []


def test_at_most_once_tasks_that_never_started_move(one):
    """A worker that died before it started anything leaves at_most_once tasks to others."""
    load(one, ONCE)

    assert one.died(None) == {}
    assert ready(one) == [(0, 10, 0, 0)]


def test_what_is_given_back_may_still_run_once(one):
    """A revoked at_most_once task never started, so another worker may run it."""
    one.submit(0, 2, options=ONCE)
    one.wait(0.05)
    one.feed(b"W1", m.Revoked(1, 1, 1, 0))

    assert one.worker(b"W2")["W2"][1:] == ["Function f", "Assign 1:1 f once"]


# -- tasks that kill worker after worker -------------------------------------------------------


def kill_with(bench, number, task=0):
    """Let a new worker come, run the task, and die of it; return what the scheduler sends."""
    peer = b"W%d" % number
    given = bench.worker(peer)
    assert f"Assign 1:{task} f" in given[peer.decode()]
    return bench.died(task, worker=peer)


def pause(bench, duration_s):
    """Let time pass in which the supervisor is heard."""
    end = bench.now + duration_s
    while bench.now < end:
        bench.wait(min(5.0, end - bench.now))
        bench.feed(b"S1", m.Heartbeat())


@pytest.fixture
def poison(bench):
    """A task with retries that has killed two workers; no worker is left."""
    bench.supervisor()
    bench.client()
    bench.submit(0, options=m.TaskOptions(retries=9))
    kill_with(bench, 1)
    kill_with(bench, 2)
    return bench


def test_a_task_that_kills_again_waits_before_it_runs_again(poison):
    """After one death it is run again at once, after the second one later; others go on."""
    sent = poison.worker(b"W3")["W3"]
    assert not any(line.startswith("Assign") for line in sent)
    assert poison.submit(1)["W3"][-1].startswith("Assign 1:1")
    poison.done(1, peer=b"W3")

    assert poison.core.deadline <= poison.now + REST_S
    assert "W3" not in poison.wait(REST_S * 0.9)
    assert poison.wait(REST_S * 0.2)["W3"] == ["Assign 1:0 f"]


def test_each_death_doubles_the_wait_up_to_a_limit(poison):
    """A task that goes on killing takes ever less of the cluster."""
    waits = []
    for number in range(3, 11):
        start = poison.now
        while not any(queue.count for queue in poison.core.table.backlog.queues()):
            pause(poison, REST_S / 2)
        waits.append(poison.now - start)
        sent = kill_with(poison, number)
    assert waits[:4] == pytest.approx([REST_S, 2 * REST_S, 4 * REST_S, 8 * REST_S])
    assert waits[-1] == pytest.approx(REST_MAX_S)
    # It had nine retries: its tenth run was the last one.
    assert sent == {"C1": ["Failed 0 worker_died"]}


def test_a_task_that_waits_so_can_be_cancelled(poison):
    """It is counted among those that wait, and ends like any other of them."""
    assert poison.core.table.backlog.count == 1
    poison.feed(b"C1", m.Cancel(0, 1))
    assert poison.core.table.backlog.count == 0
    poison.worker(b"W3")
    assert "W3" not in poison.wait(2 * REST_S)

    poison.lose(b"C1")
    assert not poison.core.table.functions


def test_the_task_of_a_client_that_leaves_waits_no_more(poison):
    """Nothing is left of a client whose task was to run again later."""
    poison.lose(b"C1")
    assert poison.core.table.backlog.count == 0
    poison.worker(b"W3")
    assert "W3" not in poison.wait(2 * REST_S)


def test_an_innocent_task_does_not_wait(one):
    """What was queued behind a killer runs elsewhere at once, also if it killed before."""
    load(one, m.TaskOptions(retries=5))
    one.died(0)
    one.worker(b"W2")
    one.died(3, worker=b"W2")
    assert one.core.table.backlog.resting == {}


def test_the_error_says_how_each_try_ended(bench):
    """Retries are counted by cause: raised, worker died, machine lost."""
    bench.supervisor()
    bench.client()
    bench.submit(0, options=m.TaskOptions(retries=3))
    bench.worker(b"W1")
    bench.erred(0)
    bench.died(0, worker=b"W1")
    bench.supervisor(b"S2")
    bench.worker(b"W2", supervisor=b"S2")
    bench.lose(b"S2")
    kill_with(bench, 3)
    bench.wait(REST_S)
    bench.core.receive(b"W4", [hello(m.WORKER, supervisor=b"S1")], bench.now)
    bench.act()
    bench.core.receive(b"S1", [m.WorkerLost(b"W4", 1, 0, {"signal": 9})], bench.now)
    ((failed,),) = bench.act_raw().values()
    assert isinstance(failed, m.Failed)
    assert failed.detail["message"] == (
        "before that, it raised once, its worker died 2 times, its machine was lost once"
    )
    error = failure_to_exception(failed)
    assert "; before that, it raised once, its worker died 2 times" in str(error)


def test_a_task_that_kills_is_named_once_in_the_log(poison):
    """The third death is a line with function, task and client; further ones are not."""
    poison.core.table.journal.take(poison.now)
    for number in (3, 4, 5):
        pause(poison, REST_MAX_S)
        kill_with(poison, number)
    lines = [line for _, line in poison.core.table.journal.take(poison.now) if "task" in line]
    (line,) = lines
    assert line == (
        "task 0 (f) of client 1 (pid 1 on host) kills its workers: another one by signal 9; "
        "before that, its worker died 2 times"
    )

"""When workers and machines die: who is charged, who moves, who is not started again."""

from __future__ import annotations

import pytest

from scaler_cluster.core.records.limits import WINDOW_S
from scaler_cluster.core.scheduler.deaths import LOSSES_MAX
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
        for level in bench.core.table.backlog.ready._levels.values()
        for runs in level.values()
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

    assert one.worker(b"W2")["W2"][1:] == ["Function f", "Assign 1:1 f"]

"""Cancelled and overdue tasks: dropped where they wait, stopped where they run, killed at last."""

from __future__ import annotations

import pytest

from scaler_cluster.core.records.credit import HELD_S
from scaler_cluster.core.records.lifecycle import State
from scaler_cluster.core.records.limits import WINDOW_S
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

GRACE_S = SchedulerConfig("3.11").cancel_grace_s
TIMED = m.TaskOptions(timeout_s=10.0)


@pytest.fixture
def loaded(one):
    """W1 runs task 0 and has 1 to 9 queued; 10 to 19 wait in the scheduler."""
    one.submit(900)
    one.done(900, each_s=HELD_S / 8.5)
    assert one.submit(0, 20) == {"W1": ["Assign 1:0-9 f"]}
    return one


def states(bench, peer=b"W1"):
    return [(run.first, run.stop, run.state) for run in bench.core.table.workers[peer].runs]


def live(bench, duration_s):
    """Let time pass while the supervisors say that they live; return what was sent meanwhile."""
    sent: dict[str, list[str]] = {}
    while duration_s > 0:
        for peer in list(bench.core.table.supervisors):
            bench.feed(peer, m.Heartbeat())
        for peer, lines in bench.wait(min(duration_s, 1.0)).items():
            sent.setdefault(peer, []).extend(lines)
        duration_s -= 1.0
    return sent


def ready(bench):
    queues = bench.core.table.backlog.queues()
    return sorted((run.first, run.stop) for queue in queues for run in queue)


# -- cancelling what waits -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "count", "left"),
    [
        (10, 10, []),
        (10, 3, [(13, 20)]),
        (17, 3, [(10, 17)]),
        (13, 4, [(10, 13), (17, 20)]),
        (19, 5, [(10, 19)]),
    ],
    ids=["all", "head", "tail", "middle", "beyond"],
)
def test_waiting_tasks_are_dropped(loaded, first, count, left):
    """Cancelling tasks that wait in the scheduler needs nobody; the others keep their order."""
    assert loaded.feed(b"C1", m.Cancel(first, count)) == {}

    assert ready(loaded) == left
    loaded.feed(b"C1", m.Cancel(0, 10))
    sent = loaded.feed(b"W1", m.Aborted(1, 0, 10))
    if left:
        low, high = left[0]
        assert sent == {"W1": [f"Assign 1:{low}-{high - 1} f"]}
    else:
        assert sent == {}


def test_cancelling_one_by_one_costs_the_same_for_each(one):
    """A thousand waiting tasks cancelled one by one, in any order, leave an empty queue."""
    one.submit(0, 1002)
    for task in [*range(2, 500), *range(1001, 500, -1), 500]:
        assert one.feed(b"C1", m.Cancel(task, 1)) == {}

        (queue,) = one.core.table.backlog.queues()
        entries = [run for level in queue._levels.values() for run in level.waiting[1]]
        assert len(entries) <= 2

    assert one.core.table.backlog.count == 0


def test_cancelling_what_is_unknown_does_nothing(loaded):
    """Tasks that came back, or never were, can be cancelled: results and cancels may cross."""
    loaded.done(0, 5)

    assert loaded.feed(b"C1", m.Cancel(0, 5), m.Cancel(500, 10**12)) == {}


# -- cancelling what workers have ------------------------------------------------------------


def test_assigned_tasks_are_aborted(loaded):
    """What a worker has is aborted there, exactly what was asked for."""
    assert loaded.feed(b"C1", m.Cancel(3, 4)) == {"W1": ["Abort 1:3-6"]}
    assert states(loaded) == [
        (0, 3, State.ASSIGNED),
        (3, 7, State.CANCELLING),
        (7, 10, State.ASSIGNED),
    ]


def test_what_was_aborted_makes_room(loaded):
    """When the worker dropped what it was told to, the client hears nothing, and work goes on."""
    loaded.feed(b"C1", m.Cancel(0, 10))

    assert loaded.feed(b"W1", m.Aborted(1, 1, 9)) == {"W1": ["Assign 1:10-18 f"]}
    assert states(loaded)[0] == (0, 1, State.CANCELLING)
    assert loaded.feed(b"W1", m.Aborted(1, 0, 1)) == {}


def test_a_task_that_ignores_its_abort_is_killed_though_others_were_dropped(loaded):
    """The worker of a task that runs on is killed, though tasks behind it were dropped."""
    loaded.feed(b"C1", m.Cancel(0, 10))
    loaded.feed(b"W1", m.Aborted(1, 1, 9))

    assert loaded.wait(GRACE_S * 1.1)["S1"] == ["Kill W1: its task was cancelled"]


def test_a_task_that_was_not_given_back_is_killed_as_well(loaded):
    """A worker is killed too where tasks were asked back before they were cancelled."""
    loaded.wait(0.05)
    loaded.feed(b"C1", m.Cancel(0, 10))
    loaded.feed(b"W1", m.Revoked(1, 1, 9, 1), m.Aborted(1, 0, 1))

    assert states(loaded)[0] == (1, 2, State.CANCELLING)
    assert loaded.wait(GRACE_S * 1.1)["S1"] == ["Kill W1: its task was cancelled"]


def test_results_of_cancelled_tasks_are_dropped(loaded):
    """A task that came back before it could be stopped is over, and nobody is told."""
    loaded.feed(b"C1", m.Cancel(0, 2))

    assert "C1" not in loaded.done(0)
    assert "C1" not in loaded.erred(1)
    assert states(loaded)[0] == (2, 10, State.ASSIGNED)


def test_a_cancelled_task_is_not_tried_again(one):
    """A cancelled task that raises is over, whatever retries it had left."""
    one.submit(0, options=m.TaskOptions(retries=5))
    one.feed(b"C1", m.Cancel(0, 1))

    assert one.erred(0) == {}
    assert not one.core.table.sessions[b"C1"].runs


def test_cancelling_twice_is_once(loaded):
    """A second Cancel of the same tasks does nothing."""
    loaded.feed(b"C1", m.Cancel(3, 4))

    assert loaded.feed(b"C1", m.Cancel(3, 4)) == {}
    assert loaded.feed(b"C1", m.Cancel(4, 1)) == {}


def test_a_task_that_does_not_stop_is_killed(loaded):
    """After cancel_grace_s the worker of a task that still runs is killed, once."""
    loaded.feed(b"C1", m.Cancel(0, 1))

    assert "S1" not in loaded.wait(GRACE_S * 0.9)
    assert loaded.wait(GRACE_S * 0.2)["S1"] == ["Kill W1: its task was cancelled"]
    assert "S1" not in loaded.wait(GRACE_S * 10)


def test_what_is_queued_behind_is_not_killed_for(loaded):
    """A cancelled task that waits behind another one's run is given time: it cannot answer yet."""
    loaded.feed(b"C1", m.Cancel(5, 1))

    assert "S1" not in loaded.wait(GRACE_S * 5)
    loaded.done(0, 5)
    assert loaded.wait(GRACE_S * 1.1)["S1"] == ["Kill W1: its task was cancelled"]


def test_a_worker_about_to_be_killed_gets_nothing(loaded):
    """Between the order to kill and the death nothing is assigned to the worker."""
    loaded.feed(b"C1", m.Cancel(0, 1))
    loaded.wait(GRACE_S * 1.1)

    assert "W1" not in loaded.feed(b"W1", m.Aborted(1, 0, 1))
    assert "W1" not in loaded.submit(30)


def test_the_death_of_a_killed_worker_is_no_failure(loaded):
    """When the worker was killed for a cancelled task, that one ends in silence, others move."""
    loaded.feed(b"C1", m.Cancel(0, 1))
    loaded.wait(GRACE_S * 1.1)

    assert loaded.died(0) == {}
    assert loaded.core.table.backlog.count == 19


@pytest.mark.parametrize("is_told", [False, True])
def test_what_runs_by_then_is_not_to_blame(loaded, is_told):
    """A worker that has stopped in time, but is killed as its word was late, harms no other task."""
    loaded.feed(b"C1", m.Cancel(0, 1))
    assert loaded.wait(GRACE_S * 1.1)["S1"] == ["Kill W1: its task was cancelled"]
    if is_told:
        loaded.feed(b"W1", m.Aborted(1, 0, 1))

    assert loaded.died(1) == {}
    assert loaded.core.table.backlog.count == 19


def test_what_runs_by_then_and_may_start_once_is_lost(one):
    """The same task, if it must not start again, fails as lost: nobody can know how far it was."""
    one.submit(0, 2, options=m.TaskOptions(at_most_once=True))
    one.feed(b"C1", m.Cancel(0, 1))
    one.wait(GRACE_S * 1.1)

    assert one.died(1) == {"C1": ["Failed 1 lost"]}


# -- what its cluster finds overdue ----------------------------------------------------------


def test_an_overdue_task_fails_and_is_stopped(loaded):
    """An overdue task fails as one with a timeout of its own does; those behind it go on."""
    sent = loaded.feed(b"S1", m.Overdue(b"W1", 1, 0, 5.0))

    assert sent == {"C1": ["Failed 0 timeout"], "W1": ["Abort 1:0"]}
    assert states(loaded)[:2] == [(0, 1, State.CANCELLING), (1, 10, State.ASSIGNED)]
    assert loaded.feed(b"S1", m.Overdue(b"W1", 1, 0, 5.0)) == {}
    assert "Kill W1: its task ran out of time" in live(loaded, GRACE_S * 1.1)["S1"]


def test_its_own_timeout_comes_first(one):
    """A task's own timeout counts instead of its cluster's, even where it is longer."""
    one.submit(0, options=TIMED)

    assert one.feed(b"S1", m.Overdue(b"W1", 1, 0, 5.0)) == {}


def test_what_is_over_is_not_overdue(loaded):
    """A report of an overdue task that is over, elsewhere or unknown changes nothing."""
    loaded.done(0)
    for worker, session, task in [(b"W1", 1, 0), (b"W1", 1, 15), (b"W1", 2, 1), (b"W9", 1, 1)]:
        assert loaded.feed(b"S1", m.Overdue(worker, session, task, 5.0)) == {}


# -- what its cluster finds stuck --------------------------------------------------------------


def test_a_quiet_worker_is_killed_if_it_has_that_task(loaded):
    """A task that does nothing dies with its worker; what waited behind it is charged nothing."""
    sent = loaded.feed(b"S1", m.Stuck(b"W1", 7, 1, 0, 60.0, m.QUIET, True, 0.0))
    assert sent == {"S1": ["Kill W1: its task used no CPU time for 60.0 s"]}
    lines = [line for _, line in loaded.core.table.journal.take(loaded.now)]
    assert lines[-1] == (
        "worker (pid 7 on host), with 10 tasks, has a task that does nothing for 60.0 s: "
        "it is killed"
    )

    assert loaded.feed(b"S1", m.Stuck(b"W1", 7, 1, 0, 60.0, m.QUIET, True, 0.0)) == {}
    assert loaded.died(0) == {"C1": ["Failed 0 worker_died"]}
    assert loaded.core.table.backlog.count == 19


def test_a_quiet_worker_without_that_task_stays(loaded):
    """What is over, elsewhere or unknown does not hang."""
    loaded.done(0)
    for worker, session, task in [(b"W1", 1, 0), (b"W1", 1, 15), (b"W1", 2, 1), (b"W9", 1, 1)]:
        assert loaded.feed(b"S1", m.Stuck(worker, 7, session, task, 60.0, m.QUIET, True, 0.0)) == {}


def test_a_stopped_worker_is_left_to_its_supervisor(loaded):
    """The scheduler says in its log that a worker is stopped, and what will become of it."""
    loaded.core.table.journal.take(loaded.now)
    assert loaded.feed(b"S1", m.Stuck(b"W1", 7, 1, 0, 5.2, m.STOPPED, True, 24.8)) == {}

    assert loaded.core.table.journal.take(loaded.now) == [
        (True, ("worker (pid 7 on host), with 10 tasks, is stopped (SIGSTOP) for 5.2 s: "
               "it is killed in 25 s")),
    ]  # fmt: skip


# -- taking back what only waits -------------------------------------------------------------


def test_only_what_waits_is_taken_back(loaded):
    """A queued-only Cancel drops what no worker has, and tells the client which that was."""
    assert loaded.feed(b"C1", m.Cancel(0, 20, queued_only=True)) == {"C1": ["Cancelled 10-19"]}
    assert states(loaded) == [(0, 10, State.ASSIGNED)]


def test_part_of_what_waits_is_taken_back(loaded):
    """Only the tasks named are taken back."""
    assert loaded.feed(b"C1", m.Cancel(12, 3, queued_only=True)) == {"C1": ["Cancelled 12-14"]}
    assert ready(loaded) == [(10, 12), (15, 20)]


def test_workers_that_are_not_up_yet_count(bench):
    """Tasks that workers would run by now, were they up, are not taken back."""
    bench.supervisor(workers=2)
    bench.client()
    bench.submit(0, 10)

    assert bench.feed(b"C1", m.Cancel(0, 10, queued_only=True)) == {"C1": ["Cancelled 2-9"]}


def test_workers_that_are_not_up_yet_count_over_all_runs(bench):
    """A run that spares fewer tasks than workers are to come leaves the rest to the next run."""
    bench.supervisor(workers=3)
    bench.client()
    bench.submit(10, 2, function="f")
    bench.submit(12, 5, function="g")

    cancel = m.Cancel(0, 100, queued_only=True)
    assert bench.feed(b"C1", cancel) == {"C1": ["Cancelled 13-16"]}


# -- timeouts --------------------------------------------------------------------------------


def test_a_task_that_takes_too_long_fails_and_is_stopped(one):
    """timeout_s after its start a task fails with the limit it had, and is aborted."""
    one.submit(0, options=TIMED)
    one.feed(b"W1", m.Started(1, 0))

    assert one.wait(9.9) == {}
    assert one.wait(0.2) == {"C1": ["Failed 0 timeout"], "W1": ["Abort 1:0"]}
    assert one.wait(GRACE_S) == {"S1": ["Kill W1: its task ran out of time"]}


def test_a_timeout_tells_its_limit(one):
    """The failure holds the limit, for the error's text."""
    one.submit(0, options=TIMED)
    one.feed(b"W1", m.Started(1, 0))
    one.now += 10.0
    one.core.tick(one.now)

    assert one.act_raw()[b"C1"] == [m.Failed(0, "timeout", b"", {"timeout_s": 10.0})]


def test_time_runs_from_the_start(one):
    """A task that waits, here or on its worker, does not run out of time."""
    one.submit(0, 3, options=TIMED)

    for _ in range(3):
        one.feed(b"S1", m.Heartbeat())
        assert "C1" not in one.wait(14.0)


def test_only_the_started_task_is_stopped(one):
    """Only the task that started is stopped for its timeout; the others of its run go on."""
    one.submit(900)
    one.done(900, each_s=WINDOW_S / 100)
    one.submit(0, 10, options=TIMED)
    one.feed(b"W1", m.Started(1, 0))
    one.done(0)
    one.feed(b"W1", m.Started(1, 1))

    sent = one.wait(10.1)
    assert sent["C1"] == ["Failed 1 timeout"]
    assert "Abort 1:1" in sent["W1"]


def test_a_task_that_came_back_in_time_is_left_alone(one):
    """The deadline of a task that is done concerns nobody."""
    one.submit(0, options=TIMED)
    one.feed(b"W1", m.Started(1, 0))
    one.wait(9.0)
    one.done(0)

    assert one.wait(5.0) == {}


def test_a_late_result_after_a_timeout_is_dropped(one):
    """A task that failed for its timeout is answered once, whatever comes then."""
    one.submit(0, options=TIMED)
    one.feed(b"W1", m.Started(1, 0))
    one.wait(10.1)

    assert one.done(0) == {}
    assert one.wait(5.0) == {}


def test_a_second_attempt_has_its_own_time(one):
    """What remains of a first attempt's time does not stop the retry."""
    one.submit(0, options=m.TaskOptions(timeout_s=10.0, retries=1))
    one.feed(b"W1", m.Started(1, 0))
    one.wait(9.0)
    assert one.erred(0)["W1"] == ["Assign 1:0 f reporting start"]
    one.feed(b"W1", m.Started(1, 0))

    assert live(one, 9.9) == {}
    assert live(one, 0.2)["C1"] == ["Failed 0 timeout"]


def test_a_moved_task_has_its_own_time(two):
    """The timeout of a task starts anew when it was lost with its machine."""
    two.supervisor(b"S2")
    two.worker(b"W3", supervisor=b"S2")
    two.submit(0, options=TIMED)
    two.feed(b"W3", m.Started(1, 0))
    live(two, 9.0)
    (peer,) = two.feed(b"S2", m.Goodbye())

    assert live(two, 5.0) == {}
    two.feed(peer.encode(), m.Started(1, 0))
    assert live(two, 9.9) == {}
    assert live(two, 0.2)["C1"] == ["Failed 0 timeout"]


# -- what a worker must not say --------------------------------------------------------------


def test_aborting_unasked_breaks_the_protocol(loaded):
    """A worker must not drop what nobody cancelled; what it had goes to others."""
    with pytest.raises(RemoteProtocolError, match="aborted unasked"):
        loaded.feed(b"W1", m.Aborted(1, 2, 1))
    loaded.lose(b"W1")

    assert loaded.core.table.backlog.count == 20

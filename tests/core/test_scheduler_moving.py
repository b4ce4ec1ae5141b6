"""What is asked back from workers: behind tasks that turned out long, and for those that idle."""

from __future__ import annotations

import math

import pytest

from scaler_cluster.core.records.credit import LONG_S, STALL_S, STEAL_MIN_S
from scaler_cluster.core.records.lifecycle import State
from scaler_cluster.core.records.limits import WINDOW_S
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import PYTHON, SchedulerBench
from scaler_cluster.wire import messages as m

SHORT_S = WINDOW_S / 100
RETRY = m.TaskOptions(retries=3)


def load(bench):
    """Let W1 run task 0 and have 1 to 99 queued, all expected to be short."""
    bench.supervisor()
    bench.client()
    bench.worker()
    bench.submit(900)
    bench.done(900, each_s=SHORT_S)
    assert bench.submit(0, 100) == {"W1": ["Assign 1:0-99 f"]}
    return bench


@pytest.fixture
def loaded(bench):
    """W1 runs task 0 and has 1 to 99 queued; who idles gets half of that."""
    return load(bench)


# -- stalled workers -------------------------------------------------------------------------


def test_what_waits_behind_a_long_task_is_asked_back(loaded):
    """A worker that reports nothing for STALL_S is asked for all but the task that it runs."""
    assert loaded.wait(STALL_S * 0.9) == {}
    assert loaded.wait(STALL_S * 0.2) == {"W1": ["Revoke 1:1-99"]}


def test_what_comes_back_goes_elsewhere(loaded):
    """Given back, the tasks wait for any other worker; the stalled one gets none of them."""
    loaded.wait(STALL_S * 2)

    assert loaded.feed(b"W1", m.Revoked(1, 1, 99, 0)) == {}
    assert loaded.core.table.backlog.count == 99
    assert loaded.worker(b"W2")["W2"][1:3] == ["Function f", "Assign 1:1-50 f"]


def test_a_stalled_worker_is_given_work_once_it_reports(loaded):
    """When the long task came back, its worker takes part again."""
    loaded.wait(STALL_S * 2)
    loaded.feed(b"W1", m.Revoked(1, 1, 99, 0))

    assert loaded.done(0, each_s=SHORT_S)["W1"] == ["Assign 1:1-99 f"]


def test_what_had_started_stays(loaded):
    """The first ``kept`` tasks of what was asked back stay assigned; only the rest is free."""
    loaded.wait(STALL_S * 2)
    loaded.feed(b"W1", m.Revoked(1, 1, 99, 3))

    runs = loaded.core.table.workers[b"W1"].runs
    assert [(run.first, run.count, run.state) for run in runs] == [
        (0, 1, State.ASSIGNED),
        (1, 3, State.ASSIGNED),
    ]
    assert loaded.core.table.backlog.count == 96


def test_what_finished_meanwhile_is_done(loaded):
    """Results that cross the Revoke count, and the answer covers what is left."""
    loaded.wait(STALL_S * 2)

    assert loaded.done(0, 3) == {"C1": ["Results 0 [r0]", "Results 1-2 [r1 r2]"]}
    loaded.feed(b"W1", m.Revoked(1, 1, 99, 3))
    assert loaded.core.table.workers[b"W1"].runs[0].first == 3


def test_a_worker_is_asked_once_at_a_time(loaded):
    """Until a worker answered, it is asked for nothing else."""
    loaded.wait(STALL_S * 2)

    assert loaded.wait(10 * STALL_S) == {}


def test_tasks_known_to_be_longish_are_given_time(one):
    """What is expected to take longer than STALL_S may take twice as long as expected."""
    one.submit(900)
    one.done(900, each_s=STALL_S * 3)
    one.submit(0, 2)

    assert one.wait(STALL_S * 5) == {}
    assert one.wait(STALL_S * 3) == {"W1": ["Revoke 1:1"]}


def test_a_report_buys_time(loaded):
    """A worker that reports within STALL_S is asked for nothing."""
    for task in range(10):
        assert "W1" not in loaded.wait(STALL_S * 0.8)
        assert "W1" not in loaded.done(task, each_s=SHORT_S)


def test_what_stays_after_an_earlier_question_is_asked_back_too(loaded):
    """A worker that was asked for half, for one that idled, and stalls, is asked for the rest."""
    assert loaded.worker(b"W2")["W1"] == ["Revoke 1:50-99"]
    loaded.wait(STALL_S * 1.5)
    loaded.feed(b"W1", m.Revoked(1, 50, 50, 0))

    assert loaded.wait(STALL_S * 2)["W1"][-1] == "Revoke 1:1-49"


# -- stealing --------------------------------------------------------------------------------


def test_an_idle_worker_takes_half_of_what_another_has_queued(loaded):
    """When nothing is ready and a worker idles, a loaded one is asked for half of its queue."""
    assert loaded.worker(b"W2") == {"W2": ["Welcome 0, 0 workers"], "W1": ["Revoke 1:50-99"]}
    assert loaded.feed(b"W1", m.Revoked(1, 50, 50, 0))["W2"][:2] == [
        "Function f",
        "Assign 1:50-74 f",
    ]


def test_a_ready_node_given_back_goes_to_who_idles(one):
    """A node that is given back goes to an idle worker, though its own runs what precedes it."""
    sent = one.graph(0, "", "", "1", "0 2", wanted="0 1 2 3")
    assert sent["W1"][1:] == ["AssignNodes 1:0 g", "AssignNodes 1:1 g"]
    assert one.worker(b"W2")["W1"] == ["Revoke 1:1"]

    sent = one.feed(b"W1", m.Revoked(1, 1, 1, 0))
    assert sent == {"W2": ["Function g", "AssignNodes 1:1 g"]}


@pytest.fixture
def patient():
    """W1 runs task 0 and has 1 to 99 queued; who idles waits for half a second."""
    return load(SchedulerBench(SchedulerConfig(PYTHON, idle_s=0.5)))


def test_who_idles_may_have_to_wait(patient):
    """An idle worker waits as long as configured before others are asked to give work back."""
    assert patient.worker(b"W2") == {"W2": ["Welcome 0, 0 workers"]}
    assert patient.wait(0.3) == {}
    patient.done(0, each_s=SHORT_S)
    assert patient.core.deadline <= patient.now + 0.2

    assert patient.wait(0.25) == {"W1": ["Revoke 1:51-99"]}
    assert patient.feed(b"W1", m.Revoked(1, 51, 49, 0))["W2"][1].startswith("Assign 1:51")


def test_who_found_work_meanwhile_waits_from_the_start(patient):
    """A worker that found work meanwhile waits the whole time again."""
    patient.worker(b"W2")
    patient.wait(0.3)
    patient.done(0, each_s=SHORT_S)
    patient.submit(200)
    patient.wait(0.1)
    patient.done(200, peer=b"W2", each_s=SHORT_S)
    patient.done(1, each_s=SHORT_S)

    assert patient.wait(0.4) == {}
    assert patient.wait(0.2)["W1"][0].startswith("Revoke")


def test_who_waits_behind_a_long_task_waits_as_long(patient):
    """Tasks behind a long one stay as long as an idle worker would have to wait."""
    assert patient.wait(0.4) == {}
    assert patient.wait(0.2) == {"W1": ["Revoke 1:1-99"]}


def test_work_may_stay_where_it_is():
    """A scheduler that is configured so never moves any work."""
    bench = load(SchedulerBench(SchedulerConfig(PYTHON, idle_s=math.inf)))
    bench.worker(b"W2")

    assert [bench.wait(1.0) for _ in range(5)] == [{}] * 5


def test_crumbs_are_not_worth_a_trip(one):
    """Less queued work than STEAL_MIN_S is not asked back: it is done before it could move."""
    one.submit(900)
    one.done(900, each_s=STEAL_MIN_S / 10)
    one.submit(0, 10)

    assert one.worker(b"W2") == {"W2": ["Welcome 0, 0 workers"]}


def test_the_one_with_most_is_asked(two):
    """The loaded worker with the most queued work is asked."""
    two.submit(900)
    two.done(900, peer=b"W2", each_s=SHORT_S)
    two.submit(0, 200)
    two.done(0, 80, peer=b"W2", each_s=SHORT_S)

    sent = two.worker(b"W3")
    assert "W2" not in sent
    assert all(line.startswith("Revoke 1:1") for line in sent["W1"])


def test_a_long_task_at_the_head_is_not_taken(one):
    """A worker with one task, however long, has nothing to give."""
    one.submit(900)
    one.done(900, each_s=LONG_S * 2)
    one.submit(0)

    assert one.worker(b"W2") == {"W2": ["Welcome 0, 0 workers"]}


# -- races -----------------------------------------------------------------------------------


def test_what_is_given_back_is_not_overtaken(one):
    """A worker that may give something back gets nothing until it has said what."""
    one.submit(0, 3)
    assert one.wait(STALL_S * 5) == {"W1": ["Revoke 1:1"]}
    assert one.done(0) == {"C1": ["Results 0 [r0]"]}

    sent = one.feed(b"W1", m.Revoked(1, 1, 1, 0))
    assert sent == {"W1": ["Assign 1:1 f", "Assign 1:2 f"]}


def test_a_retry_may_cross_a_revocation(one):
    """A task that was asked back, and failed meanwhile, is not taken for the one that was asked."""
    one.submit(0, 2, options=RETRY)
    assert one.wait(STALL_S * 5) == {"W1": ["Revoke 1:1"]}
    one.done(0)
    assert one.erred(1) == {}

    assert one.feed(b"W1", m.Revoked(1, 1, 1, 1)) == {"W1": ["Assign 1:1 f"]}
    assert one.done(1) == {"C1": ["Results 1 [r1]"]}


def test_what_is_given_back_in_parts_keeps_its_order(loaded):
    """Where a cancellation cut what was asked back, its parts wait in their order."""
    loaded.wait(STALL_S * 2)
    loaded.feed(b"C1", m.Cancel(30, 10))
    loaded.feed(b"W1", m.Revoked(1, 1, 99, 0))

    queued = [run.first for queue in loaded.core.table.backlog.queues() for run in queue]
    assert queued == [1, 40]


def test_a_retry_within_a_longer_revocation(loaded):
    """A longer Revoke frees what had not started, and leaves the retry where it is."""
    loaded.done(0, 100, each_s=0.0045)
    for task in (200, 201, 202):
        loaded.submit(task, options=RETRY)
    assert loaded.wait(0.05)["W1"] == ["Revoke 1:201", "Revoke 1:202"][::-1]
    loaded.erred(200)
    loaded.erred(201)

    loaded.feed(b"W1", m.Revoked(1, 202, 1, 0), m.Revoked(1, 201, 1, 1))
    states = [(run.first, run.state) for run in loaded.core.table.workers[b"W1"].runs]
    assert (201, State.ASSIGNED) in states
    assert len({first for first, _ in states}) == len(states)


def test_a_cancelled_task_that_comes_back_ends(loaded):
    """What was cancelled after it was asked back is not given out again when it comes."""
    loaded.wait(STALL_S * 2)
    assert loaded.feed(b"C1", m.Cancel(1, 50)) == {"W1": ["Abort 1:1-50"]}
    loaded.feed(b"W1", m.Revoked(1, 1, 99, 0))

    assert loaded.core.table.backlog.count == 49
    assert loaded.core.table.workers[b"W1"].count == 1


def test_a_cancelled_task_that_had_started_is_still_stopped(loaded):
    """A cancelled task that stays, because it had started, waits for its end."""
    loaded.wait(STALL_S * 2)
    loaded.feed(b"C1", m.Cancel(1, 99))
    loaded.feed(b"W1", m.Revoked(1, 1, 99, 2))

    runs = loaded.core.table.workers[b"W1"].runs
    assert [(run.first, run.count, run.state) for run in runs] == [
        (0, 1, State.ASSIGNED),
        (1, 2, State.CANCELLING),
    ]


# -- what a worker must not give back --------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (m.Revoked(1, 1, 99, 100), "gives back what nobody asked for"),
        (m.Revoked(1, 0, 1, 0), "gives back what it was to run"),
    ],
    ids=["too many", "not asked for"],
)
def test_an_impossible_answer_breaks_the_protocol(loaded, answer, reason):
    """A worker that keeps more than was asked for, or gives back what was not, is wrong."""
    loaded.wait(STALL_S * 2)
    with pytest.raises(RemoteProtocolError, match=reason):
        loaded.feed(b"W1", answer)
    loaded.lose(b"W1")

    assert loaded.core.table.backlog.count == 100


def test_giving_back_unasked_breaks_the_protocol(loaded):
    """A worker that was asked for nothing must not answer."""
    with pytest.raises(RemoteProtocolError, match="nobody asked for"):
        loaded.feed(b"W1", m.Revoked(1, 0, 100, 0))
    assert loaded.lose(b"W1") == {"S1": ["Kill W1: it broke the protocol"]}

    assert loaded.core.table.backlog.count == 100

"""What is submitted is given out, and what comes back is passed on."""

from __future__ import annotations

import pytest

from scaler_cluster.core.records.credit import LONG_S
from scaler_cluster.core.records.lifecycle import State
from scaler_cluster.core.records.limits import WINDOW_S
from scaler_cluster.core.scheduler import assignment
from scaler_cluster.testing.bench import function_id, payloads_of, submission
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

SHORT_S = WINDOW_S / 100


def know(bench, each_s, function="f"):
    """Let the scheduler measure a function before the test begins; its tasks are 900 and on."""
    (peer,) = bench.submit(900, 1, function=function)
    bench.done(900, peer=peer.encode(), each_s=each_s)


# -- giving out ------------------------------------------------------------------------------


def test_a_lone_task_goes_through_at_once(one):
    """Submit, assign, done, result: each turn sends what the next one needs."""
    assert one.submit(0) == {"W1": ["Function f", "Assign 1:0 f"]}
    assert one.done(0) == {"C1": ["Results 0 [r0]"]}


def test_a_function_is_sent_once(one):
    """A worker is sent a function with its first task, then knows it."""
    one.submit(0)
    one.done(0)

    assert one.submit(1) == {"W1": ["Assign 1:1 f"]}


def test_payloads_travel_as_they_came(one):
    """The payload bytes that a client sent are what the worker gets, and the results go back."""
    one.feed(b"C1", *submission(0)[:1])
    payload, result = b"x" * 10_000, b"y" * 10_000
    one.core.receive(
        b"C1", [m.Submit(0, function_id("f"), 1, m.DEFAULT_OPTIONS, Batch.single(payload))], one.now
    )
    assign = one.act_raw()[b"W1"][1]
    one.core.receive(b"W1", [m.Done(1, 0, 0.001, Batch.single(result))], one.now)
    (results,) = one.act_raw()[b"C1"]

    assert isinstance(assign, m.Assign)
    assert isinstance(results, m.Results)
    assert assign.batch.data is payload
    assert assign.call == 1
    assert results.batch.data is result


def test_tasks_wait_for_a_worker(bench):
    """What is submitted before there is a worker goes to the first one that comes."""
    bench.client()
    assert bench.submit(0) == {}
    bench.supervisor()

    assert bench.worker()["W1"][1:] == ["Function f", "Assign 1:0 f"]


def test_an_unknown_function_is_given_one_at_a_time(two):
    """Until a function was measured, each worker gets one task to run and one to wait."""
    assert two.submit(0, 10) == {
        "W2": ["Function f", "Assign 1:0 f", "Assign 1:2 f"],
        "W1": ["Function f", "Assign 1:1 f", "Assign 1:3 f"],
    }


def test_short_tasks_fill_the_window_in_one_run(one):
    """Measured short tasks are given as one run that fills the window, and no more."""
    know(one, SHORT_S)

    assert one.submit(0, 1000) == {"W1": ["Assign 1:0-99 f"]}


def test_a_worker_is_refilled_before_it_runs_dry(one):
    """A report that leaves a worker below the low-water mark brings it up to the window again."""
    know(one, SHORT_S)
    one.submit(0, 1000)

    sent = one.done(0, 50, each_s=SHORT_S)

    assert sent["W1"] == ["Assign 1:100-149 f"]


def test_long_tasks_get_no_queue(two):
    """Tasks above LONG_S go one to a worker; the rest waits where it can go anywhere."""
    know(two, 2 * LONG_S)

    assert two.submit(0, 10) == {"W2": ["Assign 1:0 f"], "W1": ["Function f", "Assign 1:1 f"]}
    assert two.done(0, peer=b"W2", each_s=2 * LONG_S)["W2"] == ["Assign 1:2 f"]


def test_workers_share_what_little_there_is(two):
    """Fewer tasks than would fill one window are spread over all workers."""
    know(two, SHORT_S)

    assert two.submit(0, 10) == {
        "W2": ["Assign 1:0-4 f", "Assign 1:8 f"],
        "W1": ["Function f", "Assign 1:5-7 f", "Assign 1:9 f"],
    }


def test_the_worker_that_was_busy_last_is_first(two):
    """The idle worker that worked last is taken first: it may still be awake."""
    two.submit(0, 2)
    two.done(0, peer=b"W2")
    two.done(1, peer=b"W1")

    assert list(two.submit(2)) == ["W1"]


def test_higher_priority_overtakes_what_waits(one):
    """A task of higher priority is given out before all that waits, not before what is assigned."""
    one.submit(0, 3)
    one.submit(10, 1, options=m.TaskOptions(priority=5))

    assert one.done(0)["W1"] == ["Assign 1:10 f"]


def test_sessions_share_the_workers(bench):
    """A client with one task need not wait for another's thousand."""
    bench.supervisor()
    bench.client(b"C1")
    bench.client(b"C2")
    bench.worker()
    bench.submit(0, 1000, peer=b"C1")
    bench.submit(0, 1, peer=b"C2")

    bench.done(0, session=1, each_s=2 * LONG_S)

    assert bench.done(1, session=1, each_s=2 * LONG_S)["W1"] == ["Assign 2:0 f"]


def test_a_worker_reports_starts_where_somebody_needs_it(one):
    """Workers report only starts of tasks with a timeout, and stream only where asked."""
    timed = m.TaskOptions(timeout_s=1.0)
    loud = m.TaskOptions(stream_output=True)
    watched = m.TaskOptions(profiling=True)

    assert one.submit(0, options=timed)["W1"][1] == "Assign 1:0 f reporting start"
    assert one.submit(1, options=loud)["W1"] == ["Assign 1:1 f streaming"]
    one.done(0)
    assert one.submit(2, options=watched)["W1"] == ["Assign 1:2 f profiling"]


def test_a_worker_forgets_old_functions(one, monkeypatch):
    """A worker keeps WORKER_FUNCTIONS_MAX functions; the one that was not used longest goes."""
    monkeypatch.setattr(assignment, "WORKER_FUNCTIONS_MAX", 2)
    sent = []
    for task, letter in enumerate("abac"):
        sent.append(one.submit(task, function=letter)["W1"])
        one.done(task)

    assert sent == [
        ["Function a", "Assign 1:0 a"],
        ["Function b", "Assign 1:1 b"],
        ["Assign 1:2 a"],
        ["Function c", "Forget b", "Assign 1:3 c"],
    ]
    assert one.submit(4, function="b")["W1"] == ["Function b", "Forget a", "Assign 1:4 b"]


# -- coming back -----------------------------------------------------------------------------


def test_results_of_several_runs_arrive_as_one_message_each(one):
    """One Done may cover tasks that went out in several runs; each is passed on and settled."""
    know(one, SHORT_S)
    one.submit(0, 3)
    one.submit(3, 3)

    assert one.done(0, 6)["C1"] == ["Results 0-2 [r0 r1 r2]", "Results 3-5 [r3 r4 r5]"]
    assert one.core.table.in_flight == 0


def test_part_of_a_run_may_come_back(one):
    """A Done of the first tasks of a run leaves the rest where it is."""
    know(one, SHORT_S)
    one.submit(0, 10)

    assert one.done(0, 4) == {"C1": ["Results 0-3 [r0 r1 r2 r3]"]}
    (run,) = one.core.table.workers[b"W1"].runs
    assert (run.first, run.count, run.state) == (4, 6, State.ASSIGNED)


def test_results_go_to_their_session(bench):
    """Tasks of the same number of two clients do not meet."""
    bench.supervisor()
    for peer in (b"C1", b"C2"):
        bench.client(peer)
    bench.worker()
    bench.submit(0, peer=b"C1")
    bench.submit(0, peer=b"C2")

    assert bench.done(0, session=1) == {"C1": ["Results 0 [r0]"]}
    assert bench.done(0, session=2) == {"C2": ["Results 0 [r0]"]}


def test_an_error_fails_its_task_alone(one):
    """What a task raised goes to its client as it came; the other tasks of its run go on."""
    know(one, SHORT_S)
    one.submit(0, 3)
    one.done(0)
    erred = m.Erred(1, 1, 0.001, m.FAILED_EXCEPTION, b"pickle", {"message": "text"})
    one.core.receive(b"W1", [erred], one.now)

    assert one.act_raw()[b"C1"] == [m.Failed(1, "exception", b"pickle", {"message": "text"})]
    assert one.done(2) == {"C1": ["Results 2 [r2]"]}


def test_what_a_task_prints_goes_to_its_client(one):
    """A printed line is passed on; one of a session that left is dropped."""
    one.submit(0)

    assert one.feed(b"W1", m.Printed(1, 0, "stdout", "hi")) == {"C1": ["Output 0 stdout 'hi'"]}
    one.feed(b"C1", m.Goodbye())
    assert one.feed(b"W1", m.Printed(1, 0, "stdout", "hi")) == {}


def test_what_a_task_took_goes_to_its_client(one):
    """A profile is passed on before the result, but not of a task that nobody waits for."""
    took = m.Profile(1, 0, 0.5, 0.25, 1000)
    one.submit(0, 2)

    one.core.receive(b"W1", [took, m.Done(1, 0, 0.5, payloads_of(0, 1, "r"))], one.now)
    assert one.act()["C1"] == ["Profile 1:0 0.5 s", "Results 0 [r0]"]
    assert one.feed(b"W1", took) == {}
    one.feed(b"C1", m.Cancel(1, 1))
    assert one.feed(b"W1", m.Profile(1, 1, 0.5, 0.25, 1000)) == {}
    one.feed(b"C1", m.Goodbye())
    assert one.feed(b"W1", took) == {}


def test_a_task_id_may_be_used_again_when_it_is_done(one):
    """Only live tasks must differ in their ids."""
    one.submit(0)
    one.done(0)

    assert one.submit(0) == {"W1": ["Assign 1:0 f"]}


# -- retries ---------------------------------------------------------------------------------


def test_a_task_that_raised_is_run_again(one):
    """With retries left, what a task raised is not told: it goes out again, before what waits."""
    one.submit(0, 5, options=m.TaskOptions(retries=1))

    assert one.erred(0)["W1"][0] == "Assign 1:0 f"


def test_retries_run_out(one):
    """A task is run 1 + retries times; then its client learns what it raised last."""
    one.submit(0, options=m.TaskOptions(retries=2))

    assert one.erred(0) == {"W1": ["Assign 1:0 f"]}
    assert one.erred(0) == {"W1": ["Assign 1:0 f"]}
    assert one.erred(0) == {"C1": ["Failed 0 exception"]}


@pytest.mark.parametrize("kind", [m.FAILED_DESERIALIZE, m.FAILED_RESULT])
def test_what_cannot_be_pickled_is_not_tried_again(one, kind):
    """Only what the task itself raised is worth another try."""
    one.submit(0, options=m.TaskOptions(retries=2))

    assert one.erred(0, kind=kind) == {"C1": [f"Failed 0 {kind}"]}


def test_at_most_once_means_no_retry(one):
    """at_most_once wins over retries: what raised is not started again."""
    one.submit(0, options=m.TaskOptions(retries=2, at_most_once=True))

    assert one.erred(0) == {"C1": ["Failed 0 exception"]}


# -- functions -------------------------------------------------------------------------------


def test_a_function_lives_while_somebody_may_name_it(bench):
    """A function is dropped when the last session forgot it and its last task ended."""
    bench.supervisor()
    bench.client(b"C1")
    bench.client(b"C2")
    bench.worker()
    bench.submit(0, peer=b"C1")
    bench.feed(b"C2", submission(0)[0])
    functions = bench.core.table.functions

    bench.feed(b"C1", m.Forget(function_id("f")))
    assert len(functions) == 1
    bench.feed(b"C2", m.Forget(function_id("f")))
    assert len(functions) == 1
    bench.done(0)
    assert not functions


def test_a_function_is_taught_once_for_all_sessions(bench):
    """Two clients with the same function share its measurement and its place on the worker."""
    bench.supervisor()
    bench.client(b"C1")
    bench.client(b"C2")
    bench.worker()
    bench.submit(0, peer=b"C1")
    bench.done(0)

    assert bench.submit(0, peer=b"C2") == {"W1": ["Assign 2:0 f"]}


def test_memory_goes_with_the_last_task(one):
    """When everything came back the scheduler holds no payload, run or function but the named."""
    one.submit(0, 100)
    for task in range(100):
        one.done(task, each_s=LONG_S)
    one.feed(b"C1", m.Forget(function_id("f")))

    table = one.core.table
    assert not table.sessions[b"C1"].runs
    assert not table.functions
    assert (table.in_flight, table.backlog.count) == (0, 0)
    (queue,) = table.backlog.queues()
    assert not list(queue)


def test_the_story_of_a_thousand_tasks(two):
    """Each task is answered once, in the worker's order, however results come in."""
    know(two, SHORT_S)
    two.submit(0, 1000)
    answered = []
    while two.core.table.in_flight:
        for worker in two.core.table.workers.values():
            if worker.runs:
                run = worker.runs[0]
                count = (run.count + 1) // 2
                results = payloads_of(run.first, count, "r")
                two.core.receive(worker.peer, [m.Done(1, run.first, 0.01, results)], two.now)
                for message in two.act_raw().get(b"C1", ()):
                    assert isinstance(message, m.Results)
                    answered += [bytes(result) for result in message.batch]

    assert sorted(answered) == sorted(b"r%d" % task for task in range(1000))

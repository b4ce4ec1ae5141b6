"""What a worker tells a scheduler that does not know it, and what it reports after the answer."""

from __future__ import annotations

import pytest

from scaler_cluster.core.worker.ledger import RUNS_MAX, Ledger
from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.testing.bench import function_id, payloads_of
from scaler_cluster.testing.describe import describe
from scaler_cluster.testing.worker_driver import WorkerDriver
from scaler_cluster.wire import messages as m

F = function_id("f")


@pytest.fixture
def core():
    made = WorkerCore()
    made.receive([m.Function(F, b"f", ())])
    return made


def assign(core, first, count=1, *, once=False, session=1):
    batch = payloads_of(first, count)
    core.receive([m.Assign(session, first, F, m.CALL_ARGS, False, False, batch, at_most_once=once)])


def said(core):
    return [describe(one) for one in core.take_actions()]


def comes_back(core, undelivered=(), now=5.0):
    """Let the worker hear that it is unknown; return what it says."""
    core.receive([m.Unknown()])
    assert core.is_unknown
    return [describe(one) for one in core.come_back(undelivered, 0, now)]


NOTHING = "Held, started nothing"


def test_an_idle_worker_holds_nothing(core):
    """It says so, and waits for the answer."""
    assert comes_back(core) == [NOTHING]
    assert core.reports.is_withheld
    core.receive([m.Welcome(0, 0)])
    assert not core.reports.is_withheld


def test_a_worker_names_what_it_runs_and_has_queued(core):
    """Results that may not have arrived come first, then the task that runs, then the others."""
    driver = WorkerDriver(core)
    assign(core, 0, 4)
    assign(core, 9)
    driver.take_up(1.0)
    driver.returned(b"r0", 2.0)
    core.reports.flush()
    undelivered = [m.Heartbeat(), *core.take_actions()]
    driver.take_up(2.0)
    driver.returned(b"r1", 3.0)
    driver.take_up(3.0)

    assert comes_back(core, undelivered) == [
        "Holding 1:0, 1 started",
        "Holding 1:1, 1 started",
        "Holding 1:2-3, 1 started 2 s ago",
        "Holding 1:9",
        NOTHING,
    ]
    assert said(core) == []
    core.receive([m.Welcome(0, 0)])
    assert said(core) == ["Done 1:0 [r0]", "Done 1:1 [r1]"]


def test_a_worker_goes_on_while_it_waits(core):
    """What it finishes meanwhile is reported after the answer."""
    driver = WorkerDriver(core)
    assign(core, 0, 2)
    driver.take_up(1.0)
    comes_back(core)
    driver.returned(b"r0", 6.0)
    driver.take_up(6.0)
    driver.returned(b"r1", 7.0)
    core.reports.flush()

    assert said(core) == []
    core.receive([m.Welcome(0, 0)])
    assert said(core) == ["Done 1:0 [r0]", "Done 1:1 [r1]"]


def test_what_is_not_wanted_is_never_reported(core):
    """Of results, queued tasks and a running task that are aborted, only the end is said."""
    driver = WorkerDriver(core)
    assign(core, 0, 5)
    for task in (0, 1):
        driver.take_up(task)
        driver.returned(b"r%d" % task, task + 1)
    driver.take_up(2.0)
    comes_back(core)

    core.receive([m.Abort(1, 0, 1), m.Abort(1, 2, 1), m.Abort(1, 4, 1), m.Welcome(0, 0)])

    assert core.interrupt == (1, 2)
    assert said(core) == ["Done 1:1 [r1]"]
    driver.returned(b"r2", 6.0)
    driver.take_up(6.0)
    assert driver.task == (1, 3)
    driver.returned(b"r3", 7.0)
    core.reports.flush()
    assert said(core) == ["Aborted 0:2", "Done 1:3 [r3]"]
    assert driver.take_up(7.0) is None


@pytest.mark.parametrize("how", ["returned", "stopped", "raised", "stored"])
def test_an_unwanted_task_may_end_in_any_way(core, how):
    """Nothing is said but that it has ended; what it stored is to be removed."""
    driver = WorkerDriver(core)
    assign(core, 0)
    driver.take_up(1.0)
    comes_back(core)
    core.receive([m.Abort(1, 0, 1), m.Welcome(0, 0)])

    if how == "returned":
        driver.returned(b"r", 2.0)
    elif how == "stopped":
        driver.stopped(2.0)
    elif how == "raised":
        driver.raised(m.FAILED_EXCEPTION, b"x", {}, 2.0)
    else:
        driver.stored(b"r", (b"segment",), 2.0)
    core.reports.flush()

    assert said(core) == ["Aborted 0:0"]
    assert core.reports.take_garbage() == [b"segment"] * (how == "stored")


def test_an_unwanted_task_may_have_ended_before_the_answer(core):
    """Its result is dropped, and that it has ended is said at once."""
    driver = WorkerDriver(core)
    assign(core, 0)
    driver.take_up(1.0)
    comes_back(core)
    driver.returned(b"r", 2.0)

    core.receive([m.Abort(1, 0, 1), m.Welcome(0, 0)])

    assert said(core) == ["Aborted 0:0"]


def test_a_task_that_was_aborted_before_is_not_held(core):
    """It is about to end: the scheduler would not expect that."""
    driver = WorkerDriver(core)
    assign(core, 0, 2)
    driver.take_up(1.0)
    core.receive([m.Abort(1, 0, 1)])

    assert comes_back(core) == ["Holding 1:1", NOTHING]
    core.receive([m.Welcome(0, 0)])
    driver.stopped(6.0)
    assert said(core) == ["Aborted 0:0"]


def test_a_worker_may_be_unknown_again_and_again(core):
    """What was withheld is withheld anew."""
    driver = WorkerDriver(core)
    assign(core, 0, 2)
    driver.take_up(1.0)
    driver.returned(b"r0", 2.0)
    driver.take_up(2.0)
    first = comes_back(core)

    assert comes_back(core) == first
    core.receive([m.Welcome(0, 0)])
    assert said(core) == ["Done 1:0 [r0]"]


def test_a_worker_that_is_sent_away_reports_nothing(core):
    """Nobody would take it."""
    driver = WorkerDriver(core)
    assign(core, 0)
    driver.take_up(1.0)
    driver.returned(b"r", 2.0)
    comes_back(core)
    core.receive([m.Goodbye("go")])

    assert said(core) == []
    assert not core.reports.is_withheld


def test_what_was_started_once_is_remembered(core):
    """Of tasks with at_most_once those that were started are named, and no others."""
    driver = WorkerDriver(core)
    assign(core, 0, 3, once=True)
    assign(core, 3, 3, once=True)
    assign(core, 8, 1)
    for task in range(4):
        driver.take_up(task)
        driver.returned(b"r", task + 1)
    driver.take_up(4.0)

    assert comes_back(core)[-1] == "Held, started 1:0-4"


def test_a_ledger_has_an_end():
    """Runs that follow each other are one; the oldest of many are forgotten, which is said."""
    ledger = Ledger()
    ledger.add(1, 0, 2)
    ledger.add(1, 2, 3)
    ledger.add(1, 5, 5)
    assert memoryview(ledger.packed()).cast("Q").tolist() == [1, 0, 3]
    for number in range(RUNS_MAX):
        assert ledger.is_whole
        ledger.add(2, 2 * number, 2 * number + 1)

    assert not ledger.is_whole
    assert len(ledger.packed()) == 24 * RUNS_MAX


@pytest.mark.parametrize("first_is_told", [True, False])
def test_what_was_queued_may_run_when_nobody_asks_for_it(core, first_is_told):
    """A task that began after it had been named is interrupted; nothing is said of its result."""
    driver = WorkerDriver(core)
    assign(core, 0, 2)
    if first_is_told:
        driver.take_up(1.0)
    comes_back(core)
    driver.take_up(2.0)
    if first_is_told:
        driver.returned(b"r0", 3.0)
        driver.take_up(3.0)
    task = int(first_is_told)
    assert driver.task == (1, task)

    core.receive([m.Abort(1, 0, 2), m.Welcome(0, 0)])
    assert core.interrupt == (1, task)
    driver.returned(b"r", 4.0)
    core.reports.flush()

    assert said(core) == ["Aborted 0:0"] * first_is_told + [f"Aborted 0:{task}"]
    assert driver.take_up(5.0) is None


def test_it_says_which_segments_it_may_still_report(core):
    """What it wrote before those is known to be of no use, unless a client names it."""
    core.receive([m.Unknown()])

    assert core.come_back((), 5, 1.0)[-1] == m.Held(b"", is_whole=True, first_segment=5)


def test_what_was_stored_is_noted_as_reported_once_it_is(core, monkeypatch):
    """The loop says so when the report is in the outbox, not before."""
    driver = WorkerDriver(core)
    said: list[list[str]] = []

    def reported():
        said.append(list(map(describe, core.reports.outbox)))

    monkeypatch.setattr(driver, "reported", reported)
    assign(core, 0)
    driver.take_up(1.0)
    assert said == []
    driver.stored(b"large", (b"segment",), 2.0)

    assert said == [["Stored 1:0 with segment"]]

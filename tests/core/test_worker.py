"""What a worker has to run, gives back, drops and reports."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import function_id, payloads_of
from scaler_cluster.testing.describe import describe
from scaler_cluster.wire import messages as m


def assign(first, count=1, session=1, function="f"):
    batch = payloads_of(first, count)
    return m.Assign(session, first, function_id(function), 0, False, False, batch)


def sent(core):
    """Return what the core has to send, as lines."""
    return [describe(message) for message in core.take_actions()]


def to_run(core):
    """Return the session and id of every task that the worker would still start, in order."""
    return [
        (work.session, work.first + index)
        for work in core.queue
        for index in range(work.cursor + 1, work.stop)
    ]


def run_one(core, now=0.0, result=b"r"):
    """Do what the shell does for the next task, up to its result; return its id."""
    work = core.queue[0]
    if work.cursor < 0:
        work.cursor = 0
        core.reports.begin(work, now)
    task = work.first + work.cursor
    core.reports.results.append(result)
    core.reports.last_end = now
    work.cursor += 1
    if work.cursor >= work.stop:
        core.finish(work)
    return task


def claim(core, now=0.0):
    """Let the shell start on the first task of its queue."""
    work = core.queue[0]
    work.cursor = 0
    core.reports.begin(work, now)
    return work


@pytest.fixture
def core():
    """A worker that knows the functions f and g."""
    made = WorkerCore()
    made.receive([m.Welcome(0, 0)])
    for letter in "fg":
        made.receive([m.Function(function_id(letter), letter.encode())])
    return made


def test_it_knows_what_will_not_come(core):
    """A worker knows what will not come until it is told to use it again, or to forget it."""
    core.receive([m.Function(function_id("g"), b"g", (b"s1",)), m.Missing((b"s1", b"s2"), "cut")])
    assert core.missing == {b"s1": "cut", b"s2": "cut"}

    core.receive([m.Function(function_id("g"), b"g", (b"s1",))])
    core.receive([m.Release((b"s2",))])
    assert core.missing == {}


def test_what_is_released_while_it_is_waited_for_does_not_come(core):
    """A worker remembers until it has nothing to run which awaited segments were lost.

    It keeps none of them mapped after that.
    """
    batch = payloads_of(5, 1)
    core.receive([m.AssignNodes(1, 4, 5, function_id("f"), False, False, batch, (), b"\0\0\0\0",
                                payloads_of(4, 1, "r"), (b"s1",), b"\1\0\0\0")])  # fmt: skip
    core.receive([m.Release((b"s1", b"s2"))])
    assert list(core.missing) == [b"s1"]
    # The shell had found it just then.
    core.mapped[b"s1"] = memoryview(b"")

    run_one(core)
    assert core.missing == {}
    assert core.mapped == {}


@pytest.fixture
def waiting(core):
    """A worker whose next work needs the segments s1 and s2, neither of which is here."""
    core.receive([m.Assign(1, 5, function_id("f"), m.CALL_ARGS, False, False,
                           payloads_of(5, 2), (b"s1", b"s2"))])  # fmt: skip
    assert waits(core)
    return core


def waits(core, here=()):
    """Let the first work look for its segments; return True if it must wait."""
    work = core.queue[0]
    return core.waits(work, work.segments, lambda one: one in here)


def test_a_work_waits_until_all_of_its_segments_have_arrived(waiting):
    """A work waits for each of its segments, whatever order they arrive in."""
    waiting.receive([m.Arrived((b"s2",))])
    assert waits(waiting, here=(b"s2",))
    waiting.receive([m.Arrived((b"s1", b"other"))])

    assert not waits(waiting, here=(b"s1", b"s2"))
    assert not waiting.awaited


def test_a_segment_that_was_absent_is_not_looked_for_until_it_has_arrived(waiting):
    """A work that waits does not look again: the scheduler says when its segments are here."""
    assert waits(waiting, here=(b"s1", b"s2"))


def test_a_segment_that_arrived_before_its_work_is_found(core):
    """A worker need not remember what arrived before it was needed: it finds that."""
    core.receive([m.Arrived((b"s1",))])
    core.receive([m.Assign(1, 5, function_id("f"), m.CALL_ARGS, False, False,
                           payloads_of(5, 1), (b"s1",))])  # fmt: skip

    assert not waits(core, here=(b"s1",))


@pytest.mark.parametrize(
    "message",
    [
        m.Missing((b"s1", b"s2"), "cut"),
        m.Release((b"s1", b"s2")),
        m.Abort(1, 5, 2),
        m.Revoke(1, 5, 2),
        m.Retire(),
    ],
)
def test_a_work_does_not_wait_for_what_will_not_come(waiting, message):
    """A work stops waiting if a segment is lost, if it is taken back, or if the worker leaves."""
    waiting.receive([message])

    assert not waits(waiting)


# -- taking in -------------------------------------------------------------------------------


def test_tasks_queue_in_order(core):
    """What is assigned is run in the order in which it came."""
    core.receive([assign(5, 2), assign(0, 1)])

    assert to_run(core) == [(1, 5), (1, 6), (1, 0)]


def test_an_unknown_function_is_the_schedulers_fault(core):
    """Tasks of a function that was not sent, or was forgotten, break the protocol."""
    core.receive([m.Forget(function_id("g"))])

    for letter in "gx":
        with pytest.raises(RemoteProtocolError, match="not sent"):
            core.receive([assign(0, function=letter)])


def test_a_forgotten_function_serves_what_is_queued(core):
    """Tasks that were assigned before their function was forgotten still have it."""
    core.receive([assign(0, function="g"), m.Forget(function_id("g"))])

    assert core.queue[0].function.payload == b"g"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (m.Retire(), ""),
        (m.Refused("no"), "no"),
        (m.Goodbye("go"), "go"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, m.Message) else "",
)
def test_a_worker_is_told_to_leave(core, message, reason):
    """Retire, Refused and Goodbye end a worker, with a reason where there is trouble."""
    assert core.leave is None
    core.receive([message])

    assert core.leave == reason


def test_a_worker_that_retires_leaves_when_all_was_heard(core):
    """It leaves once it has run all it was given, has said so, and the scheduler has heard it."""
    assert not core.may_leave(0)

    core.receive([assign(0), m.Retire()])
    assert not core.may_leave(0)
    run_one(core)
    assert not core.may_leave(0), "a result waits"
    core.reports.flush()
    assert not core.may_leave(0), "it was not sent"
    core.take_actions()
    assert not core.may_leave(1), "it was not heard"
    assert core.may_leave(0)


@pytest.mark.parametrize("message", [m.Refused("no"), m.Goodbye("go")])
def test_a_worker_that_is_sent_away_waits_for_no_acknowledgement(core, message):
    """What its scheduler has not acknowledged by then, it never will."""
    core.receive([assign(0), message])
    assert not core.may_leave(1), "its tasks run to their end"

    run_one(core)
    assert core.may_leave(1)


def test_a_worker_does_not_leave_before_a_scheduler_has_taken_it_in(core):
    """One that was told to leave, and comes to another scheduler, waits for what that says."""
    core.receive([m.Retire(), m.Unknown()])
    core.come_back([], 1, 0.0)
    assert not core.may_leave(0)

    core.receive([m.Welcome(0, 0)])
    assert core.may_leave(0)


@pytest.mark.parametrize(
    "message", [m.Heartbeat(), m.Kill(b"W", ""), m.Results(0, payloads_of(0, 1))]
)
def test_what_is_for_others_is_refused(core, message):
    """A message that is not for a worker breaks the protocol."""
    with pytest.raises(RemoteProtocolError, match="not for a worker"):
        core.receive([message])


# -- giving back -----------------------------------------------------------------------------


def test_all_of_a_waiting_run_is_given_back(core):
    """Tasks behind others are given back whole."""
    core.receive([assign(0, 2), assign(10, 5)])
    claim(core)
    core.receive([m.Revoke(1, 10, 5)])

    assert sent(core) == ["Revoked 1:10-14 kept 0"]
    assert to_run(core) == [(1, 1)]


def test_the_tail_of_the_running_run_is_given_back(core):
    """Tasks of the running run that are asked for and not started are given back."""
    core.receive([assign(0, 10)])
    claim(core).cursor = 3
    core.receive([m.Revoke(1, 6, 4)])

    assert sent(core) == ["Revoked 1:6-9 kept 0"]
    assert to_run(core) == [(1, 4), (1, 5)]


def test_what_was_started_is_kept(core):
    """Tasks that ran, and the one that runs, are kept, and the answer says how many."""
    core.receive([assign(0, 10)])
    claim(core).cursor = 3
    core.receive([m.Revoke(1, 1, 9)])

    assert sent(core) == ["Revoked 1:1-9 kept 3"]
    assert to_run(core) == []


def test_a_run_that_is_over_is_kept_whole(core):
    """Nothing is given back of tasks that are not here any more."""
    core.receive([assign(0, 1)])
    run_one(core)
    core.receive([m.Revoke(1, 0, 1)])

    assert sent(core)[-1] == "Revoked 1:0 kept 1"


def test_a_gap_may_be_taken_out(core):
    """Tasks from the middle of a run can be taken out; what is behind them stays."""
    core.receive([assign(0, 10)])
    core.receive([m.Revoke(1, 3, 4)])

    assert sent(core) == ["Revoked 1:3-6 kept 0"]
    assert to_run(core) == [(1, task) for task in (0, 1, 2, 7, 8, 9)]


def test_other_sessions_are_left_alone(core):
    """A Revoke names a session: another one's tasks of the same number stay."""
    core.receive([assign(0, 3, session=1), assign(0, 3, session=2), m.Revoke(2, 0, 3)])

    assert sent(core) == ["Revoked 2:0-2 kept 0"]
    assert to_run(core) == [(1, 0), (1, 1), (1, 2)]


def test_a_cursor_past_the_end_claims_nothing(core):
    """Between a run's last task and its end nothing of what was given back comes to life."""
    core.receive([assign(0, 5)])
    work = claim(core)
    core.receive([m.Revoke(1, 2, 3)])
    work.cursor = 2
    core.receive([m.Revoke(1, 0, 2)])

    assert work.stop == 2
    assert sent(core)[-1] == "Revoked 1:0-1 kept 2"


# -- dropping --------------------------------------------------------------------------------


def test_waiting_tasks_are_dropped(core):
    """Aborted tasks that had not started are dropped, and reported."""
    core.receive([assign(0, 10)])
    claim(core)
    core.receive([m.Abort(1, 4, 3)])

    assert sent(core) == ["Aborted 1:4-6"]
    assert to_run(core) == [(1, task) for task in (1, 2, 3, 7, 8, 9)]
    assert core.interrupt is None


def test_the_running_task_is_to_be_interrupted(core):
    """An aborted task that runs is named to the shell, and reported only when it stopped."""
    core.receive([assign(0, 10)])
    work = claim(core)
    core.receive([m.Abort(1, 0, 3)])

    assert sent(core) == ["Aborted 1:1-2"]
    assert core.interrupt == (1, 0)
    assert core.interrupt_due()
    core.interrupted(work)
    assert sent(core) == ["Aborted 1:0"]
    assert not core.interrupt_due()


def test_results_before_an_interruption_are_reported_first(core):
    """What had returned before the interrupted task goes out before its report."""
    core.receive([assign(0, 3)])
    run_one(core)
    core.receive([m.Abort(1, 1, 1)])
    core.interrupted(core.queue[0])

    assert sent(core) == ["Done 1:0 [r]", "Aborted 1:1"]


def test_a_task_that_ended_is_not_interrupted(core):
    """Once the task is over, its interruption is moot: the next task is not hit."""
    core.receive([assign(0, 2)])
    work = claim(core)
    core.receive([m.Abort(1, 0, 1)])
    work.cursor = 1

    assert not core.interrupt_due()
    assert core.interrupt is None


def test_an_interruption_outlives_no_queue(core):
    """When nothing is left to run nothing is interrupted."""
    core.receive([assign(0, 1)])
    work = claim(core)
    core.receive([m.Abort(1, 0, 1)])
    core.finish(work)

    assert not core.interrupt_due()


def test_aborting_what_is_over_says_nothing(core):
    """A task that came back before its Abort arrived is not mentioned again."""
    core.receive([assign(0, 1)])
    run_one(core)
    sent(core)
    core.receive([m.Abort(1, 0, 1)])

    assert sent(core) == []


# -- reporting -------------------------------------------------------------------------------


def test_results_are_reported_together(core):
    """A flush reports all results since the last one, with the time that they took."""
    core.receive([assign(0, 5)])
    for now, result in ((0.0, b"a"), (0.001, b"b"), (0.003, b"c")):
        run_one(core, now, result)
    core.reports.flush()
    (done,) = core.take_actions()

    assert describe(done) == "Done 1:0-2 [a b c]"
    assert isinstance(done, m.Done)
    assert done.busy_s == 0.003


def test_the_next_flush_goes_on_from_there(core):
    """Time and tasks count from the last report; nothing new means no report."""
    core.receive([assign(0, 5)])
    run_one(core, 0.0)
    run_one(core, 0.010)
    core.reports.flush()
    core.reports.flush()
    run_one(core, 0.015)
    core.reports.flush()
    reports = core.take_actions()

    assert [describe(one) for one in reports] == ["Done 1:0-1 [r r]", "Done 1:2 [r]"]
    assert [round(one.busy_s, 6) for one in reports if isinstance(one, m.Done)] == [0.010, 0.005]


def test_another_run_is_another_report(core):
    """Results of different runs are reported apart, though nobody flushed between."""
    core.receive([assign(0, 1), assign(7, 1, session=2)])
    run_one(core)
    run_one(core)
    core.reports.flush()

    assert sent(core) == ["Done 1:0 [r]", "Done 2:7 [r]"]


def test_an_error_comes_after_the_results_before_it(core):
    """What had returned is reported before what failed, and the next results after it."""
    core.receive([assign(0, 3)])
    run_one(core, 0.0)
    work = core.queue[0]
    core.reports.erred(work, m.FAILED_EXCEPTION, b"", {})
    work.cursor += 1
    core.reports.begin(work, 0.0)
    run_one(core, 0.0)
    core.reports.flush()

    assert sent(core) == ["Done 1:0 [r]", "Erred 1:1 exception", "Done 1:2 [r]"]


def test_a_start_comes_after_the_results_before_it(core):
    """Started is reported after what had returned: the scheduler sees tasks in their order."""
    core.receive([assign(0, 2)])
    run_one(core)
    core.reports.started(core.queue[0])
    core.reports.printed(core.queue[0], "stdout", "text")

    assert sent(core) == ["Done 1:0 [r]", "Started 1:1", "Printed 1:1 stdout 'text'"]


def test_what_a_task_took_is_said_before_what_became_of_it(core):
    """A profile names the task at the cursor; the results before it may come after it."""
    core.receive([assign(0, 2)])
    run_one(core)
    core.reports.profiled(core.queue[0], 0.5, 0.25, 1000)
    run_one(core)
    core.reports.flush()

    assert core.take_actions()[0] == m.Profile(1, 1, 0.5, 0.25, 1000)


def test_actions_are_taken_once(core):
    """What was taken is not returned again."""
    core.receive([m.Revoke(1, 0, 1)])

    assert [sent(core), sent(core)] == [["Revoked 1:0 kept 1"], []]


# -- a model ---------------------------------------------------------------------------------


class WorkerMachine(RuleBasedStateMachine):
    """Each task is run, given back or dropped: exactly one of them, as reported, in order."""

    @initialize()
    def start(self) -> None:
        self.core = WorkerCore()
        self.core.receive([m.Function(function_id("f"), b"f")])
        self.waiting: list[int] = []
        self.running: int | None = None
        self.next_task = 0
        self.asked: list[tuple[int, int]] = []
        self.done: list[int] = []
        self.reported: list[int] = []

    @rule(count=st.integers(1, 6), gap=st.integers(0, 2))
    def assign(self, count, gap):
        first = self.next_task + gap
        self.next_task = first + count
        self.core.receive([assign(first, count)])
        self.waiting += range(first, first + count)

    @precondition(lambda self: self.running is None and self.core.queue)
    @rule()
    def claim(self):
        """Do as the main thread does until it stands on a task, or nothing is left."""
        while self.core.queue:
            work = self.core.queue[0]
            if work.cursor < 0:
                work.cursor = 0
                self.core.reports.begin(work, 0.0)
            if work.cursor < work.stop:
                self.running = self.waiting.pop(0)
                assert self.running == work.first + work.cursor
                return
            self.core.finish(work)
        assert not self.waiting

    @precondition(lambda self: self.running is not None)
    @rule(how=st.sampled_from(["returns", "raises", "stops"]))
    def end(self, how):
        core = self.core
        assert self.running is not None
        work = core.queue[0]
        if how == "returns":
            core.reports.results.append(b"%d" % self.running)
            work.cursor += 1
        else:
            if how == "raises":
                core.reports.erred(work, m.FAILED_EXCEPTION, b"", {})
            elif core.interrupt_due():
                core.interrupted(work)
            else:
                return
            work.cursor += 1
            core.reports.begin(work, 0.0)
        self.done.append(self.running)
        # The cursor stands on the next one: from here on that is claimed.
        self.running = self.waiting.pop(0) if work.cursor < work.stop else None

    @precondition(lambda self: self.next_task)
    @rule(data=st.data(), message=st.sampled_from([m.Revoke, m.Abort]))
    def take_out(self, data, message):
        first = data.draw(st.integers(0, self.next_task - 1))
        count = data.draw(st.integers(1, self.next_task - first))
        self.core.reports.flush()
        self.read()
        self.core.receive([message(1, first, count)])
        out = [task for task in self.waiting if first <= task < first + count]
        self.waiting = [task for task in self.waiting if task not in out]
        answers = self.core.take_actions()
        if message is m.Revoke:
            assert answers == [m.Revoked(1, first, count, count - len(out))]
        else:
            dropped = [
                task
                for one in answers
                if isinstance(one, m.Aborted)
                for task in range(one.first, one.first + one.count)
            ]
            assert dropped == out
            if self.running is not None and first <= self.running < first + count:
                assert self.core.interrupt_due()

    @rule()
    def read(self):
        """Report; what is reported is what ended, in order."""
        self.core.reports.flush()
        for message in self.core.take_actions():
            if isinstance(message, m.Done):
                count = len(message.batch)
                tasks = list(range(message.first, message.first + count))
                assert [int(bytes(one)) for one in message.batch] == tasks
            elif isinstance(message, m.Erred):
                tasks = [message.task]
            else:
                assert isinstance(message, m.Aborted)
                tasks = [message.first]
            self.reported += tasks
        assert self.reported == self.done

    @invariant()
    def runs_what_it_should(self):
        if hasattr(self, "core"):
            assert [task for _, task in to_run(self.core)] == self.waiting


WorkerMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestWorkerMachine = pytest.mark.slow(WorkerMachine.TestCase)

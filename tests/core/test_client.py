"""What a client asks for, what comes back, who waits for it."""

from __future__ import annotations

import contextlib
import itertools
import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scaler_cluster.core.client import requests as module
from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.core.client.events import Profiled, Settled
from scaler_cluster.core.client.requests import RUN_BYTES_MAX, RUN_TASKS_MAX
from scaler_cluster.errors import LocalProtocolError, RemoteProtocolError
from scaler_cluster.ids import CALL_MAX, TASK_ID_MAX, first_task_id
from scaler_cluster.testing.bench import function_id, payloads_of
from scaler_cluster.testing.describe import describe
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch
from scaler_cluster.wire.codec import FRAME_BYTES

F, G = function_id("f"), function_id("g")
URGENT = m.TaskOptions(priority=1)


class Call:
    """Stands for a map; remembers what it was told."""

    def __init__(self):
        self.told: list[tuple] = []
        self.outstanding = self.asked = 0

    def abort(self, error):
        self.told.append(("aborted", str(error)))

    def settle(self, index, batch):
        self.told.append(("settled", index, [bytes(one) for one in batch]))

    def returned(self, index, result):
        self.told.append(("returned", index, result))

    def fail(self, index, failure):
        self.told.append(("failed", index, failure.kind))

    def cancelled(self, index, count):
        self.told.append(("cancelled", index, count))


@pytest.fixture
def core():
    made = ClientCore()
    made.receive([m.Welcome(1, 4)], 0.0)
    return made


def submit(core, count=1, function=F, options=m.DEFAULT_OPTIONS, payload=b"p"):
    """Ask for single tasks; each one's waiter is its id as text."""
    first = core.requests.next_task
    for task in range(first, first + count):
        asked = (function, b"pickle", (), "f"), m.CALL_ARGS, options, (), payload
        assert core.submit(*asked, str(task)) == task
    return first


@contextlib.contextmanager
def interrupted_at_line(number):
    """Raise KeyboardInterrupt when ``ClientCore.submit`` comes to its ``number``-th line."""
    lines = itertools.count()

    def trace(frame, event, _):
        if frame.f_code is not ClientCore.submit.__code__:
            return None
        if event == "line" and next(lines) == number:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def sent(core):
    return [describe(message) for message in core.take_actions()]


def receive(core, *messages):
    """Let messages come, to what has been sent; return who was settled, with what."""
    core.pending()
    core.receive(messages, 1.0)
    return [(who, bytes(what) if isinstance(what, memoryview) else what)
            for event in core.events.take() if isinstance(event, Settled)
            for who, what in event.pairs]  # fmt: skip


# -- asking ----------------------------------------------------------------------------------


def test_a_lone_task_is_one_submission(core):
    """A single submit becomes a Submit of one, after the function that it names."""
    submit(core)

    assert sent(core) == ["Function f", "Submit 0 f"]


def test_a_lone_payload_is_not_copied(core):
    """The bytes of a task that travels alone are the very object that was given."""
    payload = bytes(100)
    submit(core, payload=payload)

    (_, message) = core.take_actions()
    assert isinstance(message, m.Submit)
    assert message.batch.data is payload


def test_submissions_of_one_turn_are_one_run(core):
    """Tasks of one function and options, submitted one by one, leave together."""
    submit(core, 5)

    assert len(core.requests.asked) == 5
    assert sent(core) == ["Function f", "Submit 0-4 f"]
    assert len(core.requests.asked) == 0


def test_a_turn_ends_a_run(core):
    """What was submitted after the last turn is a run of its own, with the next ids."""
    submit(core, 2)
    sent(core)
    submit(core, 2)

    assert sent(core) == ["Submit 2-3 f"]


def test_another_function_or_option_is_another_run(core):
    """Only tasks that share function, call and options form a run; order is kept."""
    submit(core, 2)
    submit(core, 1, function=G)
    submit(core, 2)
    submit(core, 1, options=URGENT)

    lines = sent(core)
    assert lines[:5] == [
        "Function f", "Submit 0-1 f", "Function g", "Submit 2 g", "Submit 3-4 f"
    ]  # fmt: skip
    assert lines[5].startswith("Submit 5 f TaskOptions(priority=1")


def test_runs_are_bounded_in_number(core):
    """After RUN_TASKS_MAX tasks a new run begins."""
    submit(core, RUN_TASKS_MAX + 1)

    assert sent(core)[1:] == [f"Submit 0-{RUN_TASKS_MAX - 1} f", f"Submit {RUN_TASKS_MAX} f"]


def test_runs_are_bounded_in_size(core):
    """Small payloads are joined up to RUN_BYTES_MAX."""
    size = FRAME_BYTES - 1
    submit(core, 100, payload=bytes(size))

    runs = [one for one in core.take_actions() if isinstance(one, m.Submit)]
    assert sum(len(run.batch) for run in runs) == 100
    assert all(run.batch.nbytes <= RUN_BYTES_MAX for run in runs)
    assert len(runs) == -(-100 // (RUN_BYTES_MAX // size))


def test_a_large_payload_travels_alone(core):
    """A payload that is a frame of its own starts a run of its own, uncopied."""
    submit(core, 2)
    submit(core, 1, payload=bytes(FRAME_BYTES))
    submit(core, 1, payload=bytes(FRAME_BYTES))

    assert sent(core)[1:] == ["Submit 0-1 f", "Submit 2 f", "Submit 3 f"]


def test_a_function_is_taught_once(core):
    """A function is sent before its first task, and never again."""
    submit(core)
    sent(core)
    submit(core)

    assert sent(core) == ["Submit 1 f"]


def test_a_function_that_is_forgotten_is_taught_anew(core):
    """A function is forgotten once, after the tasks that name it, and is sent again for others."""
    submit(core)
    core.requests.forget(F)
    core.requests.forget(F)
    submit(core)

    assert sent(core) == ["Function f", "Submit 0 f", "Forget f", "Function f", "Submit 1 f"]


def test_old_functions_are_forgotten(core, monkeypatch):
    """Beyond FUNCTIONS_MAX the client forgets the least recently used function, in order."""
    monkeypatch.setattr(module, "FUNCTIONS_MAX", 2)
    for letter in "abab":
        submit(core, function=function_id(letter))
    sent(core)
    submit(core, function=function_id("c"))
    submit(core, function=function_id("b"))
    submit(core, function=function_id("a"))

    assert sent(core) == [
        "Function c", "Forget a", "Submit 4 c", "Submit 5 b", "Function a", "Forget c", "Submit 6 a"
    ]  # fmt: skip


def test_what_is_said_keeps_its_place(core):
    """A message without state here leaves after what was submitted before it."""
    submit(core)
    core.requests.say(m.Heartbeat())
    submit(core)

    assert sent(core) == ["Function f", "Submit 0 f", "Heartbeat", "Submit 1 f"]


def test_has_actions_says_whether_a_turn_is_worth_it(core):
    """``has_actions`` is true while anything waits to be sent."""
    assert not core.requests.has_some
    submit(core)
    assert core.requests.has_some
    sent(core)
    assert not core.requests.has_some


def test_a_submission_that_is_interrupted_was_made_or_was_not(core):
    """A submission that KeyboardInterrupt cuts off leaves the next one right."""
    for moment in itertools.count():
        before = core.requests.next_task
        try:
            with interrupted_at_line(moment):
                core.submit(
                    (F, b"pickle", (), "f"), m.CALL_ARGS, m.DEFAULT_OPTIONS, (), b"first", "first"
                )
        except KeyboardInterrupt:
            task = core.submit(
                (F, b"pickle", (), "f"), m.CALL_ARGS, m.DEFAULT_OPTIONS, (), b"next", "next"
            )
        else:
            break
        payloads = {
            first: bytes(payload)
            for message in core.take_actions()
            if isinstance(message, m.Submit)
            for first, payload in enumerate(message.batch, message.first)
        }
        assert payloads[task] == b"next"
        assert payloads.pop(before, b"first") in (b"first", b"next")
        assert receive(core, m.Results(task, payloads_of(task, 1, "r"))) == [
            ("next", b"r%d" % task)
        ]
        core.cancel(core.pending())
        core.take_actions()
    assert moment > 2


# -- answers ---------------------------------------------------------------------------------


def test_the_welcome_names_the_session(core):
    """A client knows its session and the number of workers from its welcome."""
    assert (core.welcome.session, core.welcome.workers) == (1, 4)


def test_results_settle_who_waits(core):
    """Each result goes to the waiter of its task."""
    submit(core, 3)

    assert receive(core, m.Results(1, payloads_of(1, 2, "r"))) == [("1", b"r1"), ("2", b"r2")]
    assert core.busy
    assert receive(core, m.Results(0, payloads_of(0, 1, "r"))) == [("0", b"r0")]
    assert not core.busy


def test_failures_settle_who_waits(core):
    """A failure goes to the waiter of its task, as it came."""
    submit(core, 2)
    failed = m.Failed(1, m.FAILED_EXCEPTION, b"x", {})

    assert receive(core, failed) == [("1", failed)]


def test_a_task_is_settled_once(core):
    """A result that arrives later for a settled task is dropped."""
    submit(core)
    receive(core, m.Results(0, payloads_of(0, 1)))

    assert receive(core, m.Results(0, payloads_of(0, 1)), m.Failed(0, "lost")) == []
    assert receive(core, m.Cancelled(0, 1)) == []


def test_output_is_kept_for_the_shell(core):
    """What a task printed waits for the shell to print it."""
    message = m.Output(0, "stdout", "hi")
    core.receive([message], 1.0)

    assert core.events.take() == [message]


def test_profiles_are_kept_for_who_waits(core):
    """The profile of a task is handed on with its waiter; profiles of other tasks are dropped."""
    submit(core, 2)
    sent(core)
    took = m.Profile(1, 1, 0.5, 0.25, 1000)
    core.receive([m.Results(0, payloads_of(0, 1)), m.Profile(1, 0, 0.5, 0.25, 1000), took], 1.0)
    (settled,) = core.events.take()
    assert isinstance(settled, Settled)

    core.receive([m.Results(1, payloads_of(1, 1))], 1.0)

    profiled, settled = core.events.take()
    assert profiled == Profiled("1", took)
    assert isinstance(settled, Settled)


@pytest.mark.parametrize(
    "message",
    [m.Refused("no"), m.Broken("gone"), m.Goodbye("bye"), m.Unknown()],
    ids=lambda value: type(value).__name__,
)
def test_news_of_the_scheduler_are_handed_on(core, message):
    """The shell hears what became of the scheduler, or of this session, once."""
    core.receive([message], 1.0)

    assert core.events.take() == [message]
    assert core.events.take() == []


def test_a_heartbeat_says_that_the_scheduler_lives(core):
    """The client notes when it heard its scheduler last, and nothing else follows."""
    core.receive([m.Heartbeat()], 1.0)

    assert core.heard_at == 1.0
    assert core.events.take() == []


def test_what_was_printed_comes_before_what_came_back(core):
    """The shell prints a task's output before it settles the future."""
    submit(core)
    sent(core)
    printed = m.Output(0, "stdout", "hi")
    core.receive([m.Results(0, payloads_of(0, 1)), printed], 1.0)

    assert core.events.take()[0] == printed


@pytest.mark.parametrize(
    "message", [m.Retire(), m.Kill(b"W", ""), m.Done(1, 0, 0.1, payloads_of(0, 1))]
)
def test_what_is_for_others_is_refused(core, message):
    """A message that is not for a client breaks the protocol."""
    with pytest.raises(RemoteProtocolError, match="not for a client"):
        receive(core, message)


# -- cancelling ------------------------------------------------------------------------------


def test_cancelled_tasks_are_given_up_at_once(core):
    """Cancel returns the waiters, and nothing that comes later settles them."""
    submit(core, 3)
    sent(core)

    assert core.cancel([1]) == ["1"]
    assert sent(core) == ["Cancel 1"]
    assert receive(core, m.Results(0, payloads_of(0, 3, "r"))) == [("0", b"r0"), ("2", b"r2")]


def test_neighbours_are_cancelled_together(core):
    """Tasks with contiguous ids are one message, others are their own."""
    submit(core, 9)
    sent(core)
    core.cancel([0, 1, 2, 5, 7, 8])

    assert sent(core) == ["Cancel 0-2", "Cancel 5", "Cancel 7-8"]


def test_what_came_back_cannot_be_cancelled(core):
    """Tasks that were settled, cancelled before, or never were, are left out."""
    submit(core, 3)
    sent(core)
    receive(core, m.Results(0, payloads_of(0, 1)))
    core.cancel([1])

    assert core.cancel([0, 1, 2, 77]) == ["2"]
    assert sent(core) == ["Cancel 1-2"]


def test_a_task_is_submitted_before_it_is_cancelled(core):
    """A task that was not sent yet leaves before its Cancel: the scheduler sees both in order."""
    submit(core, 2)
    core.cancel([0])

    assert sent(core) == ["Function f", "Submit 0-1 f", "Cancel 0"]


def test_take_back_asks_for_all_that_waits(core):
    """Everything that has not gone to a worker is asked back; what is answered is cancelled."""
    submit(core, 5)
    core.take_back()

    assert sent(core)[-1] == f"Cancel 0-{TASK_ID_MAX - 1} queued only"
    assert receive(core, m.Cancelled(3, 2)) == [("3", None), ("4", None)]
    assert receive(core, m.Results(0, payloads_of(0, 3, "r")))[2] == ("2", b"r2")


def test_take_back_of_nothing_says_nothing(core):
    """Nothing is asked back when no task is waited for."""
    submit(core)
    receive(core, m.Results(0, payloads_of(0, 1)))
    sent(core)
    core.take_back()

    assert sent(core) == []


# -- maps ------------------------------------------------------------------------------------


def test_calls_have_their_own_ids(core):
    """Each map numbers its tasks from its own first id, apart from single tasks."""
    assert core.open_call(Call()) == first_task_id(1)
    assert core.open_call(Call()) == first_task_id(2)
    assert submit(core) == 0


def test_calls_end(core):
    """A session that opens too many calls is told so."""
    core.requests._next_call = CALL_MAX

    with pytest.raises(LocalProtocolError, match="too many calls"):
        core.open_call(Call())


def test_a_map_hears_of_its_own_tasks(core):
    """Results, failures and cancellations reach the map that they belong to, by index."""
    one, other = Call(), Call()
    first = core.open_call(one)
    core.open_call(other)
    core.requests.teach(F, b"pickle", (), "f")
    core.requests.submit_run(first, F, 0, m.DEFAULT_OPTIONS, (), payloads_of(0, 9))

    assert sent(core) == ["Function f", f"Submit {first}-{first + 8} f"]
    receive(
        core,
        m.Results(first + 2, Batch.of([b"x", b"y"])),
        m.Failed(first + 1, "exception"),
        m.Cancelled(first + 5, 3),
    )
    assert one.told == [
        ("settled", 2, [b"x", b"y"]), ("failed", 1, "exception"), ("cancelled", 5, 3)
    ]  # fmt: skip
    assert other.told == []


def test_maps_that_are_given_up_are_told_and_cancelled(core):
    """A core that gives its maps up tells each the error, and cancels what has not come back."""
    call = Call()
    call.asked = call.outstanding = 5
    first = core.open_call(call)
    core.abort_calls(OSError("gone"))

    assert call.told == [("aborted", "gone")]
    assert core.calls == {}
    assert sent(core) == [f"Cancel {first}-{first + 4}"]


def test_a_map_is_given_a_lazy_result_for_what_lies_in_segments(core):
    """A map gets what the client makes of a result in segments, by the index of its call."""
    core.lazy_result = lambda message: ("lazy", message.payload)
    call = Call()
    first = core.open_call(call)
    core.requests.submit_run(first, F, 0, m.DEFAULT_OPTIONS, (), payloads_of(0, 3))
    receive(core, m.Returned(first + 2, b"r", (b"W1-1",)))

    assert call.told == [("returned", 2, ("lazy", b"r"))]


def test_a_map_that_nobody_waits_for_is_cancelled(core):
    """Closing a map with tasks outstanding cancels them; what comes then is dropped."""
    call = Call()
    first = core.open_call(call)
    call.outstanding = 3
    assert core.busy
    core.close_call(first, 7)

    assert sent(core) == [f"Cancel {first}-{first + 6}"]
    receive(core, m.Results(first, payloads_of(0, 1)), m.Failed(first, "lost"),
            m.Cancelled(first, 1))  # fmt: skip
    assert call.told == []
    assert not core.busy


def test_a_finished_map_is_closed_in_silence(core):
    """A map that has everything is just forgotten; closing it twice does nothing."""
    first = core.open_call(Call())
    core.close_call(first, 7)
    core.close_call(first, 7)

    assert sent(core) == []


def test_a_lone_task_is_recognised(core):
    """A client knows when one single task is all it waits for."""
    assert not core.single_in_flight
    submit(core)
    assert core.single_in_flight
    core.open_call(Call())
    assert not core.single_in_flight


# -- a model ---------------------------------------------------------------------------------


class ClientMachine(RuleBasedStateMachine):
    """Each task is settled or cancelled, exactly once, whatever answers come in any order."""

    @initialize()
    def start(self) -> None:
        self.core = ClientCore()
        self.pending: set[int] = set()
        self.over: set[int] = set()
        self.submitted: list[int] = []
        self.asked = 0

    @rule(count=st.integers(1, 5), function=st.sampled_from([F, G]),
          options=st.sampled_from([m.DEFAULT_OPTIONS, URGENT]))  # fmt: skip
    def submit(self, count, function, options):
        for _ in range(count):
            payload = b"p%d" % self.asked
            task = self.core.submit((function, b"", (), "f"), 0, options, (), payload, self.asked)
            assert task == self.asked
            self.pending.add(task)
            self.asked += 1

    @rule()
    def send(self):
        """Everything is submitted once, in order, under its own number."""
        for message in self.core.take_actions():
            if isinstance(message, m.Submit):
                for task, payload in enumerate(message.batch, message.first):
                    assert bytes(payload) == b"p%d" % task
                    self.submitted.append(task)
        assert self.submitted == list(range(self.asked))

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), how=st.sampled_from(["results", "failed", "cancelled"]))
    def answer(self, data, how):
        first = data.draw(st.integers(0, self.asked - 1))
        count = 1 if how == "failed" else data.draw(st.integers(1, self.asked - first))
        tasks = set(range(first, first + count))
        self.send()
        message: m.Message
        if how == "results":
            message = m.Results(first, payloads_of(first, count, "r"))
        elif how == "failed":
            message = m.Failed(first, "exception")
        else:
            message = m.Cancelled(first, count)
        self.core.receive([message], 0.0)
        settled = [
            who
            for event in self.core.events.take()
            if isinstance(event, Settled)
            for who, _ in event.pairs
        ]

        assert settled == sorted(tasks & self.pending)
        self.pending -= tasks
        self.over |= tasks

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data):
        tasks = data.draw(st.lists(st.integers(0, self.asked - 1), unique=True))
        assert self.core.cancel(tasks) == [task for task in tasks if task in self.pending]
        self.pending -= set(tasks)
        assert self.core.busy == bool(self.pending)
        self.send()


ClientMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestClientMachine = pytest.mark.slow(ClientMachine.TestCase)


def test_tasks_that_fail_together_fail_each(core):
    """A range fails by one message: each task of submits, and of a map, and each once."""
    submit(core, 3)
    call = Call()
    first = core.open_call(call)
    core.requests.submit_run(first, F, 0, m.DEFAULT_OPTIONS, (), payloads_of(0, 2))

    failed = [m.Failed(task, "missing") for task in (1, 2)]
    assert receive(core, m.FailedRange(1, 2, "missing")) == [("1", failed[0]), ("2", failed[1])]
    assert receive(core, m.FailedRange(0, 3, "missing")) == [("0", m.Failed(0, "missing"))]
    receive(core, m.FailedRange(first, 2, "missing"))
    assert call.told == [("failed", 0, "missing"), ("failed", 1, "missing")]

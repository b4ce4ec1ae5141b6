"""The loop that runs the tasks of a worker, while messages come in between any two of its lines."""

from __future__ import annotations

from collections import Counter, deque

import pytest

from scaler_cluster.core.records.credit import HELD_COUNT, HELD_LEAST_S, HELD_S, holding_s
from scaler_cluster.core.records.limits import FLUSH_S, UNMEASURED_S
from scaler_cluster.core.worker.task_loop import AHEAD_S
from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.testing.bench import function_id, payloads_of
from scaler_cluster.testing.worker_driver import WorkerDriver
from scaler_cluster.wire import messages as m

MIDDLE_S = 2 * FLUSH_S
"""What a task takes whose result may wait for the next."""
COUNT = 4
"""Tasks of the work."""
LINES_MAX = 1000


class LateMessage:
    """Lets the control thread take in a message before one line of the loop, and count lines."""

    def __init__(self, core: WorkerCore, message: m.Message, line: int) -> None:
        self._core = core
        self._message = message
        self._line = line
        self.lines = 0

    def __call__(self) -> None:
        self.lines += 1
        if self.lines == self._line:
            self._core.reports.flush()
            self._core.receive([self._message])


def play(message: m.Message, line: int, *, report_start: bool) -> tuple[Counter[int], int]:
    """Run a work, and take in a message before a line of the loop.

    Return how often each task was run and reported, given back or dropped; and the lines in all.
    """
    core = WorkerCore()
    core.receive([m.Function(function_id("f"), b"f")])
    batch = payloads_of(0, COUNT)
    core.receive([m.Assign(1, 0, function_id("f"), 0, report_start, False, batch)])
    late = LateMessage(core, message, line)
    hands = WorkerDriver(core, control=late)
    came_to: Counter[int] = Counter()
    now = 0.0
    while hands.take_up(now) is not None:
        now += 0.01
        task = hands.task[1]
        assert core.queue[0].cursor == task, "it runs what it did not claim"
        if task % 2:
            hands.raised(m.FAILED_EXCEPTION, b"", {}, now)
        else:
            hands.returned(b"r%d" % task, now)
    core.reports.flush()
    for sent in core.take_actions():
        if isinstance(sent, m.Done):
            tasks = range(sent.first, sent.first + len(sent.batch))
            assert [bytes(one) for one in sent.batch] == [b"r%d" % task for task in tasks]
            came_to.update(tasks)
        elif isinstance(sent, m.Erred):
            assert sent.task % 2
            came_to[sent.task] += 1
        elif isinstance(sent, m.Aborted):
            came_to.update(range(sent.first, sent.first + sent.count))
        elif isinstance(sent, m.Revoked):
            came_to.update(range(sent.first + sent.kept, sent.first + sent.count))
    return came_to, late.lines


@pytest.mark.parametrize("report_start", [False, True])
@pytest.mark.parametrize("first", range(COUNT))
@pytest.mark.parametrize("kind", [m.Revoke, m.Abort])
def test_a_message_may_come_between_any_two_lines(kind, first, report_start):
    """Each task is run and reported, or given back, or dropped: one of these, and once."""
    message = kind(1, first, COUNT - first)
    line, lines = 0, LINES_MAX
    while line <= lines:
        line += 1
        came_to, lines = play(message, line, report_start=report_start)

        assert came_to == Counter(range(COUNT)), f"before line {line} of the loop"


def reports_of(sizes: list[int], took_s: float) -> list[list[int]]:
    """Run works of so many tasks each; return which tasks each report had, those at the end last."""
    core = WorkerCore()
    core.receive([m.Function(function_id("f"), b"f")])
    first, found = 0, []

    def take() -> None:
        done = [one for one in core.take_actions() if isinstance(one, m.Done)]
        if done:
            found.append([one.first + task for one in done for task in range(len(one.batch))])

    for size in sizes:
        batch = payloads_of(first, size)
        core.receive([m.Assign(1, first, function_id("f"), 0, False, False, batch)])
        first += size
    hands = WorkerDriver(core, pump=take)
    now = 0.0
    while hands.take_up(now) is not None:
        now += took_s
        hands.returned(b"r", now)
    core.reports.flush()
    take()
    return found


@pytest.mark.parametrize("sizes", [[11], [2, 2, 7], [1, 4, 6], [3, 1, 1, 6]])
def test_results_are_reported_together_while_more_tasks_wait(sizes):
    """The worker reports when one task is left to run, so that it is given more in time."""
    first, last = list(range(HELD_COUNT)), list(range(HELD_COUNT, 11))

    assert reports_of(sizes, MIDDLE_S) == [first, last[:2], last[2:]]


def test_shorter_tasks_are_reported_after_a_while():
    """As many as run in that time, and what is left to run keeps the worker busy meanwhile."""
    unit_s = 2 * HELD_LEAST_S
    found = reports_of([100], unit_s)
    sizes = [len(one) for one in found]

    assert sum(sizes) == 100
    assert sizes[:3] == [HELD_S // unit_s] * 3
    assert sizes[-1] * unit_s >= AHEAD_S


def test_a_result_that_may_be_all_the_worker_has_to_say_does_not_wait():
    """While the task after it runs, the worker is given more."""
    assert reports_of([2], MIDDLE_S) == [[0], [1]]


def test_the_loop_looks_at_the_queue_only_under_the_lock():
    """The control thread puts works into the queue, also while the loop looks what is ahead."""
    core = WorkerCore()
    core.receive([m.Function(function_id("f"), b"f")])
    core.receive([m.Assign(1, 0, function_id("f"), 0, False, False, payloads_of(0, 3))])
    hands = WorkerDriver(core)
    looks: list[bool] = []

    class Watched(deque):
        def __iter__(self):
            looks.append(hands._is_locked)
            return super().__iter__()

    core.queue = Watched(core.queue)
    now = 0.0
    while hands.take_up(now) is not None:
        now += MIDDLE_S
        hands.returned(b"r", now)

    assert looks
    assert all(looks)


def test_results_of_longer_tasks_do_not_wait():
    """The next one ends too late."""
    assert reports_of([4], UNMEASURED_S) == [[0], [1], [2], [3]]


def test_the_control_thread_does_not_report_what_waits_for_the_next_result():
    """It does so later: if that one turns out long."""
    core = WorkerCore()
    core.receive([m.Function(function_id("f"), b"f")])
    core.receive([m.Assign(1, 0, function_id("f"), 0, False, False, payloads_of(0, 3))])
    hands = WorkerDriver(core)
    hands.take_up(0.0)
    hands.returned(b"r", MIDDLE_S)
    hands.take_up(MIDDLE_S)

    assert core.reports.results == [b"r"]
    assert core.reports.due(pumped_at=0.0) == holding_s(MIDDLE_S) + MIDDLE_S
    core.reports.flush()
    core.take_actions()
    assert core.reports.due(pumped_at=0.0) == MIDDLE_S + FLUSH_S

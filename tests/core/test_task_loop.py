"""The loop that runs the tasks of a worker, while messages come in between any two of its lines."""

from __future__ import annotations

from collections import Counter

import pytest

from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.testing.bench import function_id, payloads_of
from scaler_cluster.testing.worker_driver import WorkerDriver
from scaler_cluster.wire import messages as m

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

"""How much work a worker is given ahead: a few milliseconds of it, by measured durations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler_cluster.core.records import FunctionRecord, WorkerRecord

WINDOW_S = 0.012
"""Work given ahead, three reports' worth: what one report asks for comes after it was made and is
taken in with the next. Short, so that it can go elsewhere."""
LOW_WATER_S = 0.75 * WINDOW_S
"""A worker with less than this ahead is given more: with each of its reports, that is. With half
a window it would wait for the report that says it ran dry."""
TASKS_MAX = 4096
"""Tasks given ahead at most, however short they are measured: bounds what a death can lose."""
AHEAD_MIN = 2
"""Tasks a worker has at least: the next one waits where the last one ends, not a trip away."""
LONG_S = 0.05
"""Tasks longer than this are not given ahead: a round trip between two is less than 1 % of one."""
MEMORY = 0.8
"""What an earlier measurement weighs when a new one enters the mean."""
STALL_S = 0.01
"""A worker that reports nothing for so long runs a task that turned out long: what waits behind
it is asked back."""
STEAL_MIN_S = 0.001
"""Less queued work than this is done before it could be moved: about two round trips."""


def measure(function: FunctionRecord, count: int, busy_s: float) -> None:
    """Let a measurement of ``count`` tasks that took ``busy_s`` in all enter the mean.

    Total time over total count, both fading: a small batch that was held up moves it little.
    """
    function.busy_s = function.busy_s * MEMORY + busy_s
    function.count = function.count * MEMORY + count
    function.mean_s = max(function.busy_s / function.count, 1e-9)
    function.totals.busy_s += busy_s
    function.totals.mean_s = function.mean_s


def is_hungry(worker: WorkerRecord) -> bool:
    """Return True if the worker should be given more.

    Not while it is asked to give something back: that comes before what it would get now.
    """
    if worker.stalled or worker.killed or worker.retiring or worker.revoking:
        return False
    if worker.blocked or worker.asleep_at != math.inf:
        return False
    if worker.task_limit and worker.given >= worker.task_limit:
        return False
    if worker.count >= worker.tasks_max:
        return False
    return worker.count < AHEAD_MIN or worker.backlog_s < LOW_WATER_S


def grant(worker: WorkerRecord, unit_s: float, fair_share: int) -> int:
    """Return how many tasks of ``unit_s`` seconds each to give a hungry worker.

    0 means: none while it has others.
    """
    if unit_s > LONG_S and worker.count:
        return 0
    room = min((WINDOW_S - worker.backlog_s) / unit_s, worker.tasks_max - worker.count)
    count = max(1, min(int(room), fair_share))
    if worker.task_limit:
        count = min(count, worker.task_limit - worker.given)
    return count

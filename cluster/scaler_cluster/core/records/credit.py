"""How much work a worker is given ahead: a few milliseconds of it, by measured durations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.records.limits import UNMEASURED_S, WINDOW_S

if TYPE_CHECKING:
    from scaler_cluster.core.records.functions import FunctionRecord, LayerRecord
    from scaler_cluster.core.records.workers import WorkerRecord

LOW_WATER_S = 0.75 * WINDOW_S
"""A worker with less than this ahead is given more, which is the case with each of its reports.
With half a window the worker would run dry before its report arrives."""
AHEAD_MIN = 2
"""Tasks a worker has at least, unless the first is long: the next task waits where the last one
ends, not a trip away."""
LONG_S = 0.05
"""Nothing is given ahead behind a task longer than this, nor such a task behind others: the round
trip between two of them is less than 1 % of a task."""
HELD_LEAST_S = 0.0005
"""Results of tasks from here to :data:`UNMEASURED_S` wait for more of them, while the worker has
more such tasks: a report takes about 1 ms of CPU time in all processes. What is shorter is many."""
HELD_COUNT = 8
HELD_S = 0.03
HELD_MAX_S = 0.08
"""They are eight, or as many as end in HELD_S if these are more; and none waits for longer than
HELD_MAX_S, which nobody sees while other results come."""
BEYOND_HELD = 1.5
BEYOND_HELD_S = 0.8 * LOW_WATER_S
"""A worker may have so many tasks, and so much work, beside what it reports together: something
runs until more has come. With what is left it is hungry."""
MEMORY = 0.8
"""The weight of earlier measurements when a new one enters the mean."""
STALL_S = 0.01
"""A worker that reports nothing for this long runs a task that turned out long. The scheduler asks
back what waits behind that task."""
PATIENCE = 2
"""A task of a kind that takes longer than this turned out long if it takes so many times that."""
STEAL_MIN_S = 0.001
"""Less queued work than this is done before the scheduler could move it: about two round trips."""


def expect(function: FunctionRecord | LayerRecord, count: int, busy_s: float) -> None:
    """Let a measurement of ``count`` tasks that took ``busy_s`` in all enter the mean.

    The mean is total time over total count. Both fade, so a small batch that was held up moves the
    mean little.
    """
    function.busy_s = function.busy_s * MEMORY + busy_s
    function.count = function.count * MEMORY + count
    function.mean_s = max(function.busy_s / function.count, 1e-9)


def measure(function: FunctionRecord | LayerRecord, count: int, busy_s: float) -> None:
    """Let a measurement enter the mean, as :func:`expect`, and count it under its name."""
    expect(function, count, busy_s)
    function.totals.busy_s += busy_s
    function.totals.mean_s = function.mean_s


def is_hungry(worker: WorkerRecord) -> bool:
    """Return True if the worker should be given more.

    A worker that is asked to give something back is not given more: it answers that first.
    """
    if worker.stalled or worker.killed or worker.retiring or worker.revoking:
        return False
    if worker.blocked or worker.parked or worker.paused or worker.asleep_at != math.inf:
        return False
    if worker.task_limit and worker.given >= worker.task_limit:
        return False
    if worker.count >= worker.tasks_max:
        return False
    backlog_s = worker.backlog_s
    return backlog_s < LOW_WATER_S or (worker.count < AHEAD_MIN and backlog_s <= LONG_S)


def grant(worker: WorkerRecord, unit_s: float, fair_share: int, held_s: float = 0.0) -> int:
    """Return how many tasks of ``unit_s`` seconds each to give a hungry worker.

    0 means: none while it has others. Their results may be held for ``held_s``.
    """
    if unit_s > LONG_S and worker.count:
        return 0
    window_s = WINDOW_S
    if held_s:
        window_s = held_s // unit_s * unit_s + max(BEYOND_HELD * unit_s, BEYOND_HELD_S)
    room = min((window_s - worker.backlog_s) / unit_s, worker.tasks_max - worker.count)
    count = max(1, min(int(room), fair_share))
    if worker.task_limit:
        count = min(count, worker.task_limit - worker.given)
    return count


def patience_s(unit_s: float, stall_s: float, held_s: float = 0.0) -> float:
    """Return after how long without a report a task that runs turned out long.

    Tasks of its kind take ``unit_s`` each. The results of those before it may be held.
    """
    return max(stall_s, PATIENCE * unit_s + max(0.0, held_s - unit_s))


def holding_s(unit_s: float) -> float:
    """Return how long a worker that has more tasks of ``unit_s`` may run them before it reports.

    0: results of such tasks are not held; those of nodes never are, as others wait for them.
    """
    if not HELD_LEAST_S <= unit_s < UNMEASURED_S:
        return 0.0
    return min(max(HELD_COUNT * unit_s, HELD_S), HELD_MAX_S)

"""When the control thread of a worker looks at what its main thread leaves undone.

A look costs a switch of threads: some 50 us, of some 400 that a task costs which travels alone. So
while a task is long the control thread sleeps, and what arrives wakes it. While tasks are short,
and their results wait for more of them, it looks every few milliseconds. While there are no tasks,
the main thread reads the socket itself.
"""

from __future__ import annotations

import math

from scaler_cluster.core.records.limits import FLUSH_S
from scaler_cluster.core.worker.task_loop import OVERDUE_S

LEAST_S = 0.0005
"""The control thread sleeps so long at least."""
LONG_S = 0.02
"""While a task runs on for longer than this, the control thread listens. Of shorter tasks, the next
ones arrive ahead of their time, and each would wake it."""
REST_S = 0.05
"""So often the control thread looks while tasks come that are short, and no result of them can
wait. To look more often would be in the way of one in a hundred of them."""
IDLE_S = 0.5
"""So often the control thread looks in any case, while a task runs: for acknowledgements and
repetitions, which are in no hurry."""
BUSY_S = 2.0
"""So often while one task after the other ends within IDLE_S: the main thread sees to it between
them. After longer ones, the scheduler would probe a worker that acknowledges nothing."""


class Lookout:
    """Decides when to look, and whether what arrives wakes the thread; see the worker's lock."""

    def __init__(self) -> None:
        self.look_at = math.inf
        """When the control thread looks unless it is woken before."""
        self.long_s = LONG_S
        """From here on a task is long."""
        self._rest_s = REST_S
        self.listens = False
        """What arrives wakes the control thread; not while the main thread has no tasks."""
        self._seen = 0.0

    def expect_requests(self, *, is_on: bool) -> None:
        """Other workers may wait for results that this one keeps: their requests are urgent."""
        self.long_s = OVERDUE_S if is_on else LONG_S
        self._rest_s = FLUSH_S if is_on else REST_S

    # Each of the next two returns True if the control thread is to be woken: it sleeps too long.

    def begin(self, now: float, took_s: float) -> bool:
        """The main thread goes on to tasks, which may take as long as the last one did."""
        self.listens = took_s >= self.long_s
        due = now + (self._idle_s(took_s) if self.listens else self._rest_s)
        if self.look_at <= due + FLUSH_S:
            return False
        self.look_at = due
        return True

    def look_by(self, time: float) -> bool:
        """Something waits until then: results, while the next task may be long."""
        # To look a little late does no harm.
        if self.look_at <= time + FLUSH_S:
            return False
        self.look_at = time
        return True

    def looked(
        self,
        now: float,
        last_end: float,
        took_s: float,
        due: float,
        *,
        is_busy: bool,
        results_wait: bool,
        may_wait: bool,
        interrupts: bool,
    ) -> None:
        """The control thread has looked: decide what is next. Results that wait are due then.

        ``may_wait``: the task that runs is not the last one.
        """
        has_rested, self._seen = last_end == self._seen, last_end
        if not is_busy:
            self.look_at = math.inf if has_rested else now + REST_S
            return
        runs_s = now - last_end
        if results_wait or (may_wait and max(took_s, runs_s) < OVERDUE_S):
            # After a task that took longer than this, the main thread itself looks whether the
            # result of the next one waits; after others it relies on this.
            self.listens = False
            self.look_at = max(due, now + LEAST_S)
        else:
            self.listens = max(took_s, runs_s) >= self.long_s
            idle_s = IDLE_S if has_rested else self._idle_s(took_s)
            pause_s = idle_s if self.listens else self._rest_s
            self.look_at = now + (LONG_S if interrupts else pause_s)

    def _idle_s(self, took_s: float) -> float:
        """Return how long to sleep if what arrives wakes the thread, after a task of so long."""
        return BUSY_S if self.long_s <= took_s < IDLE_S else IDLE_S

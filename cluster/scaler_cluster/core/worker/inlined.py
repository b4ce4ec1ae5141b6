"""What became of tasks that the scheduler does not hear of otherwise, as they ran right here.

They are counted, and told in few messages: the scheduler adds them to what it counted itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.worker.subtasks import Subtask

TELL_S = 0.25
"""Counts are told this late: a monitor shows them with the next snapshot or the one after."""


class InlinedTasks:
    """Counts the tasks that ended here, by function, until they are told."""

    def __init__(self) -> None:
        self._counts: dict[str, m.Inlined] = {}
        self._recalled = 0
        """Tasks that the scheduler gave back, and that it was not told of since."""
        self.due_at = math.inf
        """When :meth:`take_due` has something, as soon as that was asked once."""

    @property
    def is_unseen(self) -> bool:
        """Return True if there is something that no call of :meth:`take_due` has seen."""
        return bool(self._counts) and self.due_at == math.inf

    def ended(self, child: Subtask, outcome: object, took_s: float) -> None:
        """A task has run here; ``outcome`` is None if it was interrupted."""
        counts = self._of(child)
        counts.busy_s += took_s
        if outcome is None:
            counts.cancelled += 1
        elif isinstance(outcome, m.Failed):
            counts.failed += 1
        else:
            counts.done += 1
        if child.is_recalled:
            counts.recalled += 1

    def given_up(self, child: Subtask) -> None:
        """Tasks were held here, and nobody wants them any more."""
        counts, count = self._of(child), len(child.batch)
        counts.cancelled += count
        if child.is_recalled:
            counts.recalled += count

    def _of(self, child: Subtask) -> m.Inlined:
        name = child.function[3]
        counts = self._counts.get(name)
        if counts is None:
            counts = self._counts[name] = m.Inlined(name)
        return counts

    def given_back(self, count: int) -> None:
        """The scheduler has given so many tasks back, as they were recalled."""
        self._recalled += count

    def goes_again(self, child: Subtask) -> m.Inlined:
        """Return what to say before tasks that were recalled are submitted once more."""
        child.is_recalled = False
        count = len(child.batch)
        self._recalled -= count
        return m.Inlined(child.function[3], again=count)

    def take_due(self, now: float, *, is_idle: bool) -> list[m.Inlined]:
        """Return what it is time to tell; ``is_idle`` if no task has anything here."""
        if not self._counts and not (is_idle and self._recalled):
            self.due_at = math.inf
            return []
        if self.due_at > now:
            self.due_at = min(self.due_at, now + TELL_S)
            return []
        self.due_at = math.inf
        told = list(self._counts.values())
        self._counts = {}
        self._recalled -= sum(one.recalled for one in told)
        if is_idle and self._recalled:
            # They came back when nobody wanted them any more.
            self._recalled = 0
            told.append(m.Inlined("", is_last=True))
        return told

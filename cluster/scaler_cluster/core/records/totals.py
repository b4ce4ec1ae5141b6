"""How many tasks came to what. It is always counted: a late watcher is told all of it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler_cluster.ids import FUNCTION_NAME_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES_MAX = 1024
"""Names of functions that are counted apart: more than a person looks at."""
OTHERS = "(others)"
"""The name under which the functions are counted that there is no room for."""


@dataclass(slots=True)
class Totals:
    """Counts the tasks of one client, or of all functions of one name.

    Each task is counted once as submitted, and once as done, failed or cancelled: as soon as that
    is certain, though a worker may still run it.
    """

    submitted: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    recalled: int = 0
    """Now: the tasks that wait for these have them back, to run them; the scheduler has not."""
    retried: int = 0
    moved: int = 0
    inlined: int = 0
    """Tasks that were done or failed where others waited for them, which ran them themselves."""
    busy_s: float = 0.0
    inlined_s: float = 0.0
    """What part of ``busy_s`` is also part of the time of the tasks that waited."""
    mean_s: float | None = None
    """How long a task takes, as the function measured last has it."""
    users: int = 0
    """Functions of this name that are still in use."""

    @property
    def pending(self) -> int:
        """Return how many tasks the scheduler has."""
        return self.submitted - self.done - self.failed - self.cancelled - self.recalled

    def add(self, other: Totals) -> None:
        """Add the numbers of another one."""
        self.submitted += other.submitted
        self.done += other.done
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.recalled += other.recalled
        self.retried += other.retried
        self.moved += other.moved
        self.inlined += other.inlined
        self.busy_s += other.busy_s
        self.inlined_s += other.inlined_s

    def copy(self) -> Totals:
        """Return the same numbers."""
        made = Totals(mean_s=self.mean_s)
        made.add(self)
        return made


class Names:
    """The totals of all functions, by name."""

    def __init__(self) -> None:
        self._totals: OrderedDict[str, Totals] = OrderedDict()
        self._others = Totals()

    def enter(self, name: str) -> Totals:
        """Return where the tasks of a new function are counted; the caller counts users down."""
        name = name[:FUNCTION_NAME_CHARS_MAX]
        totals = self._totals.get(name)
        if totals is None:
            if len(self._totals) < NAMES_MAX or self._make_room():
                totals = self._totals[name] = Totals()
            else:
                totals = self._others
        else:
            self._totals.move_to_end(name)
        totals.users += 1
        return totals

    def find(self, name: str) -> Totals:
        """Return where tasks of a function are counted that the scheduler need not know."""
        totals = self.enter(name)
        totals.users -= 1
        return totals

    def _make_room(self) -> bool:
        """Count the oldest name that is not in use among the others; False: all are in use."""
        for name, totals in self._totals.items():
            if not totals.users and not totals.recalled:
                self._others.add(totals)
                del self._totals[name]
                return True
        return False

    def __iter__(self) -> Iterator[tuple[str, Totals]]:
        """Yield each name, and what was counted of it."""
        yield from self._totals.items()
        if self._others.submitted:
            yield OTHERS, self._others

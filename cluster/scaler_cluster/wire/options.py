"""The options of tasks, as they travel.

Apart from the messages: who only checks what a user asks for does not wait for all of those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Capabilities: TypeAlias = "tuple[tuple[str, float], ...]"
"""Names and amounts, ordered by name. Offered: how much there is, -1 if it is never used up.
Demanded: how much a task uses, 0 or less if it must only be there."""

Demand: TypeAlias = "tuple[Capabilities, tuple[str, ...], int, bool]"
"""What tasks demand: capabilities, names of workers, cores, and whether a worker for good."""

ACTOR = "actor:"
"""Names of actors begin so; no machine has such a name."""
WHOLE_MACHINE = -1
"""As a number of cores: all that the machine has."""


@dataclass(slots=True, frozen=True)
class TaskOptions:
    """The options that a user sets for each task of a submission."""

    priority: int = 0
    """Tasks with a higher priority run first."""
    timeout_s: float | None = None
    """A task is stopped this many seconds after its start; None: never."""
    retries: int = 0
    """How often a task runs again after it raised or its worker died."""
    at_most_once: bool = False
    """Never start a task a second time, even if its machine was lost."""
    stream_output: bool = False
    """Send the output of the task to the client."""
    profiling: bool = False
    """Measure the task, and send the client a Profile."""
    depth: int = 0
    """The level of nesting: 0 if no task submitted the task, 1 for its children, and so on. Among
    tasks of equal priority, deeper ones run first."""
    capabilities: Capabilities = ()
    """What the worker must have to run the task."""
    workers: tuple[str, ...] = ()
    """Names of workers and machines, and aliases of workers, that may run the task; empty: any."""
    log_level: int = 0
    """Send the task's log records from this level on to the client; 0: none."""
    cores: int = 1
    """How many workers of its machine run nothing else while it runs, its own among them;
    WHOLE_MACHINE: all of them."""
    creates: str = ""
    """The actor that the task makes: from then on its worker runs nothing but calls of that actor.
    Tasks whose ``workers`` name an actor are its calls."""

    @property
    def demand(self) -> Demand:
        """What a worker and its machine must have to run the task."""
        return self.capabilities, self.workers, self.cores, bool(self.creates)

    @property
    def is_for_any(self) -> bool:
        """True if any worker may run the task."""
        return self.cores == 1 and not (self.capabilities or self.workers or self.creates)

    @property
    def actor(self) -> str:
        """The actor whose method the task calls; empty: it is no such call."""
        first = self.workers[0] if self.workers else ""
        return first if first.startswith(ACTOR) else ""


DEFAULT_OPTIONS = TaskOptions()
"""The one that travels as nothing; who makes options that equal it uses it itself."""


def intern_options(options: TaskOptions) -> TaskOptions:
    """Return DEFAULT_OPTIONS for options that equal it, others as they are."""
    return DEFAULT_OPTIONS if options == DEFAULT_OPTIONS else options

"""Which error a future may have because of which fault: the one place to make this stricter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.soak.faults import (
    CUT,
    KILL_SCHEDULER,
    KILL_STORAGE,
    KILL_SUPERVISOR,
    KILL_WORKER,
    MUTE,
    SLOW,
    STOP_CLIENT,
    STOP_SCHEDULER,
    STOP_STORAGE,
    STOP_SUPERVISOR,
    STOP_WORKER,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.soak.faults import Injected

AT_MOST_ONCE = "at_most_once"
LARGE = "large"
"""Traits of tasks: may not run again; takes or returns large data."""
SILENT = (MUTE, CUT, STOP_SUPERVISOR, STOP_SCHEDULER)
"""Faults by which a machine, or a client, may be given up."""
MACHINE_LOST = (KILL_SUPERVISOR, *SILENT)
FORGOTTEN = (KILL_SCHEDULER, STOP_CLIENT, MUTE, CUT, STOP_SCHEDULER)
"""Faults after which the scheduler may not know a client any more."""
TRACE_S = 5.0
"""What followed from a fault may be noticed so much later."""


@dataclass(frozen=True)
class Rule:
    """An error that one of these faults allows, to tasks that have one of these traits."""

    faults: tuple[str, ...]
    traits: tuple[str, ...] = ()
    """Empty: to all tasks."""


ALLOWED: dict[str, tuple[Rule, ...]] = {
    # The worker that ran it, or a task for which it waits, was killed.
    "WorkerDiedError": (Rule((KILL_WORKER,)),),
    # Nobody can know whether it has started; or nothing is left to run it from.
    "TaskLostError": (
        Rule((KILL_WORKER, *MACHINE_LOST, *FORGOTTEN), (AT_MOST_ONCE,)),
    ),
    # Today objects end with their scheduler, and with a storage that runs by itself.
    "MissingObjectsError": (
        Rule((*FORGOTTEN, KILL_STORAGE, KILL_SUPERVISOR), (LARGE,)),
    ),
    # A large result stays where it was made, and that machine is gone or too slow to answer.
    "StorageUnreachableError": (
        Rule((*MACHINE_LOST, *FORGOTTEN, KILL_STORAGE, STOP_STORAGE, SLOW), (LARGE,)),
    ),
}  # fmt: skip
"""By the name of the error. STOP_WORKER allows nothing: what it runs is only late."""
assert STOP_WORKER not in {fault for rules in ALLOWED.values() for r in rules for fault in r.faults}


@dataclass(frozen=True)
class Failure:
    """An error that a future has and that the load did not ask for."""

    error: str
    text: str
    kind: str
    traits: list[str]
    began: float
    """When the first thing that it needs was asked for, on the monotonic clock."""
    ended: float
    pid: int = 0
    """Of the worker that died, if that is why."""


def excuse(failure: Failure, injected: Iterable[Injected]) -> str:
    """Return the fault that allows a failure; empty if none does."""
    since = failure.began - TRACE_S
    meanwhile = [one for one in injected if one.began <= failure.ended and one.ended >= since]
    for rule in ALLOWED.get(failure.error, ()):
        if rule.traits and not set(rule.traits) & set(failure.traits):
            continue
        for one in meanwhile:
            if one.fault in rule.faults and _fits(failure, one):
                return one.fault
    return ""


def _fits(failure: Failure, one: Injected) -> bool:
    """Return True unless a killed worker is another one than that which died."""
    return one.fault != KILL_WORKER or not failure.pid or one.target == f"pid {failure.pid}"

"""Limits of the engine that a simulation makes so small that they are reached.

They are constants of modules, and no peer depends on those of another. So a simulation patches them
while it runs, here and nowhere else, and puts them back.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

CORE = "scaler_cluster.core."
LIMITS: dict[str, tuple[int, ...]] = {
    CORE + "client.requests:FUNCTIONS_MAX": (2, 3),
    CORE + "client.requests:RUN_TASKS_MAX": (1, 2, 3),
    CORE + "client.unfinished:DEAD_MIN": (1, 2),
    CORE + "delivery.channel:ACKNOWLEDGE_EVERY": (1, 2, 3),
    CORE + "delivery.channel:EARLY_MAX": (1, 2, 3),
    CORE + "delivery.channel:EARLY_BYTES_MAX": (100, 300),
    CORE + "delivery.channel:ENVELOPE_BYTES": (1, 100),
    CORE + "graph.critical_path:STEPS_MAX": (0, 3, 10),
    CORE + "graph.graph:FEW_MAX": (1, 2),
    CORE + "graph.graph:LOOK": (1, 2),
    CORE + "graph.graph:SIBLINGS_MAX": (0, 1, 2),
    CORE + "graph.placer:COMING_MAX": (1,),
    CORE + "graph.ready_nodes:LOOK_BACK": (1, 2),
    CORE + "records.credit:AHEAD_MIN": (1, 3),
    CORE + "records.totals:NAMES_MAX": (2, 3),
    CORE + "scheduler.assignment:WORKER_FUNCTIONS_MAX": (1, 2, 3),
    CORE + "scheduler.deadlines:CLEAN_AT_MIN": (1, 2),
    CORE + "scheduler.dispatch:LOOK_QUEUED": (1, 2),
    CORE + "scheduler.dispatch:PLACE_CANDIDATES": (1, 2),
    CORE + "scheduler.dispatch:STEAL_CANDIDATES": (1, 2),
    CORE + "scheduler.rebalance:STEAL_CANDIDATES": (1, 2),
    CORE + "scheduler.supervisor_handlers:LOST_MAX": (1, 2),
    CORE + "storage.copies:COPIES_AT_ONCE": (1,),
    CORE + "storage.transfer:PARTS_AHEAD": (1, 2),
    CORE + "storage.transfer:PART_BYTES_MIN": (3, 10),
    CORE + "storage.uploads:SENT_MAX": (1, 2),
    CORE + "supervisor.supervisor:STARTS_MAX": (1, 2),
    CORE + "worker.kept_results:LOOKS": (1, 2),
    CORE + "worker.nested:RECALL_MAX": (1, 2),
    CORE + "worker.nested:RECALL_OTHERS": (1, 2),
    "scaler_cluster.wire.codec:FRAME_BYTES": (1, 20, 100),
}
"""What each of them may become. A name in another module that is the same object stays as it is."""

Limits = tuple[tuple[str, int], ...]


def draw(dice: random.Random) -> Limits:
    """Return some limits, each with a small value."""
    share = dice.choice((0.1, 0.3, 0.7))
    return tuple((name, dice.choice(LIMITS[name])) for name in LIMITS if dice.random() < share)


@contextmanager
def limited(limits: Sequence[tuple[str, int]]) -> Iterator[None]:
    """Have these limits inside."""
    before = []
    for name, value in limits:
        module, _, constant = name.partition(":")
        found = import_module(module)
        before.append((found, constant, getattr(found, constant)))
        setattr(found, constant, value)
    try:
        yield
    finally:
        for found, constant, value in reversed(before):
            setattr(found, constant, value)

"""What simulations consist of."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """What a simulation consists of."""

    machines: int = 2
    workers: int = 3
    clients: int = 2
    tasks: int = 60
    """Tasks of each client."""
    faults_s: float = 8.0
    """Until when things go wrong, in simulated seconds."""
    drop: float = 0.03
    duplicate: float = 0.03
    worker_crashes: int = 4
    machine_crashes: int = 1
    pauses: int = 3
    silences: int = 0
    """Machines and clients that nothing is heard of for longer than the scheduler waits, and that
    come back."""
    scheduler_crashes: int = 0
    """How often the scheduler is started anew."""
    tasks_waiting_max: int = -1
    """How many tasks wait in the scheduler; -1: no limit."""
    leavers: int = 0
    """Clients that vanish."""
    check_every: int = 1
    """Steps of the scheduler between two looks at its invariants."""
    graphs: int = 0
    """Graphs of each client."""
    nodes: int = 30
    """Nodes of a graph, at most."""
    levels: int = 0
    """How many levels of tasks a task may submit."""
    has_objects: bool = False
    """Large arguments and results lie in segments; each machine after the first has its own."""
    storage_crashes: int = 0
    object_retention_s: float = math.inf
    """A copy of an object goes when it was not used for so long."""
    idle_s: float = 0.0
    """How long a worker has nothing to do, before it gets what others have queued."""


PLANS = {
    "tasks": Plan(),
    "graphs": Plan(tasks=15, graphs=5, machine_crashes=2, worker_crashes=6, check_every=3),
    "objects": Plan(
        tasks=20, graphs=4, has_objects=True, machines=3, workers=2, machine_crashes=2,
        storage_crashes=2, object_retention_s=0.5, check_every=3,
    ),
    "nested": Plan(tasks=15, levels=2, idle_s=math.inf, check_every=3),
    "one worker": Plan(
        machines=1, workers=1, clients=1, tasks=10, graphs=2, levels=3, check_every=5
    ),
    "everything": Plan(
        tasks=10, graphs=2, levels=2, has_objects=True, machines=3, workers=2, machine_crashes=2,
        worker_crashes=6, storage_crashes=2, clients=3, leavers=1, object_retention_s=0.5,
        idle_s=0.1, check_every=10,
    ),
}  # fmt: skip
"""By what they are for."""

"""What simulations consist of."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scaler_cluster.testing.limits import draw

if TYPE_CHECKING:
    from scaler_cluster.testing.limits import Limits


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
    client_timeout_s: float = 30.0
    """After how long a silent client is given up. What it has stored is gone then."""
    scheduler_crashes: int = 0
    """How often the scheduler is started anew."""
    stops: int = 0
    """How often anybody is stopped for up to a minute."""
    partitions: int = 0
    """How often a link is cut, in both directions or in one, for less or more than any timeout."""
    overtakings: int = 0
    """How often a new connection overtakes the old one of the same link."""
    slow: float = 0.0
    """How many links carry few bytes a second."""
    rogues: int = 0
    """Peers that say anything."""
    task_limit: int = 0
    """After how many tasks a worker leaves and another one comes; 0: never."""
    has_changing_machines: bool = False
    """Machines offer other capabilities when they come back; tasks demand them."""
    has_shares: bool = False
    """The workers of a machine share amounts and GPUs; tasks demand them, or several workers."""
    has_tiny_limits: bool = False
    """A seed draws limits that are reached at once."""
    limits: Limits = ()
    """Limits that differ from those of the engine, by module and name."""
    tasks_waiting_max: int = -1
    """How many tasks wait in the scheduler; -1: no limit."""
    leavers: int = 0
    """Clients that vanish."""
    check_every: int = 16
    """Turns of the scheduler between two looks at its invariants, if something happens in them. A
    look changes nothing: a seed that failed is played again with a look after each turn."""
    graphs: int = 0
    """Graphs of each client."""
    actors: int = 0
    """Actors of each client, which all clients call."""
    nodes: int = 30
    """Nodes of a graph, at most."""
    levels: int = 0
    """How many levels of tasks a task may submit."""
    has_objects: bool = False
    """Large arguments and results lie in segments; each machine after the first has its own."""
    rounds: int = 0
    """If clients only contend for locks and the like: how often each does."""
    storage_crashes: int = 0
    object_retention_s: float = math.inf
    """A copy of an object goes when it was not used for so long."""
    idle_s: float = 0.0
    """How long a worker has nothing to do, before it gets what others have queued."""

    @property
    def demands(self) -> bool:
        """Return True if tasks may demand capabilities."""
        return self.has_changing_machines and self.machines > 1

    @property
    def loses_touch(self) -> bool:
        """Return True if the scheduler may give up a peer that lives."""
        some = self.silences, self.scheduler_crashes, self.stops, self.partitions, self.overtakings
        return any(some)


FAULTS = (
    "worker_crashes", "machine_crashes", "pauses", "silences", "scheduler_crashes", "leavers",
    "storage_crashes", "stops", "partitions", "overtakings", "rogues",
)  # fmt: skip
"""Fields of a plan that say how often something goes wrong."""
SIZES = (0.05, 0.05, 0.1, 0.1, 0.1, 0.1, 0.2, 0.2, 0.4, 1.0)
"""Parts of a plan that seeds play. Most faults show in small ones, of which many can be played."""
QUICKLY = (0.0, 1.0, 1.0, 3.0)
"""How often envelopes are lost or repeated, in multiples of what the plan says."""

PLANS = {
    "tasks": Plan(),
    "graphs": Plan(tasks=15, graphs=5, machine_crashes=2, worker_crashes=6),
    "objects": Plan(
        tasks=20, graphs=4, has_objects=True, machines=3, workers=2, machine_crashes=2,
        storage_crashes=2, object_retention_s=0.5,
    ),
    "nested": Plan(tasks=15, levels=2, idle_s=math.inf),
    "one worker": Plan(machines=1, workers=1, clients=1, tasks=10, graphs=2, levels=3),
    "everything": Plan(
        tasks=10, graphs=2, levels=2, has_objects=True, machines=3, workers=2, machine_crashes=2,
        worker_crashes=6, storage_crashes=2, clients=3, leavers=1, object_retention_s=0.5,
        idle_s=0.1,
    ),
    "losses": Plan(machines=3, machine_crashes=6, worker_crashes=10, clients=3, leavers=2),
    "late returns": Plan(tasks=30, graphs=2, levels=1, silences=3),
    "restarts": Plan(tasks=30, graphs=2, levels=1, scheduler_crashes=3, silences=1),
    "asks first": Plan(
        tasks=30, graphs=3, clients=3, leavers=1, tasks_waiting_max=20, scheduler_crashes=2,
        silences=1, partitions=2, overtakings=2,
    ),
    "partitions": Plan(tasks=30, graphs=2, levels=1, partitions=4, overtakings=4),
    "stops": Plan(tasks=30, graphs=2, levels=1, stops=4),
    "slow links": Plan(tasks=20, graphs=2, has_objects=True, machines=3, slow=0.2),
    "changes": Plan(tasks=30, graphs=2, machines=4, machine_crashes=4, task_limit=7,
        has_changing_machines=True),
    "shares": Plan(
        tasks=30, graphs=2, workers=4, machine_crashes=2, worker_crashes=6, silences=1, stops=1,
        task_limit=9, has_shares=True,
    ),
    "shares and restarts": Plan(
        tasks=20, graphs=2, levels=2, workers=4, scheduler_crashes=2, silences=1, partitions=2,
        has_shares=True,
    ),
    "actors": Plan(
        tasks=40, actors=2, clients=3, leavers=1, worker_crashes=6, machine_crashes=1, silences=1,
        scheduler_crashes=2, partitions=2, overtakings=2,
    ),
    "rogues": Plan(tasks=20, graphs=2, levels=1, has_objects=True, rogues=3),
    "tiny limits": Plan(
        tasks=20, graphs=3, levels=2, has_objects=True, storage_crashes=1, tasks_waiting_max=20,
        has_tiny_limits=True,
    ),
    "contention": Plan(
        machines=1, workers=1, clients=40, tasks=0, rounds=12, leavers=8, worker_crashes=0,
        machine_crashes=0,
    ),
    "contention and restarts": Plan(
        machines=1, workers=1, clients=20, tasks=0, rounds=12, leavers=4, worker_crashes=0,
        machine_crashes=0, scheduler_crashes=3, pauses=0, drop=0.0, duplicate=0.0,
    ),
    "contention and silence": Plan(
        machines=1, workers=1, clients=20, tasks=0, rounds=12, leavers=3, worker_crashes=0,
        machine_crashes=0, scheduler_crashes=2, silences=3, partitions=3, stops=2, overtakings=2,
    ),
    "storm": Plan(
        tasks=20, graphs=2, levels=1, has_objects=True, machines=3, machine_crashes=2,
        storage_crashes=1, clients=3, silences=1, stops=2, partitions=2, overtakings=2, slow=0.1,
        rogues=1, task_limit=20, has_changing_machines=True, has_tiny_limits=True,
        client_timeout_s=150.0,
    ),
    "storm and restarts": Plan(
        tasks=20, graphs=2, levels=1, machines=3, machine_crashes=2, clients=3, silences=1, stops=2,
        scheduler_crashes=2, partitions=2, overtakings=2, slow=0.1, rogues=1, task_limit=20,
        has_changing_machines=True, has_tiny_limits=True,
    ),
}  # fmt: skip
"""By what they are for; each says how large it may become. See :func:`drawn`."""


def drawn(plan: Plan, seed: int) -> Plan:
    """Return the plan that a seed plays: a part of this one, mostly a small one.

    Kinds of faults are left out at random: some bugs only show while nothing else goes wrong.
    """
    dice = random.Random(f"plan {seed}")  # noqa: S311 - it is to be repeated
    size = dice.choice(SIZES)

    def part(most: int) -> int:
        return max(1, round(most * size * dice.uniform(0.5, 1.0))) if most else 0

    def some(most: int) -> int:
        return dice.randint(0, math.ceil(most * max(size, 0.5))) if dice.random() < 0.6 else 0

    has_limit = plan.tasks_waiting_max >= 0
    faults: dict[str, Any] = {name: some(getattr(plan, name)) for name in FAULTS}
    return replace(
        plan,
        machines=dice.randint(1, plan.machines),
        workers=dice.randint(1, plan.workers),
        clients=dice.randint(1, plan.clients),
        tasks=part(plan.tasks),
        rounds=part(plan.rounds),
        graphs=part(plan.graphs) if dice.random() < 0.8 else 0,
        nodes=max(3, part(plan.nodes)),
        levels=dice.randint(min(1, plan.levels), plan.levels),
        faults_s=plan.faults_s * max(size, 0.15),
        slow=plan.slow * dice.choice(QUICKLY),
        task_limit=dice.choice((1, 2, plan.task_limit)) if plan.task_limit else 0,
        limits=draw(dice) if plan.has_tiny_limits else (),
        tasks_waiting_max=dice.choice((1, 5, plan.tasks_waiting_max)) if has_limit else -1,
        drop=plan.drop * dice.choice(QUICKLY),
        duplicate=plan.duplicate * dice.choice(QUICKLY),
        **faults,
    )

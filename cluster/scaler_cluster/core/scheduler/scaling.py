"""How many workers each manager is to have: pure functions of what is outstanding.

A *source* is whoever can have workers started: a manager, or a supervisor that starts them itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.config import scaling_policy as policies
from scaler_cluster.core.records.placement import has_all
from scaler_cluster.wire.messages import WHOLE_MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scaler_cluster.config.scaling_policy import ScalingPolicy
    from scaler_cluster.wire.messages import Capabilities

TARGET_S = 1.0
"""Measured work that fewer workers finish within this brings no more of them."""
CROWDED, SPARSE = 10, 1
"""Tasks for each worker, beyond which ``vanilla`` wants more workers or fewer."""
PER_SET = 5
"""Tasks for each worker that ``capability`` wants."""


@dataclass(frozen=True)
class Demand:
    """Tasks that have not ended and demand the same."""

    capabilities: Capabilities
    tasks: int
    cores: int = 1


@dataclass(frozen=True, eq=False)
class Source:
    """Who can have workers started, and what it offers; two may have one name."""

    name: str
    offered: Mapping[str, float]
    """What each of its workers offers."""
    least: int
    most: int
    here: int
    """Its workers that are here and stay."""
    per_unit: int = 1
    is_failing: bool = False
    """Its last start was in vain."""
    size: int = 1
    """How many workers a machine of it may have."""
    shared: Mapping[str, float] = field(default_factory=dict)
    """How much of what it offers the workers of a unit have together."""

    def bounded(self, count: int) -> int:
        """Return a number of workers that the source offers."""
        return min(max(count, self.least), self.most)

    def could_run(self, demand: Demand) -> bool:
        """Return True if tasks that demand this could run on one of its machines."""
        return has_all(self.offered, demand.capabilities) and demand.cores <= self.size

    def workers_for(self, demand: Demand) -> float:
        """Return for how many of its workers a task leaves no room, its own among them."""
        cores = self.size if demand.cores == WHOLE_MACHINE else demand.cores
        parts = [
            amount / self.shared[name]
            for name, amount in demand.capabilities
            if amount > 0 and self.shared.get(name)
        ]
        return max(cores, self.per_unit * max(parts, default=0))


@dataclass(frozen=True)
class Load:
    """What there is to do, and who can do it."""

    demands: Sequence[Demand]
    mean_s: float | None
    """How long a task takes on average; None: no task of these has been measured."""
    sources: Sequence[Source]
    """In the order in which they came."""
    others: Sequence[tuple[Mapping[str, float], int]] = ()
    """Workers that nobody here started: what each offers, and how many there are of them."""

    @property
    def tasks(self) -> int:
        """Number of all tasks that have not ended."""
        return sum(demand.tasks for demand in self.demands)

    @property
    def workers(self) -> int:
        """Number of all workers."""
        return sum(one.here for one in self.sources) + sum(count for _, count in self.others)


def wanted(policy: ScalingPolicy, load: Load) -> dict[Source, int]:
    """Return how many workers each source is to have; a source that is left out stays as it is."""
    found = _POLICIES[policy.kind](policy, load)
    return {one: one.bounded(count) for one, count in found.items()}


def _adaptive(_: ScalingPolicy, load: Load) -> dict[Source, int]:
    """Want a worker for each task that one could run, or as many as finish within TARGET_S.

    Workers that are there stay as long as each has a task.
    """
    sources = sorted(load.sources, key=lambda one: one.is_failing)
    given = dict.fromkeys(load.sources, 0)
    free = [count for _, count in load.others]
    for demand in sorted(load.demands, key=lambda one: -len(one.capabilities)):
        able = [one for one in sources if one.could_run(demand)]
        # How many tasks are to run at a time.
        need: float = demand.tasks
        if load.mean_s is not None:
            enough = math.ceil(demand.tasks * load.mean_s / TARGET_S)
            there = sum(max(one.here - given[one], 0) / one.workers_for(demand) for one in able)
            need = min(need, max(enough, there))
        for index, (offered, _count) in enumerate(load.others):
            if has_all(offered, demand.capabilities):
                running = min(need, free[index] // max(demand.cores, 1))
                free[index] -= int(running * max(demand.cores, 1))
                need -= running
        for one in able:
            each = one.workers_for(demand)
            taken = min(math.ceil(max(need, 0) * each), one.most - given[one])
            given[one] += taken
            need -= taken / each
    return given


def _vanilla(_: ScalingPolicy, load: Load) -> dict[Source, int]:
    return {one: _step(one.here, load) for one in load.sources}


def _step(here: int, load: Load) -> int:
    """Return one worker more than are here, as many, or fewer, by the tasks for each worker."""
    tasks, workers = load.tasks, load.workers
    if not workers:
        return here + bool(tasks)
    if tasks > CROWDED * workers:
        return here + 1
    if tasks < SPARSE * workers:
        return max(1, math.ceil(tasks / CROWDED)) if tasks else 0
    return here


def _capability(_: ScalingPolicy, load: Load) -> dict[Source, int]:
    """Want a worker for each PER_SET tasks of each set of demands that a source could run."""
    return {
        one: sum(
            max(1, math.ceil(demand.tasks / PER_SET))
            for demand in load.demands
            if one.could_run(demand)
        )
        for one in load.sources
    }


def _elastic(policy: ScalingPolicy, load: Load) -> dict[Source, int]:
    """Want one unit of the first source, and what is more of the others."""
    found: dict[Source, int] = {}
    left = _step(sum(one.here for one in load.sources), load)
    ordered = sorted(load.sources, key=lambda one: one.name != policy.primary)
    for index, one in enumerate(ordered):
        found[one] = min(left, one.most if index else one.per_unit)
        left -= found[one]
    return found


def _static(policy: ScalingPolicy, load: Load) -> dict[Source, int]:
    return {one: one.most if policy.count is None else policy.count for one in load.sources}


def _no(_: ScalingPolicy, load: Load) -> dict[Source, int]:
    return {}


def _waterfall(policy: ScalingPolicy, load: Load) -> dict[Source, int]:
    """Pour a worker for each CROWDED tasks into the sources by the priorities of their rules."""
    ranked: list[tuple[int, Source]] = []
    for rule in sorted(policy.rules, key=lambda one: one.priority):
        for one in load.sources:
            if one.name == rule.manager:
                most = one.most if rule.most is None else min(rule.most, one.most)
                ranked.append((most, one))
    found = {one: 0 for _, one in ranked}
    for demand in load.demands:
        need = max(1, math.ceil(demand.tasks / CROWDED))
        for most, one in ranked:
            if one.could_run(demand):
                taken = min(need, most - found[one])
                found[one] += taken
                need -= taken
    if not load.tasks:
        # A source keeps its workers while one that comes after it still has some.
        for index, (most, one) in enumerate(ranked):
            if any(later.here for _, later in ranked[index + 1 :]):
                found[one] = min(one.here, most)
    return found


_POLICIES: dict[str, Callable[[ScalingPolicy, Load], dict[Source, int]]] = {
    policies.ADAPTIVE: _adaptive,
    policies.VANILLA: _vanilla,
    policies.CAPABILITY: _capability,
    policies.ELASTIC: _elastic,
    policies.STATIC: _static,
    policies.NO: _no,
    policies.WATERFALL: _waterfall,
}

"""The scenarios, by name, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.scenarios import (
    bare,
    dask_collections,
    dask_workloads,
    depth,
    faults,
    graphs,
    ladders,
    latency,
    lifecycle,
    load,
    nested,
    objects,
    throughput,
)

if TYPE_CHECKING:
    from benchmarks.scenario import Scenario

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for module in (
        throughput,
        bare,
        latency,
        load,
        lifecycle,
        depth,
        objects,
        graphs,
        nested,
        ladders,
        faults,
        dask_collections,
        dask_workloads,
    )
    for scenario in module.SCENARIOS
}


def find(names: list[str]) -> list[Scenario]:
    """Return the scenarios of these names; the first part of a name stands for a whole group.

    ``uneven`` is all three of them. No name at all means every scenario. Raises KeyError.
    """
    if not names:
        return list(SCENARIOS.values())
    found: dict[str, Scenario] = {}
    for name in names:
        group = [key for key in SCENARIOS if key == name or key.startswith(f"{name}_")]
        if not group:
            raise KeyError(name)
        found |= {key: SCENARIOS[key] for key in group}
    return list(found.values())

"""The stand-ins by which benchmarks.scale measures how far a scheduler goes."""

from __future__ import annotations

import pytest

from benchmarks.processes import children
from benchmarks.scale.crowd import crowd


@pytest.mark.slow
def test_stand_ins_run_lone_tasks_and_drain() -> None:
    """Stand-ins of workers join, run what stand-ins of clients submit, and leave in order."""
    before = {one.pid for one in children()}
    with crowd(1) as one:
        one.join(2, 8)
        one.add_clients(3)
        for each_s in (0.0, 0.001):
            _, latencies = one.run(0.0, 20, 0.1, each_s)
            assert len(latencies) >= 20
        one.manage()
        one.drain()
        ours = {stand.process.pid for stand in (*one.hosts, one.clients) if stand is not None}
        ours.add(one.scheduler)
    assert ours.isdisjoint(one.pid for one in children() if one.pid not in before)

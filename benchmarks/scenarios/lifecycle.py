"""What it costs to have the engine at all: start, end, and being there with nothing to do."""

from __future__ import annotations

import time

from benchmarks.processes import cpu_usage, usage
from benchmarks.scenario import Metric, Run, Scenario, WrongResult, check, timed
from benchmarks.tasks import noop

REST_S = 1.0
IDLE_S = 5.0
WARM_TASKS = 100


def lifecycle(run: Run) -> dict[str, float]:
    """Start in a fresh process, as a program does; the import of the library is not counted."""
    peer = run.peer

    def first_result() -> int:
        peer.open()
        result: int = peer.collect([peer.submit(noop, 1)])[0]
        return result

    start_s, first = timed(first_result)
    closed = False
    try:
        if first != 1:
            raise WrongResult(repr(first))
        # Memory is of interest once every worker has worked.
        check(list(peer.map(noop, range(WARM_TASKS))), range(WARM_TASKS))
        time.sleep(REST_S)
        client, cluster = cpu_usage()
        time.sleep(IDLE_S)
        client_now, cluster_now = cpu_usage()
        memory = usage().cluster_bytes
        closed = True
        close_s, _ = timed(peer.close)
    finally:
        if not closed:
            peer.close()
    return {
        "start": start_s,
        "shutdown": close_s,
        "idle_cpu": (cluster_now - cluster) / IDLE_S * 100,
        "idle_client_cpu": (client_now - client) / IDLE_S * 100,
        "memory": memory / 1e6,
    }


SCENARIOS = (
    Scenario(
        "lifecycle",
        "start to first result, shutdown, and an idle cluster",
        (
            Metric("start", "s", "less"),
            Metric("shutdown", "s", "less"),
            Metric("idle_cpu", "% of a core", "less"),
            Metric("idle_client_cpu", "% of a core", "less"),
            Metric("memory", "MB", "less"),
        ),
        lifecycle,
    ),
)

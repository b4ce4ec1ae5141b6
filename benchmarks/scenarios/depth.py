"""What a queued task costs, in memory and in time, however many there are."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.gate import Gate
from benchmarks.peer import WORKERS
from benchmarks.peers import PEERS
from benchmarks.processes import await_quiet, usage
from benchmarks.scenario import Metric, Run, Scenario, check, timed
from benchmarks.tasks import hold, noop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.peer import Peer

WARM_UP_TASKS = 500


def _by_submit(peer: Peer, items: Sequence[int]) -> Callable[[], Sequence[Any]]:
    handles = [peer.submit(noop, item) for item in items]
    return lambda: peer.collect(handles)


def _by_map(peer: Peer, items: Sequence[int]) -> Callable[[], Sequence[Any]]:
    results = peer.map(noop, items)
    return lambda: list(results)


def queue_depth(
    run: Run, depth: int, enqueue: Callable[[Peer, Sequence[int]], Callable[[], Sequence[Any]]]
) -> dict[str, float]:
    """Queue tasks behind held workers, weigh what grew, let the workers go, and collect."""
    items = range(depth)
    with run.opened() as peer, closing(Gate()) as gate:
        check(enqueue(peer, range(WARM_UP_TASKS))(), range(WARM_UP_TASKS))
        held = []
        for _ in range(WORKERS):
            held.append(peer.submit(hold, gate.address))
            gate.await_one()
        await_quiet()
        before = usage()
        enqueue_s, collect = timed(lambda: enqueue(peer, items))
        await_quiet()
        queued = usage()

        start = time.perf_counter()
        gate.release()
        results = collect()
        drain_s = time.perf_counter() - start
        after = usage()
        check(results, items)
        peer.collect(held)
    return {
        "client_memory": (queued.client_bytes - before.client_bytes) / depth,
        "cluster_memory": (queued.cluster_bytes - before.cluster_bytes) / depth,
        "enqueue": enqueue_s / depth * 1e6,
        "drain": drain_s / depth * 1e6,
        "cluster_cpu": (after.cluster_cpu_s - before.cluster_cpu_s) / depth * 1e6,
        "tasks": depth,
    }


METRICS = (
    Metric("client_memory", "bytes/task", "less"),
    Metric("cluster_memory", "bytes/task", "less"),
    Metric("enqueue", "us/task", "less"),
    Metric("drain", "us/task", "less"),
    Metric("cluster_cpu", "us/task", "less"),
)


def _scenario(exponent: int, *, by_map: bool) -> Scenario:
    depth = 10**exponent
    return Scenario(
        f"queue_{'map' if by_map else 'depth'}_1e{exponent}",
        f"{depth:,} tasks queued by {'map' if by_map else 'submit'}, then collected",
        METRICS,
        partial(queue_depth, depth=depth, enqueue=_by_map if by_map else _by_submit),
        peers=("ours",) if by_map else Scenario.peers,
        without={"joblib": "it has no submit"},
        too_slow={
            name: f"deeper than {peer.depth_max:,} takes too long"
            for name, peer in PEERS.items()
            if peer.depth_max < depth
        },
    )


SCENARIOS = tuple(
    _scenario(exponent, by_map=by_map) for by_map in (False, True) for exponent in (4, 5, 6)
)

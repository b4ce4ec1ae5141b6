"""Large arguments and results: how fast they travel, and how much memory they take."""

from __future__ import annotations

import gc
import itertools
import mmap
import os
import tempfile
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.figures import quantile
from benchmarks.peer import WORKERS
from benchmarks.processes import usage
from benchmarks.scenario import Metric, Run, Scenario, WrongResult, check, timed
from benchmarks.tasks import echo, make_array, pick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from benchmarks.peer import Peer
    from scaler_exec import ScalerExecutor

ARRAY_BYTES = 100_000_000
SHARED_BY = 100
RESULT_BYTES = 20_000_000
RESULTS = 50
ECHOES = {
    "1k": 1_000,
    "10k": 10_000,
    "100k": 100_000,
    "1m": 1_000_000,
    "10m": 10_000_000,
    "100m": 100_000_000,
    "1g": 1_000_000_000,
}
"""Size of the array that is sent and comes back."""
ECHO_TRIPS = ((3, 3.0), (100, 0.2))
"""How often each is sent, unless that has taken so many seconds: the larger of both."""
ECHO_LIMIT_S = 12.0
"""How long a trip may take, as far as one of the tenth of its size tells."""
SPILLED, SPILLED_BYTES, SPILLED_BY = 1_000, 1_000_000, 10
SPILL_LIMIT = 200_000_000
FREED_S = 10.0
"""What nobody needs any more is freed within this, however busy the machine is."""


def shared_memory_bytes() -> int:
    """Return what lies in the shared memory of this machine."""
    try:
        place = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return 0
    return (place.f_blocks - place.f_bfree) * place.f_frsize


@contextmanager
def freed(run: Run) -> Iterator[None]:
    """Check that our storage holds afterwards what it held before; others keep what they like."""
    # The file that counts them takes a page from the first object on.
    before = shared_memory_bytes() + mmap.PAGESIZE
    yield
    gc.collect()
    end = time.monotonic() + FREED_S
    while run.peer.name == "ours" and shared_memory_bytes() > before:
        if time.monotonic() > end:
            raise WrongResult(f"{shared_memory_bytes() - before} bytes were left in the storage")
        time.sleep(0.01)


def broadcast(run: Run, *, sent: bool = False) -> dict[str, float]:
    """Give one array to many tasks; ``memory`` is the cluster's afterwards, less that of before.

    A peer that sends it with each task may get fewer of them: then the seconds are in proportion.
    """
    count = max(run.count(SHARED_BY), WORKERS) if run.peer.copies else SHARED_BY
    indices = [index * 1000 for index in range(count)]
    with freed(run), run.opened() as peer:
        # All workers are up, and have numpy imported.
        peer.share(pick, np.zeros(10), [0] * 10 * WORKERS)
        before = usage().cluster_bytes + shared_memory_bytes()
        share = peer.share_sent if sent else peer.share  # type: ignore[attr-defined]
        with nullcontext() if sent else freed(run):
            # What was sent explicitly stays until the end.
            arrays = [np.arange(ARRAY_BYTES // 8, dtype=np.float64)]
            seconds, results = timed(lambda: share(pick, arrays[0], indices))
            check(results, [float(index) for index in indices])
            memory = usage().cluster_bytes + shared_memory_bytes() - before
            arrays.clear()
    return {"seconds": seconds * SHARED_BY / count, "memory": memory / 1e6, "tasks": count}


def mapped(run: Run) -> dict[str, float]:
    """Map over one array in the ways there are, and write it to a file in memory for comparison."""
    from scaler_exec import ScalerExecutor

    indices = [index * 1000 for index in range(SHARED_BY)]
    ways: dict[str, Callable[[ScalerExecutor, Any], Iterable[Any]]] = {
        "repeat": lambda executor, array: executor.map(pick, itertools.repeat(array), indices),
        "list": lambda executor, array: executor.map(pick, [array] * SHARED_BY, indices),
        "partial": lambda executor, array: executor.map(partial(pick, array), indices),
    }

    def share(executor: ScalerExecutor, way: str) -> float:
        array = np.arange(ARRAY_BYTES // 8, dtype=np.float64)
        seconds, values = timed(lambda: list(ways[way](executor, array)))
        check(values, [float(index) for index in indices])
        return seconds

    measured = {}
    with ScalerExecutor(WORKERS) as executor:
        # Workers import numpy, and the memory has been used once.
        share(executor, "repeat")
        for way in ways:
            with freed(run):
                measured[way] = share(executor, way)
    array = np.arange(ARRAY_BYTES // 8, dtype=np.float64)
    with tempfile.TemporaryFile(dir="/dev/shm", buffering=0) as file:
        measured["write"], _ = timed(lambda: file.write(array.data))
    return measured


def submitted(run: Run, *, writable: bool) -> dict[str, float]:
    """Submit one array again and again; of a writable one each submit sees whether it changed."""
    indices = [index * 1000 for index in range(SHARED_BY)]
    with freed(run), run.opened() as peer:
        peer.share(pick, np.zeros(10), [0] * 10 * WORKERS)
        with freed(run):
            arrays = [np.arange(ARRAY_BYTES // 8, dtype=np.float64)]
            arrays[0].flags.writeable = writable

            def work() -> list[float]:
                handles = [peer.submit(partial(pick, index=index), arrays[0]) for index in indices]
                values: list[float] = peer.collect(handles)
                return values

            seconds, values = timed(work)
            check(values, [float(index) for index in indices])
            arrays.clear()
    return {"seconds": seconds}


def results(run: Run) -> dict[str, float]:
    """Make arrays in tasks, and take each as it comes."""
    with run.opened() as peer, freed(run):
        list(peer.map(make_array, [80] * 10 * WORKERS))

        def work() -> int:
            total = 0
            for array in peer.map(make_array, [RESULT_BYTES] * RESULTS):
                total += array.nbytes
                check([array[-1]], [1.0])
            return total

        seconds, total = timed(work)
        check([total], [RESULT_BYTES * RESULTS])
    return {"rate": total / seconds / 1e6}


def echoed(run: Run) -> dict[str, float]:
    """Send arrays, each a new one, and wait for each to come back: smaller ones first.

    Ends with the size after which the next one would take too long.
    """

    def trip(peer: Peer, nbytes: int, number: int) -> float:
        array = np.full(nbytes // 8, number, dtype=np.float64)
        seconds, (copy,) = timed(lambda: peer.collect([peer.submit(echo, array)]))
        check([copy[0], len(copy)], [number, len(array)])
        return seconds

    figures = {}
    with run.opened() as peer, freed(run):
        trip(peer, 1_000, 0)
        for name, nbytes in ECHOES.items():
            trips: list[float] = []
            while not trips or any(
                len(trips) < most and sum(trips) < most_s for most, most_s in ECHO_TRIPS
            ):
                trips.append(trip(peer, nbytes, len(trips)))
            figures[name] = quantile(trips, 0.5) * 1e3
            if trips[-1] * 10 > ECHO_LIMIT_S:
                break
    return figures


def spilled(run: Run) -> dict[str, float]:
    """Run tasks on more arrays than there is memory for."""
    from scaler_exec import ScalerExecutor

    arrays = [np.full(SPILLED_BYTES // 8, number, dtype=np.float64) for number in range(SPILLED)]
    with freed(run), ScalerExecutor(WORKERS, object_memory_limit=SPILL_LIMIT) as executor:
        calls = [array for _ in range(SPILLED_BY) for array in arrays]
        before = shared_memory_bytes()
        peak = 0

        def work() -> list[float]:
            nonlocal peak
            mapped = executor.map(pick, calls, [0] * len(calls))
            peak = shared_memory_bytes() - before
            return list(mapped)

        seconds, values = timed(work)
        check(values, [float(number) for _ in range(SPILLED_BY) for number in range(SPILLED)])
    return {"seconds": seconds, "memory": peak / 1e6}


BROADCAST = (Metric("seconds", "s", "less"), Metric("memory", "MB", "less"))

SCENARIOS = (
    Scenario(
        "broadcast",
        f"{SHARED_BY} tasks that share an array of {ARRAY_BYTES // 1_000_000} MB",
        BROADCAST,
        broadcast,
    ),
    Scenario(
        "broadcast_sent",
        "the same with send_object",
        BROADCAST,
        partial(broadcast, sent=True),
        peers=("ours",),
    ),
    Scenario(
        "map_shared",
        f"map of {SHARED_BY} tasks that share an array of {ARRAY_BYTES // 1_000_000} MB",
        tuple(Metric(name, "s", "less") for name in ("repeat", "list", "partial", "write")),
        mapped,
        peers=("ours",),
    ),
    *(
        Scenario(
            f"submit_{name}",
            f"{SHARED_BY} submits of a {name.replace('_', '-')} array of "
            f"{ARRAY_BYTES // 1_000_000} MB",
            (Metric("seconds", "s", "less"),),
            partial(submitted, writable=name == "writable"),
            peers=("ours", "dask"),
        )
        for name in ("read_only", "writable")
    ),
    Scenario(
        "large_results",
        f"{RESULTS} results of {RESULT_BYTES // 1_000_000} MB",
        (Metric("rate", "MB/s", "more"),),
        results,
        without={"joblib": "it gives all results at once"},
    ),
    Scenario(
        "echo",
        "an array there and back, by its bytes",
        tuple(Metric(name, "ms", "less") for name in ECHOES),
        echoed,
    ),
    Scenario(
        "spill",
        f"{SPILLED * SPILLED_BY:,} tasks over {SPILLED:,} arrays of 1 MB, with 200 MB of memory",
        BROADCAST,
        spilled,
        peers=("ours",),
    ),
)

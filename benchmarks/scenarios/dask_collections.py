"""Collections of Dask in tiny chunks, from ``compute`` to the value: it is the number that counts.

What Dask itself does before any scheduler sees the graph is the same for all.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.processes import children, unique_bytes
from benchmarks.scenario import Metric, Run, Scenario, check, timed

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 10
"""Rows and columns of a chunk: computing it takes next to no time."""
WARM_UP = 4


def transposed_sum(blocks: int) -> Any:
    """Return the sum of x + x.T of so many by so many chunks."""
    import dask.array as da

    array = da.ones((blocks * CHUNK, blocks * CHUNK), chunks=(CHUNK, CHUNK))
    return (array + array.T).sum()


def rechunked(blocks: int) -> Any:
    """Return the sum of an array of rows that is cut into columns."""
    import dask.array as da

    side = blocks * CHUNK
    return (da.ones((side, side), chunks=(CHUNK, side)).rechunk((side, CHUNK)) + 1).sum()


def shuffled(partitions: int) -> Any:
    """Return the number of rows of a dataframe that was ordered by another column."""
    import dask.dataframe as dd
    import pandas as pd

    rows = range(partitions * 1_000)
    frame = pd.DataFrame({"key": [n * 7919 % 1009 for n in rows], "value": rows})
    frame = dd.from_pandas(frame, npartitions=partitions)
    # Of the ways that Dask has, the one that is a graph: else it depends on the scheduler.
    return frame.shuffle("key", shuffle_method="tasks").value.sum()


def computed(run: Run, make: Callable[[int], Any], size: int) -> dict[str, float]:
    """Compute a small collection, then measure a large one."""
    collection, warm_up = make(size), make(WARM_UP)
    expected, warm = (one.compute(scheduler="synchronous") for one in (collection, warm_up))
    with run.opened() as peer:
        check([peer.compute(warm_up)], [warm])
        seconds, value = timed(lambda: peer.compute(collection))
        check([value], [expected])
        nbytes = sum(map(unique_bytes, children()))
    return {"seconds": seconds, "memory": nbytes / 1e6}


METRICS = (Metric("seconds", "s", "less"), Metric("memory", "MB", "less"))


def _scenario(name: str, summary: str, make: Callable[[int], Any], size: int) -> Scenario:
    measure = partial(computed, make=make, size=size)
    return Scenario(f"dask_{name}", summary, METRICS, measure, peers=("ours", "dask"))


SCENARIOS = (
    _scenario("sum_2000", "(x + x.T).sum() of 2,000 chunks", transposed_sum, 45),
    _scenario("sum_20000", "(x + x.T).sum() of 20,000 chunks", transposed_sum, 141),
    _scenario("rechunk", "rows to columns, 60 by 60", rechunked, 60),
    _scenario("shuffle", "shuffle of a dataframe of 60 partitions", shuffled, 60),
)

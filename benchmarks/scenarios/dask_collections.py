"""Collections of Dask, from ``compute`` to the value: arrays in tiny chunks, dataframes, algebra.

Of the algebra, how many threads each worker's BLAS starts is up to the peer: nobody sets anything.
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
SQUARE = 500
"""Rows and columns of a chunk of 2 MB."""
TALL, NARROW = 20_000, 100
"""Rows and columns of a chunk of 16 MB."""
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


def product(blocks: int) -> Any:
    """Return the sum of a product of two arrays of so many by so many chunks, in whole numbers."""
    import dask.array as da

    side = blocks * SQUARE
    numbers = da.arange(side * side, chunks=side * SQUARE).reshape(side, side)
    array = (numbers % 7).rechunk((SQUARE, SQUARE)).astype("float64")
    return (array @ array.T).sum()


def decomposed(chunks: int) -> Any:
    """Return the sum of the singular value decomposition of a tall and narrow array."""
    import dask.array as da

    normal = da.random.default_rng(1).standard_normal
    u, s, v = da.linalg.svd(normal((chunks * TALL, NARROW), chunks=(TALL, NARROW)))
    # Signs, and the last digits, are the library's to choose.
    return da.round(abs(u).sum() + s.sum() + abs(v).sum(), 1)


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
    _scenario("matmul", "product of 6 by 6 chunks of 2 MB", product, 6),
    _scenario("svd", "decomposition of 10 tall chunks of 16 MB", decomposed, 10),
    _scenario("shuffle", "shuffle of a dataframe of 60 partitions", shuffled, 60),
)

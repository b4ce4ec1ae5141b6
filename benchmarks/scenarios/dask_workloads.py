"""What programs do with Dask, from ``compute`` to the value, on data of hundreds of megabytes.

The collection was built before, and one of the same kind was computed: workers have imported what
they need. How many threads each worker's BLAS starts is up to the peer: nobody sets anything. All
peers get the same graph; of the ways in which Dask shuffles, the one that is a graph.
"""

from __future__ import annotations

import gc
import operator
import pickle
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.processes import PeakMemory
from benchmarks.scenario import Metric, Run, Scenario, Size, WrongResult, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILES, ROWS = 16, 250_000
FEW, MANY = 100, 40_000
"""Different values of two of the keys; each row has its own value of the third."""
TEXTS, LINES, LINE_WORDS, VOCABULARY = 16, 8_000, 12, 5_000
SQUARE = 500
"""Rows and columns of a chunk of 2 MB."""
WARM_UP_SEED, SEED = 1, 2
TOLERANCE = 1e-7
"""How much two results may differ, relatively: schedulers add numbers in different orders."""


class Task(NamedTuple):
    """What a workload is made of."""

    size: Size
    place: Path
    seed: int
    """Of its random numbers, and what is added to those of the files."""


# -- dataframes ------------------------------------------------------------------------------


def frame(task: Task) -> Any:
    """Return the dataframe of the files: three keys and two values."""
    import dask.dataframe as dd

    rows = dd.read_parquet(task.place / "frame")
    return rows.assign(x=rows.x + task.seed)


def group_by_few(task: Task) -> Any:
    return frame(task).groupby("few").agg({"x": "sum", "y": "mean"})


def group_by_many(task: Task) -> Any:
    return frame(task).groupby("many").agg({"x": "sum", "y": "mean"}, split_out=8)


def merge(task: Task) -> Any:
    rows = frame(task)
    means = rows.groupby("many").x.mean().rename("mean").reset_index()
    merged = rows.merge(means, on="many")
    return ((merged.x - merged["mean"]) ** 2).sum()


def shuffle(task: Task) -> Any:
    return frame(task).shuffle("many", shuffle_method="tasks").groupby("few").x.sum()


def set_index(task: Task) -> Any:
    rows = frame(task).set_index("own", shuffle_method="tasks")
    return rows.map_partitions(summary).sum()


def summary(rows: Any) -> Any:
    """Return how many rows of a partition are in their place, and sums of the columns.

    Dask takes samples to find the borders of the partitions, and not the same ones each time.
    """
    import numpy as np

    place = rows.index[0] + np.arange(len(rows))
    return rows.assign(placed=rows.index == place).sum().to_frame().T


def describe(task: Task) -> Any:
    return frame(task)[["x", "y"]].describe()


# -- arrays ----------------------------------------------------------------------------------


def random(task: Task) -> Any:
    """Return Dask's generator of random arrays."""
    import dask.array as da

    return da.random.default_rng(task.seed)


def squares(task: Task, blocks: int, side: int = SQUARE) -> Any:
    """Return an array of so many by so many square chunks."""
    side = task.size.side(side)
    rows = task.size.blocks(blocks) * side
    return random(task).random((rows, rows), chunks=(side, side))


def transposed_sum(task: Task) -> Any:
    array = squares(task, 20, 200)
    return (array + array.T).sum()


def product(task: Task) -> Any:
    array = squares(task, 6)
    return (array @ array.T).sum(axis=0)


def decomposed(task: Task) -> Any:
    """Return sums of the singular value decomposition, without the signs: these are arbitrary."""
    import dask.array as da

    rows = task.size.rows(20_000)
    shape = task.size.count(10) * rows, 100
    u, s, v = da.linalg.svd(random(task).standard_normal(shape, chunks=(rows, 100)))
    return abs(u).sum() + s.sum() + abs(v).sum()


def rechunked(task: Task) -> Any:
    blocks = task.size.blocks(24)
    rows = task.size.side(250)
    side = blocks * rows
    array = random(task).random((side, side), chunks=(rows, side))
    return array.rechunk((side, rows)).std(axis=0)


def overlapping(task: Task) -> Any:
    return squares(task, 8).map_overlap(smoothed, depth=2, boundary="reflect").max(axis=0)


def smoothed(block: Any) -> Any:
    """Return the mean of each number and of those two rows and two columns further."""
    import numpy as np

    return sum(np.roll(block, shift, axis) for shift in (-2, 0, 2) for axis in (0, 1)) / 6


def sorted_blocks(task: Task) -> Any:
    import numpy as np

    rows = task.size.rows(500_000)
    array = random(task).random(task.size.count(16) * rows, chunks=rows)
    return array.map_blocks(np.sort).std()


def climatology(task: Task) -> Any:
    """Return how much each place differs from what it has in the mean of that month."""
    import pandas as pd
    import xarray as xr

    days = task.size.rows(60)
    shape = task.size.count(24) * days, 90, 180
    array = xr.DataArray(
        random(task).random(shape, chunks=(days, 90, 180)),
        dims=("time", "latitude", "longitude"),
        coords={"time": pd.date_range("2000-01-01", periods=shape[0])},
    )
    by_month = array.groupby("time.month")
    return (by_month - by_month.mean("time")).std("time")


# -- the rest --------------------------------------------------------------------------------


def words(task: Task) -> Any:
    import dask.bag as db

    texts = db.read_text(str(task.place / "texts" / "*.txt"))
    return texts.str.lower().str.split().flatten().frequencies()


def tree(task: Task) -> Any:
    """Return a sum of arrays by pairs."""
    import dask

    numbers, add = dask.delayed(random_numbers), dask.delayed(operator.add)
    rows, count = task.size.rows(SQUARE * SQUARE), task.size.count(256)
    level = [numbers(task.seed * count + n, rows) for n in range(count)]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [add(left, right) for left, right in pairs] + level[len(level) // 2 * 2 :]
    return level[0].sum()


def random_numbers(seed: int, count: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed).random(count)


# -- what is measured ------------------------------------------------------------------------


def write_frame(size: Size, directory: Path) -> None:
    """Write the dataframe's files."""
    import numpy as np
    import pandas as pd

    files, rows = size.count(FILES), size.rows(ROWS)
    rng = np.random.default_rng(0)
    own = rng.permutation(files * rows)
    for index in range(files):
        columns = {
            "few": rng.integers(FEW, size=rows),
            "many": rng.integers(MANY, size=rows),
            "own": own[index * rows : (index + 1) * rows],
            "x": rng.random(rows),
            "y": rng.standard_normal(rows),
        }
        pd.DataFrame(columns).to_parquet(directory / f"{index:05}.parquet")


def write_texts(size: Size, directory: Path) -> None:
    """Write files of words, of which some are frequent and most are rare."""
    import numpy as np

    rng = np.random.default_rng(0)
    for index in range(size.count(TEXTS)):
        ranks = rng.zipf(1.3, (size.rows(LINES), LINE_WORDS)) % VOCABULARY
        lines = (" ".join(f"Word{rank}" for rank in line) for line in ranks.tolist())
        (directory / f"{index:05}.txt").write_text("\n".join(lines) + "\n")


FILES_OF = {"frame": write_frame, "texts": write_texts}


class Workload(NamedTuple):
    """One computation, by the last part of its scenario's name."""

    name: str
    summary: str
    make: Callable[[Task], Any]
    """Returns the collection."""
    files: str = ""
    """Which files it reads."""


def prepare(run: Run, workload: Workload) -> None:
    """Write the files that a workload reads, and what it must come to, unless they are there."""
    directory = run.place / workload.files
    if not directory.exists():
        directory.mkdir()
        FILES_OF[workload.files](run.size, directory)
    expected = run.place / f"{workload.name}.pickle"
    if not expected.exists():
        collection = workload.make(Task(run.size, run.place, SEED))
        expected.write_bytes(pickle.dumps(collection.compute(scheduler="synchronous")))


@contextmanager
def warmed(run: Run, workload: Workload, memory: PeakMemory) -> Iterator[Callable[[], float]]:
    """Start the peer and compute the collection, of other numbers, and look at the memory.

    Yield what computes the collection once more, checks what it is and returns the seconds.
    """
    from dask import config

    task = Task(run.size, run.place, SEED)
    expected = pickle.loads((run.place / f"{workload.name}.pickle").read_bytes())

    def measure() -> float:
        collection = workload.make(task)
        gc.collect()
        seconds, value = timed(lambda: peer.compute(collection))
        check_close(value, expected)
        return seconds

    with config.set({"dataframe.shuffle.method": "tasks"}), run.opened() as peer:
        with memory:
            peer.compute(workload.make(task._replace(seed=WARM_UP_SEED)))
        yield measure


def measured(run: Run, workload: Workload) -> dict[str, float]:
    """Return the seconds of a workload, and the most memory that it took."""
    memory = PeakMemory()
    with warmed(run, workload, memory) as measure:
        seconds = measure()
    return {"seconds": seconds, "memory": memory.nbytes / 1e6}


def check_close(value: Any, expected: Any) -> None:
    """Raise WrongResult unless both are equal but for the last digits and the order of rows."""
    import numpy as np
    import pandas as pd

    try:
        if isinstance(expected, pd.DataFrame):
            value, expected = value.sort_index(), expected.sort_index()
            pd.testing.assert_frame_equal(value, expected, rtol=TOLERANCE)
        elif isinstance(expected, pd.Series):
            value, expected = value.sort_index(), expected.sort_index()
            pd.testing.assert_series_equal(value, expected, rtol=TOLERANCE)
        elif isinstance(expected, list):
            assert sorted(value) == sorted(expected)
        else:
            np.testing.assert_allclose(value, expected, rtol=TOLERANCE)
    except AssertionError as error:
        raise WrongResult(str(error)) from error


METRICS = (Metric("seconds", "s", "less"), Metric("memory", "MB", "less"))
PEERS = ("ours", "dask", "dask_1x2", "processes", "threads", "sync")


WORKLOADS = (
    Workload("group_few", "group-by with 100 groups", group_by_few, "frame"),
    Workload("group_many", "group-by with 40,000 groups, split_out=8", group_by_many, "frame"),
    Workload("merge", "merge of a dataframe with an aggregate of itself", merge, "frame"),
    Workload("shuffle", "shuffle by tasks, then group-by", shuffle, "frame"),
    Workload("set_index", "set_index by tasks", set_index, "frame"),
    Workload("describe", "describe two columns", describe, "frame"),
    Workload("sum", "(x + x.T).sum() of 20 by 20 chunks of 320 KB", transposed_sum),
    Workload("matmul", "product of 6 by 6 chunks of 2 MB", product),
    Workload("svd", "decomposition of 10 tall chunks of 16 MB", decomposed),
    Workload("rechunk", "rows to columns, 24 chunks of 12 MB", rechunked),
    Workload("overlap", "map_overlap of 8 by 8 chunks of 2 MB", overlapping),
    Workload("sort", "sort of 16 blocks of 4 MB, then std", sorted_blocks),
    Workload("words", "frequencies of the words of 16 texts", words, "texts"),
    Workload("tree", "sum by pairs of 256 arrays of 2 MB, with delayed", tree),
    Workload("climatology", "anomalies of months, 24 chunks of 8 MB, xarray", climatology),
)

SCENARIOS = tuple(
    Scenario(
        f"workload_{workload.name}",
        workload.summary,
        METRICS,
        partial(measured, workload=workload),
        peers=PEERS,
        prepare=partial(prepare, workload=workload),
        shares="workloads",
    )
    for workload in WORKLOADS
)

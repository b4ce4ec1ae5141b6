"""Programs as the pages of Dask, xarray and dask-ml have them in spirit, for any client.

Each takes the module that has the names of ``distributed``, a client of two workers and an empty
directory, and returns what it found.
"""

from __future__ import annotations

import importlib
import operator
from typing import Any


def inc(x):
    return x + 1


def futures(d: Any, client: Any, place: Any) -> Any:
    """Submit, scatter, map and gather."""
    (data,) = client.scatter([list(range(10))], broadcast=True)
    total = client.submit(sum, data)
    squares = client.map(pow, range(5), [2] * 5)
    best = client.submit(max, squares)
    d.wait(squares)
    return client.gather({"total": total, "best": best, "all": squares})


def search(d: Any, client: Any, place: Any) -> Any:
    """Look for the least of a function: as results come, what is near the best one is tried."""
    tried = {x: client.submit(parabola, x) for x in (-40, 0, 40)}
    coming = d.as_completed(tried.values(), with_results=True)
    best = None
    for _, (value, x) in coming:
        if best is None or value < best[0]:
            best = (value, x)
            for near in (x - 5, x - 1, x + 1, x + 5):
                if near not in tried:
                    tried[near] = client.submit(parabola, near)
                    coming.add(tried[near])
    return best


def parabola(x):
    return (x - 17) ** 2, x


def failures(d: Any, client: Any, place: Any) -> Any:
    """Go on with what did not fail, and say of the others what they raised."""
    made = client.map(operator.truediv, [6, 6, 6], [1, 0, 2])
    found = []
    for future, result in d.as_completed(made, with_results=True, raise_errors=False):
        if future.status == "error":
            kind, error, _ = result
            found.append(f"{kind.__name__}: {error}")
        else:
            found.append(str(result))
    return sorted(found), client.gather(made, errors="skip")


def coordination(d: Any, client: Any, place: Any) -> Any:
    """Let tasks take turns, wait for each other, and pass values on."""
    lock, event, queue = d.Lock("turn"), d.Event("go"), d.Queue("results")
    semaphore, count = d.Semaphore(2, name="places"), d.Variable("count")
    count.set(0)
    tasks = [client.submit(take_a_turn, n, lock, event, semaphore, count, queue) for n in range(4)]
    event.set()
    client.gather(tasks)
    return count.get(), sorted(queue.get() for _ in range(4))


def take_a_turn(number, lock, event, semaphore, count, queue):
    assert event.wait(60)
    with semaphore, lock:
        count.set(count.get() + 1)
    queue.put(number * 10)


def actors(d: Any, client: Any, place: Any) -> Any:
    """Keep a model in a worker, to which tasks send what they found."""
    model = client.submit(Model, 3, actor=True).result()
    client.gather([client.submit(train, model, n, pure=False) for n in range(1, 4)])
    return sorted(model.weights().result()), model.updates


class Model:
    updates = 0

    def __init__(self, size):
        self._weights = [0] * size

    def update(self, place, much):
        self.updates += 1
        self._weights[place] += much

    def weights(self):
        return self._weights


def train(model, number):
    model.update(number % 3, number * 10).result()


def nested(d: Any, client: Any, place: Any) -> Any:
    """Let tasks submit tasks and wait for them."""
    return client.submit(fibonacci, 7, d.__name__).result()


def fibonacci(n, name):
    if n < 2:
        return n
    d = importlib.import_module(name)
    client = d.get_client()
    parts = client.map(fibonacci, [n - 1, n - 2], name=name)
    d.secede()
    values = client.gather(parts)
    d.rejoin()
    return sum(values)


def delayed(d: Any, client: Any, place: Any) -> Any:
    """Compute a pipeline of delayed calls, and give one of its values to others."""
    import dask

    read = [dask.delayed(range)(n) for n in (3, 4, 5)]
    sizes = [dask.delayed(len)(one) for one in read]
    total = dask.delayed(sum)(sizes)
    kept = total.persist()
    parts = client.compute(sizes)
    return dask.compute(total, kept + 1), [one.result() for one in parts]


def graph(d: Any, client: Any, place: Any) -> Any:
    """Get keys of a graph that was written by hand."""
    return client.get({"a": 1, "b": (inc, "a"), "c": (operator.add, "a", "b")}, ["c", "b"])


def bag(d: Any, client: Any, place: Any) -> Any:
    """Count words."""
    import dask.bag as db

    lines = db.from_sequence(["a b a", "b a", "c"], npartitions=3)
    return sorted(lines.map(str.split).flatten().frequencies().compute())


def array(d: Any, client: Any, place: Any) -> Any:
    """Keep an array on the cluster; slice it, multiply it, and let its blocks overlap."""
    import dask.array as da
    import numpy as np

    x = da.arange(4000, chunks=500).reshape(40, 100).rechunk((10, 50)).persist()
    d.wait(x)
    products = da.dot(x, x.T).compute()
    smooth = da.map_overlap(lambda block: block * 2, x, depth=1, boundary="none")
    exact = np.array_equal(products, x.compute() @ x.compute().T)
    return int(x[::3, 5].sum().compute()), int(smooth.mean().compute()), exact


def frame(d: Any, client: Any, place: Any) -> Any:
    """Group, join, sort, write and read a table."""
    import dask.dataframe as dd
    import pandas as pd

    table = pd.DataFrame({"key": [n % 3 for n in range(60)], "value": range(60)})
    df = dd.from_pandas(table, npartitions=4).persist()
    names = pd.DataFrame({"key": [0, 1, 2], "name": ["a", "b", "c"]})
    joined = df.merge(dd.from_pandas(names, npartitions=2), on="key")
    means = joined.groupby("name")["value"].mean().compute()
    df.to_parquet(place / "table")
    back = dd.read_parquet(place / "table").set_index("value", sort=True)
    return means.to_dict(), int(back.loc[10:19]["key"].sum().compute())


def xarray(d: Any, client: Any, place: Any) -> Any:
    """Open many files at once; take anomalies of months, and call a function of arrays."""
    import numpy as np
    import pandas as pd
    import xarray as xr

    time = pd.date_range("2001-01-01", periods=24, freq="MS")
    values = np.arange(24 * 6, dtype=float).reshape(24, 6)
    whole = xr.Dataset({"t": (("time", "x"), values)}, {"time": time, "x": range(6)})
    for year in (2001, 2002):
        whole.sel(time=str(year)).to_netcdf(place / f"{year}.nc", engine="scipy")
    ds = xr.open_mfdataset(str(place / "*.nc"), parallel=True, engine="scipy", chunks={"time": 6})
    months = ds.t.groupby("time.month")
    anomalies = (months - months.mean("time")).persist()
    scaled = xr.apply_ufunc(np.sqrt, ds.t, dask="parallelized", output_dtypes=[float])
    blocks = ds.map_blocks(lambda block: block + 1)
    near = np.allclose(scaled.compute(), np.sqrt(values))
    return float(abs(anomalies).mean()), near, float(blocks.t.max().compute())


def dask_ml(d: Any, client: Any, place: Any) -> Any:
    """Scale, reduce, split, fit block by block, predict in parallel, and search."""
    import numpy as np
    from dask_ml.datasets import make_classification
    from dask_ml.decomposition import PCA
    from dask_ml.model_selection import GridSearchCV, train_test_split
    from dask_ml.preprocessing import StandardScaler
    from dask_ml.wrappers import Incremental, ParallelPostFit
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.tree import DecisionTreeClassifier

    x, y = make_classification(n_samples=400, n_features=6, chunks=100, random_state=0)
    scaled = StandardScaler().fit_transform(x)
    reduced = PCA(2, random_state=0).fit_transform(scaled)
    sizes = [len(part.compute()) for part in train_test_split(scaled, y, random_state=0)]
    online = Incremental(SGDClassifier(random_state=0)).fit(scaled, y, classes=[0, 1])
    xs, ys = x.compute(), y.compute()
    wide = ParallelPostFit(LogisticRegression()).fit(xs, ys)
    tree = DecisionTreeClassifier(random_state=0)
    found = GridSearchCV(tree, {"max_depth": [1, 2, 3]}, cv=3).fit(xs, ys)
    centred = np.allclose(scaled.mean(0).compute(), 0)
    predicted = [len(one.predict(scaled).compute()) for one in (online, wide)]
    return centred, reduced.compute().shape, sizes, predicted, found.best_params_["max_depth"]


PROGRAMS = {
    futures: {"total": 45, "best": 16, "all": [0, 1, 4, 9, 16]},
    search: (0, 17),
    failures: (["3.0", "6.0", "ZeroDivisionError: division by zero"], [6.0, 3.0]),
    coordination: (4, [0, 10, 20, 30]),
    actors: ([10, 20, 30], 3),
    nested: 13,
    delayed: ((12, 13), [3, 4, 5]),
    graph: [3, 2],
    bag: [("a", 3), ("b", 2), ("c", 1)],
    array: (27370, 3999, True),
    frame: ({"a": 28.5, "b": 29.5, "c": 30.5}, 10),
    xarray: (36.0, True, 144.0),
    dask_ml: (True, (400, 2), [360, 40, 360, 40], [400, 400], 1),
}
"""Each with what it finds."""

"""Dask's callbacks, and its tools that are made of them: told what Dask's own schedulers tell."""

from __future__ import annotations

import copy
import operator
from collections import Counter

import pytest

from scaler_exec import Client
from tests.runtime import tasks
from tests.runtime.helpers import Flags, standing_cluster

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
db = pytest.importorskip("dask.bag")
np = pytest.importorskip("numpy")

from dask.callbacks import Callback  # noqa: E402
from dask.diagnostics import (  # noqa: E402
    CacheProfiler,
    Profiler,
    ProgressBar,
    ResourceProfiler,
)
from dask.utils_test import add, inc  # noqa: E402

# What Dask warns of among its own is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster(standing, private_directories):
    """Return a cluster with two workers for all tests of this module."""
    with standing_cluster(2, standing) as made:
        yield made


@pytest.fixture
def client(cluster):
    """Return a client of that."""
    with Client(cluster) as client:
        yield client


class Watcher(Callback):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.counted: Counter[object] = Counter()
        self.began: dict = {}
        self.over: dict = {}

    def _start(self, dsk) -> None:
        self.told.append(("start", set(dsk)))

    def _start_state(self, dsk, state) -> None:
        self.began = copy.deepcopy(state)
        self.told.append(("start_state", set(dsk)))

    def _pretask(self, key, dsk, state) -> None:
        assert key in dsk
        assert key in state["running"]
        assert all(one in state["cache"] for one in state["dependencies"][key])
        self.counted["pretask", key] += 1

    def _posttask(self, key, result, dsk, state, worker_id) -> None:
        assert key in state["finished"]
        assert self.counted["pretask", key] == 1
        self.counted["posttask", key, repr(result)] += 1

    def _finish(self, dsk, state, failed) -> None:
        self.over = copy.deepcopy(state)
        self.told.append(("finish", failed))


GRAPHS = {
    "chain": lambda: ({"x": 1, "y": (inc, "x"), "z": (inc, "y")}, "z"),
    "diamond": lambda: (
        {"a": 1, "b": (inc, "a"), "c": (inc, "a"), "d": (add, "b", "c"), "e": "d"},
        ["d", ["e", "b", "a"]],
    ),
    "data": lambda: ({"x": 1, "y": [1, 2], "z": {"in": 3}}, ["x", "y", "z"]),
    "lists": lambda: ({"x": 1, "y": ["x", 2], "z": (sum, "y")}, ["z"]),
    "many": lambda: (
        {"total": (sum, [f"n{n}" for n in range(20)])}
        | {f"n{n}": (add, f"m{n}", n) for n in range(20)}
        | {f"m{n}": (inc, n) for n in range(20)},
        ["total", "m3"],
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_told(client, name) -> None:
    """Callbacks get the same hooks, states and tasks from us as from Dask's own scheduler."""
    dsk, keys = GRAPHS[name]()
    with Watcher() as expected:
        values = dask.get(dsk, keys)
    with Watcher() as watcher:
        assert client.dask_get(dsk, keys) == values

    assert watcher.told == expected.told
    assert watcher.counted == expected.counted
    assert watcher.began == expected.began
    assert sorted(watcher.over) == sorted(expected.over)
    for part, found in watcher.over.items():
        assert found == expected.over[part], part


def test_what_is_told_of_collections(client) -> None:
    """Callbacks are told the same of graphs that Dask made and optimized."""
    array = da.from_array(np.arange(24.0).reshape(4, 6), chunks=2)
    for made in dask.optimize((array + 1).sum(), db.range(20, npartitions=3).map(inc).sum()):
        dsk, keys = made.__dask_graph__(), made.__dask_keys__()
        with Watcher() as expected:
            dask.get(dsk, keys)
        with Watcher() as watcher:
            client.dask_get(dsk, keys)

        assert watcher.told == expected.told
        assert watcher.counted == expected.counted
        assert set(watcher.began["cache"]) == set(expected.began["cache"])
        assert watcher.over["released"] == expected.over["released"]


def test_a_task_that_raises(client) -> None:
    """A failing graph tells its callbacks of the failure, and starts no further task."""
    with Watcher() as watcher, pytest.raises(ZeroDivisionError):
        client.dask_get({"x": (operator.truediv, 1, 0), "y": (inc, "x")}, "y")

    assert watcher.told[-1] == ("finish", True)
    assert not any("y" in told for told in watcher.counted)


def test_a_task_is_told_of_when_it_may_run(client, tmp_path) -> None:
    """Pretask is called once a task's inputs are back, even while other tasks still run."""
    flags = Flags(tmp_path)
    graph = {
        "held": (tasks.hold, flags.path("began"), flags.path("go")),
        "x": (inc, 1),
        "y": (inc, "x"),
        "last": (add, "held", "y"),
    }

    class Releases(Callback):
        def __init__(self) -> None:
            self.order: list[str] = []

        def _pretask(self, key, dsk, state) -> None:
            self.order.append(f"+{key}")

        def _posttask(self, key, result, dsk, state, worker_id) -> None:
            self.order.append(f"-{key}")
            if key == "y":
                flags.set("go")

    with Releases() as releases:
        client.dask_get(graph, "last")
    assert sorted(releases.order[:2]) == ["+held", "+x"]
    assert releases.order[2:] == ["-x", "+y", "-y", "-held", "+last", "-last"]


def test_a_callback_may_know_values(client, tmp_path) -> None:
    """A value that a callback puts into the graph at the start is not computed."""
    ran = tmp_path / "ran"

    class Knows(Callback):
        def _start(self, dsk) -> None:
            dsk["x"] = 41

    with Knows():
        assert client.dask_get({"x": (tasks.announce, str(ran)), "y": (inc, "x")}, "y") == 42
    assert not ran.exists()


@pytest.mark.skipif(not hasattr(dask, "_task_spec"), reason="before 2024.12 it is the future")
def test_a_persisted_value_is_data(client) -> None:
    """A persisted value is in the cache at the start, as with Dask's own schedulers."""
    kept = client.persist(dask.delayed(inc)(1))
    with Watcher() as watcher:
        assert dask.delayed(inc)(kept).compute(scheduler=client) == 3

    assert len(watcher.began["cache"]) == 1
    assert len(watcher.counted) == 2


# -- what Dask makes of them -----------------------------------------------------------------------


def test_the_progress_bar_moves(client, capsys) -> None:
    """Dask's progress bar reaches its end."""
    with ProgressBar():
        da.ones((20, 20), chunks=5).sum().compute(scheduler=client)

    assert "100% Completed" in capsys.readouterr().out


def test_profilers(client) -> None:
    """Dask's profilers find the same tasks and cached values with us as with its own scheduler."""
    (made,) = dask.optimize((da.ones((20, 20), chunks=5) + 1).sum())
    found = []
    for get in (client.dask_get, dask.get):
        with Profiler() as times, CacheProfiler() as sizes:
            get(made.__dask_graph__(), made.__dask_keys__())
        assert all(one.start_time <= one.end_time for one in times.results)
        assert all(one.cache_time <= one.free_time for one in sizes.results)
        found.append([
            {f"{one.key} {one.task}" for one in times.results},
            {f"{one.key} {one.task} {one.metric}" for one in sizes.results},
        ])  # fmt: skip

    assert found[0] == found[1]
    assert all(found[0])


def test_the_resource_profiler(client) -> None:
    """Dask's resource profiler measures this process while the graph runs."""
    with ResourceProfiler(dt=0.01) as resources:
        da.ones((20, 20), chunks=5).sum().compute(scheduler=client)
    resources.close()

    assert resources.results
    assert all(one.mem > 0 for one in resources.results)

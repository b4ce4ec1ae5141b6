"""Nodes of Dask's graphs are counted by the prefixes that Dask's own pages show."""

from __future__ import annotations

from time import perf_counter as clock

import pytest

from scaler_cluster.client.key_prefixes import prefix_of
from scaler_exec import Client, SchedulerClusterCombo
from scaler_monitoring.feed import Feed
from scaler_monitoring.model import Model
from tests.runtime.helpers import BOUND_S

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

from dask.utils import key_split  # noqa: E402
from hypothesis import example, given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from scaler_cluster.client import dask_graph  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def array():
    """Return the mean of an array, in several steps."""
    return ((da.random.random((60, 60), chunks=(10, 10)) + 1).T ** 2).mean(axis=0)


def frame():
    """Return the sums of the groups of a table."""
    table = pd.DataFrame({"a": range(100), "b": [n % 7 for n in range(100)]})
    return dd.from_pandas(table, npartitions=5).groupby("b").a.sum()


def graph_of(collection):
    """Return a graph as Dask hands it to a scheduler."""
    graph, _ = dask_graph._graph_of([collection], optimize=True)
    return dask_graph.convert(dask_graph.materialize(graph))


@pytest.mark.parametrize("make", [array, frame])
def test_keys_of_collections(make) -> None:
    """Arrays and tables, with what was fused by Dask."""
    graph = graph_of(make())
    assert len(graph) > 4
    assert {key: prefix_of(key) for key in graph} == {key: key_split(key) for key in graph}


WORDS = st.sampled_from(
    ["sum", "agg", "abcdefgh", "fedcba98", "", "_", "('x", "mean_chunk", "7", "<a.b", "data",
     "0123456789abcdef0123456789abcdef", "é", "<locals>", "abc123"]
)  # fmt: skip


@given(
    st.lists(WORDS | st.text(max_size=8), min_size=1, max_size=5).map("-".join)
    | st.text(max_size=40)
)
@example("add-a1b2")
@example("ae05086432ca935f6eba409a8ecd4896")
@example("<module.submodule.myclass object at 0xdaf372")
@example("_(x)")
def test_any_key(key: str) -> None:
    """Whatever text a key is; a name that would be empty is Other."""
    wanted = key_split(key)
    for made in (key, (key, 1), ((key, 2), 3), key.encode()):
        assert prefix_of(made) == (wanted or "Other")


def test_functions_have_the_names_of_prefixes() -> None:
    """A cluster counts each node by its prefix: of a chain, by that of the last key."""
    with (
        SchedulerClusterCombo(2) as cluster,
        Client(cluster.get_address()) as client,
        Feed(cluster.get_monitor_address()) as feed,
    ):
        expected: set[str] = set()

        def get(graph, keys, **named):
            expected.update(map(key_split, dask_graph.materialize(graph)))
            return client.dask_get(graph, keys, **named)

        for make in (array, frame):
            make().compute(scheduler=get)
        model = Model()
        end = clock() + BOUND_S
        while model.snapshot is None or not model.snapshot.tasks.done or model.snapshot.graphs:
            assert clock() < end
            if (message := feed.next(1.0)) is not None:
                model.apply(message, clock())
    told = {row.name: row.done for row in model.snapshot.functions}
    assert len(told) > 3
    assert told.keys() <= expected
    assert sum(told.values()) == model.snapshot.tasks.done == model.snapshot.tasks.submitted

"""What ``persist`` leaves: collections whose values are on the cluster as long as they live."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import sys
import threading
import weakref

import pytest

from scaler_exec import Client, SchedulerClusterCombo, UnpicklableResultError
from tests.runtime import tasks
from tests.runtime.helpers import Flags, run_program, standing_cluster, wait_until

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
db = pytest.importorskip("dask.bag")
dd = pytest.importorskip("dask.dataframe")
np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

from dask.array.utils import assert_eq as assert_arrays_equal  # noqa: E402
from dask.base import tokenize  # noqa: E402
from dask.dataframe.utils import assert_eq as assert_frames_equal  # noqa: E402
from dask.utils_test import add, inc  # noqa: E402

# What Dask and pandas warn of among themselves is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")
needs_nodes = pytest.mark.skipif(
    not hasattr(dask, "_task_spec"), reason="before 2024.12 Dask knows no nodes but tuples"
)
SYNC = "synchronous"
SMALL = pd.DataFrame({"a": range(10), "b": [n % 3 for n in range(10)]})


@pytest.fixture(scope="module")
def cluster(standing, private_directories):
    """Return a cluster with two workers for all tests of this module."""
    with standing_cluster(2, standing) as made:
        yield made


@pytest.fixture
def client(cluster):
    """Return a client of that."""
    with Client(cluster.get_address()) as client:
        yield client


@pytest.fixture
def flags(tmp_path):
    """Return files by which tasks are held."""
    return Flags(tmp_path)


COLLECTIONS = {
    "frame": lambda: dd.from_pandas(SMALL, npartitions=3).assign(c=1),
    "series": lambda: dd.from_pandas(SMALL, npartitions=3).a + 1,
    "index": lambda: dd.from_pandas(SMALL, npartitions=3).index,
    "scalar": lambda: dd.from_pandas(SMALL, npartitions=3).a.sum(),
    "array": lambda: da.arange(20, chunks=5) * 2,
    "single chunk": lambda: da.ones((3, 3), chunks=3),
    "bag": lambda: db.range(20, npartitions=4).map(inc),
    "item": lambda: db.range(20, npartitions=4).sum(),
    "delayed": lambda: dask.delayed(add)(dask.delayed(inc)(1), 2),
    "constant": lambda: dask.delayed(5),
}
WAYS = {
    "method": lambda client, made: made.persist(scheduler=client.dask_get),
    "client": lambda client, made: client.persist([made])[0],
    "client alone": lambda client, made: client.persist(made),
    "dask": lambda client, made: dask.persist({"in": made}, scheduler=client)[0]["in"],
}


def further(made):
    """Return a collection that needs a persisted one."""
    if isinstance(made, db.Bag):
        return made.map(inc)
    if isinstance(made, db.Item):
        made = made.to_delayed()
    return made + 1


def same(found, expected) -> bool:
    """Return True for equal values, of whatever collection."""
    if hasattr(expected, "equals"):
        return found.equals(expected)
    return np.array_equal(found, expected)


# -- every collection, every way -------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_every_collection(client, way) -> None:
    """A persisted collection, and what is made of it, has the values it had."""
    for name, make in COLLECTIONS.items():
        kept = WAYS[way](client, make())

        for derived in (lambda made: made, further):
            found = derived(kept).compute(scheduler=client)
            assert same(found, derived(make()).compute(scheduler=SYNC)), name


PROGRAM = """
import dask, dask.array as da, dask.bag as db, dask.dataframe as dd, pandas as pd
from scaler_compat.dask import scaler_get

def main():
    for made in (
        dd.from_pandas(pd.DataFrame({"a": range(10)}), npartitions=3),
        da.arange(10, chunks=3), db.range(10, npartitions=3), dask.delayed(sum)([45]),
    ):
        kept = made.persist(scheduler=scaler_get)
        again, = dask.persist(kept, scheduler=scaler_get)
        del kept
        with dask.config.set(scheduler=scaler_get):
            again = again.persist()
            print(int(dask.delayed(sum)(again.a if hasattr(again, "columns") else again).compute()
                  if not hasattr(again, "key") else again.compute()))

if __name__ == "__main__":
    main()
"""


def test_every_collection_by_scaler_get() -> None:
    """A collection persisted by scaler_get has its values on the process's own cluster."""
    done = run_program(PROGRAM)

    assert (done.stdout.split(), done.returncode) == (["45"] * 4, 0), done.stderr


def test_several_at_once(client) -> None:
    """A list of collections is persisted as such a list, an empty one included."""
    frame, array = client.persist([COLLECTIONS["frame"](), COLLECTIONS["array"]()])

    assert frame.a.sum().compute(scheduler=client) == 45
    assert array.sum().compute(scheduler=client) == 380
    assert client.persist([]) == []


def test_what_is_no_collection_is_named(client) -> None:
    """An argument that is no collection is named before anything runs."""
    with pytest.raises(TypeError, match="persist takes collections of Dask, not 5"):
        client.persist([COLLECTIONS["array"](), 5])


def test_nothing_is_computed_twice(client) -> None:
    """Later computations take persisted values from the cluster."""
    kept = client.persist(dask.delayed(np.random.default_rng)().random(3))
    array = client.persist(da.from_delayed(kept, (3,), float))

    found = kept.compute(scheduler=client)
    assert list((array * 2 + da.ones(3)).compute(scheduler=client)) == list(found * 2 + 1)


# -- as long as somebody has it --------------------------------------------------------------------


@pytest.mark.parametrize("name", COLLECTIONS)
def test_persisting_twice(client, name) -> None:
    """A collection that is persisted twice has two values, neither of which needs the other."""
    expected = COLLECTIONS[name]().compute(scheduler=SYNC)
    for goes_first in (0, 1):
        kept = [client.persist(COLLECTIONS[name]())]
        kept.append(client.persist(kept[0]))
        del kept[goes_first]
        gc.collect()

        assert same(kept[0].compute(scheduler=client), expected)


def test_the_same_name_twice(client) -> None:
    """Each of two collections has its own value though Dask gives both one name."""
    kept = [client.persist(dask.delayed(add)(n, 1, dask_key_name="named")) for n in range(3)]

    found = [one.compute(scheduler=client) for one in kept]
    assert found == [1, 2, 3]
    assert [further(one).compute(scheduler=client) for one in kept] == [2, 3, 4]


def test_a_value_goes_with_its_last_collection(client) -> None:
    """A value stays on the cluster until the last collection that uses it is gone."""
    kept = client.persist(da.arange(20, chunks=10))
    node = next(iter(dict(kept.dask).values()))
    value = weakref.ref(getattr(node, "future", node))
    del node
    again, more = client.persist(kept), kept + 1

    del kept, again
    gc.collect()
    assert value() is not None
    assert more.sum().compute(scheduler=client) == 210
    del more
    wait_until(lambda: gc.collect() is not None and value() is None, "the value is kept")


def test_a_failing_computation_leaves_it_alone(client, flags) -> None:
    """A computation that fails cancels only the tasks that were begun for it."""
    slow = dask.delayed(tasks.hold)(flags.path("began"), flags.path("go"))
    failing = dask.delayed(operator.truediv)(1, 0)
    frame = dd.from_delayed([_frame_after(failing), _frame_after(slow)], meta={"a": "i8"})
    kept = client.persist(frame)

    with pytest.raises(ZeroDivisionError):
        kept.compute(scheduler=client)
    flags.set("go")
    assert list(kept.partitions[1].a.compute(scheduler=client)) == [1]


def _frame_after(delayed):
    return dask.delayed(lambda _: pd.DataFrame({"a": [1]}))(delayed)


# -- where else it may be used ---------------------------------------------------------------------


@needs_nodes
def test_dasks_own_schedulers(client) -> None:
    """Dask's schedulers fetch persisted values, in this process, its threads and processes."""
    for name, make in COLLECTIONS.items():
        kept, expected = client.persist(make()), make().compute(scheduler=SYNC)
        for scheduler in (SYNC, "threads"):
            assert same(kept.compute(scheduler=scheduler), expected), name
    assert further(client.persist(COLLECTIONS["bag"]())).sum().compute(scheduler="processes") == 230


@needs_nodes
def test_another_client(cluster, client, flags) -> None:
    """Another client uses a persisted value, on the same cluster or on another one."""
    held = dask.delayed(tasks.hold)(flags.path("began"), flags.path("go"))
    kept = client.persist(dask.delayed(bool)(held))
    found = []

    def compute_elsewhere() -> None:
        with Client(cluster.get_address()) as other:
            found.append(kept.compute(scheduler=other))
            found.append(further(kept).compute(scheduler=other))
            found.append(other.persist(further(kept)).compute(scheduler=client))

    thread = threading.Thread(target=compute_elsewhere)
    thread.start()
    flags.wait("began")
    flags.set("go")
    thread.join()
    assert found == [True, 2, 2]
    with SchedulerClusterCombo(1) as second, Client(second.get_address()) as other:
        assert kept.compute(scheduler=other) is True


@needs_nodes
def test_it_can_be_pickled_and_copied(client) -> None:
    """A copy of a persisted collection is the same; a pickled one holds the values themselves."""
    for name, make in COLLECTIONS.items():
        kept, expected = client.persist(make()), make().compute(scheduler=SYNC)

        for other in (copy.copy(kept), copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
            assert same(other.compute(scheduler=client), expected), name
            assert same(other.compute(scheduler=SYNC), expected), name
        assert same(client.submit(_compute, kept).result(), expected), name


def _compute(collection):
    return collection.compute(scheduler="synchronous")


def test_what_dask_makes_of_graphs(client) -> None:
    """Culling, fusing, cloning and waiting leave persisted values the same."""
    from dask.graph_manipulation import bind, checkpoint, clone, wait_on

    array = da.arange(20, chunks=5)
    kept = client.persist(array)
    for active in (True, False):
        with dask.config.set({"optimization.fuse.active": active, "scheduler": client}):
            (fused,) = dask.optimize((kept[3:17:2] + 1) * 2)
            assert list(fused.compute()) == list((np.arange(20)[3:17:2] + 1) * 2)
            assert list(clone(kept + 1).compute()) == list(range(1, 21))
            assert list(clone(kept + 1, omit=kept).compute()) == list(range(1, 21))
            assert list(wait_on(kept).compute()) == list(range(20))
            assert checkpoint(kept).compute() is None
            assert list(bind(array, kept).compute()) == list(range(20))


@needs_nodes
def test_values_stay_on_the_cluster(client) -> None:
    """A computation takes persisted values from the cluster, not by way of this process."""
    large = da.ones((4, 1_000_000), chunks=(1, 1_000_000))
    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(1_000_000.0)}), npartitions=4)
    kept = client.persist([large, frame * 1])

    assert (kept[0] + 1).sum().compute(scheduler=client) == 8_000_000
    assert (kept[1].a + 1).max().compute(scheduler=client) == 1_000_000
    again = client.persist(kept)
    for collection in (*kept, *again):
        nodes = list(dict(collection.__dask_graph__()).values())
        futures = [node.future for node in nodes if hasattr(node, "future")]
        assert len(futures) == 4
        assert all("not fetched" in repr(future) for future in futures)


# -- for libraries that look into graphs -----------------------------------------------------------


@needs_nodes
def test_its_token(client) -> None:
    """The token of a persisted value stays the same, and no other value has it."""
    (made, other), frame = COLLECTIONS["array"]().__dask_keys__()[:2], COLLECTIONS["frame"]()
    graph = client.persist(COLLECTIONS["array"]()).dask
    again = client.persist(COLLECTIONS["array"]()).dask

    with dask.config.set({"tokenize.ensure-deterministic": True}):
        assert tokenize(graph[made]) == tokenize(graph[made]) == tokenize(graph[made].copy())
        assert len({tokenize(one[key]) for one in (graph, again) for key in (made, other)}) == 4
        kept = client.persist(frame)
        assert tokenize(kept) == tokenize(kept) != tokenize(client.persist(frame))


@needs_nodes
def test_it_behaves_as_a_future_of_dask(client, flags) -> None:
    """A persisted value has the key, status, result and exception of a future of Dask."""
    held = dask.delayed(tasks.hold)(flags.path("began"), flags.path("go"))
    kept = [client.persist(dask.delayed(bool)(held)), client.persist(dask.delayed(add)(1, "a"))]
    waiting, failed = (one.dask[one.key] for one in kept)

    assert (waiting.key, waiting.status, waiting.done()) == (kept[0].key, "pending", False)
    with pytest.raises(TimeoutError):
        waiting.result(timeout=0)
    flags.set("go")
    assert waiting.result() is True
    assert waiting.exception() is None
    assert (waiting.status, waiting.done(), waiting.cancelled()) == ("finished", True, False)
    assert type(failed.exception()) is TypeError
    assert (failed.status, failed.done(), failed.cancelled()) == ("error", True, False)
    assert repr(failed) == f"Persisted({kept[1].key!r}, error)"
    assert sys.getsizeof(failed) < 1000
    with pytest.raises(TypeError):
        kept[1].compute(scheduler=client)


@needs_nodes
def test_a_cancelled_one(client, flags) -> None:
    """The status of a cancelled value is "cancelled"."""
    held = dask.delayed(tasks.hold)(flags.path("began"), flags.path("go"))
    kept = client.persist(held)
    node = kept.dask[kept.key]

    node.future.cancel()
    assert (node.status, node.done(), node.cancelled()) == ("cancelled", True, True)


def test_dasks_own_comparisons(client) -> None:
    """Dask's assert_eq accepts persisted chunks, each of the type it should have."""
    array, frame = COLLECTIONS["array"](), COLLECTIONS["frame"]()
    assert_arrays_equal(array, np.arange(20) * 2, scheduler=client.dask_get)
    assert_frames_equal(frame, SMALL.assign(c=1), scheduler=client.dask_get)

    kept, table = client.persist([array, frame])
    assert_arrays_equal(kept, array, scheduler=client.dask_get)
    assert_frames_equal(table, SMALL.assign(c=1), scheduler=client.dask_get)
    with dask.config.set(scheduler=client.dask_get):
        assert_arrays_equal(kept + 1, np.arange(20) * 2 + 1, scheduler=None)


@needs_nodes
def test_dasks_own_comparisons_elsewhere(client) -> None:
    """Dask's assert_eq compares persisted values on Dask's own scheduler."""
    kept, table = client.persist([COLLECTIONS["array"](), COLLECTIONS["frame"]()])

    assert_arrays_equal(kept, np.arange(20) * 2)
    assert_frames_equal(table, SMALL.assign(c=1))


def test_values_that_cannot_be_pickled(client) -> None:
    """A value that cannot be pickled fails where it is used, and the client goes on."""
    kept = client.persist(dask.delayed(threading.Lock)())

    with pytest.raises(UnpicklableResultError, match="cannot pickle lock"):
        kept.compute(scheduler=client)
    assert client.dask_get({"x": (add, 1, 2)}, "x") == 3

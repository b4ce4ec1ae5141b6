"""Dask's collections on this engine: the same values as on Dask's own scheduler."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import threading

import pytest

from scaler_cluster.errors import ConfigError, PayloadError, UnpicklableResultError
from scaler_exec import (
    Client,
    ScalerExecutor,
    SchedulerClusterCombo,
    SessionClosedError,
    WorkerDiedError,
)
from tests.runtime.helpers import BOUND_S, environment, run_program, standing_cluster

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
db = pytest.importorskip("dask.bag")
dd = pytest.importorskip("dask.dataframe")
np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

from dask.utils_test import GetFunctionTestMixin, add, inc  # noqa: E402

# What Dask and pandas warn of among themselves is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")
SYNC = "synchronous"


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


class TestGet(GetFunctionTestMixin):
    """What Dask expects of whatever is called ``get``."""

    @pytest.fixture(autouse=True)
    def _client(self, client) -> None:
        self.get = client.dask_get


# -- collections -----------------------------------------------------------------------------


def _array():
    return da.from_array(np.arange(600.0).reshape(20, 30), chunks=(7, 8))


def _frame():
    frame = pd.DataFrame({"a": range(200), "b": [n % 7 for n in range(200)], "c": 1.5})
    return dd.from_pandas(frame, npartitions=6)


def _tree():
    inc, total = dask.delayed(lambda x: x + 1), dask.delayed(sum)
    return total([total([inc(n), n, {"deep": 1}["deep"]]) for n in range(9)])


COLLECTIONS = {
    "array sum": lambda: (_array() + 1).sum(),
    "array mean": lambda: _array().mean(axis=0),
    "array transposed": lambda: (_array() @ _array().T).std(),
    "array tensordot": lambda: da.tensordot(_array(), _array(), axes=([0], [0])),
    "array overlap": lambda: _array().map_overlap(lambda x: x[::-1], depth=1, boundary="reflect"),
    "array rechunk": lambda: _array().rechunk((3, 11)).cumsum(axis=1),
    "array svd": lambda: da.linalg.svd(da.ones((40, 5), chunks=(10, 5)))[1],
    "array blocks": lambda: da.block([[_array(), _array()], [_array(), -_array()]]).max(axis=1),
    "bag fold": lambda: db.range(100, npartitions=9).map(inc).fold(operator.add),
    "bag groupby": lambda: db.range(40, npartitions=4).foldby(lambda x: x % 3, operator.add, 0),
    "delayed": _tree,
    "frame groupby": lambda: _frame().groupby("b").a.agg(["sum", "mean"]),
    "frame shuffle": lambda: _frame().set_index("b").a.sum(),
    "frame merge": lambda: _frame().merge(_frame(), on="b").a_x.sum(),
    "frame rolling": lambda: _frame().a.rolling(3).mean(),
    "frame quantile": lambda: _frame().describe(),
}


@pytest.mark.parametrize("kind", ["array", "bag", "delayed", "frame"])
def test_collections(client, kind) -> None:
    """Every kind of collection has the value that Dask computes in this process."""
    for name in filter(lambda name: name.startswith(kind), COLLECTIONS):
        made = COLLECTIONS[name]()

        found = made.compute(scheduler=client.dask_get)
        expected = made.compute(scheduler=SYNC)
        assert type(found) is type(expected), name
        if isinstance(expected, pd.DataFrame | pd.Series):
            assert found.equals(expected), name
        elif isinstance(expected, np.ndarray):
            assert np.array_equal(found, expected), name
        else:
            assert found == expected, name


def test_parquet_round_trip(client, tmp_path) -> None:
    """Tasks write Parquet files, and other tasks read them again."""
    with dask.config.set(scheduler=client.dask_get):
        _frame().to_parquet(tmp_path / "frame")
        again = dd.read_parquet(tmp_path / "frame")
        assert again.a.sum().compute() == sum(range(200))


def test_xarray(client) -> None:
    """Datasets of xarray are computed as collections of Dask are."""
    xarray = pytest.importorskip("xarray")
    data = xarray.DataArray(_array(), dims=("x", "y")).to_dataset(name="value")

    with dask.config.set(scheduler=client.dask_get):
        found = data.groupby_bins("x", 3).mean().compute()
    assert found.equals(data.groupby_bins("x", 3).mean().compute(scheduler=SYNC))


# -- libraries that are made of Dask -----------------------------------------------------------


def _blobs():
    """Return points in three heaps, and which is which."""
    centers = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 3.0], [0.0, 9.0, 6.0]])
    kinds = np.arange(240) % 3
    points = centers[kinds] + np.random.default_rng(1).normal(size=(240, 3))
    return da.from_array(points, chunks=(60, 3)), da.from_array(kinds, chunks=60)


def _image():
    return np.random.default_rng(2).random((120, 130))


def _filter_in_parallel():
    from skimage.filters import gaussian
    from skimage.util import apply_parallel

    return [apply_parallel(
        gaussian, _image(), chunks=(40, 50), depth=8, mode="reflect", dtype=float, compute=True,
        extra_keywords={"sigma": 2},
    )]  # fmt: skip


def _filter_overlapping():
    from skimage.filters import sobel, threshold_local

    image = da.from_array(_image(), chunks=(40, 50))
    edges = image.map_overlap(sobel, depth=2, boundary="reflect")
    near = {"depth": 6, "boundary": "reflect", "block_size": 11}
    return dask.compute(edges, edges.map_overlap(threshold_local, **near))


def _label_regions():
    from skimage.measure import label, regionprops_table

    regions = dask.delayed(label)(_image() > 0.7)
    return dask.delayed(regionprops_table)(regions, properties=("area",)).compute().values()


IMAGES = [_filter_in_parallel, _filter_overlapping, _label_regions]


def _cluster_points():
    from dask_ml.cluster import KMeans

    model = KMeans(n_clusters=3, init="random", random_state=0, max_iter=5).fit(_blobs()[0])
    return model.cluster_centers_, np.asarray(model.labels_)


def _scale_and_project():
    from dask_ml.decomposition import PCA, IncrementalPCA
    from dask_ml.preprocessing import StandardScaler

    points = StandardScaler().fit_transform(_blobs()[0])
    step_by_step = IncrementalPCA(n_components=2).fit(points)
    return PCA(n_components=2, svd_solver="tsqr").fit(points).explained_variance_, (
        step_by_step.explained_variance_
    )


def _fit_linear_model():
    from dask_ml.linear_model import LogisticRegression

    points, kinds = _blobs()
    model = LogisticRegression(solver="admm", max_iter=3).fit(points, (kinds == 1).astype(int))
    return model.coef_, np.asarray(model.predict(points))


def _search_parameters():
    from dask_ml.model_selection import GridSearchCV
    from sklearn.neighbors import KNeighborsClassifier

    search = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 5]}, cv=2)
    points, kinds = dask.compute(*_blobs())
    return [search.fit(points, kinds).cv_results_["mean_test_score"]]


def _learn_chunk_by_chunk():
    from dask_ml.wrappers import Incremental, ParallelPostFit
    from sklearn.linear_model import SGDClassifier

    points, kinds = _blobs()
    learner = Incremental(SGDClassifier(random_state=0), shuffle_blocks=False)
    learner.fit(points, kinds, classes=[0, 1, 2])
    return learner.estimator_.coef_, ParallelPostFit(learner.estimator_).predict(points).compute()


MODELS = [
    _cluster_points, _scale_and_project, _fit_linear_model, _search_parameters,
    _learn_chunk_by_chunk,
]  # fmt: skip


@pytest.mark.parametrize(("library", "programs"), [("skimage", IMAGES), ("dask_ml", MODELS)])
@pytest.mark.timeout(300)
def test_libraries(client, library, programs) -> None:
    """Programs that use scikit-image and dask-ml find what they find on Dask's own scheduler."""
    pytest.importorskip(library)

    # GridSearchCV takes a method of whatever is called Client for one of dask.distributed.
    def get(*args, **named):
        return client.dask_get(*args, **named)

    for program in programs:
        with dask.config.set(scheduler=get):
            found = program()
        with dask.config.set(scheduler=SYNC):
            expected = program()
        assert all(map(np.allclose, found, expected)), program


# -- ways to name it -------------------------------------------------------------------------


def test_a_client_is_a_scheduler(client) -> None:
    """Dask takes a client as an argument and as a setting, for one collection or several."""
    total, mean = _array().sum(), _array().mean()

    assert dask.compute(total, mean, scheduler=client) == dask.compute(total, mean, scheduler=SYNC)
    with dask.config.set(scheduler=client):
        assert dask.compute({"in": [total]}) == ({"in": [total.compute(scheduler=SYNC)]},)


def test_an_executor_is_a_scheduler() -> None:
    """Dask drives an executor task by task."""
    with ScalerExecutor(2) as executor:
        assert _tree().compute(scheduler=executor) == _tree().compute(scheduler=SYNC)


PROGRAM = """
import dask, dask.array as da
from scaler_compat.dask import scaler_get

array = da.ones((100, 100), chunks=30)
print(dask.compute(array.sum(), scheduler=scaler_get))
with dask.config.set(scheduler=scaler_get):
    kept = (array + 1).persist()
    print(float(kept.sum().compute()), type(next(iter(dict(kept.dask).values()))).__name__)
"""


def test_without_a_cluster_at_hand() -> None:
    """scaler_get starts a cluster of its own, uses it again, and persists values on it."""
    done = run_program(PROGRAM)

    lines = done.stdout.split("\n")
    assert "10000" in lines[0]
    assert lines[1].startswith("20000.0 ")
    assert done.stderr == ""
    assert done.returncode == 0


def test_without_dask_the_extra_is_named() -> None:
    """An import without Dask installed names the extra that installs it."""
    source = (
        "import sys; sys.modules['dask'] = None\n"
        "import scaler_compat.dask as door\n"
        "door.scaler_get({'a': 1}, 'a')"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=BOUND_S,
        env=environment(), check=False,
    )  # fmt: skip

    assert "ImportError: Dask is not installed: pip install 'scaler-exec[dask]'" in done.stderr


def total_of(array):
    """Return the sum of an array by Dask's own scheduler."""
    return array.sum().compute(scheduler=SYNC)


# -- what else Dask's schedulers do ----------------------------------------------------------


def test_retries(client, tmp_path) -> None:
    """A task that raises is run again as often as ``retries`` says."""
    flaky = dask.delayed(_fail_once)(str(tmp_path / "ran"))

    assert flaky.compute(scheduler=client.dask_get, retries=1) == "ran twice"
    with pytest.raises(ConfigError, match="retries must be 0 or more"):
        flaky.compute(scheduler=client.dask_get, retries=-1)


def _fail_once(path):
    if not os.path.exists(path):
        with open(path, "w"):
            raise OSError("the first time")
    return "ran twice"


# -- bad input -------------------------------------------------------------------------------


def test_a_task_that_raises(client) -> None:
    """The exception of a task arrives as it is, and the client goes on."""
    total = dask.delayed(sum)([dask.delayed(operator.truediv)(1, 0), 2])

    with pytest.raises(ZeroDivisionError):
        total.compute(scheduler=client.dask_get)
    assert client.dask_get({"x": (add, 1, 2)}, "x") == 3


def test_what_cannot_be_pickled_names_its_key(client) -> None:
    """An argument that cannot be pickled is named with its key before anything runs."""
    with pytest.raises(PayloadError, match="'locked'"):
        client.dask_get({"locked": (id, threading.Lock())}, "locked")


def _lock_for(_):
    return threading.Lock()


UNPICKLABLE = {
    "delayed": lambda: dask.delayed(threading.Lock)(),
    "bag": lambda: db.range(4, npartitions=2).map(_lock_for),
    "array": lambda: _array().map_blocks(lambda x: np.array([[_lock_for(x)]]), dtype=object),
    "frame": lambda: _frame().a.map(_lock_for, meta=("a", object)),
}


def test_results_that_cannot_be_pickled(client) -> None:
    """A result that cannot be pickled fails compute and persist, and the client goes on."""
    for name, make in UNPICKLABLE.items():
        with pytest.raises(UnpicklableResultError, match="cannot pickle .*lock"):
            make().compute(scheduler=client)
        if name == "delayed":
            (kept,) = client.persist([make()])
            with pytest.raises(UnpicklableResultError, match="cannot pickle lock"):
                kept.compute(scheduler=client)
    assert client.dask_get({"x": (add, 1, 2)}, "x") == 3


def test_a_failed_result_fails_what_needs_it(client) -> None:
    """A node whose result cannot be pickled fails the nodes that need it."""
    graph = {"lock": (threading.Lock,), "wanted": (id, "lock"), "other": (id, "lock")}
    with pytest.raises(UnpicklableResultError):
        client.dask_get(graph, ["wanted", "other"])


def test_a_client_that_left() -> None:
    """A client that has disconnected neither computes nor persists."""
    with SchedulerClusterCombo(1) as cluster:
        client = Client(cluster.get_address())
        client.disconnect()
        with pytest.raises(SessionClosedError, match="disconnected"):
            _array().sum().compute(scheduler=client)
        with pytest.raises(SessionClosedError, match="disconnected"):
            client.persist([_array()])


def test_a_task_that_kills_its_worker(client) -> None:
    """A task that kills its worker fails what needs it, and the client goes on."""
    died = dask.delayed(os._exit)(3)
    with pytest.raises(WorkerDiedError, match="exited with code 3") as caught:
        dask.compute(dask.delayed(add)(died, 1), _array().sum(), scheduler=client)
    assert caught.value.death.exit_code == 3
    assert total_of(_array()) == _array().sum().compute(scheduler=client)


def test_keys_that_are_not_there(client) -> None:
    """An error about a missing key names the key as it was written."""
    with pytest.raises(KeyError, match="nowhere"):
        client.dask_get({"x": 1}, [["x"], ["nowhere"]])


def test_a_dictionary_of_ours_is_none_of_dask(client) -> None:
    """Client.get returns a dictionary for a plain graph, and refuses unknown options."""
    assert client.get({"x": 1, "y": (inc, "x")}, ["y"]) == {"y": 2}
    with pytest.raises(TypeError, match="no option 'optimize_graph'"):
        client.get({"x": 1}, ["x"], optimize_graph=False)

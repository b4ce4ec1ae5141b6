"""Compares the backends of joblib: this engine's, joblib's own, and the one of Dask distributed.

``python -m benchmarks.joblib_backends [--backends scaler,loky,threading,dask] [--repeats 3]
[--workloads tiny_1,grid]`` runs each workload on each backend with two workers and prints medians
of the repeats, in seconds. The backends take turns within each repeat, each in a process of its
own that has run something else on all workers before. Results are checked. scikit-learn is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import operator
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np

from benchmarks.scenario import check, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORKERS = 2
TINY = 10_000
SHARED_MB = 100


@contextlib.contextmanager
def opened(backend: str) -> Iterator[None]:
    """Let joblib use a backend, with workers that are ready."""
    with contextlib.ExitStack() as stack:
        if backend == "scaler":
            import scaler_exec.joblib  # noqa: F401 - it registers the backend
        elif backend == "dask":
            from distributed import Client, LocalCluster

            cluster = stack.enter_context(
                LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
            )
            stack.enter_context(Client(cluster))
        stack.enter_context(joblib.parallel_config(backend=backend, n_jobs=WORKERS))
        parallel(operator.neg, range(200))
        yield


def parallel(function: Callable[..., Any], items: Any, **options: Any) -> list[Any]:
    results: list[Any] = joblib.Parallel(**options)(
        joblib.delayed(function)(item) for item in items
    )
    return results


def tiny(**options: Any) -> Callable[[], float]:
    def run() -> float:
        took_s, results = timed(lambda: parallel(operator.neg, range(TINY), **options))
        check(results, [-item for item in range(TINY)])
        return took_s

    return run


def shared() -> float:
    """One large array, in 50 calls."""
    array = np.ones(SHARED_MB * 1_000_000 // 8)
    add = joblib.delayed(_add)
    took_s, sums = timed(lambda: joblib.Parallel()(add(array, item) for item in range(50)))
    check(sums, range(1, 51))
    return took_s


def _add(array: Any, item: int) -> int:
    return int(array[item]) + item


def digits() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    data: tuple[Any, Any] = load_digits(return_X_y=True)
    return data


def grid() -> float:
    """200 fits of a support vector machine."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    values, classes = digits()
    grid = {"C": np.logspace(-1, 2, 8).tolist(), "gamma": np.logspace(-4, -2, 5).tolist()}
    search = GridSearchCV(SVC(), grid, cv=5, refit=False)
    took_s, _ = timed(lambda: search.fit(values[:800], classes[:800]))
    check([len(search.cv_results_["params"]) * search.n_splits_], [200])
    return took_s


def quick_grid() -> float:
    """200 fits of a few milliseconds each."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.naive_bayes import GaussianNB

    values, classes = digits()
    grid = {"var_smoothing": np.logspace(-9, 0, 40).tolist()}
    search = GridSearchCV(GaussianNB(), grid, cv=5, refit=False)
    took_s, _ = timed(lambda: search.fit(values, classes))
    check([len(search.cv_results_["params"]) * search.n_splits_], [200])
    return took_s


def forest() -> float:
    """300 trees, which the library would rather have in threads."""
    from sklearn.ensemble import RandomForestClassifier

    values, classes = digits()
    model = RandomForestClassifier(300, random_state=0)
    took_s, _ = timed(lambda: model.fit(values, classes))
    check([len(model.estimators_)], [300])
    return took_s


def nested() -> float:
    """Eight calls, each of which calls ``Parallel`` itself."""
    took_s, results = timed(lambda: parallel(_inner, range(8)))
    check(results, [sum(range(400)) + 400 * item for item in range(8)])
    return took_s


def _inner(item: int) -> int:
    return sum(parallel(_spun, [item + each for each in range(400)]))


def _spun(item: int) -> int:
    for _ in range(20_000):
        pass
    return item


WORKLOADS: dict[str, Callable[[], float]] = {
    "tiny_1": tiny(batch_size=1),
    "tiny_all_1": tiny(batch_size=1, pre_dispatch="all"),
    "tiny_100": tiny(batch_size=100),
    "tiny_auto": tiny(),
    "shared": shared,
    "grid": grid,
    "quick_grid": quick_grid,
    "forest": forest,
    "nested": nested,
}


def main() -> None:
    """Compare, or run one workload on one backend where a child process is asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", default="scaler,loky,threading,dask")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    named = parser.parse_args()
    if named.one:
        backend, workload = named.one
        with opened(backend):
            print(WORKLOADS[workload]())
        return
    backends = named.backends.split(",")
    print(" ".join([" " * 12, *(f"{backend:>10}" for backend in backends)]))
    for workload in named.workloads.split(","):
        took: dict[str, list[float]] = {backend: [] for backend in backends}
        for _ in range(named.repeats):
            for backend in backends:
                command = [sys.executable, "-m", __spec__.name, "--one", backend, workload]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                took[backend].append(float(done.stdout.split()[-1]))
        figures = [f"{median(took[backend]):10.3f}" for backend in backends]
        print(" ".join([workload.ljust(12), *figures]), flush=True)


if __name__ == "__main__":
    main()

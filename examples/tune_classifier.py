"""Find the best parameters of a classifier with scikit-learn: every fit of the search is a task.

    python examples/tune_classifier.py [--candidates N] [--images N] [--workers N]
                                       [--address ADDRESS]

The data are the handwritten digits that come with scikit-learn; a quarter of them is put aside. A
random search tries how many components to keep, and how smooth and how strict a support vector
machine is to be, each by cross validation. The digits travel once, however many fits there are.

The same search runs first in this process, with no other difference than the ``with`` line: that is
the check of the result, and the one core that the speed-up is measured against. Both must agree on
every score to the bit.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import numpy as np
from joblib import parallel_config
from scipy.stats import loguniform, randint
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import RandomizedSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

import scaler_exec.joblib  # noqa: F401 - it registers the backend

SPACE = {
    "pca__n_components": randint(5, 60),
    "svc__C": loguniform(0.1, 1000),
    "svc__gamma": loguniform(1e-4, 1e-1),
}
FOLDS = 5


def search(candidates: int, images: np.ndarray, digits: np.ndarray) -> RandomizedSearchCV:
    """Return a finished search."""
    model = make_pipeline(StandardScaler(), PCA(svd_solver="full"), SVC())
    found = RandomizedSearchCV(model, SPACE, n_iter=candidates, cv=FOLDS, random_state=1)
    return found.fit(images, digits)


def main() -> None:
    """Search twice, compare, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--candidates", type=int, default=24, metavar="N")
    parser.add_argument("--images", type=int, metavar="N", help="default: all")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--address", help="a running scheduler, in place of workers of its own")
    args = parser.parse_args()
    images, digits = load_digits(return_X_y=True)
    known, unknown, truth, asked = train_test_split(
        images[: args.images], digits[: args.images], random_state=1
    )

    start = time.perf_counter()
    with threadpool_limits(1):  # one core: the linear algebra would use all of them
        expected = search(args.candidates, known, truth)
    alone_s = time.perf_counter() - start
    with parallel_config(backend="scaler", n_jobs=args.workers, address=args.address):
        # The first search starts the workers, which import scikit-learn: before the clock runs.
        search(1, known, truth)
        start = time.perf_counter()
        found = search(args.candidates, known, truth)
        together_s = time.perf_counter() - start

    for name, value in found.best_params_.items():
        print(f"{name:18} {value:.4g}")
    print(f"right for {found.best_score_:.1%} of the images in cross validation", end=", ")
    print(f"for {found.score(unknown, asked):.1%} of those put aside")
    speed_up = alone_s / together_s
    print(f"{args.candidates * FOLDS} fits, one core {alone_s:.2f} s", end=", ")
    print(f"workers {together_s:.2f} s: speed-up {speed_up:.2f}")
    scores = [one.cv_results_["mean_test_score"] for one in (expected, found)]
    if not np.array_equal(*scores):
        sys.exit("the scores differ")
    print("all scores agree to the bit")


if __name__ == "__main__":
    main()

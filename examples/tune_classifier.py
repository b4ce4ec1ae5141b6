"""Find the best parameters of a classifier with scikit-learn: every fit is a task.

    python examples/tune_classifier.py [--workers N] [--address ADDRESS] [--images N]

The same search runs first in this process, with no other difference than the ``with`` line: that is
the check of the result, and the one core that the speed-up is measured against. Both must agree on
every score to the bit.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from joblib import parallel_config
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import scaler_exec.joblib  # noqa: F401 - it registers the backend

GRID = {
    "svc__C": np.logspace(-1, 2, 4).tolist(),
    "svc__gamma": np.logspace(-4, -2, 3).tolist(),
}
FOLDS = 4


def search(images: np.ndarray, digits: np.ndarray) -> tuple[GridSearchCV, float]:
    """Return a finished search, and the seconds that it took."""
    start = time.perf_counter()
    found = GridSearchCV(make_pipeline(StandardScaler(), SVC()), GRID, cv=FOLDS, refit=False)
    found.fit(images, digits)
    return found, time.perf_counter() - start


def main() -> int:
    """Search twice, compare, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--address", help="a running scheduler, in place of workers of its own")
    parser.add_argument("--images", type=int, default=600)
    named = parser.parse_args()
    images, digits = load_digits(return_X_y=True)
    images, digits = images[: named.images], digits[: named.images]

    alone, alone_s = search(images, digits)
    with parallel_config(backend="scaler", n_jobs=named.workers, address=named.address):
        found, took_s = search(images, digits)

    scores = found.cv_results_["mean_test_score"]
    fits = len(scores) * FOLDS
    print(f"{fits} fits: {alone_s:.2f} s in this process, {took_s:.2f} s with workers")
    print(f"best: {found.best_params_}, right for {found.best_score_:.1%} of the images")
    if not np.array_equal(scores, alone.cv_results_["mean_test_score"]):
        print("the scores differ", file=sys.stderr)
        return 1
    print("all scores agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Find confidence intervals for an A/B test by the bootstrap, from one array that all tasks share.

    python examples/bootstrap_intervals.py [--users N] [--replicates N] [--workers N]

The data are made with a seed: sessions and revenue of the users who saw the old page or the new
one. Most users buy nothing, and some spend a lot. By how much has revenue a session grown, and by
how much the revenue that one user in a hundred exceeds?

Each replicate is a task: it draws users with replacement, and answers both questions anew. The
array of all users is written to shared memory once, and every worker maps it. For large samples,
theory knows both standard errors: by the delta method for a ratio of means, and by the density for
a quantile. The bootstrap has to come near them. Each replicate has its own seed, so a plain loop in
this process, which comes first, must find the same to the bit.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from functools import partial
from statistics import NormalDist

import numpy as np

from scaler_exec import ScalerExecutor

SESSIONS = 3.0  # after the first one
PASSES = 0.97  # how likely a session ends without a purchase
SIGMA = 1.0  # of the logarithm of what a buyer spends
UPLIFT = 0.03  # what a buyer of the new page spends more: the truth, for both questions
TAIL = 0.01
LEVEL = 0.95
SIGMAS_MAX = 5.0  # a bootstrap that is farther from theory than this is wrong


def make_users(count: int) -> np.ndarray:
    """Return the users of the old page and of the new one, a row each: sessions and revenue."""
    random = np.random.default_rng(11)
    sessions = 1 + random.poisson(SESSIONS, (2, count))
    buys = random.random((2, count)) > PASSES**sessions
    spent = 20.0 * random.lognormal(0.0, SIGMA, (2, count)) * np.array([[1.0], [1.0 + UPLIFT]])
    return np.stack((sessions, buys * spent), axis=2)


def uplifts(users: np.ndarray) -> tuple[float, float]:
    """Return by how much the new page is better: in revenue a session, and in the tail."""
    sessions, revenue = users[..., 0], users[..., 1]
    ratios = revenue.sum(axis=1) / sessions.sum(axis=1)
    rank = round(revenue.shape[1] * (1.0 - TAIL))
    quantiles = np.partition(revenue, rank, axis=1)[:, rank]
    return float(ratios[1] / ratios[0] - 1.0), float(quantiles[1] / quantiles[0] - 1.0)


def replicate(users: np.ndarray, seed: int) -> tuple[float, float]:
    """Return the uplifts among as many users, drawn with replacement."""
    drawn = np.random.default_rng(seed).integers(users.shape[1], size=users.shape[:2])
    return uplifts(np.stack([page[rows] for page, rows in zip(users, drawn, strict=True)]))


def theory(users: np.ndarray) -> tuple[float, float]:
    """Return the standard errors of both uplifts in large samples."""
    sessions, revenue = users[..., 0], users[..., 1]
    count = users.shape[1]
    ratios = revenue.sum(axis=1) / sessions.sum(axis=1)
    apart = (revenue - ratios[:, None] * sessions).var(axis=1) / revenue.mean(axis=1) ** 2
    of_ratio = math.sqrt(apart.sum() / count) * ratios[1] / ratios[0]
    buyers = 1.0 - PASSES * math.exp(SESSIONS * (PASSES - 1.0))
    normal = NormalDist()
    # The density of the logarithm of revenue at the quantile, which has the same form in both.
    density = buyers * normal.pdf(normal.inv_cdf(1.0 - TAIL / buyers)) / SIGMA
    of_tail = math.sqrt(2.0 * TAIL * (1.0 - TAIL) / count) / density * (1.0 + UPLIFT)
    return float(of_ratio), of_tail


def main() -> None:
    """Draw all replicates twice; print the intervals, and how fast."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--users", type=int, default=200_000, metavar="N", help="of each page")
    parser.add_argument("--replicates", type=int, default=120, metavar="N")
    parser.add_argument("--workers", type=int, metavar="N", help="default: one for each CPU")
    args = parser.parse_args()
    users, seeds = make_users(args.users), range(args.replicates)

    start = time.perf_counter()
    expected = list(map(partial(replicate, users), seeds))
    alone_s = time.perf_counter() - start
    with ScalerExecutor(args.workers) as executor:
        start = time.perf_counter()
        found = list(executor.map(partial(replicate, users), seeds))
        together_s = time.perf_counter() - start

    print(f"2 x {args.users:,} users, {users.nbytes / 1e6:.0f} MB, {args.replicates} replicates")
    names, worst = ("revenue a session", f"revenue that {TAIL:.0%} exceed"), 0.0
    for name, value, values, exact in zip(
        names, uplifts(users), np.transpose(found), theory(users), strict=True
    ):
        low, high = np.quantile(values, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        error = values.std(ddof=1)
        worst = max(worst, abs(error / exact - 1.0) * math.sqrt(2 * args.replicates))
        print(f"{name}: {value:+.2%}, {LEVEL:.0%} between {low:+.2%} and {high:+.2%}", end="; ")
        print(f"standard error {error:.3%}, in theory {exact:.3%}")
    print(f"the truth is {UPLIFT:+.2%} in both")
    speed_up = alone_s / together_s
    print(f"one core {alone_s:.2f} s, workers {together_s:.2f} s: speed-up {speed_up:.2f}")
    if found != expected or worst > SIGMAS_MAX:
        sys.exit("the two runs differ, or the bootstrap is wrong")
    print("both runs agree to the bit")


if __name__ == "__main__":
    main()

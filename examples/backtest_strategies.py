"""Back-test a grid of trend-following strategies, and see how much of the best one was luck.

    python examples/backtest_strategies.py [--years N] [--shuffles N] [--workers N]

The prices are made with a seed: 24 markets whose drifts change sign now and then, so there are
trends to follow, in much noise. A strategy goes with the sign of two moving averages, sizes its
positions by the volatility of the last weeks, leaves a position that loses too much, and pays for
each trade. What it does on a day depends on what it holds: a loop over days, one task a strategy.

The grid is searched on the first half of the years, and the second half says what the best is
worth. The same grid on the same days in a random order, which has no trends, says how good the best
of so many looks by luck alone.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from functools import partial
from typing import NamedTuple

import numpy as np

from scaler_exec import ScalerExecutor

MARKETS, DAYS = 24, 252  # trading days a year
TARGET = 0.1  # volatility of the whole, a year, if the markets have nothing to do with each other
COST = 0.0002  # of what is traded
WARM_UP = 200  # days that the slowest average needs
GRID = list(itertools.product((5, 10, 20, 40), (50, 100, 200), (2.0, 4.0, 8.0, np.inf)))


class Result(NamedTuple):
    """What a strategy earned: the Sharpe ratios of both halves, the worst loss, the turnover."""

    before: float
    after: float
    drawdown: float
    turnover: float


def make_returns(years: int) -> np.ndarray:
    """Return daily returns, a column a market; the drift of each changes sign about once a year."""
    random = np.random.default_rng(5)
    turns = random.random((years * DAYS, MARKETS)) < 1 / DAYS
    signs = np.where(np.cumsum(turns, axis=0) % 2, 1, -1) * random.choice((1, -1), MARKETS)
    noise = random.standard_normal((years * DAYS, MARKETS))
    returns: np.ndarray = 0.1 / DAYS * signs + 0.15 / DAYS**0.5 * noise
    return returns


def moving_average(values: np.ndarray, days: int) -> np.ndarray:
    """Return the averages of the last days, of fewer where there are fewer."""
    sums: np.ndarray = np.cumsum(values, axis=0)
    sums[days:] -= sums[:-days].copy()
    counts = np.minimum(np.arange(1, len(values) + 1), days)
    averages: np.ndarray = sums / counts[:, None]
    return averages


def sharpe(earned: np.ndarray) -> float:
    """Return the mean of a year by the volatility of a year."""
    return float(earned.mean() / earned.std() * DAYS**0.5)


def backtest(returns: np.ndarray, strategy: tuple[int, int, float]) -> Result:
    """Return what a strategy would have earned, knowing on each day only what was before."""
    fast, slow, stop = strategy
    prices = np.cumsum(returns, axis=0)
    sides = np.sign(moving_average(prices, fast) - moving_average(prices, slow))
    daily = moving_average(returns**2, 60) ** 0.5
    sizes = TARGET / (daily * (DAYS * MARKETS) ** 0.5)
    side, held, run = np.zeros((3, MARKETS))  # run: what it earned since it turned, in volatilities
    earned, traded = np.zeros(len(returns)), 0.0
    for day in range(WARM_UP, len(returns) - 1):
        run[sides[day] != side] = 0.0
        side = sides[day]
        # A position that was left adds nothing to its run: it stays left until the side turns.
        wanted = np.where(run > -stop, side * sizes[day], 0.0)
        trade = float(np.abs(wanted - held).sum())
        held = wanted
        gain = held * returns[day + 1]
        run += gain / (sizes[day] * daily[day])
        earned[day + 1] = gain.sum() - COST * trade
        traded += trade
    earned = earned[WARM_UP + 1 :]
    middle = len(earned) // 2
    wealth = np.cumsum(earned)
    drawdown = float(np.max(np.maximum.accumulate(wealth) - wealth))
    turnover = traded * DAYS / len(earned)
    return Result(sharpe(earned[:middle]), sharpe(earned[middle:]), drawdown, turnover)


def main() -> None:
    """Search both grids twice; print what was found, and how fast."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--years", type=int, default=10, metavar="N")
    parser.add_argument("--shuffles", type=int, default=4, metavar="N")
    parser.add_argument("--workers", type=int, metavar="N", help="default: one for each CPU")
    args = parser.parse_args()
    returns, shuffle = make_returns(args.years), np.random.default_rng(7).permutation
    worlds = [returns, *(shuffle(returns) for _ in range(args.shuffles))]

    start = time.perf_counter()
    expected = [list(map(partial(backtest, world), GRID)) for world in worlds]
    alone_s = time.perf_counter() - start
    with ScalerExecutor(args.workers) as executor:
        start = time.perf_counter()
        # The returns are written to shared memory once a world, not once a strategy. All worlds
        # are under way before the first result is waited for.
        running = [executor.map(partial(backtest, world), GRID) for world in worlds]
        found = [list(results) for results in running]
        together_s = time.perf_counter() - start

    print("fast slow  stop  first half  second half  drawdown  turnover")
    ranked = sorted(zip(found[0], GRID, strict=True), reverse=True)
    for result, (fast, slow, stop) in ranked[:5]:
        print(f"{fast:4} {slow:4} {stop:5} {result.before:11.2f} {result.after:12.2f}", end="")
        print(f" {result.drawdown:9.1%} {result.turnover:9.1f}")
    best = ranked[0][0]
    error = math.sqrt((1 + best.after**2 / 2) / (args.years / 2))  # after Lo (2002)
    print(f"the best of {len(GRID)} has a Sharpe ratio of {best.before:.2f}", end="; ")
    print(f"on the second half it has {best.after:.2f} +- {error:.2f}")
    luck = sorted(max(results).before for results in found[1:])
    print(f"in a random order of days, the best has {luck[0]:.2f} to {luck[-1]:.2f}")
    speed_up = alone_s / together_s
    print(f"one core {alone_s:.2f} s, workers {together_s:.2f} s: speed-up {speed_up:.2f}")
    if found != expected:
        sys.exit("the two runs differ")
    print("both runs agree to the bit")


if __name__ == "__main__":
    main()

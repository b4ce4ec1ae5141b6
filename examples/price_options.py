"""Price a book of European options by Monte Carlo, and check it against Black and Scholes.

    python examples/price_options.py [--options N] [--workers N]

One task an option, of very uneven length: an option is simulated with as many paths as its
price needs to come within the same error. The same book is priced first in this process, with
``map`` in place of ``executor.map``: each option has its own seed, so both must agree to the bit.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from scaler_exec import ScalerExecutor

ERROR = 0.01  # the standard error that each price is wanted with, in the option's currency
PATHS_MIN, PATHS_MAX = 20_000, 4_000_000
CHUNK = 10_000  # paths at a time: what fits the cache of a core
SHOWN = 8  # lines of the table
SIGMAS_MAX = 5.0  # farther from the closed form than this is an error, not chance
RATE = 0.03


@dataclass(frozen=True, slots=True)
class Option:
    """A European option on one asset."""

    kind: str
    spot: float
    strike: float
    volatility: float
    years: float
    seed: int


@dataclass(frozen=True, slots=True)
class Price:
    """A simulated price and its standard error."""

    value: float
    error: float
    paths: int


def price(option: Option) -> Price:
    """Return the discounted mean pay-off over random paths, each with its mirror image."""
    random = np.random.default_rng(option.seed)
    drift = (RATE - option.volatility**2 / 2) * option.years
    spread = option.volatility * math.sqrt(option.years)
    sign = 1.0 if option.kind == "call" else -1.0
    discount = math.exp(-RATE * option.years)
    paths, total, squares = 0, 0.0, 0.0
    wanted = PATHS_MIN
    while paths < wanted:
        steps = spread * random.standard_normal(min(CHUNK, wanted - paths))
        ends = option.spot * np.exp(drift + np.stack((steps, -steps)))
        values = discount * np.maximum(sign * (ends - option.strike), 0.0).mean(axis=0)
        paths += len(values)
        total += float(values.sum())
        squares += float(np.square(values).sum())
        mean = total / paths
        variance = max(squares / paths - mean**2, 0.0)
        wanted = min(max(math.ceil(variance / ERROR**2), PATHS_MIN), PATHS_MAX)
    return Price(mean, math.sqrt(variance / paths), paths)


def black_scholes(option: Option) -> float:
    """Return the price in closed form."""
    normal = NormalDist().cdf
    spread = option.volatility * math.sqrt(option.years)
    d1 = math.log(option.spot / option.strike) + (RATE + option.volatility**2 / 2) * option.years
    d1 /= spread
    discounted = option.strike * math.exp(-RATE * option.years)
    if option.kind == "call":
        return option.spot * normal(d1) - discounted * normal(d1 - spread)
    return discounted * normal(spread - d1) - option.spot * normal(-d1)


def make_book(size: int) -> list[Option]:
    """Return the same random book each time."""
    random = np.random.default_rng(2)
    return [
        Option(
            kind=("call", "put")[int(random.integers(2))],
            spot=round(float(random.uniform(20, 150)), 2),
            strike=round(float(random.uniform(20, 150)), 2),
            volatility=round(float(random.uniform(0.05, 0.6)), 3),
            years=round(float(random.uniform(0.05, 3.0)), 2),
            seed=seed,
        )
        for seed in range(size)
    ]


def print_table(book: list[Option], prices: list[Price]) -> float:
    """Print some lines; return how many standard errors the worst price of all is off."""
    print(f"{'':4} {'spot':>7} {'strike':>7} {'vol':>6} {'years':>5} {'paths':>10}", end="")
    print(f" {'simulated':>10} {'exact':>8} {'sigmas':>6}")
    worst = 0.0
    for index, (option, found) in enumerate(zip(book, prices, strict=True)):
        exact = black_scholes(option)
        # An option that hardly ever pays has hardly any measured error: allow rounding, too.
        sigmas = (found.value - exact) / max(found.error, ERROR / 20)
        worst = max(worst, abs(sigmas))
        if index < SHOWN:
            print(f"{option.kind:4} {option.spot:7.2f} {option.strike:7.2f}", end="")
            print(f" {option.volatility:6.3f} {option.years:5.2f} {found.paths:10,}", end="")
            print(f" {found.value:10.3f} {exact:8.3f} {sigmas:6.2f}")
    if len(book) > SHOWN:
        print(f"and {len(book) - SHOWN:,} more; the farthest of all is {worst:.2f} sigmas off")
    return worst


def main() -> int:
    """Price the book twice, print the prices and how fast; return the exit code."""
    parser = argparse.ArgumentParser(description="Price a book of options by Monte Carlo.")
    parser.add_argument("--options", type=int, default=200, metavar="N")
    parser.add_argument("--workers", type=int, metavar="N", help="default: one for each CPU")
    options = parser.parse_args()
    if options.options < 1:
        parser.error("the book needs at least one option")
    book = make_book(options.options)

    start = time.perf_counter()
    expected = list(map(price, book))
    alone_s = time.perf_counter() - start

    with ScalerExecutor(options.workers) as executor:
        workers = executor._max_workers
        list(executor.map(price, book[:1] * workers))  # numpy is imported before the clock runs
        start = time.perf_counter()
        prices = list(executor.map(price, book))
        together_s = time.perf_counter() - start

    worst = print_table(book, prices)
    print()
    paths = [found.paths for found in prices]
    print(f"{len(book):,} options, from {min(paths):,} to {max(paths):,} paths each")
    print(f"one core    {alone_s:6.2f} s  {len(book) / alone_s:7,.0f} tasks/s")
    print(
        f"{workers} workers   {together_s:6.2f} s  {len(book) / together_s:7,.0f} tasks/s"
        f"  parallel efficiency {alone_s / together_s / workers:.0%}"
    )
    if prices != expected:
        print("the two runs DIFFER", file=sys.stderr)
        return 1
    if worst > SIGMAS_MAX:
        print(f"a price is {worst:.1f} standard errors off the closed form", file=sys.stderr)
        return 1
    print("both runs agree to the bit, and with the closed form")
    return 0


if __name__ == "__main__":
    sys.exit(main())

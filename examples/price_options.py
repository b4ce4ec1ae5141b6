"""Price a book of Asian options by Monte Carlo, with delta and vega, each to a wanted error.

    python examples/price_options.py [--options N] [--workers N]

An Asian option pays on the average of its fixings, for which there is no closed form. For their
geometric mean there is one, after Black and Scholes. So each path gives both: the geometric mean
takes most of the chance out of the average (a control variate), and its own simulated price, delta
and vega are checked. One task an option, of very uneven length: some have 4 fixings and some 252,
and each is simulated until its price is known well enough. Each has its own seed, so a plain loop
in this process, which comes first, must find the same to the bit.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from scaler_exec import ScalerExecutor

SPOT, RATE = 100.0, 0.03
ERROR = 0.01  # the standard error that each price is wanted with
PATHS_MIN = 2_000  # before that, the measured error is not to be trusted
CHUNK = 20_000  # fixings at a time: what fits the cache of a core
SIGMAS_MAX = 5.0  # farther from the closed form than this is an error, not chance


@dataclass(frozen=True, slots=True)
class Option:
    """A position in options on the average of so many fixings at equal distances."""

    sign: int  # 1 for a call, -1 for a put
    strike: float
    volatility: float
    years: float
    fixings: int
    quantity: int
    seed: int


@dataclass(frozen=True, slots=True)
class Priced:
    """Price, delta and vega; how many standard errors the control is off in each; the error."""

    values: tuple[float, ...]
    sigmas: tuple[float, ...]
    error: float
    paths: int


def closed_form(option: Option) -> np.ndarray:
    """Return price, delta and vega if the geometric mean of the fixings counts: it is lognormal."""
    sign, volatility, n = option.sign, option.volatility, option.fixings
    time_mean = option.years * (n + 1) / (2 * n)
    spread = volatility * math.sqrt(option.years * (n + 1) * (2 * n + 1) / 6) / n
    drift = (RATE - volatility**2 / 2) * time_mean
    d1 = (math.log(SPOT / option.strike) + drift + spread**2) / spread
    normal = NormalDist()
    forward = SPOT * math.exp(drift + spread**2 / 2)
    held = sign * forward * normal.cdf(sign * d1)
    price = held - sign * option.strike * normal.cdf(sign * (d1 - spread))
    vega = held * (spread**2 / volatility - volatility * time_mean)
    vega += forward * normal.pdf(d1) * spread / volatility
    return math.exp(-RATE * option.years) * np.array((price, held / SPOT, vega))


def price(option: Option) -> Priced:
    """Simulate until the price is known to `ERROR`."""

    def pays(mean: np.ndarray, by_volatility: np.ndarray) -> np.ndarray:
        """Return each path's pay-off, and its derivatives by spot and volatility."""
        gains = option.sign * np.stack((mean - option.strike, mean / SPOT, by_volatility))
        return math.exp(-RATE * option.years) * np.where(gains[0] > 0, gains, 0.0)

    normal = np.random.default_rng(option.seed).standard_normal
    step = option.years / option.fixings
    times = step * np.arange(1, option.fixings + 1)[:, None]
    exact = closed_form(option)
    paths, error = 0, np.inf
    sums = np.zeros((5, 3))  # of x, c, xx, cc and xc, for price, delta and vega
    while paths < PATHS_MIN or error > ERROR:
        steps = normal((option.fixings, CHUNK // option.fixings))
        walk = np.cumsum(steps, axis=0) * step**0.5
        logs = option.volatility * walk + (RATE - option.volatility**2 / 2) * times
        prices, geometric = SPOT * np.exp(logs), SPOT * np.exp(logs.mean(axis=0))
        slopes = walk - option.volatility * times  # of the logs, by the volatility
        x = pays(prices.mean(axis=0), (prices * slopes).mean(axis=0))
        c = pays(geometric, geometric * slopes.mean(axis=0))
        sums += np.stack((x, c, x * x, c * c, x * c)).sum(axis=2)
        paths += steps.shape[1]
        x_mean, c_mean, xx, cc, xc = sums / paths
        variance, covariance = cc - c_mean**2, xc - x_mean * c_mean
        beta = covariance / variance
        error = float(np.sqrt((xx - x_mean**2 - beta * covariance)[0] / paths))
    values = x_mean - beta * (c_mean - exact)
    sigmas = (c_mean - exact) / np.sqrt(variance / paths)
    return Priced(tuple(values), tuple(sigmas), error, paths)


def make_book(size: int) -> list[Option]:
    """Return the same random book each time, of options that are not far from the money."""
    draw, book = random.Random(2), []
    for seed in range(size):
        sign, fixings = draw.choice((1, -1)), draw.choice((4, 12, 52, 252))
        volatility, years = draw.uniform(0.1, 0.6), draw.uniform(0.25, 2.0)
        strike = SPOT * math.exp(draw.uniform(-0.7, 0.7) * volatility * math.sqrt(years))
        book.append(Option(sign, strike, volatility, years, fixings, draw.randint(-99, 99), seed))
    return book


def main() -> None:
    """Price the book twice, print prices, risk and speed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--options", type=int, default=100, metavar="N")
    parser.add_argument("--workers", type=int, metavar="N", help="default: one for each CPU")
    args = parser.parse_args()
    book = make_book(args.options)

    start = time.perf_counter()
    expected = list(map(price, book))
    alone_s = time.perf_counter() - start
    with ScalerExecutor(args.workers) as executor:
        start = time.perf_counter()
        priced = list(executor.map(price, book))
        together_s = time.perf_counter() - start

    for option, one in list(zip(book, priced, strict=True))[:8]:
        kind, (value, delta, vega) = "call" if option.sign > 0 else "put", one.values
        print(f"{kind:4} {option.strike:6.2f}, {option.fixings:3} fixings: {value:6.3f}", end=" ")
        print(f"+- {one.error:.3f}, delta {delta:6.3f}, vega {vega:5.2f} ({one.paths:7,} paths)")
    held = np.array([option.quantity for option in book])
    value, delta, vega = held @ np.array([one.values for one in priced])
    print(f"{len(book)} positions: value {value:,.0f}, delta {delta:,.1f}, vega {vega:,.0f}")
    worst = max(abs(sigma) for one in priced for sigma in one.sigmas)
    print(f"the controls are at most {worst:.2f} standard errors off the closed form")
    speed_up = alone_s / together_s
    print(f"one core {alone_s:.2f} s, workers {together_s:.2f} s: speed-up {speed_up:.2f}")
    if priced != expected or worst > SIGMAS_MAX:
        sys.exit("the two runs differ, or the simulation is wrong")
    print("both runs agree to the bit")


if __name__ == "__main__":
    main()

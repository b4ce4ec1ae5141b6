"""Value options while their prices come in, in a program of asyncio.

    python examples/watch_prices.py [--ticks N] [--workers N]

The prices come one by one, as from a market. Each is valued on a worker by Monte Carlo. The values
come back in order, and beside them a coroutine counts how often the event loop had its turn.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from typing import TYPE_CHECKING

import numpy as np

from scaler_exec import AsyncClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STRIKE, VOLATILITY, YEARS, PATHS = 100.0, 0.2, 0.5, 200_000


async def prices(count: int) -> AsyncIterator[float]:
    """Yield prices as a market would."""
    price = 100.0
    walk = random.Random(7)
    for _ in range(count):
        await asyncio.sleep(0.002)
        price *= 1.0 + walk.gauss(0.0, 0.002)
        yield price


def value(price: float) -> float:
    """Return what a call option is worth at a price, by Monte Carlo."""
    draws = np.random.default_rng(3).standard_normal(PATHS)
    ends = price * np.exp(VOLATILITY * np.sqrt(YEARS) * draws - VOLATILITY**2 * YEARS / 2)
    return float(np.maximum(ends - STRIKE, 0.0).mean())


async def count_turns(turns: list[int]) -> None:
    """Count how often the event loop comes by."""
    while True:
        await asyncio.sleep(0.001)
        turns[0] += 1


async def main() -> None:
    """Value each price as it comes in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--workers", type=int, default=None)
    args = parser.parse_args()
    turns = [0]
    async with AsyncClient(n_workers=args.workers) as client:
        counting = asyncio.ensure_future(count_turns(turns))
        values = [one async for one in client.map(value, prices(args.ticks))]
        counting.cancel()
    print(f"{len(values)} prices valued, from {min(values):.2f} to {max(values):.2f}")
    print(f"meanwhile the event loop had {turns[0]} turns")


if __name__ == "__main__":
    asyncio.run(main())

"""How long an event loop of asyncio is kept while tasks are submitted and come back.

``python -m benchmarks.event_loop [--tasks N]``. Beside each load a coroutine sleeps for 1 ms again
and again; printed is how much too late it woke at worst. So it holds what the garbage collector
and other programs took; the longest pass of the collector stands beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from typing import TYPE_CHECKING

from scaler_exec import AsyncClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

TICK_S = 0.001
AT_ONCE = 100
"""Tasks that are submitted without a turn for others."""


def nothing(number: int) -> int:
    """Return the number."""
    return number


async def longest_s(load: Awaitable[object]) -> tuple[float, float]:
    """Run a load; return how long it took, and the longest time without a turn for others."""
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            worst = max(worst, time.perf_counter() - due)

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0.05)
    worst, begin = 0.0, time.perf_counter()
    await load
    took = time.perf_counter() - begin
    ticking.cancel()
    return took, worst


class Collections:
    """How long the garbage collector took at worst."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._begin = 0.0

    def __call__(self, phase: str, _about: object) -> None:
        """Python begins or ends a pass."""
        if phase == "start":
            self._begin = time.perf_counter()
        else:
            self.worst_s = max(self.worst_s, time.perf_counter() - self._begin)


async def by_map(client: AsyncClient, count: int) -> None:
    """Run them as a map."""
    async for _ in client.map(nothing, range(count)):
        continue


async def by_completion(client: AsyncClient, count: int) -> None:
    """Submit them all, then take each as it is done."""
    futures = []
    for number in range(count):
        futures.append(client.submit(nothing, number))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    async for _ in client.as_completed(futures):
        continue


async def by_many(client: AsyncClient, count: int) -> None:
    """Have a hundred coroutines await one task after the other."""

    async def one() -> None:
        for number in range(count // AT_ONCE):
            await client.submit(nothing, number)

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))


LOADS: dict[str, Callable[[AsyncClient, int], Any]] = {
    "map": by_map,
    "submit, as_completed": by_completion,
    "100 coroutines that await": by_many,
}


async def main() -> None:
    """Measure each load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    args = parser.parse_args()
    print("| load | tasks/s | longest without a turn, ms | longest garbage collection, ms |")
    print("|---|---:|---:|---:|")
    async with AsyncClient(n_workers=2) as client:
        await by_map(client, 1000)
        for name, load in LOADS.items():
            collections = Collections()
            gc.callbacks.append(collections)
            took, worst = await longest_s(load(client, args.tasks))
            gc.callbacks.remove(collections)
            figures = f"{worst * 1e3:.1f} | {collections.worst_s * 1e3:.1f}"
            print(f"| {name} | {args.tasks / took:,.0f} | {figures} |")


if __name__ == "__main__":
    asyncio.run(main())

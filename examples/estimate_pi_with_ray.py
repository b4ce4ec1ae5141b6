"""A program for Ray: estimate pi by throwing darts, in batches that are reduced by a tree of tasks.

It runs without Ray, whose name this engine takes.
"""

import random

from scaler.compat import ray


@ray.remote
def throw(seed: int, darts: int) -> int:
    """Return how many darts hit the quarter of a circle."""
    source = random.Random(seed)
    return sum(source.random() ** 2 + source.random() ** 2 < 1 for _ in range(darts))


@ray.remote
def add(one: int, other: int) -> int:
    """Return a sum."""
    return one + other


def main(batches: int = 16, darts: int = 20_000) -> None:
    """Print an estimate."""
    ray.scaler_init(n_workers=2)
    hits = [throw.remote(seed, darts) for seed in range(batches)]
    while len(hits) > 1:
        hits = [*hits[2:], add.remote(hits[0], hits[1])]
    print(f"pi is about {4 * ray.get(hits[0]) / (batches * darts):.2f}")
    ray.shutdown()


if __name__ == "__main__":
    main()

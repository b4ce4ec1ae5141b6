"""Look for the best parameters, where each result says what to try next.

Written for the client of Dask distributed: with ``from distributed import Client, as_completed`` it
runs there. Run: python examples/search_by_futures.py --tries 200
"""

from __future__ import annotations

import argparse
import math
import random

from scaler_exec.distributed import Client, as_completed


def simulate(seed: int) -> list[float]:
    """Return observations, which all tries share."""
    noise = random.Random(seed)
    return [math.sin(0.7 * step) + noise.gauss(0, 0.05) for step in range(2000)]


def error(observed: list[float], frequency: float) -> float:
    """Return how badly a frequency explains the observations."""
    return sum(
        (value - math.sin(frequency * step)) ** 2 for step, value in enumerate(observed)
    ) / len(observed)


def main() -> None:
    """Try, and try again near the best so far."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=200)
    tries = parser.parse_args().tries

    with Client(n_workers=2, threads_per_worker=1) as client:
        # It stays on the cluster: each try takes it from there.
        observed = client.submit(simulate, 1)
        guesses = [number / 40 for number in range(1, 41)]
        frequencies = dict(
            zip(client.map(error, [observed] * len(guesses), guesses), guesses, strict=True)
        )
        best, best_error = 0.0, math.inf
        coming = as_completed(list(frequencies), with_results=True)
        for future, found in coming:
            if found < best_error:
                best, best_error = frequencies[future], found
            if len(frequencies) < tries:
                guess = random.gauss(best, 0.2 * best_error**2)
                another = client.submit(error, observed, guess)
                frequencies[another] = guess
                coming.add(another)
    print(f"{len(frequencies)} tries: the frequency is {best:.4f}, the error {best_error:.4f}")


if __name__ == "__main__":
    main()

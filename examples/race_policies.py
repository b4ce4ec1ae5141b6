"""Race ordering policies of a warehouse against each other, and stop those that cannot win.

    python examples/race_policies.py [--rounds N] [--days N] [--workers N]

A policy (s, S) orders up to S when stock and what is on the way are down to s. Orders cost a fixed
amount and arrive some days later; stock costs money, and customers who wait cost more. In each
round all policies are simulated with the same demand, for many years. After it, policies that are
significantly worse than the best so far are out.

The whole race is one graph: demands, and the simulations that take them. Workers run ahead while
this process judges one round after the other. When it cancels the futures of a policy, nodes that
only they need do not run. As rounds are judged in order, a plain loop, which comes first, must find
the same to the bit. The system is simple enough for an exact solution (Zheng and Federgruen, 1991),
so one sees how near the race comes.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from scaler_exec import Client, SchedulerClusterCombo

if TYPE_CHECKING:
    from collections.abc import Callable

DEMAND, LEAD_DAYS = 8.0, 3
ORDER, HOLD, WAIT = 40.0, 1.0, 9.0  # the cost of an order; of a piece for a day, in stock or owed
WARM_UP = 100  # days that do not count, as the first stock is no typical one
POLICIES = list(itertools.product(range(20, 44, 2), range(44, 92, 3)))
ROUNDS_MIN = 5
SIGMAS_MAX = 5.0  # a simulation that is farther from theory than this is wrong
SIGMAS = 3.5  # what is significant, for a rule that looks at many policies many times


def make_demand(seed: int, days: int) -> bytes:
    """Return the demand of each day. Bytes cannot change, so nodes share them without a copy."""
    return np.random.default_rng(seed).poisson(DEMAND, days).astype(np.uint8).tobytes()


def simulate(policy: tuple[int, int], demand: bytes) -> float:
    """Return what a policy costs a day."""
    low, high = policy
    stock = position = high  # the position counts what is on the way, too
    arrivals, cost = [0] * (LEAD_DAYS + 1), 0.0
    for day, wanted in enumerate(demand):
        if day == WARM_UP:
            cost = 0.0
        stock += arrivals[day % len(arrivals)]
        arrivals[day % len(arrivals)] = 0
        if position <= low:
            arrivals[(day + LEAD_DAYS) % len(arrivals)] = high - position
            position = high
            cost += ORDER
        stock -= wanted
        position -= wanted
        cost += HOLD * stock if stock > 0 else -WAIT * stock
    return cost / (len(demand) - WARM_UP)


def exact(policy: tuple[int, int]) -> float:
    """Return what a policy costs a day in the long run, by renewal theory."""
    (low, high), counts = policy, np.arange(200)
    factorials = np.array([math.lgamma(count + 1) for count in counts])
    means = np.array([[DEMAND], [DEMAND * (LEAD_DAYS + 1)]])
    one_day, later = np.exp(counts * np.log(means) - means - factorials)
    visits = np.zeros(high - low)  # how often the position is so far below S, between two orders
    visits[0] = 1.0 / (1.0 - one_day[0])
    for gap in range(1, high - low):
        visits[gap] = visits[:gap] @ one_day[gap:0:-1] / (1.0 - one_day[0])
    stock = high - np.arange(high - low)[:, None] - counts
    costs = np.where(stock > 0, HOLD * stock, -WAIT * stock) @ later
    return float((ORDER + visits @ costs) / visits.sum())


def race(
    rounds: int, run: Callable[[int, int], float], stop: Callable[[int], object]
) -> list[list[float]]:
    """Return the costs of each policy, in as many rounds as it was in the race."""
    costs: list[list[float]] = [[] for _ in POLICIES]
    left = list(range(len(POLICIES)))
    for number in range(rounds):
        for policy in left:
            costs[policy].append(run(policy, number))
        best = min((costs[policy] for policy in left), key=sum)
        for policy in list(left) if number + 1 >= ROUNDS_MIN else []:
            # The demands are the same, so the difference is known far better than each cost.
            worse = np.subtract(costs[policy], best)
            if worse.mean() > SIGMAS * worse.std(ddof=1) / math.sqrt(len(worse)):
                left.remove(policy)
                stop(policy)
    return costs


def main() -> None:
    """Run the race twice; print who won, what need not run, and how fast."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, metavar="N")
    parser.add_argument("--days", type=int, default=12_000, metavar="N", help="that each lasts")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N")
    args = parser.parse_args()

    start = time.perf_counter()
    demands = [make_demand(number, args.days) for number in range(args.rounds)]
    expected = race(args.rounds, lambda p, n: simulate(POLICIES[p], demands[n]), lambda _: None)
    alone_s = time.perf_counter() - start

    demand = {("demand", number): (make_demand, number, args.days) for number in range(args.rounds)}
    costs = {
        ("cost", policy, number): (simulate, POLICIES[policy], ("demand", number))
        for number in range(args.rounds)
        for policy in range(len(POLICIES))
    }

    def stop(policy: int) -> None:
        for number in range(args.rounds):
            futures["cost", policy, number].cancel()

    with SchedulerClusterCombo(args.workers) as cluster, Client(cluster) as client:
        start = time.perf_counter()
        futures = client.get(demand | costs, list(costs), block=False)
        found = race(args.rounds, lambda policy, n: futures["cost", policy, n].result(), stop)
        together_s = time.perf_counter() - start
        ran = sum(not future.cancelled() for future in futures.values())

    left = [policy for policy, known in enumerate(found) if len(known) == args.rounds]
    sigmas = 0.0
    for policy in left:
        mean, theory = np.mean(found[policy]), exact(POLICIES[policy])
        error = np.std(found[policy], ddof=1) / math.sqrt(args.rounds)
        sigmas = max(sigmas, abs(mean - theory) / error)
        print(f"{POLICIES[policy]} costs {mean:.3f} +- {error:.3f} a day, in theory {theory:.3f}")
    best = min(POLICIES, key=exact)
    print(f"the best of {len(POLICIES)} in theory: {best} with {exact(best):.3f}")
    counted = sum(map(len, found))
    print(f"left: {len(left)}; of {len(costs):,} simulations, {counted:,} counted and {ran:,} ran")
    speed_up = alone_s / together_s
    print(f"one core {alone_s:.2f} s, workers {together_s:.2f} s: speed-up {speed_up:.2f}")
    if found != expected or sigmas > SIGMAS_MAX:
        sys.exit("the two runs differ, or the simulation is wrong")
    print("both runs agree to the bit")


if __name__ == "__main__":
    main()

"""Run simulations: ``python -m scaler_cluster.testing PLAN FIRST [COUNT]``; one alone is logged."""

from __future__ import annotations

import argparse

from scaler_cluster.testing.plan import PLANS
from scaler_cluster.testing.simulation import Simulation, simulate


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m scaler_cluster.testing")
    parser.add_argument("plan", choices=PLANS)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("count", type=int, nargs="?", help="how many; without: one, with a log")
    wanted = parser.parse_args()
    plan = PLANS[wanted.plan]
    if wanted.count is None:
        Simulation(wanted.first, plan, print).run()
        return
    failed = []
    for seed in range(wanted.first, wanted.first + wanted.count):
        try:
            simulate(seed, plan)
        except AssertionError as error:
            failed.append(seed)
            print(f"seed {seed}: {error}", flush=True)
    print(f"{wanted.plan}: {wanted.count} seeds, {len(failed)} failed: {failed}")


if __name__ == "__main__":
    main()

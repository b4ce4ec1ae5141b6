"""Kills workers under nested tasks and checks that every future still resolves, exactly once.

``python -m benchmarks.kill_nested [--runs 1000]``. Trees of tasks of random shape, which submit and
wait in random ways, run all the time, while random live workers are sent SIGKILL. In the end each
tree must have its right size or :class:`scaler_exec.WorkerDied`, no more of them than kills, and
no process may be left.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import random
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.kill_workers import FINE, Killer, verdict_of
from benchmarks.processes import children
from benchmarks.tasks import plain_tree, tree
from scaler_exec import Client, ScalerExecutor

if TYPE_CHECKING:
    from concurrent.futures import Future

DEPTH = 5


def run_trees(client: Client, runs: int, in_flight: int, seed: int) -> list[tuple[int, Any]]:
    """Run so many trees, never more than ``in_flight`` at once; return each with its seed."""
    trees: list[tuple[int, Any]] = []
    pending: set[Future[int]] = set()
    for number in range(runs):
        if len(pending) >= in_flight:
            done = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
            pending = set(done.not_done)
        future = client.submit(tree, client, seed + number, DEPTH)
        trees.append((seed + number, future))
        pending.add(future)
    return trees


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_nested")
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--in-flight", type=int, default=6, help="trees at once")
    parser.add_argument("--pause", type=float, default=0.1, help="mean seconds between kills")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for the last results")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> int:
    """Run it; return 1 if anything is wrong."""
    options: Any = parse()
    start = time.perf_counter()
    with ScalerExecutor(options.workers) as executor, Client(executor.address) as client:
        chance = random.Random(options.seed)
        killer = Killer(executor, sys.maxsize, options.pause, chance)
        thread = threading.Thread(target=killer.run, name="killer")
        thread.start()
        try:
            trees = run_trees(client, options.runs, options.in_flight, options.seed)
        finally:
            killer.finished.set()
            thread.join()
        concurrent.futures.wait([future for _, future in trees], options.timeout)
        outcomes = Counter(verdict_of(future, plain_tree(seed, DEPTH)) for seed, future in trees)
        if outcomes["unresolved"]:
            executor.kill_workers()
    left = [child.pid for child in children()]
    problems = [f"{n} x {how}" for how, n in outcomes.items() if how not in FINE]
    if outcomes["worker died"] > len(killer.killed):
        problems.append("more trees failed than workers were killed")
    if killer.problem:
        problems.append(killer.problem)
    if left:
        problems.append(f"processes left: {left}")
    print(f"{len(killer.killed)} SIGKILLs in {time.perf_counter() - start:.1f} s")
    print(f"{len(trees)} trees: " + ", ".join(f"{n} {how}" for how, n in outcomes.items()))
    print(f"FAILED: {'; '.join(problems)}" if problems else "ok: every tree ended as it should")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

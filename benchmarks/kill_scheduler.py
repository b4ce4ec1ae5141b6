"""Kills the scheduler of an embedded cluster under load, again and again, and times its return.

``python -m benchmarks.kill_scheduler [scheduler|supervisor] [--kills 100]``. Short tasks, trees of
tasks and random graphs run all the time, each from a client of its own. After each SIGKILL a task
is submitted; the time until it returns is how long nothing ran. In the end each future must have
called back once, with the right value or the exception that it should have. No process may be left.
Then a scheduler is killed once more, while tasks run that leave a mark each: few start twice.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.expected import UNRESOLVED
from benchmarks.kill_workers import ALWAYS, KINDS, Trial
from benchmarks.processes import children
from scaler_cluster.process.keeper import Restarts
from scaler_exec import ScalerExecutor

AT_ONCE = {"tasks": 100, "nested": 2, "graphs": 2}
"""How many runs of each kind there are at any time."""
BACK_TIMEOUT_S = 60.0
COUNTED = 300
"""Tasks of which it is counted how often they start."""


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_scheduler")
    parser.add_argument("victim", nargs="?", choices=["scheduler", "supervisor"])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.victim = options.victim or "scheduler"
    return options


def kill(executor: ScalerExecutor, victim: str) -> float:
    """Kill a process of the cluster; return how long it takes until a task returns."""
    began = time.perf_counter()
    executor._session.cluster._children[victim].process.kill()  # type: ignore[union-attr]
    # What is on its way at that moment may still arrive.
    time.sleep(0.01)
    assert executor.submit(abs, -1).result(BACK_TIMEOUT_S) == 1
    return time.perf_counter() - began


def note(path: str, number: int) -> None:
    """Leave a mark in a file; take a moment."""
    with Path(path).open("a") as file:
        file.write(f"{number}\n")
    time.sleep(0.02)


def started_twice(executor: ScalerExecutor) -> int:
    """Kill the scheduler while tasks run; return how many of them started more than once."""
    with tempfile.NamedTemporaryFile() as file:
        futures = [executor.submit(note, file.name, number) for number in range(COUNTED)]
        futures[COUNTED // 10].result(BACK_TIMEOUT_S)
        kill(executor, "scheduler")
        for future in futures:
            future.result(BACK_TIMEOUT_S)
        starts = Counter(Path(file.name).read_text().split())
    return sum(count > 1 for count in starts.values())


def main() -> int:
    """Run it; return 1 if anything is wrong."""
    options: Any = parse()
    chance = random.Random(options.seed)
    over = threading.Event()
    back_s: list[float] = []
    problems: list[str] = []
    with ScalerExecutor(max_workers=options.workers) as executor:
        loads = {name: kind.load(executor, options.seed) for name, kind in KINDS.items()}
        trials = {name: Trial(load, AT_ONCE[name], 120.0) for name, load in loads.items()}
        threads = [
            threading.Thread(target=trial.run, args=(ALWAYS, over)) for trial in trials.values()
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(options.kills):
                # More often, and the cluster gives up.
                time.sleep(Restarts.WITHIN_S / Restarts.MOST + chance.uniform(0, 1))
                back_s.append(kill(executor, options.victim))
        except Exception as error:
            problems.append(repr(error))
        over.set()
        for thread in threads:
            thread.join()
        for name, trial in trials.items():
            trial.finish()
            loads[name].close()
            problems += [f"{name}: {problem}" for problem in trial.problems(())]
        if any(trial.outcomes[UNRESOLVED] for trial in trials.values()):
            executor.kill_workers()
    if options.victim == "scheduler":
        with ScalerExecutor(max_workers=options.workers) as executor:
            print(f"{started_twice(executor)} of {COUNTED} tasks started twice")
    left = [child.pid for child in children()]
    if left:
        problems.append(f"processes left: {left}")
    if back_s:
        median, most = statistics.median(back_s), max(back_s)
        print(f"{len(back_s)} x {options.victim}: back after {median:.2f} s, {most:.2f} at most")
    for name, trial in trials.items():
        outcomes = ", ".join(f"{count} {how}" for how, count in trial.outcomes.items())
        print(f"{trial.runs} runs ({name}), {len(trial.calls)} futures: {outcomes}")
    sentence = "ok: every future resolved exactly once, as it should"
    print(f"FAILED: {'; '.join(problems[:10])}" if problems else sentence)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Kills the scheduler of a cluster under load, again and again, and times its return.

``python -m benchmarks.kill_scheduler [scheduler|supervisor] [--commands] [--kills 100]``. Short
tasks, maps, tasks with large arguments and results, trees of tasks and random graphs run all the
time, from several clients, on an embedded cluster or on one that our commands have started. After
each SIGKILL a task is submitted; the time until it returns is how long nothing ran. Short tasks
leave a mark when they start: few may start twice. In the end each future must have called back
once, with the right value or the exception that it should have. No process may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.expected import UNRESOLVED, Expected
from benchmarks.kill_workers import ALWAYS, Load, Trees, Trial
from benchmarks.processes import children
from benchmarks.random_graphs import RandomGraphs
from benchmarks.tasks import noop, reverse
from scaler_cluster.process.keeper import Restarts
from scaler_exec import Client, ScalerExecutor
from tests.runtime.helpers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

AT_ONCE = {"tasks": 100, "maps": 2, "objects": 4, "nested": 2, "graphs": 2}
"""How many runs of each kind there are at any time."""
MAP_ITEMS = 500
OBJECT_BYTES = 300_000
BACK_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_scheduler")
    parser.add_argument("victim", nargs="?", choices=["scheduler", "supervisor"])
    parser.add_argument(
        "--commands", action="store_true", help="start the cluster by scaler_scheduler"
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.victim = options.victim or "scheduler"
    if options.commands and options.victim != "scheduler":
        parser.error("nobody replaces a supervisor that a command has started")
    return options


# -- clusters ------------------------------------------------------------------------------------


@contextlib.contextmanager
def by_commands(workers: int) -> Iterator[tuple[ScalerExecutor, Callable[[], None]]]:
    """Start a cluster by commands; yield a client of it, and what kills its scheduler."""
    address = f"tcp://127.0.0.1:{free_port(3)}"
    with (
        _command("scaler_scheduler", address) as scheduler,
        _command("scaler_cluster", "-n", str(workers), address),
        ScalerExecutor(address=address) as executor,
    ):
        yield executor, lambda: _kept(scheduler).kill()


@contextlib.contextmanager
def _command(*words: str) -> Iterator[psutil.Process]:
    process = subprocess.Popen([str(Path(sys.executable).with_name(words[0])), *words[1:]])
    try:
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(END_TIMEOUT_S)


def _kept(command: psutil.Process) -> psutil.Process:
    """Return the scheduler that a command keeps."""
    (scheduler,) = (
        one for one in command.children() if "scaler_cluster.runtime.scheduler" in one.cmdline()
    )
    return scheduler


@contextlib.contextmanager
def embedded(workers: int, victim: str) -> Iterator[tuple[ScalerExecutor, Callable[[], None]]]:
    """Start an embedded cluster; yield its client, and what kills the victim."""
    with ScalerExecutor(max_workers=workers) as executor:
        cluster = executor._session.cluster
        assert cluster is not None

        def end() -> None:
            cluster._children[victim].process.kill()

        yield executor, end


def kill(executor: ScalerExecutor, end: Callable[[], None]) -> float:
    """Kill a process of the cluster; return how long it takes until a task returns."""
    began = time.perf_counter()
    end()
    # What is on its way at that moment may still arrive.
    time.sleep(0.01)
    # Before all that waits: how long it would wait for its turn is not the question.
    first = executor.options(priority=1 << 20)
    assert first.submit(abs, -1).result(BACK_TIMEOUT_S) == 1
    return time.perf_counter() - began


# -- loads ---------------------------------------------------------------------------------------


def note(path: str, number: int) -> int:
    """Leave a mark in a file; take a moment."""
    with Path(path).open("a") as file:
        file.write(f"{number}\n")
    time.sleep(0.02)
    return number


class Marked:
    """Short tasks that leave a mark when they start."""

    def __init__(self, executor: ScalerExecutor, seed: int, marks: str = "") -> None:
        self._executor = executor
        self._marks = marks

    def start(self, number: int) -> Sequence[Expected]:
        future = self._executor.submit(note, self._marks, number)
        return [Expected(future, number, number)]

    def close(self) -> None:
        """Nothing is held."""


class Maps:
    """Maps of a client of their own."""

    def __init__(self, executor: ScalerExecutor, seed: int) -> None:
        self._client = Client(executor.address)
        self._threads = ThreadPoolExecutor(AT_ONCE["maps"])

    def start(self, number: int) -> Sequence[Expected]:
        items = range(number, number + MAP_ITEMS)
        future = self._threads.submit(self._client.map, noop, items)
        return [Expected(future, number, list(items))]

    def close(self) -> None:
        """Leave."""
        self._threads.shutdown()
        self._client.disconnect()


class Objects:
    """Tasks whose arguments and results are too large for a message."""

    def __init__(self, executor: ScalerExecutor, seed: int) -> None:
        self._executor = executor
        self._chance = random.Random(seed)

    def start(self, number: int) -> Sequence[Expected]:
        content = self._chance.randbytes(OBJECT_BYTES)
        return [Expected(self._executor.submit(reverse, content), number, content[::-1])]

    def close(self) -> None:
        """Nothing is held."""


# -- the run -------------------------------------------------------------------------------------


def main() -> int:
    """Run it; return 1 if anything is wrong."""
    options: Any = parse()
    chance = random.Random(options.seed)
    over = threading.Event()
    back_s: list[float] = []
    problems: list[str] = []
    cluster = (
        by_commands(options.workers)
        if options.commands
        else embedded(options.workers, options.victim)
    )
    with tempfile.NamedTemporaryFile() as marks, cluster as (executor, end):
        kinds: dict[str, Callable[[ScalerExecutor, int], Load]] = {
            "tasks": partial(Marked, marks=marks.name),
            "maps": Maps,
            "objects": Objects,
            "nested": Trees,
            "graphs": RandomGraphs,
        }
        loads = {name: kind(executor, options.seed) for name, kind in kinds.items()}
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
                back_s.append(kill(executor, end))
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
            # Else the end would wait for them.
            executor.shutdown(wait=False, cancel_futures=True)
        starts = Counter(Path(marks.name).read_text().split())
    left = [child.pid for child in children()]
    if left:
        problems.append(f"processes left: {left}")
    if back_s:
        median, most = statistics.median(back_s), max(back_s)
        print(f"{len(back_s)} x {options.victim}: back after {median:.2f} s, {most:.2f} at most")
    twice = sum(count > 1 for count in starts.values())
    print(f"{twice} of {len(starts)} marked tasks started twice")
    for name, trial in trials.items():
        outcomes = ", ".join(f"{count} {how}" for how, count in trial.outcomes.items())
        print(f"{trial.runs} runs ({name}), {len(trial.calls)} futures: {outcomes}")
    sentence = "ok: every future resolved exactly once, as it should"
    print(f"FAILED: {'; '.join(problems[:10])}" if problems else sentence)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

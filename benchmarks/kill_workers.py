"""Kills workers under load and checks that every future still resolves, exactly once.

``python -m benchmarks.kill_workers [--kills 1000]``. Short tasks are submitted all the time; a
thread picks a random live worker process of the embedded cluster and sends it SIGKILL, again and
again. In the end each future must have called back once, with the right value or with
:class:`scaler_exec.WorkerDied`, there must be no more such errors than kills (what was only queued
on a dead worker moves on), and no process may be left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.processes import children
from benchmarks.roles import worker_pids
from benchmarks.tasks import short_task
from scaler_exec import ScalerExecutor, WorkerDied

if TYPE_CHECKING:
    from concurrent.futures import Future

DURATIONS_MS = (1.0, 2.0, 3.0)
NEW_WORKER_TIMEOUT_S = 30.0
"""Without any live worker for so long, the cluster has given up."""
POLL_S = 0.002


@dataclass
class Killer:
    """Sends the signals, from a thread of its own, and remembers what it did."""

    executor: ScalerExecutor
    kills: int
    pause_s: float
    chance: random.Random
    killed: list[int] = field(default_factory=list)
    problem: str = ""
    finished: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Kill until there were enough, or until no new worker comes any more."""
        try:
            last = time.monotonic()
            while len(self.killed) < self.kills and not self.finished.is_set():
                # A pid is listed for a moment after its end: never the same twice in a row.
                recent = self.killed[-100:]
                live = [pid for pid in worker_pids(self.executor) if pid not in recent]
                if live and self._kill(self.chance.choice(live)):
                    last = time.monotonic()
                    self.finished.wait(self.chance.uniform(0, 2 * self.pause_s))
                elif time.monotonic() - last > NEW_WORKER_TIMEOUT_S:
                    self.problem = f"no live worker for {NEW_WORKER_TIMEOUT_S:g} s"
                    return
                else:
                    self.finished.wait(POLL_S)
        except Exception as error:
            self.problem = repr(error)
        finally:
            self.finished.set()

    def _kill(self, pid: int) -> bool:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.killed.append(pid)
        return True


def submit_until(
    executor: ScalerExecutor, stop: threading.Event, in_flight: int, calls: list[int]
) -> list[Future[int]]:
    """Submit tasks, never more than ``in_flight`` unfinished; each callback notes its index."""
    room = threading.Semaphore(in_flight)
    futures: list[Future[int]] = []

    def note(index: int) -> None:
        calls.append(index)
        room.release()

    while not stop.is_set():
        if not room.acquire(timeout=0.1):
            continue
        index = len(futures)
        future = executor.submit(short_task, index, DURATIONS_MS[index % len(DURATIONS_MS)])
        futures.append(future)
        future.add_done_callback(lambda _, index=index: note(index))  # type: ignore[misc]
    return futures


def verdict_of(future: Future[int], expected: int) -> str:
    """Return in which of the possible ways a future ended."""
    if not future.done():
        return "unresolved"
    if future.cancelled():
        return "cancelled"
    error = future.exception()
    if error is not None:
        return "worker died" if isinstance(error, WorkerDied) else f"wrong error {error!r}"
    return "right" if future.result() == expected else f"wrong value {future.result()!r}"


def verdict(futures: list[Future[int]], calls: list[int], kills: int) -> tuple[Counter[str], str]:
    """Return how the futures ended, and what is wrong with that, or an empty text."""
    outcomes = Counter(verdict_of(future, index) for index, future in enumerate(futures))
    often = Counter(calls)
    problems = [f"{count} x {how}" for how, count in outcomes.items() if how not in FINE]
    problems += [f"{times} callbacks of {index}" for index, times in often.items() if times != 1]
    if len(often) != len(futures):
        problems.append(f"{len(futures) - len(often)} futures without a callback")
    if outcomes["worker died"] > kills:
        problems.append(f"{outcomes['worker died']} tasks failed by only {kills} kills")
    return outcomes, "; ".join(problems[:10])


FINE = ("right", "worker died")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_workers")
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--in-flight", type=int, default=500, help="unfinished tasks at most")
    parser.add_argument("--pause", type=float, default=0.02, help="mean seconds between kills")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for the last results")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> int:
    """Run it; return 1 if anything is wrong."""
    options: Any = parse()
    calls: list[int] = []
    start = time.perf_counter()
    with ScalerExecutor(max_workers=options.workers) as executor:
        chance = random.Random(options.seed)
        killer = Killer(executor, options.kills, options.pause, chance)
        thread = threading.Thread(target=killer.run, name="killer")
        thread.start()
        try:
            futures = submit_until(executor, killer.finished, options.in_flight, calls)
        finally:
            killer.finished.set()
            thread.join()
        loaded_s = time.perf_counter() - start
        wait(futures, options.timeout)
        outcomes, problem = verdict(futures, calls, len(killer.killed))
        if outcomes["unresolved"]:
            executor.kill_workers()
    left = [child.pid for child in children()]
    seconds = time.perf_counter() - start
    problem = "; ".join(filter(None, (killer.problem, problem)))
    if left:
        problem += f" processes left: {left}"
    print(f"{len(killer.killed)} SIGKILLs to {options.workers} workers in {loaded_s:.1f} s")
    print(f"{len(futures)} futures: " + ", ".join(f"{n} {how}" for how, n in outcomes.items()))
    print(f"{len(calls)} callbacks, {len(left)} processes left, {seconds:.1f} s in all")
    print(f"FAILED: {problem}" if problem else "ok: every future resolved exactly once")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())

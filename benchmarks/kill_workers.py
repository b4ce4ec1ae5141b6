"""Kills workers under load and checks that every future still resolves, exactly once.

``python -m benchmarks.kill_workers [tasks|nested|graphs] [--kills 1000] [--runs 1000]``. Short
tasks, trees of tasks that submit and wait in random ways, or random graphs of several clients run
all the time, while a thread picks a random live worker process of the embedded cluster and sends it
SIGKILL, again and again. In the end each future must have called back once, with the right value,
the exception that it should have, or :class:`scaler_exec.WorkerDiedError`: for each kill only what
needs the one task that ran there, as what was only queued moves on. No process may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, deque
from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.expected import DIED, FINE, UNRESOLVED, Expected
from benchmarks.processes import children
from benchmarks.random_graphs import RandomGraphs
from benchmarks.roles import worker_pids
from benchmarks.tasks import plain_tree, short_task, tree
from scaler_exec import Client, ScalerExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DURATIONS_MS = (1.0, 2.0, 3.0)
DEPTH = 5
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

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Kill meanwhile."""
        thread = threading.Thread(target=self._run, name="killer")
        thread.start()
        try:
            yield
        finally:
            self.finished.set()
            thread.join()

    def _run(self) -> None:
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


class Load(Protocol):
    """What runs while workers are killed."""

    def start(self, number: int) -> Sequence[Expected]:
        """Start one run, and return what is to become of it."""

    def close(self) -> None:
        """Let go of what was needed for it."""


class Tasks:
    """Short tasks, one a run."""

    def __init__(self, executor: ScalerExecutor, seed: int) -> None:
        self._executor = executor

    def start(self, number: int) -> Sequence[Expected]:
        duration_ms = DURATIONS_MS[number % len(DURATIONS_MS)]
        return [Expected(self._executor.submit(short_task, number, duration_ms), number, number)]

    def close(self) -> None:
        pass


class Trees:
    """Trees of tasks of random shape, which submit and wait in random ways."""

    def __init__(self, executor: ScalerExecutor, seed: int) -> None:
        self._client = Client(executor.address)
        self._seed = seed
        self.close = self._client.disconnect

    def start(self, number: int) -> Sequence[Expected]:
        seed = self._seed + number
        future = self._client.submit(tree, self._client, seed, DEPTH)
        return [Expected(future, number, plain_tree(seed, DEPTH))]


@dataclass(frozen=True)
class Kind:
    """A load, and how much of it there is unless the command line says otherwise."""

    load: Callable[[ScalerExecutor, int], Load]
    runs: int
    kills: int
    at_once: int
    pause_s: float


ALWAYS = sys.maxsize
KINDS = {
    "tasks": Kind(Tasks, runs=ALWAYS, kills=1_000, at_once=500, pause_s=0.02),
    "nested": Kind(Trees, runs=1_000, kills=ALWAYS, at_once=6, pause_s=0.1),
    "graphs": Kind(RandomGraphs, runs=1_000, kills=ALWAYS, at_once=6, pause_s=0.1),
}


class Trial:
    """Runs a load, and judges how it ends."""

    def __init__(self, load: Load, at_once: int, timeout_s: float) -> None:
        self._load = load
        self._at_once = at_once
        self._timeout_s = timeout_s
        self._pending: deque[Sequence[Expected]] = deque()
        self.runs = 0
        self.calls: list[int] = []
        """How often each future has called back."""
        self.outcomes: Counter[str] = Counter()
        self._suspects: dict[int, set[int]] = {}
        """By the pid of a worker that died, what may have run there."""

    def run(self, runs: int, stop: threading.Event) -> None:
        """Start so many runs, some at once, until told to stop or until one does not end."""
        while self.runs < runs and not stop.is_set() and not self.outcomes[UNRESOLVED]:
            expected = self._load.start(self.runs)
            self.runs += 1
            self._pending.append(expected)
            for one in expected:
                self.calls.append(0)
                one.future.add_done_callback(partial(self._note, len(self.calls) - 1))
            if len(self._pending) == self._at_once:
                self._judge(self._pending.popleft())

    def finish(self) -> None:
        """Judge what is still under way."""
        while self._pending:
            self._judge(self._pending.popleft())

    def problems(self, killed: Sequence[int]) -> Iterator[str]:
        """Yield what is wrong, once all futures have been judged and have called back."""
        for how, count in self.outcomes.items():
            if how not in FINE:
                yield f"{count} x {how}"
        wrong = Counter(count for count in self.calls if count != 1)
        for count, futures in wrong.items():
            yield f"{futures} futures called back {count} times"
        for pid, suspects in self._suspects.items():
            if pid not in killed:
                yield f"a worker {pid} died that nobody killed"
            elif not suspects:
                yield f"the death of worker {pid} failed more than one task"

    def _note(self, index: int, _: object) -> None:
        self.calls[index] += 1

    def _judge(self, run: Sequence[Expected]) -> None:
        timeout_s = self._timeout_s if not self.outcomes[UNRESOLVED] else 0.0
        wait([one.future for one in run], timeout_s)
        for one in run:
            how = one.verdict()
            self.outcomes[how] += 1
            if how == DIED:
                pid = one.future.exception().death.pid  # type: ignore[union-attr]
                suspects = one.suspects()
                self._suspects[pid] = self._suspects.get(pid, suspects) & suspects


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_workers")
    parser.add_argument("kind", nargs="?", choices=KINDS, default="tasks")
    parser.add_argument("--kills", type=int, help="end after so many")
    parser.add_argument("--runs", type=int, help="end after so many tasks, trees or graphs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--at-once", type=int, help="tasks, trees or graphs at once")
    parser.add_argument("--pause", type=float, dest="pause_s", help="mean seconds between kills")
    parser.add_argument("--timeout", type=float, default=60, help="seconds until a run has hung")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in ("runs", "kills", "at_once", "pause_s"):
        if getattr(options, name) is None:
            setattr(options, name, getattr(KINDS[options.kind], name))
    return options


def main() -> int:
    """Run it; return 1 if anything is wrong."""
    options: Any = parse()
    start = time.perf_counter()
    with ScalerExecutor(max_workers=options.workers) as executor:
        load = KINDS[options.kind].load(executor, options.seed)
        trial = Trial(load, options.at_once, options.timeout)
        killer = Killer(executor, options.kills, options.pause_s, random.Random(options.seed))
        with killer.at_work():
            trial.run(options.runs, killer.finished)
        loaded_s = time.perf_counter() - start
        trial.finish()
        load.close()
        if trial.outcomes[UNRESOLVED]:
            executor.kill_workers()
    left = [child.pid for child in children()]
    problems = [*filter(None, [killer.problem]), *trial.problems(killer.killed)]
    if left:
        problems.append(f"processes left: {left}")
    print(f"{len(killer.killed)} SIGKILLs to {options.workers} workers in {loaded_s:.1f} s")
    print(f"{trial.runs} runs ({options.kind}), {len(trial.calls)} futures: "
          + ", ".join(f"{count} {how}" for how, count in trial.outcomes.items()))  # fmt: skip
    print(f"{len(left)} processes left, {time.perf_counter() - start:.1f} s in all")
    sentence = "ok: every future resolved exactly once, as it should"
    print(f"FAILED: {'; '.join(problems[:10])}" if problems else sentence)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""What becomes of the tasks when a worker is killed in the middle of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.scenario import Metric, Run, Scenario, WrongResult
from benchmarks.tasks import noop, sleep_in_process, sleep_then

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.peer import Peer

TASKS, NAP_MS = 100, 20
KILL_AFTER_S = 0.3
WAIT_S = 8.0
"""A result that has not come by then is missing: most peers never give it."""
CLOSE_S = 5.0


class Outcomes:
    """Waits for results, each in a thread of its own: any of them may never come."""

    def __init__(self) -> None:
        self.right = self.failed = self.wrong = 0
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def await_in_thread(self, get: Callable[[], Sequence[Any]], expected: Sequence[Any]) -> None:
        """Begin to wait for what has these values."""

        def wait() -> None:
            try:
                results = list(get())
            except BaseException:
                with self._lock:
                    self.failed += len(expected)
                return
            with self._lock:
                equal = sum(one == other for one, other in zip(results, expected, strict=True))
                self.right += equal
                self.wrong += len(expected) - equal

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        self._threads.append(thread)

    def wait(self, timeout_s: float) -> float:
        """Wait for all, or so long; return the seconds that it took."""
        start = time.monotonic()
        for thread in self._threads:
            thread.join(max(start + timeout_s - time.monotonic(), 0))
        return time.monotonic() - start


def begin(peer: Peer, outcomes: Outcomes) -> None:
    """Submit the tasks, and wait for their results in threads."""
    calls = [(number, NAP_MS) for number in range(TASKS)]
    if peer.is_whole:
        outcomes.await_in_thread(lambda: list(peer.map(sleep_then, calls)), range(TASKS))
        return
    for number, handle in enumerate([peer.submit(sleep_then, call) for call in calls]):
        outcomes.await_in_thread(partial(peer.collect, [handle]), [number])


def goes_on(peer: Peer) -> bool:
    """Return True if a new task has a result."""
    outcomes = Outcomes()
    try:
        if peer.is_whole:
            outcomes.await_in_thread(lambda: list(peer.map(noop, [1])), [1])
        else:
            handle = peer.submit(noop, 1)
            outcomes.await_in_thread(partial(peer.collect, [handle]), [1])
    except Exception:
        return False
    outcomes.wait(CLOSE_S)
    return outcomes.right == 1


def worker_killed(run: Run) -> dict[str, float]:
    """Kill a worker process that runs a task; count what came, and see whether it goes on."""
    peer = run.peer
    peer.open()
    pids = list(peer.map(sleep_in_process, [5 * NAP_MS] * 2 * peer.workers))
    if not peer.is_whole:
        # The workers of lone calls may be others than those of maps.
        pids = peer.collect([peer.submit(sleep_in_process, NAP_MS) for _ in pids])
    outcomes = Outcomes()
    begin(peer, outcomes)
    time.sleep(KILL_AFTER_S)
    os.kill(pids[-1], signal.SIGKILL)
    seconds = outcomes.wait(WAIT_S) + KILL_AFTER_S
    right, failed = outcomes.right, outcomes.failed
    if outcomes.wrong:
        raise WrongResult(f"{outcomes.wrong} results are wrong")
    after = goes_on(peer)
    closing = threading.Thread(target=peer.close, daemon=True)
    closing.start()
    closing.join(CLOSE_S)
    return {
        "right": right,
        "failed": failed,
        "missing": TASKS - right - failed,
        "seconds": seconds,
        "goes_on": after,
        "closes": not closing.is_alive(),
    }


SCENARIOS = (
    Scenario(
        "worker_killed",
        f"{TASKS} tasks of {NAP_MS} ms, a worker killed after {KILL_AFTER_S:g} s",
        (
            Metric("right", "results", "more"),
            Metric("failed", "results", "less"),
            Metric("missing", "results", "less"),
            Metric("seconds", "s"),
            Metric("goes_on", "1 if it does", "more"),
            Metric("closes", "1 if it does", "more"),
        ),
        worker_killed,
    ),
)

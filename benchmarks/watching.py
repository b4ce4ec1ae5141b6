"""Says what it costs to be watched.

``python -m benchmarks.watching [--pairs 7] [--long TASKS] [--page /]`` runs maps of 100,000 no-ops
on one cluster, in pairs: while nobody watches, and while somebody does, in turn. Who watches:

- ``listener``: a process that only listens, ``scaler_record``.
- ``dashboard``: ``scaler_ui``, with no tab open.
- ``tab``: ``scaler_ui`` with one tab, in a Chromium that nobody looks at; it draws all the same.
- ``sampler``: ``scaler_profile``, which has the stacks of tasks sampled: these compute for some
  milliseconds, 40 calls deep.

With ``--long`` a run of so many tasks follows, with dashboard and tab: the most memory that the
dashboard's process held. Needs the extras monitor and libraries, and a Chromium.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.scenario import check
from benchmarks.tasks import noop
from scaler_exec import ScalerExecutor
from tests.install_chromium import find_chromium

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TASKS = 100_000
BLOCK_S = 4.0
"""Maps follow each other for so long while one thing is watched or not."""
SETTLE_S = 2.0
"""A page has been drawn for the first time after this."""
LOOK_S = 0.5


def throughput(executor: ScalerExecutor, seconds: float) -> float:
    """Return how many no-ops a second were run, by maps that follow each other for a time."""
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        check([sum(executor.map(noop, range(TASKS)))], [TASKS * (TASKS - 1) // 2])
        done += TASKS
    return done / (time.perf_counter() - start)


def deep(calls: int) -> int:
    """Compute for some milliseconds, below so many calls."""
    return deep(calls - 1) if calls else sum(number * number for number in range(50_000))


def computing(executor: ScalerExecutor, seconds: float) -> float:
    """Return how many tasks a second were run that compute."""
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += len(list(executor.map(deep, [40] * 100)))
    return done / (time.perf_counter() - start)


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run one of our commands meanwhile."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def listener(address: str) -> Iterator[None]:
    """Let somebody only listen."""
    with command("scaler_monitoring.record", address, os.devnull) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "recording" in line:
                break
        yield


@contextmanager
def sampler(address: str) -> Iterator[None]:
    """Have tasks sampled."""
    with command("scaler_cluster.cli.profile", address, "--seconds", "3600"):
        yield


@contextmanager
def dashboard(address: str) -> Iterator[tuple[psutil.Process, str]]:
    """Serve a dashboard; yield its process and its link."""
    with command("scaler_monitoring.ui", address, "--port", "0") as process:
        assert process.stdout is not None
        link = ""
        for line in process.stdout:
            found = re.match(r"dashboard at (\S+)", line)
            if found:
                link = found[1]
                break
        yield psutil.Process(process.pid), link


@contextmanager
def tab(browser: Any, address: str, page: str) -> Iterator[psutil.Process]:
    """Look at a page of a dashboard; yield the dashboard's process."""
    with dashboard(address) as (process, link):
        opened = browser.new_page(viewport={"width": 1440, "height": 900})
        opened.goto(link)
        opened.goto(link.partition("/?")[0] + page)
        opened.locator("p.good").wait_for()
        yield process
        opened.context.close()


def compare(
    pairs: int,
    executor: ScalerExecutor,
    watch: Callable[[], Any],
    measure: Callable[[ScalerExecutor, float], float],
) -> list[float]:
    """Return, for each pair, the share of the throughput that is left while somebody watches."""
    shares = []
    for pair in range(pairs):
        figures = {}
        for is_watched in (False, True) if pair % 2 else (True, False):
            with ExitStack() as held:
                if is_watched:
                    held.enter_context(watch())
                time.sleep(SETTLE_S)
                figures[is_watched] = measure(executor, BLOCK_S)
        shares.append(figures[True] / figures[False])
        print(f"  {figures[False]:>9,.0f} {figures[True]:>9,.0f} tasks/s {shares[-1]:.1%}")
    return shares


def largest(executor: ScalerExecutor, process: psutil.Process, tasks: int) -> int:
    """Return the most memory that a process had while so many tasks were run."""
    sizes, over = [process.memory_info().rss], threading.Event()

    def sample() -> None:
        while not over.wait(LOOK_S):
            sizes.append(process.memory_info().rss)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        for _ in range(tasks // TASKS):
            check([sum(executor.map(noop, range(TASKS)))], [TASKS * (TASKS - 1) // 2])
    finally:
        over.set()
        thread.join()
    return max(sizes)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--long", type=int, default=0, metavar="TASKS")
    parser.add_argument("--page", default="/")
    parser.add_argument("--only", choices=("listener", "dashboard", "tab", "sampler"))
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, ScalerExecutor(2) as executor:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        address = executor.monitor_address
        throughput(executor, BLOCK_S)
        watches: dict[str, Callable[[], Any]] = {
            "listener": lambda: listener(address),
            "dashboard": lambda: dashboard(address),
            "tab": lambda: tab(browser, address, given.page),
            "sampler": lambda: sampler(address),
        }
        for name, watch in watches.items():
            if given.only in (None, name):
                print(f"{name}: nobody, watched")
                measure = computing if name == "sampler" else throughput
                shares = compare(given.pairs, executor, watch, measure)
                spread = f"{min(shares):.1%}..{max(shares):.1%}"
                print(f"  median {statistics.median(shares):.1%} ({spread})")
        if given.long:
            with tab(browser, address, given.page) as process:
                most = largest(executor, process, given.long)
            print(f"{given.long:,} tasks: the dashboard took {most / 1e6:.0f} MB at most")
        browser.close()


if __name__ == "__main__":
    main()

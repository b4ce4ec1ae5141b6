"""Says what the pages of a large cluster cost: CPU and memory of the dashboard, and of a browser.

``python -m benchmarks.page_load [--workers 200] [--rate 100] [--settle 70] [--seconds 30]
[--window 60] [PAGE]`` publishes what a scheduler does of so many workers, each with so many tasks a
second, as it would: ten times a second, with a snapshot each second, and what 200 workers see of
their tasks while that is wanted. ``scaler_ui`` listens, in a process of its own, and a Chromium
shows one page after the other, the task stream with a ``--window`` of so many seconds. Each is
measured once it has been open for ``--settle`` seconds; without a graphics card, the browser draws
on the CPU. Needs the extras monitor and libraries, and a Chromium.

CPU is that of whole processes, of the browser all of them, by second: 1.0 is a core.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.stream_load import BATCH_S, FUNCTIONS, Player
from benchmarks.watching import dashboard
from scaler_cluster.call_tree import CallTree, Frame
from scaler_cluster.ids import PROFILE, TOPICS
from scaler_cluster.links import open_link
from scaler_cluster.links.feed_link import publish
from scaler_cluster.wire import feed
from scaler_cluster.wire.feed_codec import encode
from scaler_monitoring.dashboard.pages.stream import WINDOWS
from tests.install_chromium import find_chromium

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGES = ("/", "/stream", "/functions", "/tasks", "/workers", "/profile", "/memory")
DEPTH, STACKS, SEEN = 15, 200, 10
"""Calls of a stack, different stacks of a function, and how many a worker tells of each second."""
BROWSER = {"width": 1440, "height": 900}


class Publishing:
    """Publishes what a player makes, in a thread, until it is closed."""

    def __init__(self, address: str, workers: int, rate: float) -> None:
        self._player = Player(workers, rate)
        self._random = random.Random(2)
        self._workers = [b"W%d" % number for number in range(workers)]
        self._stacks = {name: [self._stack(name) for _ in range(STACKS)] for name in FUNCTIONS}
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        link = open_link.bind(f"ipc://{self._address}.link")
        publisher = publish(link, f"ipc://{self._address}", TOPICS)
        start, batches = time.perf_counter(), 0
        while not self._over.wait(max(start + batches * BATCH_S - time.perf_counter(), 0.0)):
            batches += 1
            publisher.look()
            for message in self._messages(batches, PROFILE in publisher.topics):
                publisher.send(encode(message))
        publisher.close()
        link.close()

    def _messages(
        self, batches: int, are_sampled: bool
    ) -> Iterator[feed.Events | feed.Snapshot | feed.Samples]:
        clock = 1000.0 + batches * BATCH_S
        yield self._player.events(clock)
        if batches % round(1 / BATCH_S) == 0:
            yield self._player.snapshot(clock)
            if are_sampled:
                yield self._samples(batches, clock)

    def _stack(self, function: str) -> list[Frame]:
        # As in real programs, stacks are alike at first.
        calls = [f"{function}_{depth}_{self._random.randrange(1 + depth // 4)}"
                 for depth in range(DEPTH)]  # fmt: skip
        return [Frame.of(name, f"/home/user/program/{function}.py", 7) for name in calls]

    def _samples(self, seq: int, clock: float) -> feed.Samples:
        sampled, running = [], []
        for number, worker in enumerate(self._workers):
            name = self._random.choice(FUNCTIONS)
            tree = CallTree()
            for stack in self._random.choices(self._stacks[name], k=SEEN):
                tree.add(stack, 100_000)
            sampled.append(feed.Sampled(worker, name, SEEN, tree.packed()))
            shown = "\n".join(f'  File "{one.file}", line 7, in {one.name}' for one in stack)
            running.append(
                feed.Running(
                    worker, "host", number, session=1, task=number, function=name, age_s=0.1,
                    stack=shown,
                )
            )  # fmt: skip
        return feed.Samples("run", seq, clock, running=running, sampled=sampled)

    def close(self) -> None:
        """Publish no more."""
        self._over.set()
        self._thread.join()


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """Return the CPU time of some processes so far, in seconds."""
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def mb(processes: Sequence[psutil.Process]) -> float:
    """Return what memory some processes have to themselves, in MB."""
    return sum(one.memory_full_info().uss for one in processes) / 1e6


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("pages", nargs="*", default=PAGES, metavar="PAGE")
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--settle", type=float, default=70.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--window", choices=[one for one, _ in WINDOWS], default="60")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        address = str(Path(directory) / "feed")
        publishing = Publishing(address, given.workers, given.rate)
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        try:
            with dashboard(f"ipc://{address}") as (server, link):
                page = browser.new_page(viewport=BROWSER)
                page.goto(link)
                print("page: CPU of the dashboard, of the browser; MB of the dashboard")
                for path in given.pages:
                    page.goto(link.partition("/?")[0] + path)
                    page.locator("p.good").wait_for()
                    if path.startswith("/stream"):
                        page.get_by_label("Time shown").select_option(
                            label=dict(WINDOWS)[given.window]
                        )
                    time.sleep(given.settle)
                    us = psutil.Process().children(recursive=True)
                    theirs = [one for one in us if "chrom" in one.name()]
                    before, start = (cpu_s([server]), cpu_s(theirs)), time.perf_counter()
                    time.sleep(given.seconds)
                    took_s = time.perf_counter() - start
                    own, shown = cpu_s([server]) - before[0], cpu_s(theirs) - before[1]
                    print(f"{path}: {own / took_s:.3f}, {shown / took_s:.3f}; {mb([server]):.0f}")
                page.context.close()
        finally:
            publishing.close()
            browser.close()


if __name__ == "__main__":
    main()

"""Says what the task stream costs a dashboard: CPU, memory, and bytes to a browser.

``python -m benchmarks.stream_load [--workers 200] [--rate 100] [--minutes 30] [--window 60]`` plays
what a scheduler publishes of so many workers, each with so many tasks a second of five functions
and one task in ten thousand of them a long one, as fast as it can, to a dashboard's model with the
page of one tab. It prints:

- the CPU that this takes, by simulated second: what the messages cost, and what the page costs
- the most memory of this process, and how much of that the stream has
- bytes to the browser by update, and for the first drawing of each window
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from typing import Any

from bokeh.core.serialization import Serializer
from bokeh.document import Document

from scaler_cluster.core.scheduler.events import BATCH_MAX
from scaler_cluster.wire import feed
from scaler_monitoring.dashboard.pages.stream import WINDOWS, Stream
from scaler_monitoring.dashboard.settings import Settings
from scaler_monitoring.dashboard.tab_view import View
from scaler_monitoring.dashboard.template import links
from scaler_monitoring.dashboard.watch import Watch
from scaler_monitoring.theme import LIGHT

FUNCTIONS = ("price", "load", "simulate", "reduce", "store")
BUSY = 0.8
"""Of its time, each worker runs tasks."""
BATCH_S = 0.1


class Played(Watch):
    """Shows what is played."""

    now = 0.0


class Player:
    """Makes the messages of a cluster."""

    def __init__(self, workers: int, rate: float) -> None:
        self._random = random.Random(1)
        self._workers = [b"W%d" % number for number in range(workers)]
        self._rate = rate
        self._took_s = BUSY / rate
        self._busy = dict.fromkeys(self._workers, 0.0)
        self._skipped = 0
        self._snapshots = self._batches = 0

    def events(self, clock: float) -> feed.Events:
        """Return a batch: the events that a scheduler would publish, and how many it left out."""
        count = round(len(self._workers) * self._rate * BATCH_S)
        told = min(count, BATCH_MAX[feed.Done])
        for worker in self._workers:
            self._busy[worker] += BUSY * BATCH_S
        self._batches += 1
        self._skipped += count - told
        events: list[feed.Event] = [
            feed.Done(
                clock - self._random.random() * BATCH_S, self._random.choice(self._workers), 1,
                (1 << 40) + self._batches * count + n, 1, self._random.choice(FUNCTIONS),
                2.0 if self._random.random() < 1e-4 else self._took_s,
            )
            for n in range(told)
        ]  # fmt: skip
        events.sort(key=lambda one: one.at)
        return feed.Events("run", self._batches, clock, {"done": count - told}, events)

    def snapshot(self, clock: float) -> feed.Snapshot:
        """Return how all workers are."""
        self._snapshots += 1
        workers = [
            feed.Worker(
                worker, b"M%d" % (number // 16), "host", pid=number, tasks=4, session=1,
                task=(1 << 40) + number, function=self._random.choice(FUNCTIONS),
                age_s=self._took_s / 2, up_s=clock, cpu=BUSY, rss_bytes=1 << 28, busy_s=busy_s,
            )
            for number, (worker, busy_s) in enumerate(self._busy.items())
        ]  # fmt: skip
        functions = [feed.Function(name, 1, 1) for name in FUNCTIONS]
        return feed.Snapshot(
            "run", self._snapshots, self._batches, clock, 1e9 + clock, 1.0, workers=workers,
            functions=functions, skipped={"done": self._skipped},
        )  # fmt: skip


def size_of(events: list[Any]) -> int:
    """Return how many bytes go to a browser to tell it of these changes."""
    total = 0
    for event in events:
        serializer = Serializer()
        content = serializer.serialize(event.to_serializable(serializer))
        total += len(json.dumps(content.content))
    return total


def main() -> None:
    """Play, and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--window", choices=[one for one, _ in WINDOWS], default="60")
    given = parser.parse_args()
    player, watch = Player(given.workers, given.rate), Played("benchmark")
    clock = 1000.0
    watch.model.apply(player.snapshot(clock), clock)
    page, document = Stream(View(watch, LIGHT, Settings(), links(""), 1000)), Document()
    document.add_root(page.root)
    page._window.value = given.window
    sent: list[Any] = []
    document.on_change(sent.append)
    began_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model_s = page_s = 0.0
    sizes: list[int] = []
    seconds = round(given.minutes * 60)
    for second in range(seconds):
        messages: list[Any] = []
        for _ in range(round(1 / BATCH_S)):
            clock += BATCH_S
            messages.append(player.events(clock))
        messages.append(player.snapshot(clock))
        start = time.process_time()
        for message in messages:
            watch.model.apply(message, clock)
        middle = time.process_time()
        page.update(watch.model)
        page_s += time.process_time() - middle
        model_s += middle - start
        # The first minute's are drawn anew more often, and their bytes take long to count.
        if second > 60 and second % 20 == 0:
            sizes.append(size_of(sent))
        sent.clear()
    most_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracks = watch.activity.tracks
    print(f"{given.workers} workers, {given.rate:g} tasks/s each, {given.minutes:g} minutes")
    print(f"CPU: {model_s / seconds:.4f} for messages, {page_s / seconds:.4f} for a tab")
    print(
        f"memory: {most_kb / 1024:.0f} MB at most, {began_kb / 1024:.0f} MB before; {tracks} tracks"
    )
    if sizes:
        sizes.sort()
        print(f"bytes by update: median {sizes[len(sizes) // 2]:,}, at most {sizes[-1]:,}")
    for value, name in WINDOWS:
        sent.clear()
        start = time.process_time()
        page._window.value = value
        page._resume()
        took_s = time.process_time() - start
        figure = page._figure
        blocks, works = (len(one.data["left"]) for one in (figure.past, figure.works))
        # It was drawn twice.
        print(f"{name}: {size_of(sent) // 2:,} bytes, {took_s / 2 * 1e3:.0f} ms, ", end="")
        print(f"{blocks:,} blocks, {works:,} works")


if __name__ == "__main__":
    main()

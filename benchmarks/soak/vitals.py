"""What all parts hold, again and again, and whether that stays the same."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.soak.site import Site

ROOM = 1.25
"""How much more something may be at the end than in the middle."""
MEMORY, DESCRIPTORS, PROCESSES = "MB at most", "descriptors at most", "processes"
"""Of one process: those of the one that has most."""
SEGMENTS, FILES = "segments", "directories"
ALSO = {MEMORY: 30.0, DESCRIPTORS: 40.0, PROCESSES: 4.0, SEGMENTS: 60.0, FILES: 4.0}
"""And how much on top of that: of little, a few more are many in parts."""
SAMPLES_MIN = 6
YOUNG_S = 5.0


@dataclass(frozen=True)
class Trend:
    """What of something there was in the middle third of the time, and in the last one."""

    what: str
    unit: str
    middle: float
    last: float
    most: float

    @property
    def is_flat(self) -> bool:
        return self.last <= self.middle * ROOM + ALSO[self.unit]


class Vitals:
    """Samples of memory, descriptors, processes, segments and files."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[float]] = defaultdict(list)

    def look(self, site: Site, clients: list[psutil.Process]) -> None:
        """Take a sample: of processes that were not started just now, as some always are."""
        for role, processes in (site.roles() | {"client": clients}).items():
            held, descriptors = [], []
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    memory = process.memory_info()
                    # What has ended has none.
                    if memory.rss and process.create_time() < time.time() - YOUNG_S:
                        descriptors.append(process.num_fds())
                        held.append((memory.rss - memory.shared) / 1e6)
            self._samples[role, PROCESSES].append(len(processes))
            if held:
                self._samples[role, MEMORY].append(max(held))
                self._samples[role, DESCRIPTORS].append(max(descriptors))
        self._samples["machines", SEGMENTS].append(len(list(site.segments())))
        self._samples["machines", FILES].append(len(site.leftovers()))

    def last(self, role: str, unit: str) -> float:
        """Return the newest sample; 0 if there is none."""
        samples = self._samples[role, unit]
        return samples[-1] if samples else 0.0

    def trends(self) -> Iterator[Trend]:
        """Yield what became of each thing, if there are samples enough."""
        for (role, unit), samples in self._samples.items():
            third = len(samples) // 3
            if len(samples) >= SAMPLES_MIN:
                middle = statistics.median(samples[third : 2 * third])
                last = statistics.median(samples[2 * third :])
                yield Trend(role, unit, middle, last, max(samples))


class Clock:
    """Says when something that happens again and again is due."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due = time.monotonic() + every_s

    def is_due(self) -> bool:
        """Return True once each time."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + self._every_s
        return True

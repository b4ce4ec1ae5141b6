"""What was seen of tasks lately: call trees by time, and what runs now. Nothing of it is unpickled.

Moments are those of whoever listens: schedulers may come and go.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.call_tree import ROOT, CallTree, Frame, nodes_of
from scaler_cluster.client.profile import OTHERS
from scaler_cluster.errors import RemoteProtocolError

if TYPE_CHECKING:
    from scaler_cluster.wire import feed

BUCKET_S = 5.0
"""What was seen in so long is one tree."""
WINDOW_S = 1800.0
"""What is older is forgotten."""
BUCKET_NODES = 3000
NODES = 100_000
"""Of all trees together, some 25 MB: if that is not enough, the oldest are forgotten."""
MERGED_NODES = 20_000
"""Of what is shown, which has several trees in it."""
RUNNING_MAX = 1000
"""Tasks that run now, of which the oldest are kept."""


@dataclass(eq=False)
class Bucket:
    """What was seen in a short time."""

    start: float
    tree: CallTree = field(default_factory=lambda: CallTree(BUCKET_NODES))
    """On top a frame without a file for each function that tasks call."""
    us: int = 0
    """Of the whole tree."""
    samples: int = 0
    skipped: int = 0

    def copy(self) -> Bucket:
        """Return another one that has seen the same."""
        return Bucket(self.start, self.tree.copy(), self.us, self.samples, self.skipped)


class Merged:
    """Several buckets that are over, as one tree."""

    def __init__(self, buckets: list[Bucket]) -> None:
        self.buckets = buckets
        self.tree = CallTree(MERGED_NODES)
        for one in buckets:
            self.tree.merge(one.tree)


@dataclass(frozen=True)
class Seen:
    """What was seen in a range of time."""

    tree: CallTree
    samples: int
    skipped: int
    """Samples that found no room on their way, or could not be read."""


class Profiled:
    """Keeps what workers saw of their tasks, with a bound on everything; threads may share it."""

    def __init__(self) -> None:
        self.running: list[feed.Running] = []
        """What ran when the last message was made, those that ran the longest first."""
        self._buckets: deque[Bucket] = deque()
        self._lock = threading.Lock()
        self._nodes = 0
        """Of all buckets but the last."""
        self._frames: dict[Frame, Frame] = {}
        self._merged = Merged([])
        """What was asked for last, so far as it does not change any more."""
        self.heard = 0
        """How many messages were taken in."""

    @property
    def nodes(self) -> int:
        """The number of calls in all trees, but those of the last few seconds."""
        return self._nodes

    def copy(self) -> Profiled:
        """Return another one, which goes its own way from here, and shares what is over."""
        other = Profiled()
        with self._lock:
            other.running, other._nodes, other._frames = self.running, self._nodes, self._frames
            other.heard = self.heard
            other._buckets.extend(self._buckets)
            if self._buckets:
                other._buckets[-1] = self._buckets[-1].copy()
        return other

    def add(self, message: feed.Samples, at: float) -> None:
        """Take in a message that came just now."""
        self.running = sorted(message.running, key=lambda one: -one.age_s)[:RUNNING_MAX]
        trees = []
        skipped = message.skipped
        for one in message.sampled:
            try:
                trees.append((one, *nodes_of(one.tree)))
            except RemoteProtocolError:
                # The scheduler has not looked into it: one worker must not spoil the others' part.
                skipped += one.samples
        with self._lock:
            self.heard += 1
            bucket = self._bucket(at)
            bucket.skipped += skipped
            for one, frames, numbers in trees:
                known = [self._frames.setdefault(frame, frame) for frame in frames]
                bucket.tree.merge_nodes(known, numbers, Frame.of(one.function or OTHERS, "", 0))
                bucket.samples += one.samples
                bucket.us += sum(numbers[::3])
            self._forget(at)

    def _bucket(self, at: float) -> Bucket:
        start = at - at % BUCKET_S
        if not self._buckets or start > self._buckets[-1].start:
            if self._buckets:
                self._nodes += len(self._buckets[-1].tree)
            self._buckets.append(Bucket(start))
        return self._buckets[-1]

    def _forget(self, at: float) -> None:
        buckets = self._buckets
        while len(buckets) > 1 and (self._nodes > NODES or buckets[0].start < at - WINDOW_S):
            self._nodes -= len(buckets.popleft().tree)
        if len(self._frames) > NODES:
            # Those that are used stay where they are; equal ones that come are others.
            self._frames.clear()

    def seen(self, start: float, end: float) -> Seen:
        """Return what was seen in a range of time, to whole buckets."""
        with self._lock:
            asked = [one for one in self._buckets if one.start + BUCKET_S > start]
            asked = [one for one in asked if one.start < end]
            over = [one for one in asked if one is not self._buckets[-1]]
            if over != self._merged.buckets:
                self._merged = Merged(over)
            tree = self._merged.tree.copy()
            for bucket in asked[len(over) :]:
                tree.merge(bucket.tree)
        samples, skipped = (sum(getattr(one, name) for one in asked)
                            for name in ("samples", "skipped"))  # fmt: skip
        return Seen(tree, samples, skipped)

    def by_time(self) -> list[tuple[float, float]]:
        """Return when each bucket begins, and how many tasks were seen at once in it."""
        with self._lock:
            return [(one.start, one.us / 1e6 / BUCKET_S) for one in self._buckets]


def functions(tree: CallTree) -> list[str]:
    """Return the functions that tasks called, in the order of their names."""
    return sorted(tree.frames[node].name for node in range(1, len(tree.frames))
                  if tree.parents[node] == ROOT)  # fmt: skip

"""What happened from one moment to another, made of what a scheduler published. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from scaler_cluster.client.profile import Profile
from scaler_cluster.wire import feed
from scaler_monitoring.curve import Curve
from scaler_monitoring.efficiency import Meter
from scaler_monitoring.model import GROWING, Model

if TYPE_CHECKING:
    from scaler_cluster.wire.feed_codec import Message
    from scaler_monitoring.model import Figures

    T = TypeVar("T", feed.Tasks, feed.Function)

POINTS_MAX = 2000
"""Points of curves: more than a page is wide. When there are more, each second one is left out."""


class Period:
    """The time from the first snapshot to the last, be they of one scheduler or of several."""

    def __init__(self) -> None:
        self.model = Model(window_s=math.inf)
        self.meter = Meter()
        self.first: feed.Snapshot | None = None
        """What was there before: what it counts is not of this time."""
        self.is_cut_off = False
        """The scheduler was not heard to the end; set by who listens."""
        self.profile = Profile()
        """Where the time of tasks went, if they were sampled."""
        self._curve: Curve[Figures] = Curve(POINTS_MAX)
        self.rss_bytes_max = 0
        """Of all workers together."""
        self.objects_bytes_max = 0

    @property
    def curve(self) -> list[Figures]:
        """Return some of its snapshots' figures, evenly spread."""
        return self._curve.points

    @property
    def last(self) -> feed.Snapshot | None:
        """Return how things are at the end."""
        return self.model.snapshot

    def apply(self, message: Message, now: float) -> None:
        """Take a message in, as :meth:`Model.apply` does."""
        if isinstance(message, feed.Samples):
            self.profile.add(message)
            return
        before = self.model.snapshot
        self.model.apply(message, now)
        snapshot = self.model.snapshot
        if snapshot is None or snapshot is before:
            return
        self.meter.apply(snapshot)
        if self.first is None:
            self.first = snapshot
        figures = self.model.history[-1]
        self.rss_bytes_max = max(self.rss_bytes_max, figures.workers_rss_bytes)
        self.objects_bytes_max = max(self.objects_bytes_max, figures.objects_bytes)
        self._curve.add(figures)

    def tasks(self) -> feed.Tasks:
        """Return how many tasks came to what in this time, and where the others stand."""
        assert self.first is not None
        assert self.last is not None
        return _since(self.first.tasks, self.last.tasks, GROWING)

    def functions(self) -> list[tuple[feed.Function, int]]:
        """Return the functions that were in use, counted likewise; what took longest comes first.

        With each stands how many of its tasks have not ended.
        """
        assert self.first is not None
        assert self.last is not None
        before = {row.name: row for row in self.first.functions}
        used = []
        for after in self.last.functions:
            row = _since(before.get(after.name, feed.Function()), after, (*GROWING, "busy_s"))
            if any(getattr(row, name) for name in GROWING):
                used.append((row, after.pending))
        return sorted(used, key=lambda one: (-one[0].busy_s, -one[0].submitted, one[0].name))

    def deaths(self) -> int:
        """Return how many workers died."""
        assert self.first is not None
        assert self.last is not None
        return self.last.worker_deaths - self.first.worker_deaths

    def untold(self) -> int:
        """Return of how many pieces of work nothing was told, as there were too many."""
        assert self.first is not None
        assert self.last is not None
        before, after = self.first.skipped, self.last.skipped
        kinds = ("done", "failed", "cancelled", "retried")
        return sum(after.get(kind, 0) - before.get(kind, 0) for kind in kinds)


def _since(before: T, after: T, names: tuple[str, ...]) -> T:
    # What had not ended when a scheduler died, and nobody submitted again, counts no more.
    grown = {name: max(getattr(after, name) - getattr(before, name), 0) for name in names}
    return replace(after, **grown)

"""The monitor: when snapshots and batches of events are to be published, and what is in them.

A snapshot tells a new watcher everything; events tell it what happens after that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.events import EventRecorder
from scaler_cluster.core.scheduler.graph_rows import GraphLooks
from scaler_cluster.core.scheduler.observer import Observer
from scaler_cluster.core.scheduler.sampling import Sampling
from scaler_cluster.core.scheduler.snapshot import take_snapshot
from scaler_cluster.core.scheduler.tailing import Tailing
from scaler_cluster.ids import EVENTS, LOGS, PROFILE, SNAPSHOT
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection

    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.wire import feed
    from scaler_cluster.wire.feed_codec import Message

SOON_S = 0.05
"""Two snapshots are at least this far apart, however many watchers come."""
PATIENCE_S = 0.5
"""A snapshot waits no longer than this for machines to say how they are."""
SHARE = 40
"""At most one of this many seconds is spent on the feed: 2.5 %. So with thousands of workers
snapshots come less often."""


class Monitor:
    """Decides what watchers are told, and when."""

    def __init__(self, table: Table, config: SchedulerConfig, began_at: float) -> None:
        self.looks = GraphLooks()
        """What is worked out of graphs, as long as snapshots are taken."""
        self.is_watched = False
        """True while there are watchers."""
        self._table = table
        self.tailing = Tailing(table, is_hidden=config.hides_logs)
        """What tasks print and log, as long as somebody wants to know."""
        self.sampling = Sampling(table)
        """What workers say of their tasks, as long as somebody wants to know."""
        self._events = EventRecorder(table.functions)
        self._interval_s = config.feed_interval_s
        self._objects = config.feed_objects
        self._began_at = began_at
        self._takes_snapshots = False
        self._snapshots = 0
        self._lag_s = 0.0
        self._unheard: dict[bytes, None] = {}
        """Supervisors that have not said yet how their machine is."""
        self._look_at = math.inf
        """When machines are to be asked for that."""
        self._snapshot_at = math.inf
        self._snapshot_before = -math.inf

    def watch(self, topics: Collection[bytes], now: float) -> None:
        """These topics have listeners from now on, as a listener has come or left."""
        table = self._table
        if not topics:
            table.observer = Observer()
            self._look_at = math.inf
        elif not self.is_watched:
            table.observer = self._events
            # What machines said to earlier watchers is old.
            for supervisor in table.supervisors.values():
                supervisor.vitals = None
            for worker in table.workers.values():
                worker.vitals = None
            self._look_at = now
        self.is_watched = bool(topics)
        self._events.now = now
        self._events.switch(is_on=EVENTS in topics)
        self.tailing.switch(now, is_on=LOGS in topics)
        self.sampling.switch(now, is_on=PROFILE in topics)
        self._takes_snapshots = SNAPSHOT in topics
        if self._takes_snapshots:
            self._snapshot_at = max(now, self._snapshot_before + SOON_S)
        else:
            self._snapshot_at = math.inf
            self._unheard.clear()
            self.looks.clear()

    @property
    def deadline(self) -> float:
        """When :meth:`tick` or :meth:`take` have something to do."""
        return min(self._look_at, self.sampling.ask_at, self.tailing.ask_at, self.due)

    @property
    def due(self) -> float:
        """When :meth:`take` returns something."""
        return min(self._snapshot_at, self._events.due, self.sampling.due, self.tailing.due)

    def tick(self, now: float, lag_s: float) -> None:
        """Ask machines how they are; a snapshot follows as soon as they have answered.

        The scheduler does this ``lag_s`` later than it was due.
        """
        self._lag_s = max(self._lag_s, lag_s)
        if now >= self.tailing.ask_at:
            self.tailing.ask(now)
        if now >= self.sampling.ask_at:
            self.sampling.ask(now)
        if now < self._look_at:
            return
        self._look_at = now + self._interval_s
        if not self._takes_snapshots:
            return
        self._unheard = dict.fromkeys(self._table.supervisors)
        for peer in self._unheard:
            self._table.send(peer, m.Examine(now))
        self._snapshot_at = min(self._snapshot_at, now + PATIENCE_S if self._unheard else now)

    def examined(self, peer: bytes, now: float) -> None:
        """A machine has said how it is, or is gone."""
        if self._unheard.pop(peer, False) is None and not self._unheard:
            self._snapshot_at = min(self._snapshot_at, now)

    def take(self, now: float) -> list[Message]:
        """Return what is to be published now."""
        taken: list[Message] = []
        if now >= self._events.due:
            taken.append(self._events.take(now))
        if now >= self.tailing.due:
            taken.append(self.tailing.take(now))
        if now >= self.sampling.due:
            taken.append(self.sampling.take(now))
        if now >= self._snapshot_at:
            taken.append(self._take_snapshot(now))
        return taken

    def _take_snapshot(self, now: float) -> feed.Snapshot:
        self._snapshot_at = math.inf
        self._snapshot_before = now
        self._snapshots += 1
        snapshot = take_snapshot(self._table, self.looks, self._objects, now)
        snapshot.seq, snapshot.events = self._snapshots, self._events.batches
        snapshot.interval_s = self._interval_s
        snapshot.scheduler.up_s = now - self._began_at
        snapshot.scheduler.lag_s, self._lag_s = self._lag_s, 0.0
        snapshot.skipped = self._events.skipped
        return snapshot

    def took(self, cost_s: float, now: float) -> None:
        """Publishing took this long: the next snapshot is not to come too soon."""
        self._look_at = max(self._look_at, now + SHARE * cost_s)

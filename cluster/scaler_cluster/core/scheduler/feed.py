"""The door to the feed of a scheduler: closed while there are no watchers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.monitor import Monitor
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.wire import messages as m
    from scaler_cluster.wire.feed_codec import Message


class Feed:
    """Makes a :class:`Monitor` for the first watcher, and asks it while there are watchers."""

    def __init__(self, table: Table, config: SchedulerConfig, now: float) -> None:
        self._table = table
        self._config = config
        self._began_at = now
        self.monitor: Monitor | None = None

    def watch(self, topics: Collection[bytes], now: float) -> None:
        """Take note that these topics of the feed are listened to from now on.

        The shell calls this whenever a listener has come, also for topics that have listeners
        already, and when the last listener of a topic has left.
        """
        if self.monitor is None:
            # Most schedulers are never watched, and to import this takes a tenth of their start.
            from scaler_cluster.core.scheduler.monitor import Monitor

            self.monitor = Monitor(self._table, self._config, self._began_at)
        self.monitor.watch(topics, now)

    @property
    def is_open(self) -> bool:
        """Return True while there are watchers."""
        return self.monitor is not None and self.monitor.is_watched

    @property
    def due(self) -> float:
        """When :meth:`take` returns something."""
        return self.monitor.due if self.monitor is not None else math.inf

    def tick(self, now: float, lag_s: float) -> None:
        """Ask machines how they are, if that is due; the scheduler is late by ``lag_s``."""
        if self.monitor is not None and self.monitor.is_watched:
            self.monitor.tick(now, lag_s)

    def sampled(self, worker: WorkerRecord, message: m.Sampled, now: float) -> None:
        """A worker says what its tasks do; raises RemoteProtocolError if that is inconsistent."""
        if self.monitor is not None:
            self.monitor.sampling.answered(worker, message, now)

    def examined(self, peer: bytes, now: float) -> None:
        """A machine has said how it is, or is gone."""
        if self.monitor is not None:
            self.monitor.examined(peer, now)

    def logged(self, worker: WorkerRecord, message: m.LogLines, now: float) -> None:
        """A worker says what its tasks print; raises RemoteProtocolError if that is too much."""
        if self.monitor is not None:
            self.monitor.tailing.answered(worker, message, now)

    def take(self, now: float) -> list[Message]:
        """Return what is to be published now; say :meth:`took` what that has cost."""
        return self.monitor.take(now) if self.monitor is not None else []

    def took(self, cost_s: float, now: float) -> None:
        """Take note of how long it took to make and to publish what was due."""
        if self.monitor is not None:
            self.monitor.took(cost_s, now)

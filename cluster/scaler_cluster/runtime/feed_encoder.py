"""The feed as frames, with what only the scheduler's process knows of itself."""

from __future__ import annotations

import os
from time import perf_counter as clock
from time import process_time, time

from scaler_cluster import __version__
from scaler_cluster.process.process import PYTHON_VERSION, host_name
from scaler_cluster.runtime.vitals import Memory, rss_bytes
from scaler_cluster.wire import feed
from scaler_cluster.wire.feed_codec import Message, encode


class FeedEncoder:
    """Makes the frames of messages, and adds the CPU time and memory of this process."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._memory = Memory()
        self._run = f"{os.getpid()}-{time():.6f}"
        self._measured: tuple[float, float] | None = None
        """When it was looked how much of a CPU this process had used, and how much that was."""

    def restart(self) -> None:
        """Forget earlier measurements: a monitor has connected where there was none."""
        self._measured = None

    def frames(self, message: Message) -> list[bytes]:
        """Return the frames to publish."""
        message.run = self._run
        if isinstance(message, feed.Snapshot | feed.Logs):
            message.time = time()
        if isinstance(message, feed.Snapshot):
            self._describe(message.scheduler)
        return encode(message)

    def _describe(self, process: feed.Process) -> None:
        now, used_s = clock(), process_time()
        process.host, process.pid, process.address = host_name(), os.getpid(), self._address
        process.release, process.python = __version__, PYTHON_VERSION
        if self._measured is not None:
            before, used_before_s = self._measured
            process.cpu = (used_s - used_before_s) / max(now - before, 1e-3)
        self._measured = now, used_s
        process.rss_bytes = rss_bytes(os.getpid()) or None
        process.free_bytes = self._memory.total_and_free()[1] or None

"""The object storage's process: removes what nobody needs any more, whoever wrote it.

Run as ``python -m scaler_cluster.runtime.storage``, settings on standard input, by the scheduler
as soon as there is an object. Local peers read and write the segments themselves.
"""

from __future__ import annotations

import os
import selectors
import signal
from time import perf_counter as clock
from typing import Any

from scaler_cluster.core.exchange import Exchange
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import HUB
from scaler_cluster.objects.segments import Segments
from scaler_cluster.runtime.process import (
    LIFELINE_FD,
    PYTHON_VERSION,
    host_name,
    make_peer_id,
    read_settings,
    remove_directories,
)
from scaler_cluster.wire import messages as m

DRAIN_LIMIT = 64
SLEEP_MAX_S = 3600.0


class StorageShell:
    """Does what the scheduler says, until that is gone."""

    def __init__(self, settings: dict[str, Any]) -> None:
        peer = make_peer_id("O")
        self._segments = Segments(settings["memory"], settings["disk"], 0, peer)
        self._exchange = Exchange(os.getpid())
        self._link = zmq_link.connect(settings["address"], peer)
        self._leave = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(LIFELINE_FD, selectors.EVENT_READ, self._on_lifeline)
        self._selector.register(self._link.fd, selectors.EVENT_READ, self._on_link)
        hello = m.Hello(
            m.STORAGE, m.PROTOCOL_VERSION, PYTHON_VERSION, os.getpid(), host_name()
        )  # fmt: skip
        self._send([hello])

    def run(self) -> None:
        """Work until the parent is gone."""
        while not self._leave:
            self._on_link()
            now = clock()
            for _, frames in self._exchange.tick(now):
                self._link.send(HUB, frames)
            until = min(max(self._exchange.deadline - clock(), 0.0), SLEEP_MAX_S)
            for key, _ in self._selector.select(until):
                key.data()
        self._link.close(linger_ms=0)

    def _send(self, messages: list[m.Message]) -> None:
        self._link.send(HUB, self._exchange.send(HUB, messages, clock()))

    def _on_lifeline(self) -> None:
        if not os.read(LIFELINE_FD, 4096):
            self._leave = True

    def _on_link(self) -> None:
        while received := self._link.receive(DRAIN_LIMIT):
            for _, frames in received:
                for message in self._exchange.receive(HUB, frames, clock()):
                    try:
                        self._take_in(message)
                    except FileNotFoundError:
                        # The cluster has ended, and its directories with it.
                        self._leave = True

    def _take_in(self, message: m.Message) -> None:
        if isinstance(message, m.Release):
            for segment in message.objects:
                self._segments.remove(segment)
        elif isinstance(message, m.Purge):
            self._segments.purge(message.prefix, message.keep)
        elif isinstance(message, m.Welcome):
            self._send([m.Inventory(self._segments.inventory())])
        elif isinstance(message, m.Refused | m.Unknown | m.Goodbye):
            self._leave = True


def main() -> None:
    """Run the storage process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = read_settings()
    StorageShell(settings).run()
    remove_directories(settings)


if __name__ == "__main__":
    main()

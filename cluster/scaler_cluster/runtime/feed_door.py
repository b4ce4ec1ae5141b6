"""The scheduler's door for monitors: who listens, and what they are sent."""

from __future__ import annotations

import logging
from time import perf_counter as clock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from scaler_cluster.core.scheduler.feed import Feed
    from scaler_cluster.links.feed_link import Publisher
    from scaler_cluster.runtime.feed_encoder import FeedEncoder

log = logging.getLogger("scaler.scheduler")

LISTEN_AGAIN_S = 0.01
MISSED_TOLD = 100
"""After so many tries, the log says what is wrong: libzmq has let go of an address before."""


class FeedDoor:
    """Sends the feed of a scheduler at this address to whoever listens.

    ``on_listener`` is called after one has come or left.
    """

    def __init__(
        self,
        publisher: Publisher,
        feed: Feed,
        address: str,
        loop: asyncio.AbstractEventLoop,
        on_listener: Callable[[], None],
    ) -> None:
        self._publisher = publisher
        self._feed = feed
        self._address = address
        self._loop = loop
        self._on_listener = on_listener
        self._encoder: FeedEncoder | None = None
        """Made when the first monitor connects."""
        self._again: asyncio.TimerHandle | None = None
        """When to try to listen again; None: it does."""
        self._missed = 0
        """How often that has failed."""
        loop.add_reader(publisher.fd, self._on_readable)

    def close(self) -> None:
        """Let go of the socket, before the link of the scheduler does."""
        if self._again is None:
            self._loop.remove_reader(self._publisher.fd)
        else:
            self._again.cancel()
        self._publisher.close()

    def publish(self, now: float) -> None:
        """Send the part of the feed that is due."""
        assert self._encoder is not None
        start = clock()
        for message in self._feed.take(now):
            self._publisher.send(self._encoder.frames(message))
        self._feed.took(clock() - start, start)
        self._look(start)

    def drop_listeners(self) -> None:
        """Let those alone listen on who may still come in."""
        if self._again is not None:
            # Nobody listens now.
            return
        self._loop.remove_reader(self._publisher.fd)
        self._publisher.drop_listeners()
        if self._feed.is_open:
            self._feed.watch((), clock())
        self._listen_again()

    def _listen_again(self) -> None:
        if self._publisher.listen_again():
            self._again, self._missed = None, 0
            self._loop.add_reader(self._publisher.fd, self._on_readable)
        else:
            # The thread of libzmq may not have closed the socket before yet.
            self._missed += 1
            if self._missed == MISSED_TOLD:
                log.warning(
                    "no monitor can connect: somebody has taken %s, or no descriptor is left",
                    self._publisher.address,
                )
            self._again = self._loop.call_later(LISTEN_AGAIN_S, self._listen_again)

    def _on_readable(self) -> None:
        self._look(clock())
        self._on_listener()

    def _look(self, now: float) -> None:
        if not self._publisher.look():
            return
        if self._encoder is None:
            # Most schedulers are never monitored, and need not wait for this import.
            from scaler_cluster.runtime.feed_encoder import FeedEncoder

            self._encoder = FeedEncoder(self._address)
        if not self._feed.is_open:
            self._encoder.restart()
        self._feed.watch(self._publisher.topics, now)

"""Has tasks sampled while a tab shows it, and gives away what was seen as a file."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import PROFILE
from scaler_cluster.wire import feed
from scaler_monitoring.feed import Feed
from scaler_monitoring.profiled import Profiled

if TYPE_CHECKING:
    from scaler_cluster.security.credentials import Credentials

log = logging.getLogger("scaler.dashboard")

LEASE_S = 6.0
"""It goes on for so long after a tab wanted it: tabs say so each second or two."""
LOOK_S = 0.5
"""How often it is looked whether there is something, should a wake-up have been lost."""


class Profiling:
    """Listens to samples of a scheduler as long as somebody wants them, in the event loop.

    Any thread may call :meth:`want`, and ask what was seen.
    """

    def __init__(self, address: str, credentials: Credentials) -> None:
        self.profiled = Profiled()
        self.refusal = ""
        """Why the scheduler does not let this in; empty: nobody said so."""
        self._address = address
        self._credentials = credentials
        self._loop = asyncio.get_running_loop()
        self._feed: Feed | None = None
        """There is one while somebody wants it: that alone has workers look."""
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self._is_closed = False

    @property
    def is_on(self) -> bool:
        """True as long as tasks are sampled for this."""
        return self._feed is not None

    def want(self, for_s: float) -> None:
        """Have tasks sampled from now on, for so long at least."""
        self._until = max(self._until, clock() + for_s)
        if self._feed is None:
            self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self._feed is None and not self._is_closed:
            self._feed = Feed(self._address, (PROFILE,), self._credentials)
            self._loop.add_reader(self._feed.fd, self._read)
            self._look()

    def _look(self) -> None:
        """Read, also if no wake-up came; end when nobody wants it any more."""
        if clock() >= self._until:
            self._end()
            return
        self._timer = self._loop.call_later(LOOK_S, self._look)
        self._read()

    def _read(self) -> None:
        assert self._feed is not None
        while True:
            try:
                message = self._feed.next()
            except RemoteProtocolError as error:
                log.warning("what the scheduler publishes cannot be read: %s", error)
                continue
            if message is None:
                break
            assert isinstance(message, feed.Samples)
            self.profiled.add(message, clock())
        self.refusal = self._feed.refusal

    def _end(self) -> None:
        """Listen no more; what was heard stays."""
        if self._feed is not None:
            self._loop.remove_reader(self._feed.fd)
            self._feed.close()
            self._feed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Listen no more, whatever anybody wants."""
        self._is_closed = True
        self._end()

"""How the bytes of segments are fetched from another machine: part by part, some ahead.

The receiver asks for each part, so a slow receiver is never flooded. It asks for as much at a time
as the link carries in about two round trips, whatever its rate: on a slow link, that is little, and
a message that is sent beside it is soon there. A source that starts over is asked again for what
has not arrived; otherwise nothing is asked for twice.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable

PART_BYTES_MIN = 64 << 10
"""A part arrives as a whole: at 256 kbit/s every two seconds."""
PART_BYTES_MAX = 1 << 20
"""Few enough for transfers and heartbeats to share a link; more would not be faster."""
PARTS_AHEAD = 8
"""So many parts are under way, once there may be parts of more than the least size."""
WINDOW_BYTES_MIN = 2 * PART_BYTES_MIN
"""One part is on its way while the next is asked for."""
WINDOW_BYTES_FIRST = 4 * PART_BYTES_MIN
"""As long as the link is not known."""
WINDOW_BYTES_MAX = 64 << 20
"""Enough for 10 Gbit/s over 50 ms; a receiver that is slower than its link keeps as much."""
DELAY_S = 0.2
"""Parts may be under way this long on any link: a process that waits for the CPU is no slow link.
"""
SILENCE_S = 30.0
"""A source that sent nothing for this long is given up."""


class Download:
    """The state of one transfer, at the end that asks."""

    def __init__(self, segment: bytes) -> None:
        self.segment = segment
        self.total: int | None = None
        """Size of the segment; None: not known yet."""
        self.received = 0
        """Bytes that have arrived; they arrive in order."""
        self.asked = 0
        """Where the next part begins that is to be asked for."""
        self.is_abandoned = False
        """True once nobody wants it any more; the source may still answer."""

    @property
    def is_whole(self) -> bool:
        """Return True if everything has arrived."""
        return self.received == self.total

    @property
    def has_more(self) -> bool:
        """Return True if a part may be asked for: how many there are, the first one tells."""
        return not self.asked if self.total is None else self.asked < self.total


D = TypeVar("D", bound=Download)


class _Asked(Generic[D]):
    """A part that is under way."""

    __slots__ = ("at", "behind", "download", "nbytes", "offset")

    def __init__(self, download: D, nbytes: int, at: float, behind: int) -> None:
        self.download = download
        self.offset = download.asked
        self.nbytes = nbytes
        self.at = at
        self.behind = behind
        """Bytes that were under way then, with this part."""

    def fits(self, message: m.Part | m.Transferred) -> bool:
        """Return True for the answer."""
        return self.download.segment == message.segment and (
            isinstance(message, m.Transferred) or message.offset == self.offset
        )


class Flow(Generic[D]):
    """All that is under way from one source, which answers in the order in which it is asked.

    The window says how many bytes that may be. It doubles with each round trip as long as parts
    come soon after they were asked for, and follows the rate of the link once they have to wait
    for one another.
    """

    def __init__(self, now: float) -> None:
        self.window = WINDOW_BYTES_FIRST
        self._under_way = 0
        self._asked: deque[_Asked[D]] = deque()
        self._delay_s = math.inf
        """How long a part takes that waits for no other: the round trip, and its own bytes."""
        self._heard_at = now

    @property
    def is_idle(self) -> bool:
        """Return True if nothing is under way."""
        return not self._asked

    @property
    def deadline(self) -> float:
        """When the source is to be given up."""
        return self._heard_at + SILENCE_S if self._asked else math.inf

    @property
    def part_bytes(self) -> int:
        """Return how much to ask for at once."""
        return min(max(self.window // PARTS_AHEAD, PART_BYTES_MIN), PART_BYTES_MAX)

    def ask(self, downloads: Iterable[D], now: float) -> list[m.Fetch]:
        """Return what is to be asked for now; the first download comes first."""
        messages: list[m.Fetch] = []
        if not self._asked:
            self._heard_at = now
        for download in downloads:
            while download.has_more and self._under_way < self.window:
                nbytes = self.part_bytes
                self._under_way += nbytes
                self._asked.append(_Asked(download, nbytes, now, self._under_way))
                messages.append(m.Fetch(download.segment, download.asked, nbytes))
                download.asked += nbytes
        return messages

    def answer(self, message: m.Part | m.Transferred, now: float) -> D | None:
        """Take an answer in; return the download that is now further, or has failed.

        Then the bytes of a part belong at its offset. None: nobody asked for this, or nobody wants
        it any more. Raises RemoteProtocolError if no honest source answers so.
        """
        if not self._asked or not self._asked[0].fits(message):
            return None
        asked = self._asked.popleft()
        self._under_way -= asked.nbytes
        self._heard_at = now
        download = asked.download
        if isinstance(message, m.Part):
            nbytes, total = len(message.data), message.total
            if download.total not in (None, total) or nbytes != max(
                min(asked.nbytes, total - asked.offset), 0
            ):
                raise RemoteProtocolError("a part of another size than was asked for")
            self._adapt(asked, nbytes, now)
            download.total = total
            download.received += nbytes
        return None if download.is_abandoned else download

    def restart(self) -> None:
        """The source has forgotten what it was asked for."""
        for asked in self._asked:
            asked.download.asked = asked.download.received
        self._asked.clear()
        self._under_way = 0

    def _adapt(self, asked: _Asked[D], nbytes: int, now: float) -> None:
        """Let the window follow from how long a part was under way."""
        took_s = max(now - asked.at, 1e-6)
        self._delay_s = min(self._delay_s, took_s)
        may_take_s = max(DELAY_S, 2 * self._delay_s)
        if took_s <= may_take_s:
            # What was not asked for, because there was no more, does not tell what would fit.
            if 2 * asked.behind >= self.window:
                self.window = min(self.window + nbytes, WINDOW_BYTES_MAX)
            return
        carried = int(asked.behind * may_take_s / took_s)
        if carried < self.window:
            self.window = max(carried, self.window - nbytes, WINDOW_BYTES_MIN)
        if self.window == WINDOW_BYTES_MIN:
            # No part waits for others any more: it is the way that has become longer.
            self._delay_s = took_s

"""How the bytes of a segment are fetched from another machine: part by part, a few ahead.

The receiver asks for each part, so a slow receiver is never flooded. A source that starts over is
asked again for what has not arrived.
"""

from __future__ import annotations

import math

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

PART_BYTES = 1 << 20
"""Bytes asked for at once: few enough for transfers and heartbeats to share a link."""
PARTS_AHEAD = 8
"""Parts under way: enough to fill a link of 1 Gbit/s over 60 ms."""
SILENCE_S = 30.0
"""A source that sent nothing for this long is given up."""


class Download:
    """The state of one transfer, at the end that asks."""

    def __init__(self, segment: bytes, now: float) -> None:
        self.segment = segment
        self.total: int | None = None
        """Size of the segment; None: not known yet."""
        self.received = 0
        """Bytes that have arrived; they arrive in order."""
        self._asked = 0
        self._heard_at = now

    @property
    def is_whole(self) -> bool:
        """Return True if everything has arrived."""
        return self.received == self.total

    @property
    def deadline(self) -> float:
        """When the source is to be given up."""
        return math.inf if self.is_whole else self._heard_at + SILENCE_S

    def requests(self) -> list[m.Message]:
        """Return what is to be asked for now."""
        total = self.total
        if total is None:
            # The answer tells how much there is.
            if self._asked:
                return []
            self._asked = PART_BYTES
            return [m.Fetch(self.segment, 0, PART_BYTES)]
        messages: list[m.Message] = []
        while self._asked < min(total, self.received + PARTS_AHEAD * PART_BYTES):
            messages.append(m.Fetch(self.segment, self._asked, PART_BYTES))
            self._asked += PART_BYTES
        return messages

    def receive(self, part: m.Part, now: float) -> bool:
        """Take a part in; return True if its bytes are new, and belong at ``part.offset``.

        Other parts answer what a transfer asked for before it was interrupted.
        Raises RemoteProtocolError if no honest source sends such a part.
        """
        nbytes = len(part.data)
        if self.total not in (None, part.total) or nbytes != min(
            PART_BYTES, part.total - part.offset
        ):
            raise RemoteProtocolError("a part of another size than was asked for")
        self._heard_at = now
        if part.offset != self.received or part.offset >= self._asked:
            return False
        self.total = part.total
        self.received += nbytes
        return True

    def touch(self, now: float) -> None:
        """The source lives, though it serves other receivers at the moment."""
        self._heard_at = now

    def restart(self) -> None:
        """The source has forgotten what it was asked for."""
        self._asked = self.received

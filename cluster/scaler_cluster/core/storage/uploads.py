"""The segments that clients send to a storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.storage.intake import Intake
from scaler_cluster.errors import StorageFullError
from scaler_cluster.ids import is_segment
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.storage.intake import Files

SENT_MAX = 64
"""Segments that one client may send at the same time."""


class Uploads:
    """Fetches from clients what they want to store."""

    def __init__(self, files: Files, tell: Callable[[bytes, m.Message], None]) -> None:
        self._files = files
        self._tell = tell
        self._intakes: dict[tuple[bytes, bytes], Intake] = {}
        """What clients send, by the client and the segment."""

    def begin(self, peer: bytes, segment: bytes, now: float) -> None:
        """Begin to fetch what a client wants to store."""
        mine = sum(key[0] == peer for key in self._intakes)
        others = any(key[1] == segment and key[0] != peer for key in self._intakes)
        if not is_segment(segment) or mine >= SENT_MAX or others:
            error = "a segment of that name cannot be stored now"
            self._tell(peer, m.Transferred(segment, error))
            return
        if self._files.has(segment):
            # The storage before this one died when it had all of it and had not said so.
            self._tell(peer, m.Transferred(segment))
            return
        if before := self._intakes.pop((peer, segment), None):
            before.discard()
        intake = self._intakes[peer, segment] = Intake(self._files, segment, now)
        self._request(peer, intake)

    def receive(self, peer: bytes, part: m.Part, now: float) -> None:
        """Take in a part of a segment, if the client sends that segment.

        Raises RemoteProtocolError if no honest client sends such a part.
        """
        segment = part.segment
        intake = self._intakes.get((peer, segment))
        if intake is None:
            return
        try:
            is_whole = intake.receive(part, now)
        except (StorageFullError, OSError) as error:
            self._intakes.pop((peer, segment)).discard()
            self._tell(peer, m.Transferred(segment, str(error)))
            return
        if is_whole:
            del self._intakes[peer, segment]
            self._tell(peer, m.Transferred(segment))
        else:
            self._request(peer, intake)

    def forget(self, peer: bytes) -> None:
        """A client is gone, with what it was sending."""
        self._discard([key for key in self._intakes if key[0] == peer])

    def purge(self, prefix: bytes) -> None:
        """Nobody wants the segments any more whose name begins so."""
        self._discard([key for key in self._intakes if key[1].startswith(prefix)])

    def clear(self) -> None:
        """Nobody wants anything any more."""
        self._discard(list(self._intakes))

    def _discard(self, keys: list[tuple[bytes, bytes]]) -> None:
        for key in keys:
            self._intakes.pop(key).discard()

    def _request(self, peer: bytes, intake: Intake) -> None:
        for message in intake.download.requests():
            self._tell(peer, message)

"""The segments that clients send to a storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.storage.intake import Intake
from scaler_cluster.core.storage.transfer import Flow
from scaler_cluster.errors import StorageFullError
from scaler_cluster.ids import is_segment
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.storage.intake import Files

SENT_MAX = 64
"""Segments that one client may send at the same time."""


class _Sender:
    """A client that sends segments."""

    __slots__ = ("flow", "intakes")

    def __init__(self, now: float) -> None:
        self.flow: Flow[Intake] = Flow(now)
        self.intakes: dict[bytes, Intake] = {}
        """What it sends, by segment."""


class Uploads:
    """Fetches from clients what they want to store."""

    def __init__(self, files: Files, tell: Callable[[bytes, m.Message], None]) -> None:
        self._files = files
        self._tell = tell
        self._senders: dict[bytes, _Sender] = {}

    def begin(self, peer: bytes, segment: bytes, now: float) -> None:
        """Begin to fetch what a client wants to store."""
        sender = self._senders.get(peer)
        mine = len(sender.intakes) if sender is not None else 0
        others = any(segment in one.intakes for one in self._senders.values() if one is not sender)
        if not is_segment(segment) or mine >= SENT_MAX or others:
            error = "a segment of that name cannot be stored now"
            self._tell(peer, m.Transferred(segment, error))
            return
        if self._files.has(segment):
            # The storage before this one died when it had all of it and had not said so.
            self._tell(peer, m.Transferred(segment))
            return
        if sender is None:
            sender = self._senders[peer] = _Sender(now)
        if before := sender.intakes.pop(segment, None):
            # The client has begun anew: it does not know what it was asked for.
            before.discard()
            sender.flow.restart()
        sender.intakes[segment] = Intake(self._files, segment)
        self._ask(peer, sender, now)

    def receive(self, peer: bytes, part: m.Part, now: float) -> None:
        """Take in a part of a segment, if the client sends that segment.

        Raises RemoteProtocolError if no honest client sends such a part.
        """
        sender = self._senders.get(peer)
        if sender is None:
            return
        intake = sender.flow.answer(part, now)
        if intake is not None:
            self._write(peer, sender, intake, part)
        self._ask(peer, sender, now)

    def _write(self, peer: bytes, sender: _Sender, intake: Intake, part: m.Part) -> None:
        error = ""
        try:
            is_over = intake.write(part)
        except (StorageFullError, OSError) as problem:
            error, is_over = str(problem), True
            intake.discard()
        if is_over:
            del sender.intakes[part.segment]
            self._tell(peer, m.Transferred(part.segment, error))

    def forget(self, peer: bytes) -> None:
        """A client is gone, with what it was sending."""
        sender = self._senders.pop(peer, None)
        if sender is not None:
            for intake in sender.intakes.values():
                intake.discard()

    def purge(self, prefix: bytes) -> None:
        """Nobody wants the segments any more whose name begins so."""
        for sender in self._senders.values():
            for segment in [one for one in sender.intakes if one.startswith(prefix)]:
                sender.intakes.pop(segment).discard()

    def clear(self) -> None:
        """Nobody wants anything any more."""
        self.purge(b"")

    def _ask(self, peer: bytes, sender: _Sender, now: float) -> None:
        for message in sender.flow.ask(sender.intakes.values(), now):
            self._tell(peer, message)

"""A machine's object storage: what it removes, serves, takes from clients and copies from others.

The bytes lie in :class:`Files`, which the shell in ``runtime/storage.py`` brings.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from scaler_cluster.core.transfer import SILENCE_S, Download
from scaler_cluster.errors import MissingObjects, RemoteProtocolError, StorageFull
from scaler_cluster.ids import DRAFT, is_segment
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import in_pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

UPSTREAM = b""
"""The scheduler among the peers, where the storage is the one that connects."""
SENT_MAX = 64
"""Segments that one client may send at the same time."""
COPIES_AT_ONCE = 4
"""Segments fetched from one storage at the same time: more would not be faster."""
HEARTBEAT_S = 2.0
"""How often a storage that runs by itself tells its scheduler that it lives."""


class Draft(Protocol):
    """A segment that is being written; raises StorageFull, OSError."""

    def write(self, data: memoryview, offset: int) -> None:
        """Put bytes where they belong."""

    def finish(self) -> bytes:
        """Give the segment its name."""

    def discard(self) -> None:
        """Remove what was written."""


class Files(Protocol):
    """The segments of a machine."""

    def draft(self, name: bytes, nbytes: int) -> Draft:
        """Begin a segment; raises StorageFull, OSError."""

    def open(self, name: bytes) -> memoryview:
        """Return the bytes of a segment; raises MissingObjects."""

    def has(self, name: bytes) -> bool:
        """Return True if there is such a segment."""

    def remove(self, name: bytes) -> None:
        """Remove a segment or draft, if it is there."""

    def purge(self, prefix: bytes, keep: tuple[bytes, ...]) -> None:
        """Remove every segment and draft whose name begins so, but for some."""

    def inventory(self) -> tuple[bytes, ...]:
        """Return the names of all segments and drafts."""


class Intake:
    """A segment that comes from elsewhere."""

    def __init__(self, files: Files, segment: bytes, now: float) -> None:
        self.download = Download(segment, now)
        self._files = files
        self._draft: Draft | None = None

    def receive(self, part: m.Part, now: float) -> bool:
        """Write a part; return True if that was the last one.

        Raises StorageFull, RemoteProtocolError, OSError.
        """
        download = self.download
        if not download.receive(part, now):
            return False
        if self._draft is None:
            # One that was cut may have left some of it.
            self._files.remove(DRAFT + part.segment)
            self._draft = self._files.draft(part.segment, part.total)
        self._draft.write(memoryview(part.data), part.offset)
        if download.is_whole:
            self._draft.finish()
            self._draft = None
        return download.is_whole

    def discard(self) -> None:
        """Remove what has come so far."""
        if self._draft is not None:
            self._draft.discard()
            self._draft = None


class StorageCore:
    """Does what the scheduler says.

    ``hello`` is what it says of itself. With ``waits`` it does not connect to a scheduler, but
    waits for one to come, then for the next.
    """

    def __init__(self, files: Files, hello: m.Hello, *, waits: bool) -> None:
        self._files = files
        self._hello = hello
        self._waits = waits
        self._scheduler = UPSTREAM
        """The peer that it is; UPSTREAM with ``waits``: none has come."""
        self._beat_at = math.inf
        self._heard_at: dict[bytes, float] = {}
        self._sent: dict[tuple[bytes, bytes], Intake] = {}
        """What clients send, by the client and the segment."""
        self._copies: dict[bytes, tuple[Intake, str]] = {}
        """What is fetched from other storages, and their addresses, by segment."""
        self._waiting: dict[bytes, str] = {}
        """What is to be fetched after that, and from where."""
        self._outbox: dict[bytes, list[m.Message]] = {}
        self._requests: dict[str, list[m.Message]] = {}
        self._gone: list[bytes] = []
        self.leave = False
        """True once there is no scheduler to serve any more."""
        if not waits:
            self._tell(UPSTREAM, hello)

    # -- doors -------------------------------------------------------------------------------

    def receive(self, peer: bytes, messages: Sequence[m.Message], now: float) -> None:
        """Take in what the scheduler sent (UPSTREAM), or somebody who connected.

        Raises RemoteProtocolError if the peer must not send this; then it is to be lost.
        """
        if peer != UPSTREAM:
            self._heard_at[peer] = now
        for message in messages:
            if peer == UPSTREAM:
                self._obey(message, now)
            else:
                self._serve(peer, message, now)

    def receive_from(self, address: str, messages: Sequence[m.Message], now: float) -> None:
        """Take in what the storage at an address sent; Unknown: it has begun anew.

        Raises RemoteProtocolError if it must not; then :meth:`source_lost` is to be called.
        """
        for message in messages:
            if isinstance(message, m.Unknown):
                for download in self._downloads(address):
                    download.restart()
                    self._request(address, download.requests())
            elif isinstance(message, m.Part | m.Transferred):
                self._take_in_copy(address, message, now)
                for download in self._downloads(address):
                    download.touch(now)
        self._start_copies(now)

    def peer_lost(self, peer: bytes) -> None:
        """Forget who left, fell silent or broke the protocol, with what it was sending."""
        if peer == UPSTREAM:
            # Begin anew, as another process.
            self.leave = True
            return
        for key in [key for key in self._sent if key[0] == peer]:
            self._sent.pop(key).discard()
        if peer == self._scheduler:
            self._forget_all()
        self._heard_at.pop(peer, None)
        self._outbox.pop(peer, None)
        self._gone.append(peer)

    def source_lost(self, address: str, reason: str, now: float) -> None:
        """Fail what was being fetched from a storage that cannot be reached, or is broken."""
        for segment in [one for one, (_, at) in self._copies.items() if at == address]:
            self._fail(segment, reason)
        self._start_copies(now)

    def tick(self, now: float) -> None:
        """Let go of whoever has fallen silent, and tell the scheduler that we have not."""
        for segment, (intake, address) in list(self._copies.items()):
            if now >= intake.download.deadline:
                self._fail(segment, f"the storage at {address} was silent for {SILENCE_S:.0f} s")
        self._start_copies(now)
        for peer, heard_at in list(self._heard_at.items()):
            # Whoever comes back starts over; what waits for it here keeps memory.
            if now >= heard_at + SILENCE_S:
                self.peer_lost(peer)
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            self._tell(self._scheduler, m.Heartbeat())

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        due = [self._beat_at]
        due += [intake.download.deadline for intake, _ in self._copies.values()]
        due += [heard_at + SILENCE_S for heard_at in self._heard_at.values()]
        return min(due)

    def take_actions(self) -> dict[bytes, list[m.Message]]:
        """Return what is to be sent to the scheduler and to whoever connected."""
        outbox, self._outbox = self._outbox, {}
        return outbox

    def take_requests(self) -> dict[str, list[m.Message]]:
        """Return what is to be sent to other storages, by their address."""
        requests, self._requests = self._requests, {}
        return requests

    def take_gone(self) -> list[bytes]:
        """Return the peers to forget."""
        gone, self._gone = self._gone, []
        return gone

    @property
    def sources(self) -> set[str]:
        """Addresses of the storages that a connection is needed to."""
        return {address for _, address in self._copies.values()} | set(self._waiting.values())

    # -- the scheduler -----------------------------------------------------------------------

    def _tell(self, peer: bytes, *messages: m.Message) -> None:
        self._outbox.setdefault(peer, []).extend(messages)

    def _obey(self, message: m.Message, now: float) -> None:
        if isinstance(message, m.Release):
            for segment in message.objects:
                self._waiting.pop(segment, None)
                if segment in self._copies:
                    self._copies.pop(segment)[0].discard()
                self._files.remove(segment)
            self._start_copies(now)
        elif isinstance(message, m.Purge):
            for key in [key for key in self._sent if key[1].startswith(message.prefix)]:
                self._sent.pop(key).discard()
            self._files.purge(message.prefix, message.keep)
        elif isinstance(message, m.Copy):
            self._waiting[message.segment] = message.address
            self._start_copies(now)
        elif isinstance(message, m.Welcome):
            for piece in in_pieces(self._files.inventory()):
                self._tell(self._scheduler, m.Inventory(piece))
        elif isinstance(message, m.Refused | m.Unknown | m.Goodbye):
            self.peer_lost(self._scheduler)
            # The next scheduler is waited for, unless the whole cluster is at its end.
            self.leave |= isinstance(message, m.Goodbye) and bool(message.reason)

    def _adopt(self, peer: bytes, now: float) -> None:
        """A scheduler comes to a storage that waits for one: it may be the next one."""
        if not self._waits:
            raise RemoteProtocolError("this storage has its scheduler")
        if self._scheduler not in (UPSTREAM, peer):
            self._tell(peer, m.Refused("it serves another scheduler"))
            return
        self._forget_all()
        self._scheduler = peer
        self._beat_at = now + HEARTBEAT_S
        self._tell(peer, self._hello)

    def _forget_all(self) -> None:
        """Nobody names what was stored for a scheduler that is gone."""
        self._scheduler = UPSTREAM
        self._beat_at = math.inf
        self._waiting.clear()
        for intake in [*self._sent.values(), *(intake for intake, _ in self._copies.values())]:
            intake.discard()
        self._sent.clear()
        self._copies.clear()
        self._files.purge(b"", ())

    # -- who is elsewhere --------------------------------------------------------------------

    def _serve(self, peer: bytes, message: m.Message, now: float) -> None:
        if isinstance(message, m.Fetch):
            self._tell(peer, self._part(message))
        elif isinstance(message, m.Put):
            self._take_over(peer, message.segment, now)
        elif isinstance(message, m.Part):
            if (peer, message.segment) in self._sent:
                self._take_in_sent(peer, message, now)
        elif isinstance(message, m.Hello):
            if message.role == m.SCHEDULER:
                self._adopt(peer, now)
        elif peer == self._scheduler:
            self._obey(message, now)
        elif isinstance(message, m.Goodbye):
            self.peer_lost(peer)
        else:
            raise RemoteProtocolError(f"{type(message).__name__} is not for a storage")

    def _part(self, message: m.Fetch) -> m.Message:
        try:
            data = self._files.open(message.segment)
        except MissingObjects as error:
            return m.Transferred(message.segment, str(error))
        part = data[message.offset : message.offset + message.nbytes]
        return m.Part(message.segment, message.offset, len(data), part)

    def _take_over(self, peer: bytes, segment: bytes, now: float) -> None:
        """Begin to fetch what a client wants to store."""
        mine = sum(key[0] == peer for key in self._sent)
        others = any(key[1] == segment and key[0] != peer for key in self._sent)
        if not is_segment(segment) or mine >= SENT_MAX or others:
            error = "a segment of that name cannot be stored now"
            self._tell(peer, m.Transferred(segment, error))
            return
        if self._files.has(segment):
            # The storage before this one died when it had all of it and had not said so.
            self._tell(peer, m.Transferred(segment))
            return
        if before := self._sent.pop((peer, segment), None):
            before.discard()
        intake = self._sent[peer, segment] = Intake(self._files, segment, now)
        self._tell(peer, *intake.download.requests())

    def _take_in_sent(self, peer: bytes, part: m.Part, now: float) -> None:
        segment = part.segment
        intake = self._sent[peer, segment]
        try:
            is_whole = intake.receive(part, now)
        except (StorageFull, OSError) as error:
            self._sent.pop((peer, segment)).discard()
            self._tell(peer, m.Transferred(segment, str(error)))
            return
        if is_whole:
            del self._sent[peer, segment]
            self._tell(peer, m.Transferred(segment))
        else:
            self._tell(peer, *intake.download.requests())

    # -- copies ------------------------------------------------------------------------------

    def _request(self, address: str, messages: list[m.Message]) -> None:
        self._requests.setdefault(address, []).extend(messages)

    def _start_copies(self, now: float) -> None:
        """Begin to fetch what waits, a few at a time from each storage."""
        if not self._waiting:
            return
        under_way = Counter(address for _, address in self._copies.values())
        for segment, address in list(self._waiting.items()):
            if under_way[address] < COPIES_AT_ONCE:
                del self._waiting[segment]
                intake = Intake(self._files, segment, now)
                self._copies[segment] = intake, address
                self._request(address, intake.download.requests())
                under_way[address] += 1

    def _downloads(self, address: str) -> list[Download]:
        """Return what is being fetched from a storage."""
        return [intake.download for intake, at in self._copies.values() if at == address]

    def _take_in_copy(self, address: str, message: m.Part | m.Transferred, now: float) -> None:
        segment = message.segment
        if segment not in self._copies:
            # Nobody wants it any more.
            return
        if isinstance(message, m.Transferred):
            self._fail(segment, message.error)
            return
        intake = self._copies[segment][0]
        try:
            if intake.receive(message, now):
                del self._copies[segment]
                self._tell(self._scheduler, m.Transferred(segment))
            else:
                self._request(address, intake.download.requests())
        except (StorageFull, OSError) as error:
            self._fail(segment, str(error))

    def _fail(self, segment: bytes, error: str) -> None:
        intake, _ = self._copies.pop(segment)
        intake.discard()
        self._tell(self._scheduler, m.Transferred(segment, error))

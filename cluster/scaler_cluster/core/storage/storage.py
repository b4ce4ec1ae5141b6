"""A machine's object storage: it removes, serves, takes from clients and copies from others.

The bytes lie in :class:`Files`, which the shell in ``runtime/storage.py`` brings.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.storage.copies import Copies
from scaler_cluster.core.storage.transfer import PART_BYTES_MAX, SILENCE_S
from scaler_cluster.core.storage.uploads import Uploads
from scaler_cluster.errors import MissingObjectsError, RemoteProtocolError
from scaler_cluster.users import OWNER, SCHEDULER, role_of
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import in_pieces
from scaler_cluster.wire.versions import difference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.core.storage.intake import Files

UPSTREAM = b""
"""The scheduler among the peers, where the storage is the one that connects."""
RECYCLE_S = 0.25
"""How long the memory of segments that were removed is kept for others, after the last of them."""
HEARTBEAT_S = 2.0
"""How often a storage that its scheduler did not start tells it that it lives: so it learns that
the scheduler was started anew."""


class StorageCore:
    """Does what the scheduler says.

    ``hello`` is what it says of itself. With ``waits`` it does not connect to a scheduler, but
    waits for one to come, then for the next. ``user_of`` says whose key a peer has that connects;
    empty: nobody needs one.
    """

    def __init__(
        self,
        files: Files,
        hello: m.Hello,
        user_of: Callable[[bytes], str] = lambda _: "",
        *,
        waits: bool,
    ) -> None:
        self._files = files
        self._user_of = user_of
        self._hello = hello
        self._waits = waits
        self._scheduler = UPSTREAM
        """The peer that it is; UPSTREAM with ``waits``: none has come."""
        self._scheduler_name = ""
        """What it and those that take its place are called; empty: none has come."""
        self._beat_at = math.inf
        self._recycled_end = math.inf
        """When the memory of removed segments is given back."""
        self._heard_at: dict[bytes, float] = {}
        self._uploads = Uploads(files, self._tell)
        self._copies = Copies(files, self._tell_scheduler)
        self._outbox: dict[bytes, list[m.Message]] = {}
        self._gone: list[bytes] = []
        self.leave = False
        """True once there is no scheduler to serve any more."""
        self.users: dict[str, str] | None = None
        """Who is let in from now on, by their public keys, as the scheduler said; the shell takes
        it. None: it said nothing new."""
        self._orders: dict[type[m.Message], Callable[[Any, float], None]] = {
            m.Release: self._on_release,
            m.Purge: self._on_purge,
            m.Copy: self._on_copy,
            m.LetIn: self._on_let_in,
            m.Welcome: self._on_welcome,
            m.Refused: self._on_end,
            m.Unknown: self._on_end,
            m.Goodbye: self._on_end,
        }
        """What the scheduler says; other messages of it mean nothing here."""
        self._requests: dict[type[m.Message], Callable[[bytes, Any, float], None]] = {
            m.Fetch: self._on_fetch,
            m.Put: self._on_put,
            m.Part: self._uploads.receive,
            m.Hello: self._on_hello,
        }
        """What anybody may say that connects."""
        if not waits:
            self._tell(UPSTREAM, hello)

    # -- doors ---------------------------------------------------------------------------------

    def receive(self, peer: bytes, messages: Sequence[m.Message], now: float) -> None:
        """Take in what the scheduler sent (UPSTREAM), or a peer that connected.

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
        self._copies.receive(address, messages, now)

    def peer_lost(self, peer: bytes) -> None:
        """Forget a peer that left, fell silent or broke the protocol, with what it was sending."""
        if peer == UPSTREAM:
            # Begin anew, as another process.
            self.leave = True
            return
        self._uploads.forget(peer)
        if peer == self._scheduler:
            self._forget_all()
        self._heard_at.pop(peer, None)
        self._outbox.pop(peer, None)
        self._gone.append(peer)

    def source_lost(self, address: str, reason: str, now: float) -> None:
        """Fail what was being fetched from a storage that cannot be reached, or is broken."""
        self._copies.lose(address, reason, now)

    def tick(self, now: float) -> None:
        """Let go of peers that have fallen silent, and tell the scheduler that we have not."""
        self._copies.tick(now)
        for peer, heard_at in list(self._heard_at.items()):
            # A peer that comes back starts over; what waits for it here keeps memory.
            if now >= heard_at + SILENCE_S:
                self.peer_lost(peer)
        if now >= self._recycled_end:
            self._recycled_end = math.inf
            self._files.drop_recycled()
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            self._tell(self._scheduler, m.Heartbeat())

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        silent = (heard_at + SILENCE_S for heard_at in self._heard_at.values())
        return min(self._beat_at, self._recycled_end, self._copies.deadline, *silent)

    def take_actions(self) -> dict[bytes, list[m.Message]]:
        """Return what is to be sent to the scheduler and to peers that connected."""
        outbox, self._outbox = self._outbox, {}
        return outbox

    def take_requests(self) -> dict[str, list[m.Message]]:
        """Return what is to be sent to other storages, by their address."""
        return self._copies.take_requests()

    def take_gone(self) -> list[bytes]:
        """Return the peers to forget."""
        gone, self._gone = self._gone, []
        return gone

    @property
    def sources(self) -> set[str]:
        """Addresses of the storages that a connection is needed to."""
        return self._copies.sources

    # -- the scheduler -------------------------------------------------------------------------

    def _tell(self, peer: bytes, message: m.Message) -> None:
        self._outbox.setdefault(peer, []).append(message)

    def _tell_scheduler(self, message: m.Message) -> None:
        self._tell(self._scheduler, message)

    def _obey(self, message: m.Message, now: float) -> None:
        handler = self._orders.get(type(message))
        if handler is not None:
            handler(message, now)

    def _on_release(self, message: m.Release, now: float) -> None:
        self._copies.forget(message.objects, now)
        for segment in message.objects:
            self._files.recycle(segment)
        self._recycled_end = now + RECYCLE_S

    def _on_purge(self, message: m.Purge, now: float) -> None:
        self._uploads.purge(message.prefix)
        self._files.purge(message.prefix, message.keep)

    def _on_copy(self, message: m.Copy, now: float) -> None:
        self._copies.want(message.segment, message.address, now)

    def _on_let_in(self, message: m.LetIn, now: float) -> None:
        self.users = message.users

    def _on_welcome(self, message: m.Welcome, now: float) -> None:
        if self._hello.supervisor:
            self._beat_at = now + HEARTBEAT_S
        for piece in in_pieces(self._files.inventory()):
            self._tell(self._scheduler, m.Inventory(piece))

    def _on_end(self, message: m.Refused | m.Unknown | m.Goodbye, now: float) -> None:
        """The scheduler wants nothing more of this storage.

        The next scheduler is waited for, unless the whole cluster is at its end.
        """
        self.peer_lost(self._scheduler)
        self.leave |= isinstance(message, m.Goodbye) and bool(message.reason)

    def _forget_all(self) -> None:
        """Nobody names what was stored for a scheduler that is gone."""
        self._scheduler, self._scheduler_name = UPSTREAM, ""
        self._beat_at = math.inf
        self._uploads.clear()
        self._copies.clear()
        self._files.purge(b"", ())

    # -- peers that connect --------------------------------------------------------------------

    def _serve(self, peer: bytes, message: m.Message, now: float) -> None:
        handler = self._requests.get(type(message))
        if handler is not None:
            handler(peer, message, now)
        elif peer == self._scheduler:
            self._obey(message, now)
        elif isinstance(message, m.Goodbye):
            self.peer_lost(peer)
        else:
            raise RemoteProtocolError(f"{type(message).__name__} is not for a storage")

    def _on_fetch(self, peer: bytes, message: m.Fetch, now: float) -> None:
        try:
            data = self._files.open(message.segment)
        except MissingObjectsError as error:
            self._tell(peer, m.Transferred(message.segment, str(error)))
            return
        part = data[message.offset : message.offset + min(message.nbytes, PART_BYTES_MAX)]
        self._tell(peer, m.Part(message.segment, message.offset, len(data), part))

    def _on_put(self, peer: bytes, message: m.Put, now: float) -> None:
        self._uploads.begin(peer, message.segment, now)

    def _on_hello(self, peer: bytes, message: m.Hello, now: float) -> None:
        """A scheduler comes to a storage that waits for one: it may be the next one."""
        if message.role != m.SCHEDULER:
            return
        if role_of(self._user_of(peer)) not in ("", SCHEDULER, OWNER):
            raise RemoteProtocolError("only a scheduler's key lets a scheduler in")
        if not self._waits:
            raise RemoteProtocolError("this storage has its scheduler")
        if message.protocol != m.PROTOCOL_VERSION:
            self._tell(peer, m.Refused(difference("scheduler", message, "this object storage")))
            return
        follows = bool(message.name) and message.name == self._scheduler_name
        if follows:
            # The one before is dead: it is not waited for. What it ordered is not wanted any more.
            self._copies.clear()
            if self._scheduler != peer:
                self._heard_at.pop(self._scheduler, None)
                self._outbox.pop(self._scheduler, None)
                self._gone.append(self._scheduler)
        elif self._scheduler not in (UPSTREAM, peer):
            self._tell(peer, m.Refused("it serves another scheduler"))
            return
        else:
            self._forget_all()
        self._scheduler, self._scheduler_name = peer, message.name
        self._beat_at = now + HEARTBEAT_S
        self._tell(peer, replace(self._hello, is_stored=follows))

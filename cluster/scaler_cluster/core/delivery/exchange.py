"""Frames to messages and back for all peers of a process: codec and channels together."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from scaler_cluster.core.delivery.channel import ACKNOWLEDGE_AFTER_S, PROBE_AFTER_S, Channel
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import HUB
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import HELLO_BYTES_MAX, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scaler_cluster.wire.batch import Buffer

PEERS_MAX = 100_000
"""Channels kept; a peer beyond this is refused, so garbage identities cannot fill memory."""


class Exchange:
    """The channels of a process, by peer; a process with one peer calls it ``b""``."""

    def __init__(self, incarnation: int, unread_max: float = math.inf) -> None:
        self._incarnation = incarnation
        self._unread_max = unread_max
        self.unread: dict[bytes, None] = {}
        """Peers that have not acknowledged ``unread_max`` bytes, until half of that is left."""
        self._channels: dict[bytes, Channel] = {}
        self._looks: list[tuple[float, bytes]] = []
        """A heap of when to look at which channel; only those in ``_look_at`` count."""
        self._look_at: dict[bytes, float] = {}
        self._stirred: dict[bytes, Channel] = {}
        """Channels whose deadlines may be sooner than noted. In a conversation the answer moves it
        on at once, so it is asked for only when somebody wants to know."""

    def receive(self, peer: bytes, frames: Sequence[Buffer], now: float) -> list[m.Message]:
        """Return the messages to handle, in order, each once.

        Raises RemoteProtocolError on garbage; the caller drops the peer.
        """
        channel = self._channels.get(peer)
        if channel is None and frames and len(frames[0]) > HELLO_BYTES_MAX:
            # Nothing is read of it: a header of small parts takes seconds, and 70 times its memory.
            return [m.Unknown()]
        envelope = decode(frames)
        if envelope.to and envelope.to != self._incarnation:
            # The peer speaks to who was here before.
            if peer == HUB and channel is not None and channel.answers(envelope):
                # The hub knows, or will hear, who is here now: this was under way.
                return []
            return [m.Unknown()]
        messages = envelope.messages
        if envelope.seq == 0 and messages and type(messages[0]) is m.Unknown:
            # Before the peer was ever heard, our Hello is still under way, or comes again.
            return messages[:1] if channel is not None and channel.peer_incarnation else []
        if channel is None or channel.peer_incarnation != envelope.incarnation:
            if channel is not None and channel.peer_incarnation == 0:
                channel.peer_incarnation = envelope.incarnation
            elif channel is not None and envelope.incarnation in channel.former:
                # The Hello of an earlier life, which a later one has overtaken.
                return []
            elif envelope.seq == 1 and messages and type(messages[0]) is m.Hello:
                if channel is None and len(self._channels) >= PEERS_MAX:
                    raise RemoteProtocolError("too many peers")
                self.unread.pop(peer, None)
                former = channel.all_lives() if channel is not None else ()
                channel = self._channels[peer] = Channel(self._incarnation, former)
                channel.peer_incarnation = envelope.incarnation
            else:
                return [m.Unknown()] if channel is None else []
        received = channel.receive(envelope, now)
        if self.unread and peer in self.unread and channel.kept_bytes <= self._unread_max / 2:
            del self.unread[peer]
        if self._look_at.get(peer, math.inf) > now + ACKNOWLEDGE_AFTER_S:
            self._stirred[peer] = channel
        return received

    def backlog(self, peer: bytes) -> int:
        """Return how many envelopes the peer has not acknowledged."""
        channel = self._channels.get(peer)
        return channel.unacknowledged if channel is not None else 0

    def undelivered(self, peer: bytes) -> list[m.Message]:
        """Return what was sent to the peer, and may not have arrived."""
        channel = self._channels.get(peer)
        return channel.undelivered() if channel is not None else []

    def send(self, peer: bytes, messages: Sequence[m.Message], now: float) -> list[list[Buffer]]:
        """Return the frames of each envelope that carries these messages to the peer."""
        channel = self._channels.get(peer)
        if channel is None:
            channel = self._channels[peer] = Channel(self._incarnation)
        envelopes = channel.send(messages, now)
        if channel.kept_bytes > self._unread_max:
            self.unread[peer] = None
        noted = self._look_at.get(peer, math.inf)
        if noted > now + PROBE_AFTER_S:
            self._stirred[peer] = channel
        elif noted <= channel.probe_at and not channel.lost_until:
            # What was received was acknowledged with this.
            self._stirred.pop(peer, None)
        return envelopes

    def _look_at_stirred(self) -> None:
        """Note when to look at a channel that has something to send, if that is not noted already.

        In a conversation it usually is: nothing is due much sooner than an acknowledgement. A
        deadline that has moved on is noticed when the earlier deadline has come. So the cost of
        this does not depend on the number of peers.
        """
        for peer, channel in self._stirred.items():
            when = channel.deadline
            if when < self._look_at.get(peer, math.inf):
                self._look_at[peer] = when
                heappush(self._looks, (when, peer))
        self._stirred.clear()

    def unknown(self) -> list[Buffer]:
        """Return the frames that tell a peer without a channel to start over."""
        return encode(self._incarnation, 0, 0, [m.Unknown()])

    def knows(self, peer: bytes) -> bool:
        """Return True if there is a channel to the peer."""
        return peer in self._channels

    def drop(self, peer: bytes) -> None:
        """Forget the peer and what was not delivered to it."""
        self._channels.pop(peer, None)
        self.unread.pop(peer, None)
        self._look_at.pop(peer, None)
        self._stirred.pop(peer, None)

    @property
    def deadline(self) -> float:
        """When :meth:`tick` may have something to send."""
        if self._stirred:
            self._look_at_stirred()
        return self._looks[0][0] if self._looks else math.inf

    def tick(self, now: float) -> Iterable[tuple[bytes, list[Buffer]]]:
        """Return what is due: acknowledgements and repetitions, by peer."""
        due = []
        self._look_at_stirred()
        while self._looks and self._looks[0][0] <= now:
            when, peer = heappop(self._looks)
            if self._look_at.get(peer) != when:
                continue
            del self._look_at[peer]
            channel = self._channels[peer]
            due += [(peer, frames) for frames in channel.tick(now)]
            self._stirred[peer] = channel
        return due

"""Frames to messages and back for all peers of a process: codec and channels together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.channel import Channel
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scaler_cluster.wire.batch import Buffer

PEERS_MAX = 100_000
"""Channels kept; a peer beyond this is refused, so garbage identities cannot fill memory."""


class Exchange:
    """The channels of a process, by peer; a process with one peer calls it ``b""``."""

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._channels: dict[bytes, Channel] = {}
        self._touched: dict[bytes, None] = {}

    def receive(self, peer: bytes, frames: Sequence[Buffer], now: float) -> list[m.Message]:
        """Return the messages to handle, in order, each once.

        Raises RemoteProtocolError on garbage; the caller drops the peer.
        """
        envelope = decode(frames)
        channel = self._channels.get(peer)
        messages = envelope.messages
        if channel is None or channel.peer_incarnation != envelope.incarnation:
            if channel is not None and channel.peer_incarnation == 0:
                channel.peer_incarnation = envelope.incarnation
            elif envelope.seq == 1 and messages and type(messages[0]) is m.Hello:
                if channel is None and len(self._channels) >= PEERS_MAX:
                    raise RemoteProtocolError("too many peers")
                channel = self._channels[peer] = Channel(self._incarnation)
                channel.peer_incarnation = envelope.incarnation
            elif messages and type(messages[0]) is m.Unknown:
                return messages[:1]
            else:
                return [m.Unknown()] if channel is None else []
        self._touched[peer] = None
        return channel.receive(envelope, now)

    def send(self, peer: bytes, messages: Sequence[m.Message], now: float) -> list[Buffer]:
        """Return the frames that carry these messages to the peer."""
        channel = self._channels.get(peer)
        if channel is None:
            channel = self._channels[peer] = Channel(self._incarnation)
        self._touched[peer] = None
        return channel.send(messages, now)

    def unknown(self) -> list[Buffer]:
        """Return the frames that tell a peer without a channel to start over."""
        return encode(self._incarnation, 0, 0, [m.Unknown()])

    def knows(self, peer: bytes) -> bool:
        """Return True if there is a channel to the peer."""
        return peer in self._channels

    def drop(self, peer: bytes) -> None:
        """Forget the peer and what was not delivered to it."""
        self._channels.pop(peer, None)
        self._touched.pop(peer, None)

    @property
    def deadline(self) -> float:
        """When :meth:`tick` has something to send."""
        channels = self._channels
        return min((channels[peer].deadline for peer in self._touched), default=math.inf)

    def tick(self, now: float) -> Iterable[tuple[bytes, list[Buffer]]]:
        """Return what is due: acknowledgements and repetitions, by peer."""
        due = []
        for peer in list(self._touched):
            channel = self._channels[peer]
            frames = channel.tick(now)
            if frames is not None:
                due.append((peer, frames))
            elif channel.deadline == math.inf:
                del self._touched[peer]
        return due

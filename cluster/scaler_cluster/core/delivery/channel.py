"""Exactly-once, in-order delivery between two peers, over a link that may lose or repeat.

ZeroMQ keeps order within one connection, but a reconnection may lose what was under way. So each
envelope has a number, each direction acknowledges, and what is not acknowledged is sent again.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire.codec import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.wire import messages as m
    from scaler_cluster.wire.batch import Buffer
    from scaler_cluster.wire.codec import Envelope

RESEND_AFTER_S = 1.0
"""Far above any turn of a healthy peer: below it, a busy peer would be sent things twice."""
RESEND_AFTER_MAX_S = 30.0
"""A peer whose interpreter is held by a long C call answers only after it: do not flood it."""
ACKNOWLEDGE_AFTER_S = 0.1
"""A peer that has nothing to send acknowledges after this: well before a resend."""
ACKNOWLEDGE_EVERY = 64
"""A peer acknowledges at once when the sender keeps this many envelopes."""
RESEND_BURST = ACKNOWLEDGE_EVERY
"""Envelopes repeated at once to a peer that answers again: a full burst is acknowledged at once."""
EARLY_MAX = 1024
"""Envelopes kept that overtook a lost one: only the lost envelope is then needed again."""


class Channel:
    """One side of a conversation with one peer."""

    __slots__ = (
        "_acknowledge_at",
        "_early",
        "_expected",
        "_incarnation",
        "_next",
        "_owed",
        "_recovering",
        "_resend_after",
        "_resend_at",
        "_unacked",
        "peer_incarnation",
    )

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self.peer_incarnation = 0
        self._next = 1
        self._expected = 1
        self._owed = 0
        self._unacked: deque[tuple[int, list[Buffer]]] = deque()
        self._early: dict[int, list[m.Message]] = {}
        self._recovering = False
        self._resend_at = math.inf
        self._resend_after = RESEND_AFTER_S
        self._acknowledge_at = math.inf

    def send(self, messages: Sequence[m.Message], now: float) -> list[Buffer]:
        """Return the frames that carry these messages; they are kept until acknowledged."""
        seq = self._next
        ack = self._expected - 1
        frames = encode(self._incarnation, seq, ack, messages, self.peer_incarnation)
        self._next = seq + 1
        if not self._unacked:
            self._resend_at = now + self._resend_after
        self._unacked.append((seq, frames))
        self._owed = 0
        self._acknowledge_at = math.inf
        return frames

    def receive(self, envelope: Envelope, now: float) -> list[m.Message]:
        """Return the envelope's messages, and those that waited for it, if it is the next one.

        Raises RemoteProtocolError if it acknowledges what was never sent.
        """
        if envelope.ack >= self._next:
            raise RemoteProtocolError(f"acknowledges {envelope.ack}, sent {self._next - 1}")
        unacked = self._unacked
        if unacked and unacked[0][0] <= envelope.ack:
            while unacked and unacked[0][0] <= envelope.ack:
                unacked.popleft()
            # The envelopes that are left were sent after the one that got through. If that was a
            # resend, they are likely lost as well, and are repeated without another wait.
            recovering = self._recovering = self._resend_after > RESEND_AFTER_S and bool(unacked)
            self._resend_after = RESEND_AFTER_S
            self._resend_at = (now if recovering else now + RESEND_AFTER_S) if unacked else math.inf
        elif self._resend_after > RESEND_AFTER_S:
            # The peer speaks, so it can hear: the long pauses were for a peer that could not. Else
            # it would be given up after a cut of seconds, for what waits behind a lost envelope.
            self._resend_at += RESEND_AFTER_S - self._resend_after
            self._resend_after = RESEND_AFTER_S
        if envelope.seq == 0:
            return []
        if not self._owed:
            self._acknowledge_at = now + ACKNOWLEDGE_AFTER_S
        self._owed += 1
        expected = self._expected
        if envelope.seq != expected:
            # The peer repeats what has arrived, or something was lost: tell it what has arrived.
            self._acknowledge_at = now
            if expected < envelope.seq <= expected + EARLY_MAX:
                self._early[envelope.seq] = envelope.messages
            return []
        self._expected = expected + 1
        if self._early:
            return self._with_early(envelope.messages, now)
        return envelope.messages

    def _with_early(self, messages: list[m.Message], now: float) -> list[m.Message]:
        """A gap is filled: add what had come early."""
        early = self._early
        while (waited := early.pop(self._expected, None)) is not None:
            messages += waited
            self._expected += 1
        self._acknowledge_at = now
        return messages

    @property
    def unacknowledged(self) -> int:
        """Number of envelopes that are kept."""
        return len(self._unacked)

    @property
    def deadline(self) -> float:
        """When :meth:`tick` has something to send."""
        if self._owed >= ACKNOWLEDGE_EVERY:
            return -math.inf
        return min(self._resend_at, self._acknowledge_at)

    def tick(self, now: float) -> list[list[Buffer]]:
        """Return the frames of each envelope that is due: a repetition, or an acknowledgement.

        The oldest unacknowledged one is repeated alone, until the peer answers.
        """
        due = []
        if now >= self._resend_at and self._unacked:
            self._resend_after = min(2 * self._resend_after, RESEND_AFTER_MAX_S)
            self._resend_at = now + self._resend_after
            count = RESEND_BURST if self._recovering else 1
            due = [frames for _, frames in islice(self._unacked, count)]
            self._recovering = False
        if now >= self._acknowledge_at or self._owed >= ACKNOWLEDGE_EVERY:
            self._owed = 0
            self._acknowledge_at = math.inf
            ack = self._expected - 1
            due.append(encode(self._incarnation, 0, ack, (), self.peer_incarnation))
        return due

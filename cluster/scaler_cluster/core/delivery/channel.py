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
from scaler_cluster.wire.codec import HELLO_BYTES_MAX, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
EARLY_BYTES_MAX = 16 << 20
"""Bytes of such envelopes that are kept for a peer; what comes beyond that is sent again anyway."""
SPLIT_BYTES = 1 << 20
"""Messages whose header is longer than this go in several envelopes: the receiver takes a header
in at once, and has a limit for it that many messages of one turn could exceed."""


class Channel:
    """One side of a conversation with one peer."""

    __slots__ = (
        "_acknowledge_at",
        "_early",
        "_early_bytes",
        "_expected",
        "_incarnation",
        "_next",
        "_owed",
        "_recovering",
        "_resend_after",
        "_resend_at",
        "_unacked",
        "_waiting",
        "peer_incarnation",
    )

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self.peer_incarnation = 0
        self._next = 1
        self._expected = 1
        self._owed = 0
        self._unacked: deque[tuple[int, list[Buffer]]] = deque()
        self._early: dict[int, Envelope] = {}
        self._early_bytes = 0
        self._waiting: deque[list[Buffer]] = deque()
        """Envelopes that :meth:`tick` is to return, in this order, as they go after others."""
        self._recovering = False
        self._resend_at = math.inf
        self._resend_after = RESEND_AFTER_S
        self._acknowledge_at = math.inf

    def send(self, messages: Sequence[m.Message], now: float) -> list[Buffer]:
        """Return the frames that carry these messages; they are kept until acknowledged.

        Messages with a long header go in several envelopes: :meth:`tick`, which is then due at
        once, returns the others.
        """
        seq = self._next
        ack = self._expected - 1
        frames = encode(self._incarnation, seq, ack, messages, self.peer_incarnation)
        if len(frames[0]) > HELLO_BYTES_MAX and self._is_too_long(frames, messages):
            self._waiting.extend(self._envelopes(messages, now))
            return self._waiting.popleft()
        self._keep(frames, now)
        if self._waiting:
            self._waiting.append(frames)
            return self._waiting.popleft()
        return frames

    def _keep(self, frames: list[Buffer], now: float) -> None:
        """Number an envelope, and keep it until it is acknowledged."""
        if not self._unacked:
            self._resend_at = now + self._resend_after
        self._unacked.append((self._next, frames))
        self._next += 1
        self._owed = 0
        self._acknowledge_at = math.inf

    def _is_too_long(self, frames: list[Buffer], messages: Sequence[m.Message]) -> bool:
        """Return True for messages to be split. The first of all is a Hello, which goes alone."""
        return len(messages) > 1 and (len(frames[0]) > SPLIT_BYTES or self._next == 1)

    def _envelopes(self, messages: Sequence[m.Message], now: float) -> Iterator[list[Buffer]]:
        """Yield the frames of as many envelopes as these messages need."""
        ack = self._expected - 1
        frames = encode(self._incarnation, self._next, ack, messages, self.peer_incarnation)
        if self._is_too_long(frames, messages):
            middle = len(messages) // 2 if self._next > 1 else 1
            yield from self._envelopes(messages[:middle], now)
            yield from self._envelopes(messages[middle:], now)
        else:
            self._keep(frames, now)
            yield frames

    @property
    def has_waiting(self) -> bool:
        """Return True if :meth:`tick` is to be called at once."""
        return bool(self._waiting)

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
            if expected < envelope.seq <= expected + EARLY_MAX and envelope.seq not in self._early:
                self._keep_early(envelope)
            return []
        self._expected = expected + 1
        if self._early:
            return self._with_early(envelope.messages, now)
        return envelope.messages

    def _keep_early(self, envelope: Envelope) -> None:
        if self._early_bytes + envelope.nbytes <= EARLY_BYTES_MAX:
            self._early_bytes += envelope.nbytes
            self._early[envelope.seq] = envelope

    def _with_early(self, messages: list[m.Message], now: float) -> list[m.Message]:
        """A gap is filled: add what had come early."""
        early = self._early
        while (waited := early.pop(self._expected, None)) is not None:
            messages += waited.messages
            self._early_bytes -= waited.nbytes
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
        if self._owed >= ACKNOWLEDGE_EVERY or self._waiting:
            return -math.inf
        return min(self._resend_at, self._acknowledge_at)

    def tick(self, now: float) -> list[list[Buffer]]:
        """Return the frames of each envelope that is due: one after others, or again, or an answer.

        The oldest unacknowledged one is repeated alone, until the peer answers.
        """
        due = list(self._waiting)
        self._waiting.clear()
        if now >= self._resend_at and self._unacked:
            self._resend_after = min(2 * self._resend_after, RESEND_AFTER_MAX_S)
            self._resend_at = now + self._resend_after
            count = RESEND_BURST if self._recovering else 1
            due += [frames for _, frames in islice(self._unacked, count)]
            self._recovering = False
        if now >= self._acknowledge_at or self._owed >= ACKNOWLEDGE_EVERY:
            self._owed = 0
            self._acknowledge_at = math.inf
            ack = self._expected - 1
            due.append(encode(self._incarnation, 0, ack, (), self.peer_incarnation))
        return due

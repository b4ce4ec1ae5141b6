"""Exactly-once, in-order delivery between two peers, over a link that may lose or repeat.

ZeroMQ keeps order within one connection, but a reconnection may lose what was under way. So each
envelope has a number, and each direction acknowledges. What is not acknowledged may still be under
way, on a slow link for minutes, and is not sent again before it is known to be lost: when something
that was sent after it has arrived. If nothing was sent after it, a *probe* is, an empty envelope.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import HELLO_BYTES_MAX, decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.wire.batch import Buffer
    from scaler_cluster.wire.codec import Envelope

PROBE_AFTER_S = 1.0
"""Far above any turn of a healthy peer: below it, a busy peer would be asked in vain."""
PROBE_AFTER_MAX_S = 30.0
"""A peer whose interpreter is held by a long C call answers only after it: do not flood it."""
ACKNOWLEDGE_AFTER_S = 0.1
"""A peer that has nothing to send acknowledges after this: well before a resend."""
ACKNOWLEDGE_EVERY = 64
"""A peer acknowledges at once when the sender keeps this many envelopes."""
ENVELOPE_BYTES = 256 * 1024
"""Messages that are larger together share no envelope: at 256 kbit/s the peer hears each of them
after eight seconds, and knows that its sender lives."""
LIVES_MAX = 8
"""Earlier incarnations of a peer that are remembered: a link does not delay more of them."""
EARLY_MAX = 1024
"""Envelopes kept that overtook a lost one: only the lost envelope is then needed again."""
EARLY_BYTES_MAX = 16 << 20
"""Bytes of such envelopes that are kept for a peer; what comes beyond that is sent again anyway."""


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
        "_probe_after",
        "_probed",
        "_repeated_until",
        "_seen",
        "_unacked",
        "former",
        "kept_bytes",
        "lost_until",
        "peer_incarnation",
        "probe_at",
    )

    def __init__(self, incarnation: int, former: tuple[int, ...] = ()) -> None:
        self._incarnation = incarnation
        self.peer_incarnation = 0
        self.former = former
        """Earlier incarnations of the peer, of which something may be under way."""
        self._next = 1
        self._expected = 1
        self._owed = 0
        self._unacked: deque[tuple[int, list[Buffer], int]] = deque()
        """Number, frames and bytes of each envelope that is kept."""
        self._early: dict[int, Envelope] = {}
        self._early_bytes = 0
        self.kept_bytes = 0
        """Bytes of the envelopes that are kept."""
        self._seen = 0
        """The last envelope that has arrived, in order or not."""
        self.lost_until = 0
        """Unacknowledged envelopes before this one are to be repeated."""
        self._repeated_until = 0
        """Envelopes from this one on were sent after the last repetition."""
        self.probe_at = math.inf
        """When to ask whether anything was lost."""
        self._probe_after = PROBE_AFTER_S
        self._probed = 0
        """The last envelope that was a probe."""
        self._acknowledge_at = math.inf

    def send(self, messages: Sequence[m.Message], now: float) -> list[list[Buffer]]:
        """Return the frames of each envelope that carries these messages.

        They are kept until acknowledged.
        """
        seq = self._next
        ack = self._expected - 1
        frames = encode(self._incarnation, seq, ack, messages, self.peer_incarnation)
        nbytes = len(frames[0])
        if len(frames) > 1 or nbytes > HELLO_BYTES_MAX:
            nbytes = sum(map(len, frames))
            has_more = len(messages) > 1
            if has_more and seq == 1 and len(frames[0]) > HELLO_BYTES_MAX:
                # The Hello goes alone: nobody takes in much of a stranger.
                return self.send(messages[:1], now) + self.send(messages[1:], now)
            if has_more and nbytes > ENVELOPE_BYTES:
                return self._send_parts(messages, -(-nbytes // ENVELOPE_BYTES), now)
        self._next = seq + 1
        if not self._unacked:
            self.probe_at = now + self._probe_after
        self._unacked.append((seq, frames, nbytes))
        self.kept_bytes += nbytes
        self._owed = 0
        self._acknowledge_at = math.inf
        return [frames]

    def _send_parts(
        self, messages: Sequence[m.Message], parts: int, now: float
    ) -> list[list[Buffer]]:
        """Return the frames of so many envelopes, or of one for each message if these are fewer."""
        count = -(-len(messages) // parts)
        starts = range(0, len(messages), count)
        return [one for at in starts for one in self.send(messages[at : at + count], now)]

    def receive(self, envelope: Envelope, now: float) -> list[m.Message]:
        """Return the envelope's messages, and those that waited for it, if it is the next one.

        Raises RemoteProtocolError if it acknowledges what was never sent.
        """
        if envelope.ack >= self._next:
            raise RemoteProtocolError(f"acknowledges {envelope.ack}, sent {self._next - 1}")
        unacked = self._unacked
        if unacked and unacked[0][0] <= envelope.ack:
            while unacked and unacked[0][0] <= envelope.ack:
                self.kept_bytes -= unacked.popleft()[2]
            # The peer answers again: if it missed anything, a probe brings that out.
            is_back = self._probe_after > PROBE_AFTER_S
            self._probe_after = PROBE_AFTER_S
            self.probe_at = (now if is_back else now + PROBE_AFTER_S) if unacked else math.inf
        elif self._probe_after > PROBE_AFTER_S:
            # The peer speaks, so it can hear: the long pauses were for a peer that could not. Else
            # it would be given up after a cut of seconds, for what waits behind a lost envelope.
            self.probe_at += PROBE_AFTER_S - self._probe_after
            self._probe_after = PROBE_AFTER_S
        if envelope.seq == 0:
            if envelope.messages:
                self._learn_of_gap(envelope.messages[0])
            return []
        if not self._owed:
            self._acknowledge_at = now + ACKNOWLEDGE_AFTER_S
        self._owed += 1
        expected = self._expected
        if envelope.seq != expected:
            # The peer repeats what has arrived, or something was lost: tell it what has arrived.
            self._acknowledge_at = now
            self._seen = max(envelope.seq, expected)
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

    def _learn_of_gap(self, gap: m.Message) -> None:
        """The peer misses envelopes, though it has got one that was sent after them."""
        # What was repeated after that one may be under way.
        if isinstance(gap, m.Gap) and self._repeated_until <= gap.seen < self._next:
            self.lost_until = min(gap.start, gap.seen)

    def undelivered(self) -> list[m.Message]:
        """Return what was sent and is not acknowledged, in order."""
        return [one for _, frames, _ in self._unacked for one in decode(frames).messages]

    def answers(self, envelope: Envelope) -> bool:
        """Return True unless another incarnation of the peer than that heard here sent this."""
        return self.peer_incarnation in (0, envelope.incarnation)

    def all_lives(self) -> tuple[int, ...]:
        """Return the peer's incarnations up to this one, the last few of them."""
        return (*self.former, self.peer_incarnation)[-LIVES_MAX:]

    @property
    def unacknowledged(self) -> int:
        """Number of envelopes that are kept."""
        return len(self._unacked)

    @property
    def deadline(self) -> float:
        """When :meth:`tick` has something to send."""
        if self._owed >= ACKNOWLEDGE_EVERY or self.lost_until:
            return -math.inf
        return min(self.probe_at, self._acknowledge_at)

    def tick(self, now: float) -> list[list[Buffer]]:
        """Return the frames of each envelope that is due.

        These are envelopes that were lost, a probe, and an acknowledgement.
        """
        due = []
        if self.lost_until:
            due = self._repeat(now)
        elif now >= self.probe_at and self._unacked:
            self._probe_after = min(2 * self._probe_after, PROBE_AFTER_MAX_S)
            self.probe_at = now + self._probe_after
            due = [self._probe()]
        if now >= self._acknowledge_at or self._owed >= ACKNOWLEDGE_EVERY:
            self._owed = 0
            self._acknowledge_at = math.inf
            # What has arrived after it need not have been kept.
            start = min(self._early, default=self._seen)
            gap = [m.Gap(start, self._seen)] if self._seen > self._expected else ()
            ack = self._expected - 1
            due.append(encode(self._incarnation, 0, ack, gap, self.peer_incarnation))
        return due

    def _repeat(self, now: float) -> list[list[Buffer]]:
        """Return the envelopes that are known to be lost."""
        lost = []
        for seq, frames, _ in self._unacked:
            if seq >= self.lost_until:
                break
            lost.append(frames)
        self.lost_until = 0
        if lost:
            self._repeated_until = self._next
            self.probe_at = now + self._probe_after
        return lost

    def _probe(self) -> list[Buffer]:
        """Return what brings out whether anything was lost.

        Only a peer that knows us can tell: what opens the channel is repeated as it is.
        """
        first, opening, _ = self._unacked[0]
        if first == 1 and not self.peer_incarnation:
            return opening
        last, probe, _ = self._unacked[-1]
        if last < self._repeated_until or last != self._probed:
            self._probed = last = self._next
            probe = encode(self._incarnation, last, self._expected - 1, (), self.peer_incarnation)
            self._next = last + 1
            self._unacked.append((last, probe, len(probe[0])))
            self.kept_bytes += len(probe[0])
        return probe

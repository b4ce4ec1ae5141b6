"""One conversation over a link that loses, repeats and reorders."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler_cluster.core.delivery.channel import (
    ACKNOWLEDGE_AFTER_S,
    ACKNOWLEDGE_EVERY,
    EARLY_BYTES_MAX,
    EARLY_MAX,
    ENVELOPE_BYTES,
    PROBE_AFTER_MAX_S,
    PROBE_AFTER_S,
    Channel,
)
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import HELLO_BYTES_MAX, decode, encode


def numbers(messages):
    """Return the numbers of messages that were sent by number."""
    return [int(message.reason) for message in messages]


class Pair:
    """Two channels, and the clock between them."""

    def __init__(self):
        self.ours, self.theirs = Channel(1), Channel(2)
        self.ours.peer_incarnation, self.theirs.peer_incarnation = 2, 1
        self.now = 100.0
        self.sent = 0

    def send(self, count=1):
        """Let ours send numbered messages; return their frames."""
        frames = []
        for _ in range(count):
            frames += self.ours.send([m.Goodbye(str(self.sent))], self.now)
            self.sent += 1
        return frames

    def deliver(self, frames):
        """Let theirs receive; return the numbers of the messages."""
        return numbers(self.theirs.receive(decode(frames), self.now))

    def answer(self, frames):
        """Let ours receive what theirs sent."""
        return self.ours.receive(decode(frames), self.now)

    def acknowledge(self):
        """Let theirs say what is due, and ours hear it."""
        self.now += ACKNOWLEDGE_AFTER_S
        for frames in self.theirs.tick(self.now):
            self.answer(frames)


@pytest.fixture
def pair():
    return Pair()


def seq_of(frames):
    return decode(frames).seq


def test_envelopes_arrive_in_order(pair):
    """What is sent arrives once, in order."""
    assert [pair.deliver(frames) for frames in pair.send(3)] == [[0], [1], [2]]


def test_a_repeated_envelope_is_ignored(pair):
    """What arrives a second time is not delivered again."""
    (frames,) = pair.send()
    pair.deliver(frames)

    assert pair.deliver(frames) == []


def test_what_overtook_a_lost_one_waits_for_it(pair):
    """Messages behind a gap are delivered with the envelope that fills it, in order."""
    lost, second, third = pair.send(3)

    assert pair.deliver(third) == []
    assert pair.deliver(second) == []
    assert pair.deliver(lost) == [0, 1, 2]


def test_what_overtakes_is_bounded(pair):
    """Envelopes too far ahead of the gap are dropped: they come again."""
    frames = pair.send(EARLY_MAX + 2)
    for one in frames[1:]:
        pair.deliver(one)

    assert len(pair.theirs._early) == EARLY_MAX


def test_a_gap_is_reported_at_once(pair):
    """A side that misses an envelope says so without waiting."""
    _, second = pair.send(2)
    pair.deliver(second)

    assert pair.theirs.deadline <= pair.now


def test_an_answer_acknowledges(pair):
    """What the other side sends acknowledges what it has: no acknowledgement of its own is due."""
    pair.deliver(*pair.send())
    pair.answer(*pair.theirs.send([m.Heartbeat()], pair.now))

    assert pair.theirs.deadline == pair.now + PROBE_AFTER_S
    assert pair.ours.deadline == pair.now + ACKNOWLEDGE_AFTER_S


def test_a_silent_side_acknowledges_after_a_moment(pair):
    """A side with nothing to say acknowledges in an empty envelope after ACKNOWLEDGE_AFTER_S."""
    pair.deliver(*pair.send())

    assert pair.theirs.deadline == pair.now + ACKNOWLEDGE_AFTER_S
    pair.now = pair.theirs.deadline
    (frames,) = pair.theirs.tick(pair.now)
    envelope = decode(frames)
    assert (envelope.seq, envelope.ack, envelope.messages) == (0, 1, [])
    assert pair.theirs.deadline == math.inf


def test_many_envelopes_are_acknowledged_at_once(pair):
    """After ACKNOWLEDGE_EVERY envelopes the acknowledgement does not wait."""
    for frames in pair.send(ACKNOWLEDGE_EVERY):
        pair.deliver(frames)

    assert pair.theirs.deadline <= pair.now


def test_an_acknowledgement_is_not_acknowledged(pair):
    """Two silent sides stay silent."""
    pair.deliver(*pair.send())
    pair.acknowledge()

    assert (pair.ours.deadline, pair.theirs.deadline) == (math.inf, math.inf)


def messages_of(envelopes):
    """Return the numbers of the messages in envelopes; a probe has none."""
    return [numbers(decode(frames).messages) for frames in envelopes]


def test_what_opens_a_channel_is_repeated(pair):
    """As long as the peer has not been heard, the first envelope is repeated, as it was."""
    pair.ours.peer_incarnation = 0
    frames = pair.send(2)

    assert pair.ours.deadline == pair.now + PROBE_AFTER_S
    assert pair.ours.tick(pair.now + PROBE_AFTER_S) == frames[:1]


def test_what_is_under_way_is_not_repeated(pair):
    """A link that takes a minute for an envelope carries it once, and some small probes."""
    (frames,) = pair.send()
    probes = []
    while pair.now < 160.0:
        pair.now = pair.ours.deadline
        probes += pair.ours.tick(pair.now)
    assert messages_of(probes) == [[]] * 6
    assert len({seq_of(probe) for probe in probes}) == 1
    assert max(len(probe[0]) for probe in probes) < 20

    assert pair.deliver(frames) == [0]
    assert [pair.deliver(probe) for probe in probes] == [[]] * 6
    pair.acknowledge()
    assert (pair.ours.deadline, pair.ours.unacknowledged) == (math.inf, 0)


def probe(pair):
    """Let time pass until ours sends a probe, which arrives; let theirs tell what it misses."""
    pair.now = pair.ours.deadline
    (frames,) = pair.ours.tick(pair.now)
    pair.deliver(frames)
    pair.acknowledge()


def test_what_was_lost_is_repeated(pair):
    """Exactly the envelopes that a later one overtook are repeated, all at once."""
    pair.deliver(*pair.send())
    lost = pair.send(100)
    late = pair.send(2)
    for frames in late:
        pair.deliver(frames)
    pair.acknowledge()

    assert pair.ours.deadline <= pair.now
    again = pair.ours.tick(pair.now)
    assert again == lost
    assert [one for frames in again for one in pair.deliver(frames)] == list(range(1, 103))


def test_what_was_lost_last_is_found_by_a_probe(pair):
    """If nothing follows what was lost, a probe brings it out."""
    lost = pair.send(3)
    probe(pair)

    assert pair.ours.tick(pair.now) == lost


def test_what_was_lost_again_is_repeated_again(pair):
    """What was repeated is under way: it is lost only if what was sent after it has arrived."""
    lost = pair.send(2)
    probe(pair)
    assert pair.ours.tick(pair.now) == lost
    # An old probe arrives again: it was sent before.
    pair.theirs._acknowledge_at = pair.now
    pair.acknowledge()
    assert pair.ours.tick(pair.now) == []

    probe(pair)
    assert pair.ours.tick(pair.now) == lost


def test_probes_back_off(pair):
    """Each probe doubles the wait, up to PROBE_AFTER_MAX_S."""
    pair.send()
    waits = []
    for _ in range(8):
        waits.append(pair.ours.deadline - pair.now)
        pair.now = pair.ours.deadline
        assert len(pair.ours.tick(pair.now)) == 1

    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, *[PROBE_AFTER_MAX_S] * 3]


def test_an_answer_resets_the_back_off(pair):
    """Once the peer acknowledges, the next wait is PROBE_AFTER_S again."""
    (frames,) = pair.send()
    probes = []
    for _ in range(4):
        pair.now = pair.ours.deadline
        probes += pair.ours.tick(pair.now)
    pair.deliver(frames)
    for one in probes:
        pair.deliver(one)
    pair.acknowledge()
    pair.send()

    assert pair.ours.deadline == pair.now + PROBE_AFTER_S


def test_recovery_outruns_new_traffic(pair):
    """A thousand envelopes lost at once are made up for, though a hundred more come each turn."""
    pair.send(1000)
    received = []
    pair.now = pair.ours.deadline
    for _ in range(60):
        for frames in [*pair.ours.tick(pair.now), *(pair.send(100) if pair.sent < 3000 else [])]:
            received += pair.deliver(frames)
        pair.acknowledge()

    assert received == list(range(3000))
    assert not pair.ours._unacked


def test_large_messages_share_no_envelope(pair):
    """Messages that are large together go in several envelopes, in order; a large one alone."""
    count, large = 10, "x" * (ENVELOPE_BYTES // 4 - 1000)
    messages = [m.Goodbye(f"{number}{large}") for number in range(count)]
    envelopes = pair.ours.send([*messages, m.Goodbye(large * 8)], pair.now)

    sizes = [sum(map(len, frames)) for frames in envelopes]
    assert sum(size > ENVELOPE_BYTES for size in sizes) == 1
    assert len(envelopes) <= count
    received = [one for frames in envelopes for one in pair.theirs.receive(decode(frames), 0.0)]
    assert received == [*messages, m.Goodbye(large * 8)]


@pytest.mark.parametrize("gap", [m.Gap(0, 0), m.Gap(9, 9), m.Gap(2, 1), m.Heartbeat()])
def test_a_gap_that_is_none_means_nothing(pair, gap):
    """What a peer cannot miss is not repeated."""
    pair.deliver(*pair.send())
    pair.ours.receive(decode(encode(2, 0, 1, [gap], 1)), pair.now)

    assert pair.ours.tick(pair.now) == []


def test_acknowledging_what_was_never_sent_is_refused(pair):
    """A peer that acknowledges the future is wrong, and RemoteProtocolError says so."""
    pair.deliver(*pair.send())
    pair.ours = Channel(1)
    for frames in pair.theirs.tick(pair.now + ACKNOWLEDGE_AFTER_S):
        with pytest.raises(RemoteProtocolError, match="acknowledges 1, sent 0"):
            pair.answer(frames)


@settings(max_examples=100)
@given(st.lists(st.sampled_from("0lrs"), max_size=80), st.integers(1, 5))
def test_everything_arrives_once_in_order_over_any_link(faults, pace):
    """Each side gets all that the other sent, in order, over a link that loses and reorders."""
    sides = Channel(1), Channel(2)
    air: list[list] = [[], []]
    sent = [0, 0]
    received: list[list[int]] = [[], []]
    step = 0
    while step < 20_000 and (any(air) or min(map(len, received)) < 20):
        step += 1
        now = step * 0.05
        for here, there in ((0, 1), (1, 0)):
            if sent[here] < 20 and (step + here) % pace == 0:
                air[there] += sides[here].send([m.Goodbye(str(sent[here]))], now)
                sent[here] += 1
            if sides[here].deadline <= now:
                air[there] += sides[here].tick(now)
            if not air[here]:
                continue
            fault = faults.pop() if faults else "0"
            if fault == "s":
                air[here].reverse()
            frames = air[here].pop(0)
            if fault == "r":
                air[here].append(frames)
            if fault != "l":
                received[here] += numbers(sides[here].receive(decode(frames), now))

    assert received == [list(range(20)), list(range(20))]


def test_a_peer_that_speaks_is_not_kept_waiting(pair):
    """After a cut of seconds the first sign of the peer brings what it missed, not the back-off."""
    (lost,) = pair.send()
    for _ in range(4):
        pair.now = pair.ours.deadline
        pair.ours.tick(pair.now)
    pair.now += PROBE_AFTER_S + 0.5
    assert pair.ours.deadline > pair.now + 10
    pair.answer(*pair.theirs.send([m.Heartbeat()], pair.now))

    assert pair.ours.deadline <= pair.now
    probe(pair)
    assert pair.ours.tick(pair.now) == [lost]
    pair.answer(*pair.theirs.send([m.Heartbeat()], pair.now))
    assert pair.ours.deadline >= pair.now + ACKNOWLEDGE_AFTER_S
    assert all(seq_of(frames) == 0 for frames in pair.ours.tick(pair.now + 0.9))


def header_bytes(frames):
    """Return the length of the part of an envelope that is unpacked at once."""
    return len(frames[0])


def test_many_messages_of_one_turn_go_in_several_envelopes():
    """What would be a long header goes in short ones, in order, without waiting for an answer."""
    pair = Pair()
    pair.deliver(*pair.send())
    text = "x" * 50_000
    many = [m.Goodbye(f"{number} {text}") for number in range(100)]
    sent = pair.ours.send(many, pair.now) + pair.ours.send([m.Goodbye("100")], pair.now)

    assert max(map(header_bytes, sent)) <= ENVELOPE_BYTES
    received = [pair.theirs.receive(decode(frames), pair.now) for frames in sent]
    goodbyes = [one for messages in received for one in messages if isinstance(one, m.Goodbye)]
    reasons = [one.reason.split()[0] for one in goodbyes]
    assert reasons == [str(number) for number in range(101)]


def test_a_hello_goes_alone_if_much_is_to_follow():
    """The first envelope has a short header, however much else is to be said in that turn."""
    pair = Pair()
    rest = m.Goodbye("x" * (2 * HELLO_BYTES_MAX))
    sent = pair.ours.send([m.Goodbye("hello"), rest], pair.now)
    assert [len(decode(frames).messages) for frames in sent] == [1, 1]
    assert header_bytes(sent[0]) < HELLO_BYTES_MAX


def test_what_overtook_a_lost_envelope_is_kept_up_to_a_number_of_bytes():
    """Envelopes that came early take a bounded memory; all arrive, as the others come again."""
    pair = Pair()
    big = m.Function(b"f" * 16, bytes(EARLY_BYTES_MAX // 4))
    sent = [pair.ours.send([big if n else m.Goodbye("0")], pair.now)[0] for n in range(10)]
    for frames in sent[1:]:
        assert pair.theirs.receive(decode(frames), pair.now) == []
    kept = pair.theirs.receive(decode(sent[0]), pair.now)
    assert len(kept) == 1 + 3
    # What was not kept comes once more, in order.
    for frames in sent[4:]:
        kept += pair.theirs.receive(decode(frames), pair.now)
    assert len(kept) == 10


def test_room_for_early_envelopes_is_free_again():
    """What has been handled takes no room from what comes early later."""
    pair = Pair()
    big = m.Function(b"f" * 16, bytes(EARLY_BYTES_MAX // 2))
    for _ in range(5):
        late, early = (pair.ours.send([big], pair.now)[0] for _ in range(2))
        assert pair.theirs.receive(decode(early), pair.now) == []
        assert len(pair.theirs.receive(decode(late), pair.now)) == 2


def test_more_may_be_lost_than_is_kept_of_what_comes_early():
    """A probe so far ahead that it is not kept brings out all the same that much was lost."""
    pair = Pair()
    pair.deliver(*pair.send())
    sent = [pair.ours.send([m.Heartbeat()], pair.now)[0] for _ in range(EARLY_MAX + 2)]
    pair.now = pair.ours.deadline
    (asks,) = pair.ours.tick(pair.now)
    assert pair.theirs.receive(decode(asks), pair.now) == []
    (gap,) = pair.theirs.tick(pair.now)
    pair.ours.receive(decode(gap), pair.now)

    again = pair.ours.tick(pair.now)
    assert again[: len(sent)] == sent
    assert sum(len(pair.theirs.receive(decode(one), pair.now)) for one in again) == len(sent)

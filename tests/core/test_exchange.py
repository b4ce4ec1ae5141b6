"""All channels of a process: who is known, who starts over, who is told so."""

from __future__ import annotations

import math

import pytest

from scaler_cluster.core.delivery import exchange as module
from scaler_cluster.core.delivery.channel import ACKNOWLEDGE_AFTER_S, PROBE_AFTER_S
from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import hello
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import HELLO_BYTES_MAX, encode

HUB, SPOKE = b"", b"C1"
HELLO = hello(m.CLIENT)


def only(envelopes):
    """Return the frames of the only envelope."""
    (frames,) = envelopes
    return frames


@pytest.fixture
def hub():
    """The exchange of a scheduler."""
    return Exchange(10)


@pytest.fixture
def spoke():
    """The exchange of a peer."""
    return Exchange(20)


def greet(hub, spoke, now=0.0):
    """Let the spoke say Hello and the hub welcome it."""
    received = hub.receive(SPOKE, only(spoke.send(HUB, [HELLO], now)), now)
    answer = only(hub.send(SPOKE, [m.Welcome(1, 1)], now))
    assert spoke.receive(HUB, answer, now) == [m.Welcome(1, 1)]
    return received


def test_a_hello_opens_a_channel(hub, spoke):
    """The first envelope of a peer is taken in if it begins with Hello."""
    assert greet(hub, spoke) == [HELLO]
    assert hub.knows(SPOKE)


def test_who_does_not_say_hello_is_unknown(hub, spoke):
    """A peer without a channel gets Unknown for anything but Hello, and opens no channel."""
    only(spoke.send(HUB, [HELLO], 0.0))

    assert hub.receive(SPOKE, only(spoke.send(HUB, [m.Heartbeat()], 0.0)), 0.0) == [m.Unknown()]
    assert not hub.knows(SPOKE)


def test_garbage_is_refused_and_opens_no_channel(hub):
    """Bytes that are no envelope raise RemoteProtocolError and leave nothing behind."""
    with pytest.raises(RemoteProtocolError, match="undecodable message"):
        hub.receive(SPOKE, [b"garbage"], 0.0)

    assert not hub.knows(SPOKE)


def test_a_peer_that_was_dropped_is_told(hub, spoke):
    """A peer that the hub forgot learns it from the same hub's Unknown."""
    greet(hub, spoke)
    hub.drop(SPOKE)

    received = hub.receive(SPOKE, only(spoke.send(HUB, [m.Heartbeat()], 1.0)), 1.0)

    assert received == [m.Unknown()]
    assert spoke.receive(HUB, hub.unknown(), 1.0) == [m.Unknown()]


def test_a_new_hub_is_noticed(hub, spoke):
    """A peer learns from a new hub, that took the old one's place, that it is unknown."""
    greet(hub, spoke)

    assert spoke.receive(HUB, Exchange(11).unknown(), 1.0) == [m.Unknown()]


def test_unknown_before_the_welcome_means_little(hub, spoke):
    """A peer whose Hello was lost on the way ignores Unknown: its Hello comes again."""
    lost = only(spoke.send(HUB, [HELLO], 0.0))
    hub.receive(SPOKE, only(spoke.send(HUB, [m.Heartbeat()], 0.5)), 0.5)

    assert spoke.receive(HUB, hub.unknown(), 0.6) == []
    ((peer, again),) = spoke.tick(PROBE_AFTER_S)
    assert (peer, again) == (HUB, lost)
    assert hub.receive(SPOKE, again, 1.1) == [HELLO]


def test_a_new_incarnation_starts_over(hub, spoke):
    """A peer that was started again under its name begins a new conversation with its Hello."""
    greet(hub, spoke)
    hub.receive(SPOKE, only(spoke.send(HUB, [m.Heartbeat()], 0.0)), 0.0)

    assert greet(hub, Exchange(21)) == [HELLO]


def test_an_answer_to_an_earlier_life_is_not_taken(hub, spoke):
    """What the hub says to an earlier incarnation of a peer is not taken by the later one."""
    greet(hub, spoke)
    welcome = only(hub.send(SPOKE, [m.Welcome(1, 0)], 0.0))
    later = Exchange(21)
    greet(hub, later)

    assert later.receive(HUB, welcome, 0.0) == []
    assert later.receive(HUB, only(hub.send(SPOKE, [m.Welcome(2, 0)], 0.0)), 0.0) == [
        m.Welcome(2, 0)
    ]


def test_another_hub_that_answers_an_earlier_life_does_not_know_the_later_one(spoke):
    """The hub that follows was reached by an old Hello only: the peer is to say Hello anew."""
    greet(Exchange(10), spoke)
    other = Exchange(11)
    other.receive(SPOKE, only(Exchange(19).send(HUB, [HELLO], 0.0)), 0.0)

    answer = only(other.send(SPOKE, [m.Welcome(1, 0)], 0.0))
    assert spoke.receive(HUB, answer, 0.0) == [m.Unknown()]


def test_a_hello_that_was_overtaken_does_not_start_over(hub, spoke):
    """An earlier life's Hello that arrives after that of a later one changes nothing."""
    late = spoke.send(HUB, [HELLO], 0.0)
    hub.receive(SPOKE, only(late), 0.0)
    later = Exchange(21)
    greet(hub, later)

    assert hub.receive(SPOKE, only(late), 0.0) == []
    said = later.send(HUB, [m.Heartbeat()], 0.0)
    assert hub.receive(SPOKE, only(said), 0.0) == [m.Heartbeat()]


def test_words_to_an_earlier_hub_are_not_taken(hub, spoke):
    """A hub that knows a peer's Hello tells it all the same that it took another one's place."""
    greet(hub, spoke)
    spoke.receive(HUB, only(hub.send(SPOKE, [m.Welcome(1, 0)], 0.0)), 0.0)
    later = Exchange(11)
    later.receive(SPOKE, encode(2, 1, 0, [HELLO]), 0.0)

    assert later.receive(SPOKE, only(spoke.send(HUB, [m.Heartbeat()], 0.0)), 0.0) == [m.Unknown()]


def test_an_old_incarnation_is_not_heard(hub, spoke):
    """What an earlier incarnation of a peer sent arrives too late to count."""
    greet(hub, spoke)
    late = only(spoke.send(HUB, [m.Goodbye()], 0.0))
    greet(hub, Exchange(21))

    assert hub.receive(SPOKE, late, 0.0) == []


def test_a_repeated_hello_does_not_start_over(hub, spoke):
    """The same incarnation's Hello, sent again for want of an answer, is a repetition."""
    frames = only(spoke.send(HUB, [HELLO], 0.0))
    hub.receive(SPOKE, frames, 0.0)

    assert hub.receive(SPOKE, frames, 1.0) == []


def test_peers_are_bounded(hub, monkeypatch):
    """Beyond PEERS_MAX no new peer is taken in: made-up names cannot fill the memory."""
    monkeypatch.setattr(module, "PEERS_MAX", 2)
    for name in (b"1", b"2"):
        hub.receive(name, encode(1, 1, 0, [HELLO]), 0.0)

    with pytest.raises(RemoteProtocolError, match="too many peers"):
        hub.receive(b"3", encode(1, 1, 0, [HELLO]), 0.0)


def test_what_is_due_goes_to_its_peer(hub):
    """Each tick returns what is due by then, for whom, and the next deadline is exact."""
    for number, now in enumerate((0.0, 0.01, 0.02)):
        hub.receive(b"%d" % number, encode(1, 1, 0, [HELLO]), now)

    assert hub.deadline == ACKNOWLEDGE_AFTER_S
    assert [peer for peer, _ in hub.tick(ACKNOWLEDGE_AFTER_S + 0.01)] == [b"0", b"1"]
    assert hub.deadline == pytest.approx(ACKNOWLEDGE_AFTER_S + 0.02)
    assert [peer for peer, _ in hub.tick(1.0)] == [b"2"]
    assert hub.deadline == math.inf


def test_an_answer_leaves_no_acknowledgement_due(hub, spoke):
    """In a conversation nothing is due before a probe: the answer has acknowledged."""
    greet(hub, spoke, now=5.0)
    for frames in spoke.send(HUB, [m.Heartbeat()], 5.0):
        hub.receive(SPOKE, frames, 5.0)
    hub.send(SPOKE, [m.Heartbeat()], 5.0)

    assert hub.deadline == 5.0 + PROBE_AFTER_S


def test_what_nobody_acknowledges_is_sent_again_and_again(hub, spoke):
    """A tick that repeats an envelope notes when the next repetition is due."""
    greet(hub, spoke)
    hub.send(SPOKE, [m.Heartbeat()], 1.0)
    repeated: list[bytes] = []
    for _ in range(10):
        repeated += [peer for peer, _ in hub.tick(hub.deadline)]

    assert repeated[:3] == [SPOKE] * 3


def test_nothing_is_due_for_who_was_dropped(hub, spoke):
    """What was not delivered to a dropped peer is forgotten, however often time comes."""
    greet(hub, spoke)
    hub.drop(SPOKE)

    assert [hub.tick(now) for now in (1.0, 2.0, 60.0)] == [[], [], []]


def test_a_tick_looks_only_at_who_is_due(hub):
    """A tick among thousands of peers that wait looks at none of them."""
    for number in range(2000):
        hub.receive(b"%d" % number, encode(1, 1, 0, [HELLO]), 10.0)
    hub.receive(b"first", encode(1, 1, 0, [HELLO]), 9.0)
    assert hub.deadline == 9.0 + ACKNOWLEDGE_AFTER_S
    waiting = list(hub._looks[1:])

    assert [peer for peer, _ in hub.tick(9.0 + ACKNOWLEDGE_AFTER_S)] == [b"first"]
    assert sorted(hub._looks) == sorted(waiting)


def test_a_stranger_sends_little_before_it_says_hello(hub, monkeypatch):
    """A long header of a peer that has not said Hello is not even read; it is told to start over."""
    monkeypatch.setattr(module, "decode", None)
    assert hub.receive(SPOKE, [bytes(HELLO_BYTES_MAX + 1)], 0.0) == [m.Unknown()]
    assert not hub.knows(SPOKE)


def test_much_that_is_said_with_the_hello_arrives(hub, spoke):
    """A Hello and a lot to do in the same turn arrive, in envelopes of their own."""
    much = [m.Goodbye("x" * 10_000) for _ in range(100)]
    sent = spoke.send(HUB, [HELLO, *much], 0.0)

    assert [one for frames in sent for one in hub.receive(SPOKE, frames, 0.0)] == [HELLO, *much]

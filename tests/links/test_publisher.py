"""What is published reaches those who listen, and only them, and waits for nobody."""

from __future__ import annotations

import psutil
import pytest
import zmq

from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.links import feed_link, zmq_link
from tests.runtime.helpers import free_port, wait_until

TOPICS = (b"one", b"two")
BOUND_S = 10.0
BYTES_MAX = 1 << 20


@pytest.fixture
def publisher():
    """Return what publishes two topics at a free port."""
    link = zmq_link.bind("tcp://127.0.0.1:0")
    made = feed_link.publish(link, "tcp://127.0.0.1:0", TOPICS)
    yield made
    made.close()
    link.close(0)


@pytest.fixture
def listen(publisher):
    """Return what makes listeners."""
    listeners = []

    def make(*topics: bytes) -> feed_link.Subscriber:
        listeners.append(feed_link.subscribe(publisher.address, topics, BYTES_MAX))
        return listeners[-1]

    yield make
    for listener in listeners:
        listener.close()


def wait_topics(publisher, *topics: bytes) -> None:
    """Wait until these are what is listened to."""

    def are_wanted() -> bool:
        publisher.look()
        return publisher.topics == list(topics)

    wait_until(are_wanted, lambda: f"listeners want {publisher.topics}, not {topics}")


def wait_news(publisher) -> None:
    """Wait until somebody came or left."""
    wait_until(publisher.look, "nobody has come or left")


def test_nobody_listens_at_first(publisher):
    """A publisher that nobody listens to has no topics, and what it sends goes nowhere."""
    publisher.send([b"one", b"lost"])

    assert publisher.topics == []
    assert not publisher.look()


def test_who_listens_gets_what_it_asked_for(publisher, listen):
    """A listener gets its topic, or every topic that begins with what it asked for."""
    one = listen(b"one")
    wait_topics(publisher, b"one")
    both = listen(b"")
    wait_topics(publisher, b"one", b"two")
    for topic in TOPICS:
        publisher.send([topic, b"body"])

    assert both.receive(BOUND_S) == [b"one", b"body"]
    assert both.receive(BOUND_S) == [b"two", b"body"]
    assert one.receive(BOUND_S) == [b"one", b"body"]
    assert one.receive() is None


def test_everybody_who_comes_is_noticed(publisher, listen):
    """A second listener of a known topic is noticed as well."""
    listen(b"one")
    wait_topics(publisher, b"one")
    listen(b"one")
    wait_news(publisher)

    assert publisher.topics == [b"one"]


def test_the_last_one_who_leaves_is_noticed(publisher, listen):
    """A topic is no longer wanted once its last listener has left."""
    first, second = listen(b"one"), listen(b"one", b"two")
    wait_topics(publisher, b"one", b"two")
    second.close()
    wait_topics(publisher, b"one")
    first.close()
    wait_topics(publisher)


def test_other_topics_are_ignored(publisher, listen):
    """Topics that do not exist are not remembered, whoever asks for them."""
    listen(b"three", b"x" * 200, b"one")
    wait_topics(publisher, b"one")

    assert list(publisher._wanted) == [b"one"]


def test_who_does_not_read_is_not_waited_for(publisher, listen):
    """What a listener does not read is dropped, and the publisher's memory does not grow."""
    listen(b"one")
    reader = listen(b"two")
    wait_topics(publisher, b"one", b"two")
    process = psutil.Process()
    before = process.memory_info().rss
    for _ in range(2000):
        publisher.send([b"one", bytes(100_000)])
    publisher.send([b"two", b"there"])

    assert process.memory_info().rss - before < 50_000_000
    assert reader.receive(BOUND_S) == [b"two", b"there"]


def test_who_listens_first_is_served_later(publisher):
    """A publisher serves listeners that came before it."""
    link = zmq_link.bind("tcp://127.0.0.1:0")
    address = f"tcp://127.0.0.1:{free_port()}"
    listener = feed_link.subscribe(address, [b"one"], BYTES_MAX)
    late = feed_link.publish(link, address, TOPICS)
    try:
        wait_topics(late, b"one")
        late.send([b"one", b"here"])

        assert listener.receive(BOUND_S) == [b"one", b"here"]
    finally:
        listener.close()
        late.close()
        link.close(0)


def test_wrong_addresses_are_errors(publisher):
    """An address in use and an address that cannot be are errors that name it."""
    link = zmq_link.bind("tcp://127.0.0.1:0")
    try:
        with pytest.raises(ConfigError, match=publisher.address):
            feed_link.publish(link, publisher.address, TOPICS)
    finally:
        link.close(0)
    with pytest.raises(ClusterUnreachableError, match="nowhere"):
        feed_link.subscribe("nowhere", TOPICS, BYTES_MAX)


def test_what_is_no_subscription_is_passed_over(publisher):
    """A publisher ignores messages that are no subscription, empty ones included."""
    with zmq.Context() as context, context.socket(zmq.XSUB) as stranger:
        stranger.linger = 0
        stranger.connect(publisher.address)
        for said in (b"", b"\2one", b"junk", b"\1two"):
            stranger.send(said)

        wait_topics(publisher, b"two")

"""A hub with keys: whose a peer is, whatever it sends, and in whatever order."""

from __future__ import annotations

import contextlib
import os
import socket
import time

import pytest

from scaler_cluster.links import zap, zmq_link
from scaler_cluster.links.curve import AllowList, Guard, Passport, new_key_pair
from scaler_cluster.links.feed_link import publish
from scaler_cluster.security.credentials import DOORS, FEED_DOOR, TASKS_DOOR
from tests.links.test_links import receive

ALICE = "client:alice"
FLOOD = 50
BOUND_S = 10.0


class Hub:
    """A hub that lets one client's key in, and that client."""

    def __init__(self) -> None:
        server, self.pair = new_key_pair(), new_key_pair()
        self.allowed = AllowList({self.pair.public: ALICE})
        guard = Guard(server, self.allowed, DOORS[TASKS_DOOR], TASKS_DOOR)
        self.link = zmq_link.bind("tcp://127.0.0.1:0", guard=guard)
        self.known: set[bytes] = set()
        self.link.knows = self.known.__contains__
        self._server = server.public
        self.connect()

    def connect(self) -> None:
        """Let the client connect."""
        passport = Passport(self.pair, self._server)
        self.spoke = zmq_link.connect(self.link.address, b"C1", passport=passport)

    def hears(self, *texts: bytes) -> None:
        """Let the client say something, and the hub hear it."""
        for text in texts:
            self.spoke.send(b"", [text])
        assert receive(self.link, len(texts)) == [(b"C1", [text]) for text in texts]


@pytest.fixture
def hub():
    """Return a hub that lets one client in."""
    made = Hub()
    yield made
    made.spoke.close()
    made.link.close()


def test_a_peer_that_is_forgotten_is_not_nobody(hub) -> None:
    """What came together with what it was dropped for is judged by its key, as that was."""
    hub.hears(b"garbage", b"hello")
    hub.link.forget(b"C1")

    assert hub.link.user_of(b"C1") == ALICE


def test_a_peer_that_has_not_spoken_is_nobody_with_a_role(hub) -> None:
    """An empty user means that no keys are used, which is not so here."""
    assert hub.link.user_of(b"C2")


def test_a_stranger_is_not_kept(hub) -> None:
    """Whoever says no Hello leaves nothing behind, and its id may come with another key."""
    hub.hears(b"stray")
    assert hub.link.expelled == []
    hub.allowed.replace({})

    assert hub.link.expelled == []
    assert hub.link.user_of(b"C1") != ALICE


def test_a_known_peer_is_expelled_with_its_key(hub) -> None:
    """The hub says whose key was removed, also if the peer has just come."""
    hub.hears(b"hello")
    hub.known.add(b"C1")
    hub.allowed.replace({})

    assert hub.link.expelled == [b"C1"]


def test_who_is_refused_does_not_keep_the_hub_busy(hub) -> None:
    """A flood with a key that was removed counts against what is taken in at once."""
    hub.hears(b"hello")
    hub.allowed.replace({})
    for _ in range(FLOOD):
        hub.spoke.send(b"", [b"flood"])
    # The last ones may still be under way, but not the first ones.
    end = time.monotonic() + BOUND_S
    while not hub.link.readable():
        assert time.monotonic() < end
    assert hub.link.receive(10) == []
    hub.allowed.replace({hub.pair.public: ALICE})

    assert receive(hub.link, FLOOD - 10) == [(b"C1", [b"flood"])] * (FLOOD - 10)


def test_a_publisher_that_drops_its_listeners_leaves_nothing_behind(hub) -> None:
    """What told of the handshakes of a socket is closed with it, however often that happens."""
    pair = new_key_pair()
    guard = Guard(pair, hub.allowed, DOORS[FEED_DOOR], FEED_DOOR)
    publisher = publish(hub.link, "tcp://127.0.0.1:0", (b"topic",), guard)
    doorkeeper = hub.link.sockets._doorkeeper
    assert doorkeeper is not None
    for _ in range(5):
        publisher.drop_listeners()
        until(publisher.listen_again)

    until(lambda: len(doorkeeper._events) == 2 and not doorkeeper._added)
    publisher.close()


def test_a_publisher_waits_for_its_address(hub) -> None:
    """Somebody else may have the port for a moment: it listens again once it is free."""
    guard = Guard(new_key_pair(), hub.allowed, DOORS[FEED_DOOR], FEED_DOOR)
    publisher = publish(hub.link, "tcp://127.0.0.1:0", (b"topic",), guard)
    port = int(publisher.address.rpartition(":")[2])
    publisher.drop_listeners()
    with contextlib.closing(taken(port)):
        assert not publisher.listen_again()

    until(publisher.listen_again)
    publisher.close()


def taken(port: int) -> socket.socket:
    """Return a socket that has a port, once that is free."""
    made: list[socket.socket] = []

    def take() -> bool:
        with contextlib.suppress(OSError):
            made.append(socket.create_server(("127.0.0.1", port)))
        return bool(made)

    until(take)
    return made[0]


def test_a_bug_costs_one_handshake_alone(hub, monkeypatch, caplog) -> None:
    """The thread that answers for handshakes goes on after a fault, and says so in the log."""
    doorkeeper = hub.link.sockets._doorkeeper
    assert doorkeeper is not None
    judge, faults = doorkeeper._admitted, iter([True])

    def admitted(request: list[bytes]) -> str:
        if next(faults, False):
            raise RuntimeError("a bug")
        return judge(request)

    # The handshake of the first connection may be over already.
    hub.spoke.close()
    monkeypatch.setattr(doorkeeper, "_admitted", admitted)
    hub.connect()

    hub.hears(b"hello")

    assert "failed by a bug" in caplog.text


def test_a_descriptor_that_is_no_connection_any_more_is_not_kept() -> None:
    """A look for the address of a connection that has gone leaves no copy open."""
    reader, writer = os.pipe()
    before = len(os.listdir("/proc/self/fd"))
    assert zap._peer_of(reader) == ""
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(reader)
    os.close(writer)
    assert zap._peer_of(reader) == ""


def until(is_so) -> None:
    """Wait until something is so."""
    end = time.monotonic() + BOUND_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.002)

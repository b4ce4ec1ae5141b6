"""A spoke that has met a stranger at its hub's address comes back when the hub does."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from scaler_cluster.errors import ConfigError
from scaler_cluster.links import feed_link, zmq_link
from scaler_cluster.links.curve import AllowList, Guard, Passport, new_key_pair
from tests.runtime.helpers import BOUND_S, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = b"one"
HUBS, SPOKES = new_key_pair(), new_key_pair()
PASSPORT = Passport(SPOKES, HUBS.public)
GUARD = Guard(HUBS, AllowList({SPOKES.public: "client:one"}), ("client",), "scheduler")
STRANGERS = {
    "plain ZeroMQ": b"\xff" + bytes(8) + b"\x7f\3\1" + b"NULL".ljust(52, b"\0"),
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n".ljust(64),
}
"""What strangers say who listen at an address, by what they speak."""


@pytest.fixture(params=list(STRANGERS))
def meet(request) -> Callable[[str], None]:
    """Return what has a stranger answer at an address, until who called has given it up."""
    says = STRANGERS[request.param]

    def meet(address: str) -> None:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        made: list[socket.socket] = []

        def is_free() -> bool:
            with contextlib.suppress(OSError):
                made.append(socket.create_server((host, int(port))))
            return bool(made)

        wait_until(is_free, "the hub keeps its address")
        with made[0] as listener:
            listener.settimeout(BOUND_S)
            caller, _ = listener.accept()
            with caller:
                caller.settimeout(BOUND_S)
                caller.sendall(says)
                with contextlib.suppress(ConnectionError):
                    while caller.recv(4096):
                        pass

    return meet


def guarded(address: str) -> zmq_link.ZmqLink:
    """Return a hub at an address that the one before it may not have let go of yet."""
    made: list[zmq_link.ZmqLink] = []

    def is_free() -> bool:
        with contextlib.suppress(ConfigError):
            made.append(zmq_link.bind(address, guard=GUARD))
        return bool(made)

    wait_until(is_free, f"{address} is not free")
    return made[0]


def speaks(hub: zmq_link.ZmqLink, spoke: zmq_link.ZmqLink) -> bool:
    """Return True if the hub hears a spoke that is tended."""
    spoke.tend()
    spoke.send(b"", [b"for the hub"])
    return bool(hub.receive(1))


def listens(hub: zmq_link.ZmqLink, spoke: zmq_link.ZmqLink) -> bool:
    """Return True if the hub is heard by a spoke that has nothing to say, and waits."""
    hub.send(b"C1", [b"for you"])
    spoke.wait(0.01)
    return bool(spoke.receive(1))


@pytest.mark.parametrize("are_connected", [speaks, listens])
def test_a_spoke_comes_back(meet, are_connected) -> None:
    """Whether it speaks or waits, a spoke connects again."""
    hub = guarded("tcp://127.0.0.1:0")
    spoke = zmq_link.connect(hub.address, b"C1", passport=PASSPORT)
    try:
        wait_until(lambda: are_connected(hub, spoke), "the spoke does not come")
        hub.close(0)
        meet(spoke.address)
        hub = guarded(spoke.address)

        wait_until(lambda: are_connected(hub, spoke), "the spoke has given its hub up")
    finally:
        spoke.close(0)
        hub.close(0)


def test_a_wait_ends_when_there_is_nobody_to_wait_for(meet) -> None:
    """What libzmq gives up wakes who waits, however long that wanted to sleep."""
    hub = guarded("tcp://127.0.0.1:0")
    spoke = zmq_link.connect(hub.address, b"C1", passport=PASSPORT)
    hub.close(0)
    try:
        meet(spoke.address)

        assert not spoke.wait(1000 * BOUND_S)
    finally:
        spoke.close(0)


def test_a_listener_comes_back(meet) -> None:
    """A subscriber connects again while it looks for messages."""
    link = zmq_link.bind("tcp://127.0.0.1:0", guard=GUARD)
    address = f"tcp://127.0.0.1:{free_port()}"
    publisher = feed_link.publish(link, address, [TOPIC], GUARD)
    listener = feed_link.subscribe(address, [TOPIC], 1 << 20, PASSPORT)

    def is_heard() -> bool:
        publisher.look()
        publisher.send([TOPIC, b"news"])
        return listener.receive(0.01) is not None

    try:
        wait_until(is_heard, "the listener hears nothing")
        publisher.close()
        meet(address)
        publisher = feed_link.publish(link, address, [TOPIC], GUARD)

        wait_until(is_heard, "the listener has given the publisher up")
    finally:
        listener.close()
        publisher.close()
        link.close(0)

"""Spokes without a thread of their own, at hubs that come, go and do not read."""

from __future__ import annotations

import os

import pytest

from scaler_cluster.errors import ConfigError
from scaler_cluster.ids import HUB
from scaler_cluster.links import zmq_link
from scaler_cluster.links.stream_link import StreamHub, StreamSpoke
from tests.runtime.helpers import wait_until


@pytest.fixture(params=[zmq_link.bind, StreamHub], ids=["zmq", "stream"])
def bind(request):
    """Return what makes a hub."""
    return request.param


@pytest.fixture
def address(tmp_path):
    """Return where a hub may be."""
    return f"ipc://{tmp_path}/hub"


@pytest.fixture
def spoke(address):
    """Return a spoke to it."""
    spoke = StreamSpoke(address, b"W1")
    yield spoke
    spoke.close()


def meet(hub, spoke):
    """Let both say something to each other."""
    wait_until(lambda: spoke.wait(0.001) or hub.readable(), "the spoke does not come")
    ((peer, _),) = hub.receive(1)
    hub.send(peer, [b"welcome"])
    wait_until(lambda: spoke.wait(0.001), "the hub does not answer")
    assert spoke.receive(10) == [(HUB, [b"welcome"])]


def test_it_comes_to_the_next_hub(address, spoke, bind) -> None:
    """When a hub has gone, the spoke connects to the next one at the same address."""
    for _ in range(2):
        hub = bind(address)
        spoke.send(HUB, [b"hello"])
        meet(hub, spoke)
        hub.close()
        wait_until(lambda: not spoke.wait(0.001) and spoke._stream is None, "it is not noticed")


def test_a_child_that_has_the_descriptor_keeps_no_connection(address, spoke) -> None:
    """Between fork and exec it has a copy: what is over is over, for both ends."""
    hub = StreamHub(address)
    spoke.send(HUB, [b"hello"])
    meet(hub, spoke)
    (of_hub,) = hub._streams
    assert spoke._stream is not None
    copies = [os.dup(of_hub), os.dup(spoke._stream.fd)]
    try:
        # What is no message ends a connection, for the hub, and then for the spoke.
        spoke._stream._socket.send(bytes([255] * 100))
        wait_until(lambda: hub.readable() or not hub._streams, "the hub does not notice")
        assert not hub._epoll.poll(0.0)
        os.close(copies.pop(0))
        wait_until(lambda: not spoke.wait(0.001) and spoke._stream is None, "it is not noticed")
        assert not spoke._epoll.poll(0.0)
    finally:
        for copy in copies:
            os.close(copy)
        hub.close()


def test_who_watches_its_descriptor_sees_what_comes(address, spoke, bind) -> None:
    """The descriptor is the same over all connections, and readable while something is there."""
    import select

    hub = bind(address)
    spoke.send(HUB, [b"hello"])
    meet(hub, spoke)
    watch = select.poll()
    watch.register(spoke.fd, select.POLLIN)
    assert watch.poll(0) == []
    hub.send(b"W1", [b"news"])
    assert watch.poll(10_000)
    assert spoke.receive(1) == [(HUB, [b"news"])]
    assert watch.poll(0) == []
    hub.close()


def test_the_last_words_of_who_has_gone_are_heard(address, spoke, bind) -> None:
    """A spoke says Goodbye and closes; what the hub sends to it meanwhile does not undo that."""
    hub = bind(address)
    spoke.send(HUB, [b"hello"])
    meet(hub, spoke)
    other = StreamSpoke(address, b"W2")
    other.send(HUB, [b"hello"])
    wait_until(lambda: other.wait(0.001) or hub.readable(), "the other one does not come")
    assert hub.receive(1) == [(b"W2", [b"hello"])]
    other.send(HUB, [b"goodbye"])
    other.close()
    for _ in range(3):
        hub.send(b"W2", [b"too late"])

    wait_until(hub.readable, "its last word is lost")
    assert hub.receive(1) == [(b"W2", [b"goodbye"])]
    hub.close()


def test_a_hub_that_does_not_read_holds_nobody_up_for_ever(address, spoke, bind) -> None:
    """What a hub has no room for is kept, and arrives when it reads again."""
    hub = bind(address)
    spoke.send(HUB, [b"hello"])
    meet(hub, spoke)
    sent = 0
    while not (spoke._stream and spoke._stream.unsent):
        spoke.send(HUB, [sent.to_bytes(8, "big"), bytes(10_000)])
        sent += 1
    spoke.send(HUB, [sent.to_bytes(8, "big"), bytes(10_000)])
    sent += 1

    got: list = []

    def has_all() -> bool:
        spoke.wait(0.0)
        got.extend(int.from_bytes(frames[0], "big") for _, frames in hub.receive(100))
        return len(got) == sent

    wait_until(has_all, lambda: f"{len(got)} of {sent} came")
    assert got == list(range(sent))
    hub.close()


def test_what_is_no_socket_is_not_removed(tmp_path) -> None:
    """A file that lies where a hub is to listen stays, and the error names the address."""
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(ConfigError, match=f"ipc://{path}: Address already in use"):
        StreamHub(f"ipc://{path}")

    assert path.read_text() == "mine"


def test_a_hub_removes_its_own_socket_only(tmp_path) -> None:
    """The next hub may listen there when this one closes; the file is then the other one's."""
    address = f"ipc://{tmp_path}/hub"
    first, second = StreamHub(address), StreamHub(address)
    first.close()
    assert (tmp_path / "hub").is_socket()
    second.close()
    assert not (tmp_path / "hub").exists()


def test_a_name_that_is_no_path(tmp_path, monkeypatch) -> None:
    """Linux has sockets that are no files; a file of that name has nothing to do with them."""
    name = f"@{tmp_path.name}"
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("mine")
    hub = StreamHub(f"ipc://{name}")
    spoke = StreamSpoke(hub.address, b"W1")
    spoke.send(HUB, [b"hello"])
    meet(hub, spoke)
    spoke.close()
    hub.close()
    assert (tmp_path / name).read_text() == "mine"

"""One suite for every kind of link: the real one over ipc and tcp, and the one in memory."""

from __future__ import annotations

import itertools
import time

import pytest
import zmq

from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.ids import HUB
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import as_reached
from scaler_cluster.links.memory_link import MemoryHub
from scaler_cluster.links.stream_link import StreamHub, StreamSpoke
from tests.runtime.helpers import wait_until

BOUND_S = 10.0


class Pair:
    """A hub and as many spokes as a test wants."""

    def __init__(self, hub, connect) -> None:
        self.hub = hub
        self._connect = connect
        self._spokes: list = []

    def spoke(self, name: bytes):
        self._spokes.append(self._connect(name))
        return self._spokes[-1]

    def receive(self, count):
        """Return so many envelopes that have come to the hub; spokes have their turns meanwhile."""
        got: list = []

        def has_all() -> bool:
            for spoke in self._spokes:
                if isinstance(spoke, StreamSpoke):
                    spoke.wait(0.0)
            got.extend(self.hub.receive(count - len(got)))
            return len(got) >= count

        wait_until(has_all, lambda: f"only {len(got)} of {count} came", BOUND_S)
        return [(peer, [bytes(frame) for frame in frames]) for peer, frames in got]

    def close(self) -> None:
        for spoke in self._spokes:
            spoke.close()
        self.hub.close()


@pytest.fixture(params=["memory", "ipc", "stream", "stream spoke", "stream hub", "tcp"])
def pair(request, tmp_path):
    if request.param == "memory":
        hub = MemoryHub()
        made = Pair(hub, hub.connect)
    else:
        wanted = "tcp://127.0.0.1:0" if request.param == "tcp" else f"ipc://{tmp_path}/hub"
        connect = StreamSpoke if request.param in {"stream", "stream spoke"} else zmq_link.connect
        bind = StreamHub if request.param in {"stream", "stream hub"} else zmq_link.bind
        bound = bind(wanted)
        made = Pair(bound, lambda name: connect(bound.address, name))
    yield made
    made.close()


def receive(link, count):
    """Return ``count`` envelopes, as plain bytes."""
    got: list = []
    deadline = time.monotonic() + BOUND_S
    while len(got) < count:
        assert time.monotonic() < deadline, f"only {len(got)} of {count} came"
        got += link.receive(count - len(got))
        if hasattr(link, "wait") and len(got) < count:
            link.wait(0.1)
    return [(peer, [bytes(frame) for frame in frames]) for peer, frames in got]


def test_envelopes_arrive_whole_and_in_order(pair) -> None:
    """What a spoke sends arrives at the hub under its name, frame by frame, in order."""
    spoke = pair.spoke(b"C1")
    sent = [[b"%d" % n, *[b"x" * size for size in (0, 1, 9000)[: n % 4]]] for n in range(200)]
    for frames in sent:
        spoke.send(HUB, frames)

    assert pair.receive(200) == [(b"C1", frames) for frames in sent]


def test_the_hub_answers_by_name(pair) -> None:
    """Each spoke gets what is meant for it, and knows its peer as the hub."""
    spokes = {name: pair.spoke(name) for name in (b"C1", b"W1", b"W2")}
    for name, spoke in spokes.items():
        spoke.send(HUB, [name])
    pair.receive(3)
    for name in spokes:
        pair.hub.send(name, [b"for " + name])

    for name, spoke in spokes.items():
        assert receive(spoke, 1) == [(HUB, [b"for " + name])]


def test_large_frames_pass(pair) -> None:
    """A frame of megabytes arrives as it was."""
    large = bytes(range(256)) * 40_000
    pair.spoke(b"C1").send(HUB, [b"header", memoryview(large)])

    assert pair.receive(1) == [(b"C1", [b"header", large])]


def test_the_limit_holds(pair) -> None:
    """No more envelopes are taken in than were asked for; the others stay."""
    spoke = pair.spoke(b"C1")
    for n in range(10):
        spoke.send(HUB, [b"%d" % n])
    pair.receive(1)
    got: list = []
    deadline = time.monotonic() + BOUND_S
    while len(got) < 9 and time.monotonic() < deadline:
        some = pair.hub.receive(2)
        assert len(some) <= 2
        got += some

    assert [bytes(frames[0]) for _, frames in got] == [b"%d" % n for n in range(1, 10)]


def test_an_unknown_peer_costs_nothing(pair) -> None:
    """What is sent to nobody is dropped, and the others still get theirs."""
    spoke = pair.spoke(b"C1")
    spoke.send(HUB, [b"hello"])
    pair.receive(1)
    pair.hub.send(b"nobody", [b"lost"])
    pair.hub.send(b"C1", [b"found"])

    assert receive(spoke, 1) == [(HUB, [b"found"])]


def test_many_spokes(pair) -> None:
    """A hundred spokes talk to the hub, each in its own order."""
    names = [b"C%d" % n for n in range(100)]
    for name, number in itertools.product(names, range(3)):
        if number == 0:
            pair.spoke(name)
        pair._spokes[names.index(name)].send(HUB, [b"%d" % number])

    got = pair.receive(300)

    for name in names:
        assert [frames[0] for peer, frames in got if peer == name] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("bind", [zmq_link.bind, StreamHub])
@pytest.mark.parametrize("connect", [zmq_link.connect, StreamSpoke])
def test_a_spoke_may_come_before_the_hub(tmp_path, connect, bind) -> None:
    """A spoke that connects first delivers once the hub is there."""
    address = f"ipc://{tmp_path}/late"
    spoke = connect(address, b"C1")
    spoke.send(HUB, [b"early"])
    hub = bind(address)
    try:
        wait_until(lambda: spoke.wait(0.001) or hub.readable(), "it does not connect")
        assert receive(hub, 1) == [(b"C1", [b"early"])]
    finally:
        spoke.close()
        hub.close()


def test_port_zero_is_any_free_port() -> None:
    """The address of a hub on port 0 is the real one."""
    hub = zmq_link.bind("tcp://127.0.0.1:0")
    try:
        assert hub.address.startswith("tcp://127.0.0.1:")
        assert not hub.address.endswith(":0")
    finally:
        hub.close()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:notaport", "nonsense", "smoke://signal"])
def test_an_address_that_cannot_be_is_named(address) -> None:
    """An impossible address gives an error that names it, at either end."""
    with pytest.raises(ConfigError, match=address):
        zmq_link.bind(address)
    with pytest.raises(ClusterUnreachableError, match=address):
        zmq_link.connect(address, b"C1")


def test_an_address_in_use_is_named() -> None:
    """A port in use gives an error that names it."""
    hub = zmq_link.bind("tcp://127.0.0.1:0")
    try:
        with pytest.raises(ConfigError, match=hub.address):
            zmq_link.bind(hub.address)
    finally:
        hub.close()


def test_nothing_to_read_is_seen(pair) -> None:
    """A link on which nothing has arrived returns nothing, at once."""
    assert pair.hub.receive(10) == []
    if hasattr(pair.hub, "wait"):
        assert not pair.hub.readable()
        assert not pair.hub.spin(0.0)


@pytest.mark.parametrize(
    ("address", "near", "reached"),
    [
        ("tcp://0.0.0.0:8518", "tcp://10.0.0.1:8516", "tcp://10.0.0.1:8518"),
        ("tcp://*:8518", "tcp://head:8516", "tcp://head:8518"),
        ("tcp://[::]:8518", "tcp://[fe80::1]:8516", "tcp://[fe80::1]:8518"),
        ("tcp://[::]:8518", "tcp://head:8516", "tcp://head:8518"),
        ("http://0.0.0.0:80/a/?token=x:y", "tcp://head:8516", "http://head:80/a/?token=x:y"),
        ("tcp://0.0.0.0:8518", "ipc:///tmp/s", "tcp://127.0.0.1:8518"),
        ("tcp://[::]:8518", "ipc:///tmp/s", "tcp://[::1]:8518"),
        ("tcp://127.0.0.1:8518", "tcp://head:8516", "tcp://127.0.0.1:8518"),
        ("tcp://10.0.0.0:8518", "tcp://head:8516", "tcp://10.0.0.0:8518"),
        ("ipc:///tmp/s_monitor", "tcp://head:8516", "ipc:///tmp/s_monitor"),
        ("", "tcp://head:8516", ""),
    ],
)
def test_who_listens_everywhere_is_where_its_neighbour_is(address, near, reached) -> None:
    """A wildcard becomes the host by which the machine was reached; other hosts stay."""
    assert as_reached(address, near) == reached


def test_who_floods_a_hub_has_to_wait() -> None:
    """What a hub does not take in fills its memory only so far; then its sender cannot send."""
    hub = zmq_link.bind("tcp://127.0.0.1:0")
    with zmq.Context() as context, context.socket(zmq.DEALER) as spoke:
        spoke.linger = 0
        spoke.set_hwm(1)
        spoke.connect(hub.address)
        sent = 0
        while sent < 20 * zmq_link.UNTAKEN_MAX and spoke.poll(500, zmq.POLLOUT):
            spoke.send(bytes(10_000))
            sent += 1
        # The kernels keep some of it as well.
        assert zmq_link.UNTAKEN_MAX <= sent < 10 * zmq_link.UNTAKEN_MAX

        # Nothing of it is lost.
        taken = 0
        while taken < sent and hub.wait(BOUND_S):
            taken += len(hub.receive(sent))
        assert taken == sent
    hub.close()

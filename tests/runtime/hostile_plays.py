"""What the hostile peer tries: each hole that a cluster once had, as a function.

Those of V reach for the work of others, those of R for the scheduler's memory and time. Each takes
an :class:`Attack`, and fails if the attack gets anything of what it is after.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import socket
import struct
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import zmq
from blake3 import blake3

from tests.runtime import hostile_peer as h
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, Flags, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.runtime.test_hostile_peers import Stack

NAME = b"0a" * 13 + b"-1"
FORGED = "\x1b[2Jforged"
ARRAY = np.arange(200_000.0)
TASKS, RESULT_BYTES = 1500, 60_000
ROLES = {"client": b"C", "supervisor": b"S", "worker": b"W", "storage": b"O"}
NUMBER = struct.Struct("<I")


class Attack:
    """Makes hostile peers, with the key of one user; they stay until the end.

    Args:
        stack: The cluster.
        user: Whose key they show; empty: none.
        place: A directory for the flags of tasks.
    """

    def __init__(self, stack: Stack, user: str, place: Path, ends: ExitStack) -> None:
        self.stack = stack
        self.flags = Flags(place)
        self.keys = h.Keys(stack.keys(user)) if user else None
        self.has_door = user in ("mallory", "worker")
        """False: it does not even get as far as to say something."""
        self._user = user
        self._ends = ends

    def peer(self, where: str = "", letter: bytes = b"C", name: bytes = b"") -> h.HostilePeer:
        """Return a peer at the scheduler, or at another address."""
        made = h.HostilePeer(where or self.stack.address, self.keys, letter, name)
        return self._ends.enter_context(made)

    def says_in_vain(self, *messages: list[Any], **how: Any) -> None:
        """Say this as a new peer: it is not let in, or dropped at once.

        Another one says so in one breath with garbage, for which it is dropped as well.
        """
        for is_alone in (True, False, False) if self.has_door else (True,):
            peer = self.peer(**how)
            if not is_alone:
                assert peer.is_let_in()
                peer.throw(b"garbage")
            peer.say(*messages)
            self.is_out(peer)

    def is_out(self, peer: h.HostilePeer) -> None:
        """See that a peer is not let in, or was dropped."""
        assert peer.is_let_in() is self.has_door
        assert not self.has_door or peer.is_dropped()

    def client(self) -> h.HostilePeer | None:
        """Return a peer that is welcome as a client; None: nobody with this key is."""
        peer = self.peer()
        peer.say(h.hello())
        if self.has_door:
            assert peer.hear(h.WELCOME)
            return peer
        assert not peer.is_let_in()
        return None

    def snapshot(self) -> dict[str, Any]:
        """Return what a monitor is shown, and all events until then."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        with context, context.socket(zmq.SUB) as feed:
            feed.linger = 0
            feed.connect(h.show(feed, self.stack.feed, h.Keys(self.stack.keys("monitor"))))
            feed.subscribe(b"events")
            feed.subscribe(b"snapshot")
            shown: dict[bytes, Any] = {}
            while len(shown) < 2:
                assert feed.poll(BOUND_S * 1000)
                topic, data = feed.recv_multipart()
                shown[topic] = msgpack.unpackb(data, strict_map_key=False)
        return {**shown[b"snapshot"], "heard": shown[b"events"]}

    def names(self) -> list[bytes]:
        """Return all names that a user of this machine can see: in the feed, and of files."""
        seen = [*_bytes_in(self.snapshot())]
        seen += [path.name.encode() for path in self.stack.shared.rglob("*-*") if path.is_file()]
        assert len(seen) > 4
        return [*dict.fromkeys(one for one in seen if len(one) > 4)]


def _bytes_in(value: Any) -> Iterable[bytes]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _bytes_in(one)
    elif isinstance(value, bytes):
        yield value


def _rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(table["fields"], row, strict=True)) for row in table["rows"]]


# -- the work of others ----------------------------------------------------------------------------


def long_names(attack: Attack) -> None:
    """V1: a name that no file can have, said to the storage."""
    for request in ([h.FETCH, b"a-" + b"1" * 300, 0, 1 << 20], [h.PUT, b"a-" + b"1" * 300]):
        attack.says_in_vain(h.hello(), request, where=attack.stack.storage)


def another_storage(attack: Attack) -> None:
    """V2: the place of the scheduler's own storage."""
    place = ["tcp://127.0.0.1:9", "", "/nowhere", 1 << 30]
    attack.says_in_vain(h.hello("storage", place=place), letter=b"O")


def another_worker(attack: Attack) -> None:
    """V3: the tasks of others, to answer them with a pickle of one's own."""
    machine = b"S" + os.urandom(12)
    attack.says_in_vain(h.hello("supervisor", workers=8), name=machine)
    attack.says_in_vain(h.hello("worker", supervisor=machine), letter=b"W")


def another_function(attack: Attack) -> None:
    """V4: ``exp`` under the name of ``log2``."""
    peer = attack.client()
    assert peer is not None
    right, wrong = (pickle.dumps(one, 5) for one in (math.log2, math.exp))
    peer.say([h.FUNCTION, h.digest(right), wrong, [], "log2"])
    assert "the name of another one" in peer.hear(h.GOODBYE)[1]


def another_array(attack: Attack) -> None:
    """V5: zeros under the name of an array: its plain digest, or in a segment of another one.

    The honest client stores the array afterwards.
    """
    array = ARRAY + 1
    wrong = bytes(array.nbytes)
    one = blake3(memoryview(array).cast("B")).digest(16)
    peer, store = attack.client(), attack.peer(attack.stack.storage)
    assert peer is not None
    store.say(h.hello(), [h.PUT, peer.segment()])
    heard = store.hear(h.FETCH)
    while heard[0] == h.FETCH:
        _, segment, offset, nbytes = heard
        store.say([h.PART, segment, offset, len(wrong), wrong[offset : offset + nbytes]])
        heard = store.hear(h.FETCH, h.TRANSFERRED)
    assert heard[2] == ""
    peer.say([h.OBJECT, one, segment, len(wrong)])
    attack.says_in_vain(h.hello(), [h.OBJECT, os.urandom(16), segment, len(wrong)])
    assert attack.stack.client.submit(np.sum, array).result(BOUND_S) == array.sum()


def print_elsewhere(attack: Attack) -> None:
    """V6: what another one's terminal shows."""
    peer = attack.client()
    assert peer is not None
    peer.say(*([h.PRINTED, attack.stack.session, task, "stdout", FORGED] for task in range(99)))
    assert peer.hear(h.GOODBYE)


def another_name(attack: Attack) -> None:
    """V7: the places of those whose names can be seen, while one of them runs a task."""
    held = attack.stack.client.submit(
        tasks.hold, attack.flags.path("begun"), attack.flags.path("go")
    )
    attack.flags.wait("begun")
    names = attack.names()
    workers = [one for one in names if one[:1] == b"W"]
    assert len(workers) >= 2
    for name in (one for one in names if len(one) < 16):
        lost = ([h.WORKER_LOST, one, 0, 0, {}] for one in workers)
        peer = attack.peer(name=name)
        peer.throw(b"garbage")
        peer.say(h.hello("supervisor"), *lost)
        assert peer.is_dropped(), name
    attack.flags.set("go")
    assert held.result(BOUND_S) in attack.stack.workers


def hold_below(client: Any, begun: str, go: str) -> int:
    """Wait for a task of this task."""
    return int(client.submit(tasks.hold, begun, go).result())


def another_session(attack: Attack) -> None:
    """V8: the session of a task that submits tasks."""
    client, flags = attack.stack.client, attack.flags
    outer = client.submit(hold_below, client, flags.path("begun"), flags.path("go"))
    inner = flags.wait("begun")
    for one in _rows(attack.snapshot()["workers"]):
        peer = attack.peer()
        peer.say(h.hello(worker=one["worker"], pid=one["pid"], host=one["host"]))
        if attack.keys and attack.stack.is_worker(attack.keys):
            assert peer.hear(h.REFUSED)
        else:
            attack.is_out(peer)
    flags.set("go")
    assert outer.result(BOUND_S) == inner


def the_end(attack: Attack) -> None:
    """V9: the end of the cluster."""
    attack.says_in_vain(h.hello(), [h.SHUTDOWN])


def other_segments(attack: Attack) -> None:
    """V10: the bytes of a segment whose name can be seen, or found out."""
    seen = attack.names()
    guesses = [b"%s-%d" % (one.hex().encode(), n) for one in seen for n in range(3)]
    names = [one for one in guesses if len(one) <= 64]
    peer = attack.peer(attack.stack.storage)
    peer.say(h.hello(), *([h.FETCH, one, 0, 1 << 20] for one in names))
    assert peer.is_let_in() is attack.has_door
    for _ in names if attack.has_door else ():
        assert peer.hear(h.TRANSFERRED, h.PART)[0] == h.TRANSFERRED


# -- memory and time -------------------------------------------------------------------------------


def no_end(attack: Attack) -> None:
    """R1: a message of more and more frames.

    A peer with a key may go on until the memory is full, as docs/security.md says: so few are sent.
    """
    peer = attack.peer()
    peer.say(h.hello())
    with contextlib.suppress(zmq.Again):
        for _ in range(30_000):
            peer.socket.send(b"", zmq.SNDMORE | zmq.NOBLOCK)
    peer.throw(bytes(1 << 20))
    attack.is_out(peer)


def lists_of_nothing(attack: Attack) -> None:
    """R2: a header that takes 70 times its length, before a Hello and after it."""
    header = b"\xdd" + (16_000_000).to_bytes(4, "big") + b"\x90" * 16_000_000
    peer = attack.peer()
    peer.throw(header)
    if not attack.has_door:
        assert not peer.is_let_in()
        return
    assert peer.hear(h.UNKNOWN)
    peer.say(h.hello())
    assert peer.hear(h.WELCOME)
    peer.throw(header)
    assert "too many parts" in peer.hear(h.GOODBYE)[1]


def far_ahead(attack: Attack) -> None:
    """R3: envelopes that wait for one that does not come."""
    peer = attack.client()
    assert peer is not None
    for number in range(1000):
        peer.throw(*peer.packed(peer.seq + 2 + number, [h.HEARTBEAT]), bytes(100_000))
        if number % 50 == 0:
            # Only as many as the scheduler takes in: what waits before it is another matter.
            assert peer.hear(h.GAP)
    peer.say([h.HEARTBEAT])
    assert peer.hear(h.HEARTBEAT)
    peer.say([h.GOODBYE, ""])


def never_read(attack: Attack) -> None:
    """R4: results that are not read: the scheduler keeps as many as it may, and gives no more."""
    peer = attack.client()
    assert peer is not None
    large = pickle.dumps(bytes, 5)
    arguments = [pickle.dumps((RESULT_BYTES,))] * TASKS
    before = attack.stack.scheduler.out.count("does not read its results")
    peer.say(
        [h.FUNCTION, h.digest(large), large, [], "bytes"],
        h.submit(0, h.digest(large), h.batch(*arguments)),
    )
    wait_until(
        lambda: attack.stack.scheduler.out.count("does not read its results") > before,
        "all results are kept",
    )
    peer.throw(*peer.packed(peer.seq + 1, [h.GOODBYE, ""]))


def large_hellos(attack: Attack) -> None:
    """R5: the names of hosts, as long as can be."""
    for size in (1_000_000, 100_000, 256):
        for _ in range(20):
            attack.says_in_vain(h.hello(host="h" * size))


def a_million_tasks(attack: Attack) -> None:
    """R6: a Submit of a million tasks that all fail."""
    peer = attack.client()
    assert peer is not None
    payload = pickle.dumps(math.sqrt, 5)
    many = h.submit(0, h.digest(payload), [bytes(4_000_000), 0, b""])
    many[-1] = [os.urandom(16)]
    peer.say([h.FUNCTION, h.digest(payload), payload, [], "sqrt"], many)
    heard = peer.hear(h.GOODBYE, h.FAILED, h.FAILED_RANGE)
    assert "tasks in one message" in heard[1]


def a_million_nodes(attack: Attack) -> None:
    """R7: a part of a graph with many nodes."""
    peer = attack.client()
    assert peer is not None
    payload = pickle.dumps(math.sqrt, 5)
    numbers = bytes(4 * 500_000)
    peer.say(
        [h.FUNCTION, h.digest(payload), payload, [], "sqrt"],
        [
            h.GRAPH, 1 << 40, 0, h.digest(payload), [None], [numbers, 0, b""], numbers, b"",
            numbers, bytes(500_000), b"", [], b"", True, b"", False, [], b"",
        ],
    )  # fmt: skip
    assert "too many nodes" in peer.hear(h.GOODBYE)[1]


def names_of_nodes(attack: Attack) -> None:
    """R12: names of nodes that are too many, too long, not there, or not for all."""
    payload = pickle.dumps(math.sqrt, 5)
    one = h.batch(pickle.dumps((4.0,)))
    for names, layers, reason in (
        ([f"n{n}" for n in range(256)], b"", "too many names"),
        (["n" * 1_000_000], b"", "too long"),
        (["a"], b"\1", "no names"),
        ([], b"\xff", "no names"),
        (["a", "b"], b"\0\1\1", "some nodes have no names"),
    ):
        peer = attack.client()
        assert peer is not None
        peer.say(
            [h.FUNCTION, h.digest(payload), payload, [], "sqrt"],
            [
                h.GRAPH, 1 << 40, 0, h.digest(payload), [None], one, bytes(4), b"",
                NUMBER.pack(1), b"\1", b"", [], b"", True, b"", False, names, layers,
            ],
        )  # fmt: skip
        assert reason in peer.hear(h.GOODBYE)[1]


def many_demands(attack: Attack) -> None:
    """R8: tasks that demand a thousand things that no worker has."""
    peer = attack.client()
    assert peer is not None
    payload = pickle.dumps(math.sqrt, 5)
    one = h.batch(pickle.dumps((4.0,)))
    peer.say([h.FUNCTION, h.digest(payload), payload, [], "sqrt"])
    for n in range(1000):
        peer.say(h.submit(n, h.digest(payload), one, capabilities=[[f"demand-{n}", 1]]))
    # It is told why they wait.
    assert peer.hear(h.UNPLACED)
    peer.say([h.GOODBYE, ""])


def empty_envelopes(attack: Attack) -> None:
    """R9: envelopes without anything, as fast as can be, from one that is known and one that is not."""
    for peer in (attack.client(), attack.peer()):
        if peer is None or not attack.has_door:
            continue
        for _ in range(20_000):
            peer.throw(*peer.packed(0))
        peer.say(h.hello(), [h.HEARTBEAT])
        assert peer.hear(h.HEARTBEAT, h.UNKNOWN)


def silent_connections(attack: Attack) -> None:
    """R10: connections that say nothing: they are closed, and others come in meanwhile."""
    host, _, port = attack.stack.address.removeprefix("tcp://").partition(":")
    with ExitStack() as opened:
        silent = [
            opened.enter_context(socket.create_connection((host, int(port)))) for _ in range(500)
        ]
        with attack.stack.another_client() as client:
            assert client.submit(math.sqrt, 4.0).result(BOUND_S) == 2.0
        end = time.monotonic() + BOUND_S
        for one in silent:
            one.settimeout(max(end - time.monotonic(), 0.1))
            while one.recv(64):
                pass


def subscriptions(attack: Attack) -> None:
    """R11: subscriptions to all sorts of things."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, context.socket(zmq.SUB) as feed:
        feed.linger = 0
        feed.set_hwm(0)
        feed.connect(h.show(feed, attack.stack.feed, attack.keys))
        for n in range(2000):
            feed.subscribe(NUMBER.pack(n) * 50)
        feed.subscribe(b"snapshot")
        assert feed.poll(BOUND_S * 1000)


def knocks(attack: Attack) -> None:
    """Handshakes without a key, one after the other."""
    for _ in range(200):
        with h.HostilePeer(attack.stack.address, attack.keys) as peer:
            assert not peer.is_let_in()


def garbage(attack: Attack) -> None:
    """Envelopes that are none, from a peer that is dropped again and again."""
    peer = attack.peer()
    for _ in range(2000):
        peer.throw(os.urandom(200), os.urandom(100))
    attack.is_out(peer)

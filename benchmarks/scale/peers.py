"""Many peers of a scheduler in one process: links, channels and timers, without a thread."""

from __future__ import annotations

import secrets
import select
from heapq import heappop, heappush
from time import perf_counter as clock
from time import sleep
from typing import TYPE_CHECKING

import zmq

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.ids import HUB, PEER_RANDOM_BYTES
from scaler_cluster.links import zmq_link
from scaler_cluster.links.guarded_context import GuardedContext
from scaler_cluster.links.link import new_incarnation
from scaler_cluster.process.process import allow_many_files
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import WORKER

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from scaler_cluster.links.curve import Passport
    from scaler_cluster.wire import messages as m

AT_ONCE = 256
WAIT_MAX_S = 0.05
HEARTBEAT_S = 2.0
GATHER_S = 0.001
"""Under load a process of stand-ins looks this often for what has arrived."""
SOCKETS_MAX = 60_000
RESERVED_FILES = 64


def keys_for(address: str, role: str) -> Passport | None:
    """Return the keys that this user has for an address; None: it needs none."""
    return Credentials(role=role).passport(address)


class Peers:
    """Peers that share a thread; each has a socket and a channel of its own."""

    def __init__(self, address: str) -> None:
        allow_many_files(RESERVED_FILES)
        self._address = address
        self._passport = keys_for(address, WORKER)
        self._exchange = Exchange(new_incarnation())
        self._links: dict[bytes, zmq_link.ZmqLink] = {}
        self._first: zmq_link.ZmqLink | None = None
        self._peers: dict[int, bytes] = {}
        """Peers by the descriptors of their sockets."""
        self._handlers: dict[bytes, Callable[[bytes, m.Message], None]] = {}
        self._outbox: dict[bytes, list[m.Message]] = {}
        self._to_read: dict[bytes, None] = {}
        """Peers whose descriptors may not signal what is there already."""
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._poller = select.epoll()

    def add(self, letter: bytes, handler: Callable[[bytes, m.Message], None]) -> bytes:
        """Let a peer connect that says nothing yet; return its id."""
        peer = letter + secrets.token_bytes(PEER_RANDOM_BYTES)
        if self._first is None:
            # The limit holds for sockets that are made after it was set.
            zmq.Context.instance().set(zmq.MAX_SOCKETS, SOCKETS_MAX)
            self._first = _Anchor()
        link = zmq_link.connect(self._address, peer, passport=self._passport, beside=self._first)
        self._links[peer] = link
        self._handlers[peer] = handler
        self._peers[link.fd] = peer
        self._poller.register(link.fd, select.EPOLLIN | select.EPOLLET)
        self._to_read[peer] = None
        return peer

    def say(self, peer: bytes, *messages: m.Message) -> None:
        """Send messages at the end of the turn, in one envelope with what else a peer says."""
        self._outbox.setdefault(peer, []).extend(messages)

    def say_alone(self, peer: bytes, message: m.Message) -> None:
        """Send a message at once, in an envelope of its own."""
        self._send(peer, [message], clock())

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call something at a time."""
        self._numbers += 1
        heappush(self._timers, (when, self._numbers, call))

    def serve(self, commands: Connection, obey: Callable[[str, tuple[float, ...]], None]) -> None:
        """Work until the command ``end``, or until nobody holds the other end any more."""
        self._poller.register(commands.fileno(), select.EPOLLIN)
        before = 0.0
        while True:
            wait_s = self._wait_s()
            if wait_s and clock() < before + GATHER_S:
                # Under load: one look for several messages, or the looks would take a CPU.
                sleep(GATHER_S)
            found = self._poller.poll(wait_s)
            before = clock() if found else 0.0
            for fd, _ in found:
                peer = self._peers.get(fd)
                if peer is not None:
                    self._to_read[peer] = None
                    continue
                try:
                    name, arguments = commands.recv()
                except EOFError:
                    return
                if name == "end":
                    return
                obey(name, arguments)
            self.turn()

    def _wait_s(self) -> float:
        if self._to_read:
            return 0.0
        due = min(self._exchange.deadline, self._timers[0][0] if self._timers else WAIT_MAX_S)
        return min(max(due - clock(), 0.0), WAIT_MAX_S)

    def turn(self) -> None:
        """Take in what has arrived, call what is due, and send."""
        now = clock()
        to_read, self._to_read = self._to_read, {}
        for peer in to_read:
            link = self._links.get(peer)
            if link is None:
                continue
            received = link.receive(AT_ONCE)
            for _, frames in received:
                for message in self._exchange.receive(peer, frames, now):
                    self._handlers[peer](peer, message)
            if len(received) == AT_ONCE:
                self._to_read[peer] = None
        while self._timers and self._timers[0][0] <= now:
            heappop(self._timers)[2]()
        if self._outbox:
            outbox, self._outbox = self._outbox, {}
            for peer, messages in outbox.items():
                if peer in self._links:
                    self._send(peer, messages, now)
        if now >= self._exchange.deadline:
            for peer, frames in self._exchange.tick(now):
                self._links[peer].send(HUB, frames)
                self._to_read[peer] = None

    def _send(self, peer: bytes, messages: list[m.Message], now: float) -> None:
        for frames in self._exchange.send(peer, messages, now):
            self._links[peer].send(HUB, frames)
        self._to_read[peer] = None

    def drop(self, *peers: bytes) -> None:
        """Let peers be gone, once what they have said is sent."""
        for peer in peers:
            self._drop(peer)

    def _drop(self, peer: bytes) -> None:
        if messages := self._outbox.pop(peer, None):
            self._send(peer, messages, clock())
        link = self._links.pop(peer)
        self._poller.unregister(link.fd)
        del self._peers[link.fd], self._handlers[peer]
        self._exchange.drop(peer)
        self._to_read.pop(peer, None)
        link.close()

    def close(self) -> None:
        """Drop all peers."""
        self.drop(*self._links)


class _Anchor(zmq_link.ZmqLink):
    """Stands for the link whose context all links of a process share."""

    def __init__(self) -> None:
        self.sockets = GuardedContext(zmq.Context.instance())

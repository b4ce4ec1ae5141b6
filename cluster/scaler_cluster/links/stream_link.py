"""Hub and spokes on the same machine, without a thread in between: see ``stream.py``."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import select
import socket
import sys
from abc import abstractmethod
from collections import deque
from pathlib import Path
from time import perf_counter as clock
from typing import TYPE_CHECKING, Generic, TypeVar

import zmq

from scaler_cluster.errors import ConfigError, RemoteProtocolError
from scaler_cluster.ids import HUB
from scaler_cluster.links.guarded_context import GuardedContext
from scaler_cluster.links.link import LINGER_MS, Spinning, private_files
from scaler_cluster.links.stream import HIGH_WATER, IN, PIECE_BYTES, SCHEME, Stream, socket_name
from scaler_cluster.links.zmtp import opening

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.wire.batch import Buffer

RETRY_S, RETRY_MAX_S = 0.005, 0.2
"""How long after a connection broke, or could not be made, it is made again."""
FULL_WAIT_S = 0.05
"""A spoke waits so long for more room in a socket that is full; then the rest is sent later."""
QUEUED_PEERS = 4096
"""Peers that may wait until a hub lets them in: the workers of a machine come in bursts."""
READY_MAX = 256
"""Connections that a hub looks at in one turn."""
NAME_BYTES_MAX = 107
"""Longer names are no names of Unix sockets."""
OPENING = opening(b"ROUTER", b"")
"""What a hub says first."""
Arrived = TypeVar("Arrived")


def is_for(address: str) -> bool:
    """Return True if hub and spokes at an address may be of this kind."""
    is_short = len(os.fsencode(address.removeprefix(SCHEME))) <= NAME_BYTES_MAX
    return sys.platform == "linux" and address.startswith(SCHEME) and is_short


class _StreamLink(Spinning, Generic[Arrived]):
    """What a hub and a spoke have in common: sockets that an epoll waits for."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        """Is readable while there is something to do for :meth:`receive`."""
        self._scratch = memoryview(bytearray(PIECE_BYTES))
        self._arrived: deque[Arrived] = deque()

    @abstractmethod
    def _turn(self, timeout_s: float) -> None:
        """Do what sockets are ready for, after at most so long."""

    def readable(self) -> bool:
        """Return True if something has arrived."""
        if not self._arrived:
            self._turn(0.0)
        return bool(self._arrived)


class StreamSpoke(_StreamLink["list[Buffer]"]):
    """Connects to the hub at ``address`` as ``peer``, now or when the hub is there."""

    def __init__(self, address: str, peer: bytes) -> None:
        super().__init__(address)
        self._opening = opening(b"DEALER", peer)
        self._stream: Stream | None = None
        self._is_ready = False
        """The hub takes messages in: libzmq takes in none before it has said READY."""
        self._waiting: deque[Sequence[Buffer]] = deque()
        """Messages from before."""
        self._retry_s = RETRY_S
        self._connect_at = 0.0
        self._connect()

    def send(self, _peer: bytes, frames: Sequence[Buffer]) -> None:
        """See Link."""
        stream = self._stream
        if stream is not None and self._is_ready:
            # Once it is full, whoever waits for the descriptor sends the rest.
            stream.send(frames, 0.0 if stream.unsent else FULL_WAIT_S)
        elif len(self._waiting) < HIGH_WATER:
            self._waiting.append(frames)

    def receive(self, limit: int) -> list[tuple[bytes, list[Buffer]]]:
        """See Link."""
        arrived = self._arrived
        if not arrived:
            self._turn(0.0)
            if not arrived:
                return []
        return [(HUB, arrived.popleft()) for _ in range(min(limit, len(arrived)))]

    def wait(self, timeout_s: float) -> bool:
        """Sleep until something has arrived, at most ``timeout_s``; return True if it has."""
        if not self._arrived:
            if self._stream is None:
                timeout_s = min(timeout_s, max(self._connect_at - clock(), 0.0))
            self._turn(timeout_s)
            if self._stream is None:
                self.tend()
        return bool(self._arrived)

    @property
    def deadline(self) -> float:
        """When :meth:`tend` has something to do, on the clock of ``time.perf_counter``."""
        return self._connect_at if self._stream is None else math.inf

    @property
    def refusal(self) -> str:
        """Return "": at a file that it may open, nobody refuses this user."""
        return ""

    @property
    def is_refused(self) -> bool:
        """Return False, see above."""
        return False

    def tend(self) -> None:
        """Connect again if it is time to; every shell calls this now and then."""
        if self._stream is None and clock() >= self._connect_at:
            self._connect()

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Let go of everything; what was sent before is still delivered for a moment."""
        if self._stream is not None:
            self._stream.flush(linger_ms / 1000)
            self._stream.close()
        self._epoll.close()

    def _connect(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            made.connect(socket_name(self.address))
            self._stream = Stream(made, self._opening, self._epoll, self._scratch)
        except OSError:
            made.close()
            self._retry_later()

    def _retry_later(self) -> None:
        self._connect_at = clock() + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _disconnect(self) -> None:
        """The connection broke: what was under way is lost, and is repeated by the exchange."""
        assert self._stream is not None
        self._stream.leave()
        self._stream, self._is_ready = None, False
        self._retry_later()

    def _turn(self, timeout_s: float) -> None:
        for _, events in self._epoll.poll(timeout_s):
            assert self._stream is not None
            try:
                self._arrived.extend(self._stream.turn(events))
            except (OSError, RemoteProtocolError):
                self._disconnect()
                return
            if not self._is_ready and self._stream.peer is not None:
                self._is_ready, self._retry_s = True, RETRY_S
                waiting, self._waiting = self._waiting, deque()
                for frames in waiting:
                    self.send(HUB, frames)


class StreamHub(_StreamLink["tuple[bytes, list[Buffer]]"]):
    """Listens at an ``address`` such as ``ipc:///tmp/hub``; any DEALER may connect.

    Raises ConfigError if it cannot; the message names the address.
    """

    def __init__(self, address: str) -> None:
        self._listener = _listen(address)
        super().__init__(address)
        self.knows: Callable[[bytes], bool] = lambda peer: False
        """Not asked for: here nobody has keys."""
        self.sockets = GuardedContext(zmq.Context())
        """Of ZeroMQ's sockets beside this hub; ends with it."""
        self._epoll.register(self._listener, IN)
        name = socket_name(address)
        self._file = None if name.startswith("\0") else Path(name)
        self._bound = self._file.stat() if self._file is not None else None
        """The file as it was made."""
        self._streams: dict[int, Stream] = {}
        """By descriptor."""
        self._names: dict[int, bytes] = {}
        self._peers: dict[bytes, Stream] = {}

    # -- as any link ---------------------------------------------------------------------------

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        """See Link."""
        stream = self._peers.get(peer)
        if stream is not None:
            stream.send(frames)

    def receive(self, limit: int) -> list[tuple[bytes, list[Buffer]]]:
        """See Link."""
        arrived = self._arrived
        if len(arrived) < limit:
            self._turn(0.0)
        return [arrived.popleft() for _ in range(min(limit, len(arrived)))]

    def wait(self, timeout_s: float) -> bool:
        """Sleep until something has arrived, at most ``timeout_s``; return True if it has."""
        if not self._arrived:
            self._turn(timeout_s)
        return bool(self._arrived)

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Let go of everything; what was sent before is still delivered for a moment."""
        self._listener.close()
        if self._file is not None and self._bound is not None:
            with contextlib.suppress(OSError):
                # The next hub may be there already.
                if os.path.samestat(self._bound, self._file.stat()):
                    self._file.unlink()
        end = clock() + linger_ms / 1000
        for stream in self._streams.values():
            stream.flush(max(end - clock(), 0.0))
            stream.close()
        self._epoll.close()
        self.sockets.close()

    # -- as a hub of libzmq --------------------------------------------------------------------

    def user_of(self, _peer: bytes) -> str:
        """Return "": whoever may open the file of the socket is this user."""
        return ""

    @property
    def expelled(self) -> list[bytes]:
        """Nobody has a key that could be removed."""
        return []

    def forget(self, peer: bytes) -> None:
        """Nothing is kept of a peer but its connection, which it closes."""

    # -- the sockets ---------------------------------------------------------------------------

    def _turn(self, timeout_s: float) -> None:
        streams, names, arrived = self._streams, self._names, self._arrived
        for fd, events in self._epoll.poll(timeout_s, READY_MAX):
            stream = streams.get(fd)
            if stream is None:
                if fd == self._listener.fileno():
                    self._accept()
                continue
            try:
                messages = stream.turn(events)
            except (OSError, RemoteProtocolError):
                self._drop(stream)
                continue
            peer = names.get(fd)
            if peer is None:
                if stream.peer is None:
                    continue
                peer = self._let_in(stream, stream.peer)
            for frames in messages:
                arrived.append((peer, frames))

    def _accept(self) -> None:
        while True:
            try:
                made, _ = self._listener.accept()
            except OSError:
                # Nobody is left, or no descriptor: see full_house.py.
                return
            try:
                stream = Stream(made, OPENING, self._epoll, self._scratch)
            except OSError:
                made.close()
                continue
            self._streams[stream.fd] = stream

    def _let_in(self, stream: Stream, peer: bytes) -> bytes:
        """A peer said who it is: its earlier connection, if it has one, is given up."""
        peer = peer or b"\0" + secrets.token_bytes(4)
        former = self._peers.get(peer)
        if former is not None:
            self._drop(former)
        self._peers[peer] = stream
        self._names[stream.fd] = peer
        return peer

    def _drop(self, stream: Stream) -> None:
        self._streams.pop(stream.fd, None)
        peer = self._names.pop(stream.fd, None)
        if peer is not None and self._peers.get(peer) is stream:
            del self._peers[peer]
        stream.leave()


def _listen(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    name = socket_name(address)
    try:
        if not name.startswith("\0") and Path(name).is_socket():
            # Of a hub that was killed. Any other file is not ours to remove.
            Path(name).unlink(missing_ok=True)
        with private_files():
            made.bind(name)
        made.listen(QUEUED_PEERS)
    except OSError as error:
        made.close()
        raise ConfigError(f"cannot bind {address}: {os.strerror(error.errno or 0)}") from error
    return made

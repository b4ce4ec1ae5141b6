"""A spoke to a hub on the same machine, without a thread in between.

A spoke of libzmq has a thread that does nothing but carry bytes: of a task that travels alone that
is a tenth of all its CPU time. Here the thread that uses the spoke reads and writes the socket. The
hub cannot tell the difference: it is ZMTP on a Unix socket.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import HUB
from scaler_cluster.links.zmtp import Reader, encode, opening
from scaler_cluster.wire.batch import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.wire.batch import Buffer

SCHEME = "ipc://"
PIECE_BYTES = 64 * 1024
"""At most so much is read at once."""
HIGH_WATER = 100_000
"""Envelopes that wait to be sent; beyond, they are dropped and sent again later."""
RETRY_S, RETRY_MAX_S = 0.005, 0.2
"""How long after a connection broke, or could not be made, it is made again."""
FULL_WAIT_S = 0.05
"""A sender waits so long for more room in a socket that is full; then the rest is sent later."""


def is_for(address: str) -> bool:
    """Return True if this kind of spoke reaches a hub at the address."""
    return sys.platform == "linux" and address.startswith(SCHEME)


class StreamSpoke:
    """Connects to the hub at ``address`` as ``peer``, now or when the hub is there."""

    def __init__(self, address: str, peer: bytes) -> None:
        self.address = address
        self._opening = opening(b"DEALER", peer)
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        """Is readable while there is something to do for :meth:`receive`."""
        self._socket: socket.socket | None = None
        self._reader = Reader(BATCH_BYTES_MAX)
        self._arrived: deque[list[Buffer]] = deque()
        self._unsent: deque[Buffer] = deque()
        """Buffers that the socket had no room for; the first may be the rest of one."""
        self._waiting: deque[list[Buffer]] = deque()
        """Messages for a hub that has not said READY: libzmq takes in none before it has."""
        self._is_ready = False
        self._retry_s = RETRY_S
        self._connect_at = 0.0
        self._connect()

    def send(self, _peer: bytes, frames: Sequence[Buffer]) -> None:
        """See Link."""
        buffers = encode(frames)
        if not self._is_ready:
            if len(self._waiting) < HIGH_WATER:
                self._waiting.append(buffers)
        elif not self._unsent and len(buffers) == 1:
            self._send_one(buffers[0])
        elif len(self._unsent) < HIGH_WATER:
            self._unsent.extend(buffers)
            self._flush(FULL_WAIT_S)

    def receive(self, limit: int) -> list[tuple[bytes, list[Buffer]]]:
        """See Link."""
        arrived = self._arrived
        if not arrived:
            self._turn(0.0)
            if not arrived:
                return []
        return [(HUB, arrived.popleft()) for _ in range(min(limit, len(arrived)))]

    def readable(self) -> bool:
        """Return True if something has arrived."""
        if not self._arrived:
            self._turn(0.0)
        return bool(self._arrived)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until something has arrived, at most ``timeout_s``; return True if it has."""
        if not self._arrived:
            if self._socket is None:
                timeout_s = min(timeout_s, max(self._connect_at - time.monotonic(), 0.0))
            self._turn(timeout_s)
            self.tend()
        return bool(self._arrived)

    def tend(self) -> None:
        """Connect again if it is time to; every shell calls this now and then."""
        if self._socket is None and time.monotonic() >= self._connect_at:
            self._connect()

    def close(self, linger_s: float = 0.5) -> None:
        """Let go of everything; what was sent before is still delivered for a moment."""
        self._flush(linger_s)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._epoll.close()

    # -- the socket --------------------------------------------------------------------------

    def _connect(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.setblocking(False)
        path = self.address.removeprefix(SCHEME)
        try:
            made.connect("\0" + path[1:] if path.startswith("@") else path)
        except OSError:
            made.close()
            self._retry_later()
            return
        self._socket = made
        self._reader = Reader(BATCH_BYTES_MAX)
        self._epoll.register(made, select.EPOLLIN)
        self._unsent.append(self._opening)
        self._flush(0.0)

    def _begin(self) -> None:
        """The hub is ready."""
        self._is_ready = True
        self._retry_s = RETRY_S
        while self._waiting:
            self._unsent.extend(self._waiting.popleft())
        self._flush(FULL_WAIT_S)

    def _retry_later(self) -> None:
        self._connect_at = time.monotonic() + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _disconnect(self) -> None:
        """The connection broke: what was under way is lost, and is repeated by the exchange."""
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        self._is_ready = False
        self._unsent.clear()
        self._retry_later()

    def _turn(self, timeout_s: float) -> None:
        """Do what the socket is ready for, after at most so long."""
        for _, events in self._epoll.poll(timeout_s):
            if events & ~select.EPOLLOUT:
                self._read()
            if events & select.EPOLLOUT and self._socket is not None:
                self._flush(0.0)

    def _read(self) -> None:
        """Take in what has come, a piece of it."""
        made, reader = self._socket, self._reader
        assert made is not None
        try:
            target = reader.target
            if target is not None:
                count = made.recv_into(target)
                messages = reader.filled(count) if count else []
            else:
                data = made.recv(PIECE_BYTES)
                count = len(data)
                messages = reader.feed(data) if count else []
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, RemoteProtocolError):
            self._disconnect()
            return
        if not count:
            self._disconnect()
            return
        self._arrived.extend(messages)
        if not self._is_ready and reader.peer is not None:
            self._begin()
        if reader.answer:
            self._unsent.append(reader.answer)
            reader.answer = b""
            self._flush(0.0)

    def _send_one(self, buffer: Buffer) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(buffer)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._disconnect()
            return
        if sent < len(buffer):
            self._unsent.append(memoryview(buffer)[sent:])
            self._flush(FULL_WAIT_S)

    def _flush(self, wait_s: float) -> None:
        """Send what was not sent; wait at most so long for more room."""
        unsent = self._unsent
        end = time.monotonic() + wait_s
        while unsent and self._socket is not None:
            try:
                sent = self._socket.send(unsent[0])
            except BlockingIOError:
                left_s = end - time.monotonic()
                if left_s <= 0 or not _has_room(self._socket, left_s):
                    break
                continue
            except OSError:
                self._disconnect()
                return
            end = time.monotonic() + wait_s
            if sent == len(unsent[0]):
                unsent.popleft()
            else:
                unsent[0] = memoryview(unsent[0])[sent:]
        if self._socket is not None:
            events = select.EPOLLIN | (select.EPOLLOUT if unsent else 0)
            self._epoll.modify(self._socket, events)


def _has_room(made: socket.socket, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(made, select.POLLOUT)
    with contextlib.suppress(OSError):
        return bool(poll.poll(timeout_s * 1000))
    return False

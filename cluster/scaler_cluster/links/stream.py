"""A connection over a Unix socket that speaks ZMTP, read and written by whoever uses it.

A socket of libzmq has a thread that does nothing but carry bytes: of a task that travels alone it
takes a tenth of all CPU time. The other side cannot tell the difference.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from itertools import islice
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.links.zmtp import Reader, encode
from scaler_cluster.wire.batch import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.wire.batch import Buffer

IN, OUT = getattr(select, "EPOLLIN", 1), getattr(select, "EPOLLOUT", 4)
SCHEME = "ipc://"
PIECE_BYTES = 256 * 1024
"""At most so much is read at once."""
LITTLE_BYTES = 4096
SEND_BUFFER_BYTES = 1 << 20
"""So much the kernel is asked to keep for the other end, and mostly keeps less."""
HIGH_WATER = 100_000
"""Frames that wait to be sent; what comes beyond is dropped, and sent again later."""
TOGETHER = 64
"""So many frames are handed to the kernel at once."""
NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""A program may have SIGPIPE end it."""


def socket_name(address: str) -> str:
    """Return the name of the socket at an address: a path, or a name of Linux (``ipc://@name``)."""
    path = address.removeprefix(SCHEME)
    return "\0" + path[1:] if path.startswith("@") else path


class Stream:
    """One end of a connection, which begins with ``opening``. An ``epoll`` waits for it.

    It reads by way of a ``scratch`` of PIECE_BYTES, which others may use as well.

    :meth:`turn` raises OSError once the connection is broken, and RemoteProtocolError if the other
    end does not speak ZMTP. Then it is to be closed. Until then all that the other end has said
    before its end is read, though nothing can be sent to it any more.
    """

    __slots__ = ("_epoll", "_events", "_is_over", "_reader", "_scratch", "_socket", "fd", "unsent")

    def __init__(
        self, made: socket.socket, opening: bytes, epoll: select.epoll, scratch: memoryview
    ) -> None:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.fd = made.fileno()
        self.unsent: deque[Buffer] = deque([opening])
        """What the socket had no room for."""
        self._socket = made
        self._is_over = False
        """Nothing can be sent any more."""
        self._reader = Reader(BATCH_BYTES_MAX)
        self._epoll = epoll
        self._scratch = scratch
        self._events = IN
        epoll.register(made, IN)
        self.flush()

    @property
    def peer(self) -> bytes | None:
        """The id that the other end gave itself; None: it is not ready for messages."""
        return self._reader.peer

    def leave(self) -> None:
        """Let go of it, where others stay at the epoll.

        A child that is being forked has its descriptor, too: to close it here would not end the
        events that come of it.
        """
        self._epoll.unregister(self.fd)
        self.close()

    def close(self) -> None:
        """Let go of it, as the epoll ends."""
        self._socket.close()
        self.unsent.clear()

    def send(self, frames: Sequence[Buffer], wait_s: float = 0.0) -> None:
        """Send a message, or keep what there is no room for; see :meth:`flush`."""
        unsent = self.unsent
        if self._is_over or len(unsent) >= HIGH_WATER:
            return
        buffers = encode(frames)
        if unsent or len(buffers) > 1:
            unsent.extend(buffers)
            self.flush(wait_s)
            return
        (buffer,) = buffers
        try:
            sent = self._socket.send(buffer, NO_SIGNAL)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._stop_sending()
            return
        if sent < len(buffer):
            unsent.append(memoryview(buffer)[sent:])
            self.flush(wait_s)

    def flush(self, wait_s: float = 0.0) -> None:
        """Send what there was no room for; wait at most so long for more room."""
        unsent = self.unsent
        end = clock() + wait_s if wait_s else 0.0
        while unsent:
            try:
                sent = self._socket.sendmsg(list(islice(unsent, TOGETHER)), [], NO_SIGNAL)
            except BlockingIOError:
                if end and self._has_room(end - clock()):
                    continue
                break
            except OSError:
                self._stop_sending()
                break
            if wait_s:
                end = clock() + wait_s
            while unsent and sent >= len(unsent[0]):
                sent -= len(unsent.popleft())
            if sent:
                unsent[0] = memoryview(unsent[0])[sent:]
        events = IN | OUT if unsent else IN
        if events != self._events:
            self._events = events
            self._epoll.modify(self.fd, events)

    def _stop_sending(self) -> None:
        self._is_over = True
        self.unsent.clear()

    def _has_room(self, timeout_s: float) -> bool:
        if timeout_s <= 0:
            return False
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        return bool(poll.poll(timeout_s * 1000))

    def turn(self, events: int) -> list[list[Buffer]]:
        """Do what the socket is ready for; return the messages that have come."""
        messages: list[list[Buffer]] = []
        reader, scratch = self._reader, self._scratch
        # In one piece: each call costs a lone message as much as what is done in it.
        if events & ~OUT:
            try:
                if reader.large is None:
                    count = self._socket.recv_into(scratch)
                    data = scratch[:count]
                    # What is little is read faster in one piece.
                    messages = reader.feed(bytes(data) if count < LITTLE_BYTES else data)
                else:
                    count = self._socket.recv_into(reader.target)
                    messages = reader.filled(count) if count else []
            except BlockingIOError:
                count = -1
            if not count:
                raise ConnectionResetError("the other end has closed it")
            if reader.answer:
                if len(self.unsent) < HIGH_WATER:
                    self.unsent.append(reader.answer)
                    self.flush()
                reader.answer = b""
        if events & OUT:
            self.flush()
        return messages

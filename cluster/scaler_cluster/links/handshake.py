"""What becomes of the handshakes of a socket that connects, and what is to be done about it."""

from __future__ import annotations

import math
import socket as sockets
import struct
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    from scaler_cluster.links.curve import Passport

EVENT = struct.Struct("=HI")
"""An event of a socket: its number and its value, in the first frame."""
PROTOCOL = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
NO_DETAIL = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
FAILED = PROTOCOL | NO_DETAIL
FINAL = PROTOCOL | int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
SUCCEEDED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
GREETING = b"\xff"
"""With this begins what anybody says who speaks ZeroMQ."""
LOST = int(zmq.EVENT_DISCONNECTED)
TRIES = int(zmq.EVENT_CONNECT_RETRIED)
"""After a connection was lost, this follows at once if libzmq connects again."""
POLLIN = int(zmq.POLLIN)
RECONNECT_MAX_MS = 1000
"""A connection that fails again and again is tried this often in the end."""
WAIT_MAX_MS = 1_000_000
REFUSED_S = 3.0
"""A scheduler that was just told of a new key knows it by then."""
GREETED_S = 1.0
"""Who speaks ZeroMQ greets as soon as a connection is there, and so within this."""

WITHOUT_KEY = "it asks for a key, and this side goes without"
NOT_THIS_KEY = (
    "it does not let this key in, is another cluster's, or goes without keys: name keys that it "
    "knows, with keys= or --keys"
)
NOBODY = "what accepts connections there is a forwarder, and nobody answers behind it"

_numbers = count()


def listen_to(
    context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], events: int
) -> zmq.Socket[bytes]:
    """Return a socket with these events of another one, from now on."""
    # Not the id of the socket: that of one before it may be the same, and is let go of later.
    address = f"inproc://events-{next(_numbers)}"
    socket.monitor(address, events)
    listener = context.socket(zmq.PAIR)
    # The thread of libzmq that tells of events would wait where there is no room for one.
    listener.rcvhwm = 0
    listener.linger = 0
    listener.connect(address)
    return listener


class Handshake:
    """Says why the handshakes of a socket fail, and connects it again where libzmq has given up.

    libzmq does so for good if who answers speaks something else. But that may be somebody who has
    the port for a moment only. To be made before the socket connects.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        socket: zmq.Socket[bytes],
        address: str,
        passport: Passport | None,
    ) -> None:
        self._socket = socket
        self._address = address
        self._has_passport = passport is not None
        self._events = listen_to(context, socket, FAILED | FINAL | SUCCEEDED | LOST | TRIES)
        self.fd = int(self._events.getsockopt(zmq.FD))
        """Becomes readable when :meth:`mend` may have something to do."""
        self._refusal = ""
        self._since = math.inf
        """When the first of the handshakes failed that have failed one after the other."""
        self._is_final = False
        """True once who is there has shown that the next handshake fails as well."""
        self._has_greeted = False
        """True once this has looked whether somebody is there, and somebody was."""
        self._is_silent = False
        """True if nobody was."""
        self._lost_at = math.inf
        """When the connection was lost, as long as libzmq has not begun another one."""
        # Only who has looked once, and found nothing, is woken.
        self._take_in()

    @property
    def is_refused(self) -> bool:
        """Return True if handshakes have failed for so long that the next ones will, too.

        A forwarder ends connections as well, as long as nobody has come up behind it: so this
        looks whether somebody is there.
        """
        if not self.refusal or self._is_final:
            return self._is_final
        if monotonic() < self._since + REFUSED_S:
            return False
        if self._has_greeted:
            return True
        self._has_greeted = _greets(self._address)
        self._is_silent = not self._has_greeted
        if self._has_greeted:
            # It may have come just now: the next handshake shows.
            self._refusal = ""
        else:
            self._since = monotonic()
        return False

    @property
    def refusal(self) -> str:
        """Return why the last handshake failed; empty: it did not, or there was none."""
        self._take_in()
        return NOBODY if self._refusal and self._is_silent else self._refusal

    def mend(self) -> int:
        """Connect again if that is due; return in how many milliseconds to ask again at most."""
        self._take_in()
        if self._lost_at == math.inf:
            return WAIT_MAX_MS
        if monotonic() >= self._lost_at + RECONNECT_MAX_MS / 1000:
            self._lost_at = math.inf
            self._socket.disconnect(self._address)
            self._socket.connect(self._address)
        return RECONNECT_MAX_MS

    def close(self) -> None:
        """Watch no more."""
        if not self._events.closed:
            self._socket.disable_monitor()
            self._events.close(0)

    def _take_in(self) -> None:
        while int(self._events.get(zmq.EVENTS)) & POLLIN:
            event, _ = EVENT.unpack(self._events.recv_multipart()[0])
            if event == LOST:
                self._lost_at = monotonic()
            elif event == TRIES:
                self._lost_at = math.inf
            elif event == SUCCEEDED:
                self._refusal, self._since, self._is_final = "", math.inf, False
            else:
                self._since = min(self._since, monotonic())
                self._refusal = NOT_THIS_KEY if self._has_passport else WITHOUT_KEY
                if event & FINAL:
                    self._is_final, self._is_silent = True, False


def _greets(address: str) -> bool:
    """Return True if somebody who speaks ZeroMQ is at an address of TCP."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    try:
        with sockets.create_connection((host.strip("[]"), int(port)), GREETED_S) as connection:
            return connection.recv(1) == GREETING
    except OSError:
        return False

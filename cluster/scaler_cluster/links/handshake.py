"""What becomes of the handshakes of a socket that connects, for whoever waits for an answer."""

from __future__ import annotations

import math
import struct
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
SUCCEEDED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
REFUSED_S = 3.0
"""A scheduler that was just told of a new key knows it by then."""

NO_KEY = "it asks for a key, and this side goes without"
NOT_THIS_KEY = "it does not let this key in, is another cluster's, or goes without keys"


def listen_to(
    context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], events: int
) -> zmq.Socket[bytes]:
    """Return a socket with these events of another one, which does not connect or listen yet."""
    address = f"inproc://events-{id(socket)}"
    socket.monitor(address, events)
    listener = context.socket(zmq.PAIR)
    # The thread of libzmq that tells of events would wait where there is no room for one.
    listener.rcvhwm = 0
    listener.linger = 0
    listener.connect(address)
    return listener


class Handshake:
    """Tells why a socket was refused, from before it connects until :meth:`close`."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        socket: zmq.Socket[bytes],
        passport: Passport | None,
    ) -> None:
        self._socket = socket
        self._has_passport = passport is not None
        self._events = listen_to(context, socket, FAILED | SUCCEEDED)
        self._refusal = ""
        self._since = math.inf
        """When the first of the handshakes failed that have failed one after the other."""
        self._is_over = False
        """True once libzmq does not try again."""

    @property
    def is_refused(self) -> bool:
        """Return True if handshakes have failed for so long that the next ones will, too."""
        is_late = monotonic() >= self._since + REFUSED_S
        return bool(self.refusal) and (self._is_over or is_late)

    @property
    def refusal(self) -> str:
        """Return why the last handshake failed; empty: it did not, or there was none."""
        while self._events.poll(0):
            event, _ = EVENT.unpack(self._events.recv_multipart()[0])
            if event == SUCCEEDED:
                self._refusal, self._since = "", math.inf
            else:
                self._since = min(self._since, monotonic())
                self._refusal = NOT_THIS_KEY if self._has_passport else NO_KEY
                self._is_over |= event == PROTOCOL
        return self._refusal

    def close(self) -> None:
        """Watch no more."""
        self._socket.disable_monitor()
        self._events.close(0)

"""What becomes of the handshakes of a socket that connects, for whoever waits for an answer."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    from scaler_cluster.links.curve import Passport

EVENT = struct.Struct("=HI")
"""An event of a socket: its number and its value, in the first frame."""
AUTH = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
PROTOCOL = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
NO_DETAIL = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
FAILED = AUTH | PROTOCOL | NO_DETAIL
SUCCEEDED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
FAILURES_MAX = 30
"""They take three seconds: a scheduler that was just told of a new key knows it by then."""

NOT_ALLOWED = "it does not let this key in"
NO_KEY = "it asks for a key, and this side has none: pass keys, or set SCALER_KEYS"
OTHER_KEYS = "it is not the cluster that these keys are for, or it was started without keys"


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
        self._failures = 0
        """Of handshakes, one after the other."""

    @property
    def is_refused(self) -> bool:
        """Return True if so many handshakes have failed that the next ones will, too."""
        return bool(self.refusal) and self._failures >= FAILURES_MAX

    @property
    def refusal(self) -> str:
        """Return why the last handshake failed; empty: it did not, or there was none."""
        while self._events.poll(0):
            event, _ = EVENT.unpack(self._events.recv_multipart()[0])
            self._failures += 1
            if event == SUCCEEDED:
                self._refusal, self._failures = "", 0
            elif event == AUTH:
                self._refusal = NOT_ALLOWED
            else:
                self._refusal = OTHER_KEYS if self._has_passport else NO_KEY
        return self._refusal

    def close(self) -> None:
        """Watch no more."""
        self._socket.disable_monitor()
        self._events.close(0)

"""Who is let in where keys are needed: a thread answers ZAP requests (RFC 27), one a handshake.

libzmq asks it for each connection whose handshake got so far: the peer knows the server's key, and
has the secret of the public key that it shows. What fails earlier has no request: a peer without a
key, or with another server's. The events of the sockets tell of these, so that the log names them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket as sockets
import threading
from time import monotonic
from typing import TYPE_CHECKING

import zmq

from scaler_cluster.links.curve import key_of
from scaler_cluster.links.handshake import EVENT, FAILED, listen_to

if TYPE_CHECKING:
    from scaler_cluster.links.curve import Guard

log = logging.getLogger("scaler.keys")

ZAP_ADDRESS = "inproc://zeromq.zap.01"
VERSION = b"1.0"
OK, REFUSED = b"200", b"300"
"""Refused for now: whoever was told of another number would never try again, and a key may be let
in a moment later."""
LOG_EVERY_S = 1.0
"""Refusals are logged at most this often: strangers must not fill a disk."""
HANDSHAKE_MS = 5000
"""A connection whose handshake takes longer is closed."""
ACCEPTED_MAX = 4096
"""Connections whose peers' addresses are remembered until their handshake is over."""
STOPPED = int(zmq.EVENT_MONITOR_STOPPED)
EVENTS = FAILED | int(zmq.EVENT_ACCEPTED) | int(zmq.EVENT_DISCONNECTED) | STOPPED
KEYLESS = "it speaks without a key, or knows another key of this cluster"


class Doorkeeper:
    """Lets peers in at the guarded sockets of one context, and logs whom it refuses.

    Its thread ends with the context.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._context = context
        self._guards: dict[bytes, Guard] = {}
        """By the domain that stands in the requests."""
        self._events: dict[zmq.Socket[bytes], _Refusals] = {}
        self._refused = 0
        self._logged_at = float("-inf")
        self._requests = context.socket(zmq.REP)
        self._requests.linger = 0
        self._requests.bind(ZAP_ADDRESS)
        # Sockets are added before they listen, by the thread that makes them; this wakes ours.
        self._bell = context.socket(zmq.PAIR)
        self._bell.bind("inproc://guarded")
        self._ring = context.socket(zmq.PAIR)
        self._ring.connect("inproc://guarded")
        self._added: list[tuple[str, zmq.Socket[bytes]]] = []
        self._thread = threading.Thread(target=self._run, name="scaler-keys", daemon=True)
        self._thread.start()

    def watch(self, socket: zmq.Socket[bytes], guard: Guard) -> None:
        """Guard a socket that does not listen yet."""
        domain = guard.door.encode()
        self._guards[domain] = guard
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, guard.pair.secret.encode())
        socket.setsockopt(zmq.ZAP_DOMAIN, domain)
        # If nobody answered for it, nobody is to come in.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._added.append((guard.door, listen_to(self._context, socket, EVENTS)))
        self._ring.send(b"")

    def close(self) -> None:
        """Let go of what this thread made; the other thread ends with the context."""
        self._ring.close(0)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._requests, zmq.POLLIN)
        poller.register(self._bell, zmq.POLLIN)
        try:
            while True:
                for socket, _ in poller.poll():
                    try:
                        self._serve(socket, poller)
                    except zmq.ContextTerminated:
                        raise
                    except Exception:
                        # Without this thread, no handshake would end.
                        log.exception("a look at keys failed by a bug, please report it")
        except zmq.ContextTerminated:
            added = [one for _, one in self._added]
            for one in (self._requests, self._bell, *self._events, *added):
                one.close(0)

    def _serve(self, socket: zmq.Socket[bytes], poller: zmq.Poller) -> None:
        if socket is self._requests:
            self._answer(self._requests.recv_multipart())
        elif socket is self._bell:
            self._bell.recv()
            door, added = self._added.pop(0)
            self._events[added] = _Refusals(door)
            poller.register(added, zmq.POLLIN)
        else:
            frames = socket.recv_multipart()
            if EVENT.unpack(frames[0])[0] == STOPPED:
                # The socket whose events these were is closed.
                poller.unregister(socket)
                del self._events[socket]
                socket.close(0)
            elif refused := self._events[socket].take(frames):
                self._log(refused)

    def _answer(self, request: list[bytes]) -> None:
        """Answer whether the key of a request is let in where it knocks."""
        number = request[1] if len(request) > 1 else b""
        key = ""
        try:
            key = self._admitted(request)
        finally:
            # What such a peer says comes with its key: a name may be given to another key later.
            status = OK if key else REFUSED
            self._requests.send_multipart([VERSION, number, status, b"", key.encode(), b""])

    def _admitted(self, request: list[bytes]) -> str:
        """Return the key of a request if that is let in; empty: it is not."""
        with contextlib.suppress(KeyError, ValueError):
            version, _, domain, address, _, mechanism, *shown = request
            if version == VERSION and mechanism == b"CURVE" and len(shown) == 1:
                key = key_of(shown[0])
                if self._guards[domain].admits(key):
                    return key
                place, door = address.decode("ascii", "replace"), domain.decode()
                self._log(f"a connection from {place} to the {door}: it has no key for that")
        return ""

    def _log(self, refused: str) -> None:
        self._refused += 1
        now = monotonic()
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            log.warning("refused %s (refusal %d so far)", refused, self._refused)


class _Refusals:
    """The events of one socket: whose handshakes failed."""

    def __init__(self, door: str) -> None:
        self._door = door
        self._accepted: dict[int, str] = {}
        """Addresses of peers by the descriptors of their connections."""
        self._has_failed = False

    def take(self, frames: list[bytes]) -> str:
        """Return what is to be said about an event; empty: nothing."""
        event, value = EVENT.unpack(frames[0])
        if event == zmq.EVENT_ACCEPTED:
            if len(self._accepted) >= ACCEPTED_MAX:
                self._accepted.clear()
            self._accepted[value] = _peer_of(value)
        elif event == zmq.EVENT_DISCONNECTED:
            # It follows at once if the handshake failed, and tells which connection that was.
            place = self._accepted.pop(value, "")
            failed, self._has_failed = self._has_failed, False
            if failed:
                return f"a connection from {place or 'somewhere'} to the {self._door}: {KEYLESS}"
        else:
            self._has_failed = True
        return ""


def _peer_of(fd: int) -> str:
    """Return the address of a connection's other end; empty if it is gone already."""
    copy = -1
    try:
        copy = os.dup(fd)
        with sockets.socket(fileno=copy) as connection:
            copy = -1
            return str(connection.getpeername()[0])
    except (OSError, IndexError):
        return ""
    finally:
        if copy >= 0:
            # It is not a socket any more.
            os.close(copy)

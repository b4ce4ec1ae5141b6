"""Links over ZeroMQ.

The scheduler's hub is a ROUTER socket, everyone else's spoke a DEALER. A socket may be used by
several threads if a lock makes them take turns; :attr:`ZmqLink.fd` may be polled meanwhile.
"""

from __future__ import annotations

import math
import os
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import zmq

from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.ids import HUB
from scaler_cluster.links.guarded_context import GuardedContext
from scaler_cluster.links.handshake import RECONNECT_MAX_MS, WAIT_MAX_MS, Handshake
from scaler_cluster.links.host_names import has_ipv6_only
from scaler_cluster.links.link import LINGER_MS, Spinning, private_files, split_key
from scaler_cluster.wire.batch import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scaler_cluster.links.curve import Guard, Passport
    from scaler_cluster.wire.batch import Buffer

HIGH_WATER = 100_000
"""Envelopes queued per peer and direction; beyond, they are dropped and sent again later."""
UNTAKEN_MAX = 1000
"""Envelopes that wait at a hub for each peer until it takes them in; then the peer waits, as TCP
has it. More would only take memory: a peer that floods has all there is room for."""
RECONNECT_MS = 5
RECONNECT_WITH_KEYS_MS = 100
"""Who is refused tries again this soon: each time costs both sides a handshake."""
CONNECT_MS = 2000
"""An attempt to connect that nobody has answered for so long is given up, and made again."""
CUT_S = 6
"""A connection whose other machine has not answered for so long is given up. The machines' kernels
answer: processes may be stopped, and links as slow as they like."""
PROBE_S = 2
"""An idle connection is probed this often."""
REMOVED = "removed:key"
"""The user of a peer whose key is not let in any more: it may be nothing."""

# Plain numbers: the enumerations' operators cost more than the calls they are passed to.
POLLIN, NOBLOCK = int(zmq.POLLIN), int(zmq.NOBLOCK)
SNDMORE_NOBLOCK = int(zmq.SNDMORE | zmq.NOBLOCK)


class ZmqLink(Spinning):
    """One end of a link; made by :func:`bind` or :func:`connect`."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], kind: int, *, is_guest: bool = False
    ) -> None:
        self.sockets = GuardedContext(context)
        """Ends with this link: who has a socket of it closes that before."""
        self._is_guest = is_guest
        """The context is another link's, with which it ends."""
        self._is_hub = kind == zmq.ROUTER
        self._socket = socket = context.socket(kind)
        socket.linger = LINGER_MS
        socket.set_hwm(HIGH_WATER)
        if self._is_hub:
            socket.setsockopt(zmq.RCVHWM, UNTAKEN_MAX)
        # Without a limit, a hostile length would be allocated before it is read.
        socket.setsockopt(zmq.MAXMSGSIZE, BATCH_BYTES_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        # TCP itself would wait ever longer: for half as long again as a cut had lasted, or longer.
        socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
        socket.setsockopt(zmq.TCP_MAXRT, CUT_S * 1000)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, PROBE_S)
        socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, PROBE_S)
        socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, CUT_S // PROBE_S)
        self.address = ""
        self._guard: Guard | None = None
        """Whom this hub lets in; None: anybody."""
        self._handshake: Handshake | None = None
        """Of a spoke that others may reach."""
        self.knows: Callable[[bytes], bool] = lambda peer: False
        """Says for a guarded hub whether a peer has said Hello, and is still there."""
        self._keys: dict[bytes, str] = {}
        """The key that each peer of a guarded hub has: what comes with another key in its name is
        not taken in."""
        self._strangers: dict[bytes, str] = {}
        """The keys of those that the hub does not know, or did not until the last envelopes."""
        # Each look costs system calls, so none is taken twice; this way it costs no Python, as
        # asking for the option EVENTS would.
        self._look: Callable[[], Sequence[object]] = partial(zmq.zmq_poll, [(socket, POLLIN)], 0)
        self._awaited: list[tuple[zmq.Socket[bytes] | int, int]] = [(socket, POLLIN)]
        self._wait_max_ms = WAIT_MAX_MS
        # Without the wrapper, which serves socket types that we do not use.
        self._send = super(zmq.Socket, socket).send
        self._arrived = False
        """True if a look has found something that :meth:`receive` has not taken yet."""
        self.fd = int(socket.getsockopt(zmq.FD))
        """Becomes readable when something may have changed; after any use of the link, ask
        :meth:`readable` before waiting for it."""

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        """Send frames to a peer, or drop them if it is gone or its queue is full."""
        try:
            if self._is_hub:
                self._send(peer, SNDMORE_NOBLOCK)
            if len(frames) == 1:
                self._send(frames[0], NOBLOCK)
            else:
                self._socket.send_multipart(frames, NOBLOCK, copy=False)
        except zmq.Again:
            return

    def receive(self, limit: int) -> list[tuple[bytes, list[Buffer]]]:
        """Return what is let in of up to ``limit`` envelopes that have arrived, and who sent it."""
        received: list[tuple[bytes, list[Buffer]]] = []
        users = self._guard.allowed.users if self._guard is not None else None
        if self._strangers:
            self._get_to_know()
        count = 0
        recv = self._socket.recv
        is_hub = self._is_hub
        look = self._look
        arrived: object = self._arrived or look()
        self._arrived = False
        while arrived:
            peer = recv(NOBLOCK) if is_hub else HUB
            frame = recv(NOBLOCK, copy=False)
            frames: list[Buffer] = [frame.bytes]
            is_let_in = users is None or self._is_let_in(peer, frame, users)
            while frame.more:
                frame = recv(NOBLOCK, copy=False)
                frames.append(frame.buffer)
            if is_let_in:
                received.append((peer, frames))
            # Also those that are refused, or their flood would never let this return.
            count += 1
            arrived = count < limit and look()
        return received

    def _is_let_in(self, peer: bytes, frame: zmq.Frame, users: Mapping[str, str]) -> bool:
        """Return True if this comes with the key that the peer has had, and that is let in."""
        key = frame.get("User-Id")
        assert isinstance(key, str)
        if key not in users:
            return False
        known = self._keys.get(peer)
        if known is None:
            known = self._strangers.setdefault(peer, key)
        return known == key

    def _get_to_know(self) -> None:
        for peer, key in self._strangers.items():
            if self.knows(peer):
                self._keys[peer] = key
        self._strangers.clear()

    def user_of(self, peer: bytes) -> str:
        """Return the user of a peer that has just spoken, or that the hub knows: ``role:name``.

        Empty: no keys are used.
        """
        if self._guard is None:
            return ""
        key = self._keys.get(peer) or self._strangers.get(peer, "")
        return self._guard.allowed.users.get(key, REMOVED)

    @property
    def expelled(self) -> list[bytes]:
        """Return the peers that the hub knows and whose key is not let in any more."""
        self._get_to_know()
        users = self._guard.allowed.users if self._guard is not None else {}
        return [peer for peer, key in self._keys.items() if key not in users]

    def forget(self, peer: bytes) -> None:
        """Let a peer have another key once what has arrived is handled, unless it comes again."""
        key = self._keys.pop(peer, None)
        if key is not None:
            self._strangers[peer] = key

    def readable(self) -> bool:
        """Return True if something has arrived."""
        self._arrived = arrived = bool(self._look())
        return arrived

    def wait(self, timeout_s: float) -> bool:
        """Sleep until something has arrived, at most ``timeout_s``; return True if it has."""
        timeout_ms = min(int(timeout_s * 1000) + 1, self._wait_max_ms)
        ready: Sequence[tuple[object, int]] = zmq.zmq_poll(self._awaited, timeout_ms)
        self._arrived = arrived = bool(ready) and ready[0][0] is self._socket
        if not arrived:
            self.tend()
        return arrived

    @property
    def deadline(self) -> float:
        """Return inf: what is to be tended is in no hurry."""
        return math.inf

    def tend(self) -> None:
        """Connect again where libzmq has given up; every shell calls this now and then."""
        if self._handshake is not None:
            self._wait_max_ms = self._handshake.mend()

    @property
    def refusal(self) -> str:
        """Why the hub does not listen to this spoke; empty: nobody said so."""
        return self._handshake.refusal if self._handshake is not None else ""

    @property
    def is_refused(self) -> bool:
        """Return True if that does not change any more, as far as anybody can know."""
        return self._handshake is not None and self._handshake.is_refused

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Let go of everything; what was sent before is still delivered for a moment."""
        if self._handshake is not None:
            self._handshake.close()
        self._socket.close(linger_ms)
        self.sockets.close(ends=not self._is_guest)


def bind(
    address: str, listener: int = -1, io_threads: int = 1, guard: Guard | None = None
) -> ZmqLink:
    """Return the hub of a new link; its ``address`` is the real one (port 0: any free port).

    A ``listener`` is the descriptor of a socket that listens there already. Without a ``guard``
    anybody may connect. Raises ConfigError if the address cannot be bound; the message names it.
    """
    context = zmq.Context(io_threads)
    link = ZmqLink(context, zmq.ROUTER)
    socket = link._socket
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    socket.setsockopt(zmq.IPV6, "[" in address)
    if listener >= 0:
        socket.setsockopt(zmq.USE_FD, listener)
    link.sockets.guard(socket, guard)
    link._guard = guard
    try:
        link.address = bind_socket(socket, address)
    except ConfigError:
        link.close()
        raise
    return link


def bind_socket(socket: zmq.Socket[bytes], address: str) -> str:
    """Let a socket listen; return the real address. Raises ConfigError if it cannot."""
    try:
        with private_files() if address.startswith("ipc://") else nullcontext():
            socket.bind(address[:-2] + ":*" if address.endswith(":0") else address)
    except zmq.ZMQError as error:
        raise ConfigError(f"cannot bind {address}: {os.strerror(error.errno or 0)}") from error
    return socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")


def show(socket: zmq.Socket[bytes], passport: Passport | None) -> None:
    """Let a socket show this to whom it connects to, and speak to nobody else."""
    if passport is not None:
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_WITH_KEYS_MS)
        socket.setsockopt(zmq.CURVE_SERVERKEY, passport.server.encode())
        socket.setsockopt(zmq.CURVE_PUBLICKEY, passport.pair.public.encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, passport.pair.secret.encode())


def connect_socket(socket: zmq.Socket[bytes], address: str) -> None:
    """Connect a socket; raises ClusterUnreachableError if nothing can ever answer there."""
    try:
        socket.connect(address)
    except zmq.ZMQError as error:
        raise ClusterUnreachableError(
            f"cannot connect to {address}: {os.strerror(error.errno or 0)}"
        ) from error


def connect(
    address: str,
    peer: bytes,
    io_threads: int = 1,
    passport: Passport | None = None,
    beside: ZmqLink | None = None,
) -> ZmqLink:
    """Return a spoke that connects to ``address`` as ``peer``, now or when the hub is there.

    Without a ``passport`` it speaks in the open. It shares the threads of a link ``beside`` it,
    which is to be closed after it. Raises ClusterUnreachableError if nothing can ever
    answer at such an address.
    """
    address = split_key(address)[0]
    is_ipv6 = "[" in address or has_ipv6_only(address)
    context = zmq.Context(io_threads) if beside is None else beside.sockets.context
    link = ZmqLink(context, zmq.DEALER, is_guest=beside is not None)
    socket = link._socket
    socket.setsockopt(zmq.ROUTING_ID, peer)
    socket.setsockopt(zmq.IPV6, is_ipv6)
    show(socket, passport)
    link.address = address
    if address.startswith("tcp://"):
        link._handshake = handshake = Handshake(context, socket, address, passport)
        # A descriptor costs less than a socket.
        link._awaited.append((handshake.fd, POLLIN))
    try:
        connect_socket(socket, address)
    except ClusterUnreachableError:
        link.close()
        raise
    return link

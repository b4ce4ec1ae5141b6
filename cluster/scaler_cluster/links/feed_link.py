"""The feed's way over ZeroMQ: from an XPUB socket to SUB sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zmq

from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.links.handshake import RECONNECT_MAX_MS, Handshake
from scaler_cluster.links.host_names import has_ipv6_only
from scaler_cluster.links.zmq_link import (
    NOBLOCK,
    POLLIN,
    RECONNECT_MS,
    bind_socket,
    connect_socket,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.links.curve import Guard, Passport
    from scaler_cluster.links.open_link import Hub

PUBLISHED_MAX = 32
"""Messages kept for a listener that does not take them; later ones it will never see."""
LISTENER_SILENT_MS = 15_000
"""A listener that does not answer for so long is gone, or stopped."""
SUBSCRIPTION_BYTES_MAX = 1024
"""A handshake with keys takes up to 500 bytes."""


class Publisher:
    """Publishes messages of some topics to whoever listens; made by :func:`publish`."""

    def __init__(
        self, link: Hub, address: str, topics: Sequence[bytes], guard: Guard | None
    ) -> None:
        self._all = topics
        self._sockets = link.sockets
        self._guard = guard
        self._wanted: dict[bytes, None] = {}
        """What is subscribed to, as far as it can mean one of the topics."""
        self._listen(address)

    def _listen(self, address: str) -> None:
        self._socket = socket = self._sockets.context.socket(zmq.XPUB)
        try:
            # Everyone who comes is to be noticed, also for what others listen to already.
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)
            socket.linger = 0
            socket.set_hwm(PUBLISHED_MAX)
            socket.setsockopt(zmq.MAXMSGSIZE, SUBSCRIPTION_BYTES_MAX)
            socket.setsockopt(zmq.HEARTBEAT_IVL, LISTENER_SILENT_MS // 3)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, LISTENER_SILENT_MS)
            socket.setsockopt(zmq.IPV6, "[" in address)
            self._sockets.guard(socket, self._guard)
            self.fd = int(socket.getsockopt(zmq.FD))
            """Becomes readable when :meth:`look` may have something to tell."""
            self.address = bind_socket(socket, address)
        except (ConfigError, zmq.ZMQError):
            self.close()
            raise

    def drop_listeners(self) -> None:
        """Let go of everybody who listens, until :meth:`listen_again`."""
        self._socket.close()
        self._wanted.clear()

    def listen_again(self) -> bool:
        """Let come whoever may; return False if the address, or a descriptor, is not free yet.

        The :attr:`fd` is another one then.
        """
        try:
            self._listen(self.address)
        except (ConfigError, zmq.ZMQError):
            return False
        return True

    @property
    def topics(self) -> list[bytes]:
        """Those that somebody listens to."""
        return [topic for topic in self._all if any(map(topic.startswith, self._wanted))]

    def look(self) -> bool:
        """Take in who came and who left; return True if :attr:`topics` are to be looked at.

        To be called when :attr:`fd` is readable, and after each :meth:`send`.
        """
        has_news = False
        while int(self._socket.get(zmq.EVENTS)) & POLLIN:
            said = self._socket.recv(NOBLOCK)
            verb, wanted = said[:1], said[1:]
            # Strangers may say anything.
            if verb in (b"\0", b"\1") and any(topic.startswith(wanted) for topic in self._all):
                has_news = True
                if verb == b"\1":
                    self._wanted[wanted] = None
                else:
                    self._wanted.pop(wanted, None)
        return has_news

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a message, whose first frame is its topic, to those who listen to that.

        Who has not taken PUBLISHED_MAX of them does not get it.
        """
        self._socket.send_multipart(frames, NOBLOCK)

    def close(self) -> None:
        """Let go, before the link that it came from does."""
        self._socket.close()


class Subscriber:
    """Listens to a :class:`Publisher`; made by :func:`subscribe`."""

    def __init__(
        self, address: str, topics: Sequence[bytes], bytes_max: int, passport: Passport | None
    ) -> None:
        self._context = zmq.Context()
        self._socket = socket = self._context.socket(zmq.SUB)
        socket.linger = 0
        socket.set_hwm(PUBLISHED_MAX)
        socket.setsockopt(zmq.MAXMSGSIZE, bytes_max)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, LISTENER_SILENT_MS // 3)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, LISTENER_SILENT_MS)
        for topic in topics:
            socket.setsockopt(zmq.SUBSCRIBE, topic)
        self.fd = int(socket.getsockopt(zmq.FD))
        """Becomes readable when something may have arrived, once :meth:`receive` returned None."""
        show(socket, passport)
        self._handshake = Handshake(self._context, socket, address, passport)

    def listen(self, topic: bytes, *, is_on: bool) -> None:
        """Listen to another topic from now on, or no more."""
        self._socket.setsockopt(zmq.SUBSCRIBE if is_on else zmq.UNSUBSCRIBE, topic)

    def receive(self, timeout_s: float = 0.0) -> list[bytes] | None:
        """Return the frames of the next message; None if there is none before the time is over.

        To be called now and then in any case: this connects again where libzmq has given up.
        """
        if not self._socket.poll(int(timeout_s * 1000)):
            self._handshake.mend()
            return None
        return self._socket.recv_multipart()

    @property
    def refusal(self) -> str:
        """Why nothing comes: the publisher does not let this in; empty: nobody said so."""
        return self._handshake.refusal

    def close(self) -> None:
        """Let go of everything."""
        self._handshake.close()
        self._socket.close()
        self._context.term()


def publish(
    link: Hub, address: str, topics: Sequence[bytes], guard: Guard | None = None
) -> Publisher:
    """Return what publishes these topics at an address; its ``address`` is the real one.

    It shares the threads of a link, before which it is to be closed. Without a ``guard`` anybody
    may listen. Raises ConfigError if the address cannot be bound.
    """
    return Publisher(link, address, topics, guard)


def subscribe(
    address: str, topics: Sequence[bytes], bytes_max: int, passport: Passport | None = None
) -> Subscriber:
    """Return what listens to these topics at an address, now or when somebody publishes there.

    Without a ``passport`` it speaks in the open. Raises ClusterUnreachableError if nobody ever can.
    """
    is_ipv6 = "[" in address or has_ipv6_only(address)
    subscriber = Subscriber(address, topics, bytes_max, passport)
    subscriber._socket.setsockopt(zmq.IPV6, is_ipv6)
    try:
        connect_socket(subscriber._socket, address)
    except ClusterUnreachableError:
        subscriber.close()
        raise
    return subscriber

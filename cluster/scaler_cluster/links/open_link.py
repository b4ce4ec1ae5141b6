"""Hubs and spokes of the kind that fits an address.

On one machine a link is over Unix sockets. Elsewhere, and with keys, libzmq carries the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from scaler_cluster.links import stream_link, zmq_link

if TYPE_CHECKING:
    from scaler_cluster.links.curve import Guard, Passport

Hub: TypeAlias = zmq_link.ZmqLink | stream_link.StreamHub
Spoke: TypeAlias = zmq_link.ZmqLink | stream_link.StreamSpoke


def bind(address: str, guard: Guard | None = None, io_threads: int = 1) -> Hub:
    """Return a hub at an address; its ``address`` is the real one (port 0: any free port).

    Without a ``guard`` anybody may connect. Raises ConfigError if the address cannot be bound; the
    message names it.
    """
    if guard is None and stream_link.is_for(address):
        return stream_link.StreamHub(address)
    return zmq_link.bind(address, io_threads=io_threads, guard=guard)


def connect(
    address: str, peer: bytes, passport: Passport | None = None, io_threads: int = 1
) -> Spoke:
    """Return what reaches the hub at an address as ``peer``, now or when the hub is there.

    Raises ClusterUnreachableError if nothing can ever answer at such an address.
    """
    if passport is None and stream_link.is_for(address):
        return stream_link.StreamSpoke(address, peer)
    return zmq_link.connect(address, peer, io_threads, passport)

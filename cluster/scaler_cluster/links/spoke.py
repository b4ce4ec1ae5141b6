"""What connects: a client's end of a link, or a worker's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from scaler_cluster.links import stream_link, zmq_link

if TYPE_CHECKING:
    from scaler_cluster.links.curve import Passport

Spoke: TypeAlias = zmq_link.ZmqLink | stream_link.StreamSpoke


def connect(
    address: str, peer: bytes, passport: Passport | None = None, io_threads: int = 1
) -> Spoke:
    """Return what reaches the hub at an address as ``peer``, now or when the hub is there.

    On the hub's machine that is a Unix socket. Elsewhere, and with keys, libzmq carries the bytes,
    with so many threads. Raises ClusterUnreachableError if nothing can ever answer at such an
    address.
    """
    if passport is None and stream_link.is_for(address):
        return stream_link.StreamSpoke(address, peer)
    return zmq_link.connect(address, peer, io_threads, passport)

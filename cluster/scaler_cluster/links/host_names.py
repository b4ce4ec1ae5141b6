"""Names of hosts, as far as ZeroMQ must be told of them."""

from __future__ import annotations

from socket import AF_INET6, EAI_AGAIN, SOCK_STREAM, gaierror, getaddrinfo

from scaler_cluster.errors import ClusterUnreachableError


def has_ipv6_only(address: str) -> bool:
    """Return True for the name of a host that has no other.

    Raises ClusterUnreachableError for none.

    ZeroMQ looks names up as well, each time that it connects, and says nothing if there is no such
    host.
    """
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not address.startswith("tcp://") or not host[-1:].isalpha():
        return False
    try:
        found = getaddrinfo(host, port, type=SOCK_STREAM)
    except gaierror as error:
        if error.errno == EAI_AGAIN:
            return False
        reason = f"cannot connect to {address}: there is no host {host!r}"
        raise ClusterUnreachableError(reason) from error
    except OSError:
        return False
    return all(family == AF_INET6 for family, *_ in found)

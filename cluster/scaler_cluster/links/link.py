"""What a link is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from scaler_cluster.ids import INCARNATION_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.wire.batch import Buffer

WILDCARDS = ("0.0.0.0", "[::]", "*")  # noqa: S104
"""Hosts of who listens at all addresses of a machine, by which nobody can reach it."""


def new_incarnation() -> int:
    """Return what tells one life of a peer from all others; never 0."""
    return int.from_bytes(os.urandom(INCARNATION_BYTES), "big") + 1


def as_reached(address: str, near: str) -> str:
    """Return an address, or a link, as who reached ``near`` on the same machine can reach it.

    What listens everywhere is at the host of ``near``; if that is a path, on this machine.
    """
    scheme, _, rest = address.partition("://")
    for wildcard in WILDCARDS:
        if rest.startswith(f"{wildcard}:"):
            host = "[::1]" if wildcard == "[::]" else "127.0.0.1"
            if near.startswith("tcp://"):
                host = near.removeprefix("tcp://").rpartition(":")[0]
            return f"{scheme}://{host}{rest.removeprefix(wildcard)}"
    return address


def split_key(address: str) -> tuple[str, str]:
    """Return an address, and the public key that who listens there has; empty: it names none.

    A storage adds its key to its address, for whoever is told of it: ``tcp://10.0.0.7:41231#KEY``.
    """
    place, _, key = address.partition("#")
    return place, key


def as_forwarded(address: str, to: str) -> str:
    """Return an address that leads to another one, with the key of who listens there."""
    key = split_key(to)[1]
    return f"{split_key(address)[0]}#{key}" if key else address


class Link(Protocol):
    """Carries frames between a hub and its spokes.

    Frames of one connection arrive whole and in order, or, when the connection breaks, not at
    all. Nothing blocks.
    """

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        """Send frames to a peer, or drop them if it is gone or its queue is full."""

    def receive(self, limit: int) -> list[tuple[bytes, list[Buffer]]]:
        """Return up to ``limit`` envelopes that have arrived, with who sent them."""

    def close(self) -> None:
        """Let go of everything; what was sent before is still delivered for a moment."""

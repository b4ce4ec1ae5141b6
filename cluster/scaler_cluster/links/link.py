"""What a link is."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from scaler_cluster.ids import INCARNATION_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scaler_cluster.wire.batch import Buffer

WILDCARDS = ("0.0.0.0", "[::]", "*")  # noqa: S104
"""Hosts of who listens at all addresses of a machine, by which nobody can reach it."""


LINGER_MS = 500
"""How long a link that is closed goes on delivering: enough for a Goodbye on a live connection."""
CROWDED_S = 0.001
"""Who gets the CPU back so long after it gave it away is not alone."""
CROWDED_PAUSE_S = 0.02
"""Then it does not spin for this long."""

_yield_cpu: Callable[[], object] = getattr(os, "sched_yield", lambda: time.sleep(0))


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


@contextmanager
def private_files() -> Iterator[None]:
    """Let files that are made inside be for this user alone, from the moment they are there."""
    umask = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(umask)


class Spinning(ABC):
    """A link whose shell may look for a moment before it sleeps."""

    _crowded_until = 0.0

    @abstractmethod
    def readable(self) -> bool:
        """Return True if something has arrived."""

    def spin(self, duration_s: float) -> bool:
        """Wait a moment for something to arrive, giving the CPU to whoever wants it.

        A thread that sleeps costs its waker tens of microseconds; in a conversation the next
        message comes sooner than that pays. Not so where others want the CPU: they keep it for
        milliseconds, while a thread that sleeps is let in as soon as it is woken. Returns True if
        something has arrived.
        """
        now = time.perf_counter
        last = start = now()
        if start < self._crowded_until:
            duration_s = 0.0
        while not self.readable():
            if last - start >= duration_s:
                return False
            _yield_cpu()
            before, last = last, now()
            if last - before > CROWDED_S:
                self._crowded_until = last + CROWDED_PAUSE_S
                return self.readable()
        return True

"""Keys of CURVE (RFC 26): pairs, what a process shows that connects, and who is let in."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import zmq
from zmq.utils import z85

from scaler_cluster.users import role_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

KEY_CHARS = 40
"""Length of a key in Z85 (RFC 32): 32 bytes, five characters for each four."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A public key and its secret, both in Z85."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Passport:
    """What a process shows that connects: its own pair, and the key of whom it wants to reach."""

    pair: KeyPair
    server: str


class AllowList:
    """The public keys that are let in, each with its user; it may change while sockets listen.

    A user is written ``role:name``. The thread that answers handshakes reads it as well: so it is
    replaced as a whole.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = dict(users)

    @property
    def users(self) -> dict[str, str]:
        """Return the users by their public keys."""
        return self._users

    def replace(self, users: Mapping[str, str]) -> bool:
        """Let these in from now on; return True if somebody is not let in any more."""
        before, self._users = self._users, dict(users)
        return not before.items() <= self._users.items()


@dataclass(frozen=True, slots=True)
class Guard:
    """What a socket needs that listens: its pair, and whom it lets in."""

    pair: KeyPair
    allowed: AllowList
    roles: Collection[str]
    """The roles that have something to do here."""
    door: str
    """What this socket is, for the log."""

    def admits(self, key: str) -> bool:
        """Return True if whoever has a public key has something to do here."""
        return role_of(self.allowed.users.get(key, "")) in self.roles


def new_key_pair() -> KeyPair:
    """Return a new pair."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def public_key_of(secret: str) -> str:
    """Return the public key that belongs to a secret; raises ValueError if that is no key."""
    if not is_key(secret):
        raise ValueError("not a key")
    return zmq.curve_public(secret.encode()).decode()


def key_of(raw: bytes) -> str:
    """Return a key in Z85."""
    return z85.encode(raw).decode()


def is_key(text: str) -> bool:
    """Return True for 32 bytes in Z85."""
    if len(text) != KEY_CHARS or not text.isascii():
        return False
    try:
        z85.decode(text.encode())
    except (KeyError, struct.error):
        return False
    return True

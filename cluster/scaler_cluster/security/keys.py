"""What a file of keys says: whose it is, and which others it knows.

One line each: ``role name public``, and the secret as a fourth word where the line is of the file's
own pair. An empty line, or one that begins with ``# ``, says nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError
from scaler_cluster.links.curve import KeyPair, is_key, new_key_pair, public_key_of
from scaler_cluster.users import KNOWN, OWNER, ROLES, SCHEDULER, user

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that is known, and whose it is."""

    role: str
    name: str
    public: str

    @property
    def user(self) -> str:
        """Return whose it is, in one word."""
        return user(self.role, self.name)

    def __str__(self) -> str:
        """Return it as a line of a file."""
        return f"{self.role} {self.name} {self.public}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The pair of a process, and the public keys that it knows."""

    own: PublicKey
    pair: KeyPair
    known: tuple[PublicKey, ...] = ()

    @classmethod
    def new(cls, role: str, name: str, *known: PublicKey) -> Keys:
        """Return a new pair for a role, which knows these."""
        pair = new_key_pair()
        return cls(PublicKey(role, name, pair.public), pair, known)

    def knowing(self, *others: PublicKey) -> Keys:
        """Return the same pair, which knows these as well."""
        return replace(self, known=(*self.known, *others))

    def without(self, name: str) -> Keys:
        """Return the same pair, which does not know a name any more."""
        return replace(self, known=tuple(one for one in self.known if one.name != name))

    def server(self, role: str) -> str:
        """Return the public key of the one process of a role; empty: it is not known.

        All that listens at loopback addresses of an owner has the scheduler's.
        """
        if self.own.role == role:
            return self.own.public
        wanted = SCHEDULER if self.own.role == OWNER else role
        found = [one.public for one in self.known if one.role == wanted]
        return found[0] if found else ""

    @property
    def users(self) -> dict[str, str]:
        """Return the users that it knows, itself among them, by their public keys."""
        return {one.public: one.user for one in (self.own, *self.known)}

    def file_text(self) -> str:
        """Return the lines of its file, the secret included."""
        lines = [f"{self.own} {self.pair.secret}", *map(str, self.known)]
        return "".join(f"{line}\n" for line in lines)

    def __repr__(self) -> str:
        """Return whose it is, and no secret: also for a log."""
        return f"<keys of {self.own.user}>"


def new_cluster() -> dict[str, Keys]:
    """Return the keys of a new cluster, by role: each role has one, which has its name."""
    made = {role: Keys.new(role, role) for role in ROLES}
    own = {role: keys.own for role, keys in made.items()}
    scheduler = own.pop(SCHEDULER)
    keys = {role: made[role].knowing(scheduler) for role in own}
    return {SCHEDULER: made[SCHEDULER].knowing(*own.values()), **keys}


def check_name(name: str) -> str:
    """Return a name for a key; raises ConfigError if it is none."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"the name of a key must consist of letters, digits, '.', '_', '@' and '-', 64 at "
            f"most, not {name!r}"
        )
    return name


def parse(text: str, source: str) -> list[Keys]:
    """Return the pairs in a text, in its order; all of them know all the others that it names.

    Raises ConfigError, which names the ``source`` and the line, and shows nothing of it.
    """
    known: list[PublicKey] = []
    pairs: list[tuple[PublicKey, KeyPair]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("# "):
            continue
        where = f"{source}, line {number}"
        words = line.split()
        if len(words) not in (3, 4) or words[0] not in KNOWN:
            raise ConfigError(f"{where}: a line is: role name public-key [secret-key]")
        one = PublicKey(*words[:3])
        if not NAME.fullmatch(one.name) or not is_key(one.public):
            raise ConfigError(f"{where}: this is no name, or no public key")
        if len(words) == 3:
            known.append(one)
            continue
        pair = KeyPair(one.public, words[3])
        if not _fits(pair):
            raise ConfigError(f"{where}: the secret does not belong to the public key")
        pairs.append((one, pair))
    if not pairs:
        raise ConfigError(f"{source} has no secret key: it is not a file of scaler_keys")
    _check_unique([*known, *(one for one, _ in pairs)], source)
    return [Keys(one, pair, tuple(known)) for one, pair in pairs]


def _fits(pair: KeyPair) -> bool:
    try:
        return public_key_of(pair.secret) == pair.public
    except ValueError:
        return False


def _check_unique(keys: Iterable[PublicKey], source: str) -> None:
    publics: set[str] = set()
    for one in keys:
        if one.public in publics:
            raise ConfigError(f"{source} has the key of {one.name!r} twice")
        publics.add(one.public)

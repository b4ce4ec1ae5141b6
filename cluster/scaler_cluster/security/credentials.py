"""What keys a process has, and which of them it needs at which address."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError
from scaler_cluster.links.curve import AllowList, Guard, Passport
from scaler_cluster.links.link import split_key
from scaler_cluster.security.key_files import (
    SUFFIX,
    loopback_keys,
    loopback_operator,
    read_keys,
)
from scaler_cluster.security.keys import Keys, PublicKey, parse
from scaler_cluster.users import (
    CLIENT,
    INSECURE,
    MONITOR,
    OPERATOR,
    OWNER,
    SCHEDULER,
    STORAGE,
    WORKER,
)

if TYPE_CHECKING:
    import logging

KEYS_VARIABLE = "SCALER_KEYS"
"""The environment variable with a path of keys, or with INSECURE."""
KEY_VARIABLE = "SCALER_KEY"
"""The environment variable with what such a file holds, for containers."""

TASKS_DOOR, FEED_DOOR, STORAGE_DOOR = "scheduler", "monitor address", "object storage"
DOORS = MappingProxyType(
    {
        TASKS_DOOR: (CLIENT, WORKER, SCHEDULER, OWNER, OPERATOR),
        FEED_DOOR: (MONITOR, CLIENT, OWNER),
        STORAGE_DOOR: (CLIENT, WORKER, STORAGE, SCHEDULER, OWNER),
    }
)
"""What listens, and the roles that have something to do there."""
HINT = (
    "make keys with scaler_keys new, and name them with keys= or --keys, or in SCALER_KEYS; "
    'or go without, by keys="insecure" or --insecure'
)


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The keys of a process of a ``role``: those that it was given, else those that it finds.

    At a loopback address it finds those of its user, elsewhere those that the environment names.
    """

    role: str
    keys: Keys | None = None
    """What it was given; None: nothing."""
    path: str = ""
    """The file with these keys; empty: there is none."""
    extra: tuple[PublicKey, ...] = ()
    """Keys that it knows besides those in the file."""
    is_insecure: bool = False
    """Whether it is to go without."""

    @classmethod
    def of(cls, role: str, given: str | os.PathLike[str] | None = None) -> Credentials:
        """Return the credentials of a process that was given a path of keys, INSECURE, or nothing.

        A path of a directory means the file of the role in it. Raises ConfigError.
        """
        if given is None:
            return cls(role=role)
        if given == INSECURE:
            return cls(role=role, is_insecure=True)
        path = _file_of(role, Path(given).expanduser())
        return cls(
            role=role, path=str(path.absolute()), keys=_fit(read_keys(path), role, str(path))
        )

    def resolved(self, address: str) -> Credentials:
        """Return the same as given, where those for an address come from the environment.

        Raises ConfigError if the address needs keys, and there are none.
        """
        here = self._here(address)
        # The environment says nothing of loopback addresses, which this process may have as well.
        return self if here.is_insecure else here

    def for_child(self, role: str) -> tuple[Credentials, Credentials]:
        """Return these, which let in a child without a file of its own, and that child's."""
        if self.keys is None:
            return self, replace(self, role=role)
        child = Keys.new(role, "embedded", self.keys.own)
        mine = replace(self, keys=self.keys.knowing(child.own), extra=(*self.extra, child.own))
        return mine, Credentials(role=role, keys=child)

    def reread(self) -> Credentials:
        """Return the same with what is in its file now; raises ConfigError."""
        if not self.path:
            return self
        keys = _fit(read_keys(Path(self.path)), self.role, self.path)
        return replace(self, keys=keys.knowing(*self.extra))

    # -- who listens ---------------------------------------------------------------------------

    def guard(self, address: str, door: str, allowed: AllowList) -> Guard | None:
        """Return what guards a door at an address; None: it needs no keys.

        Whom these keys know is added to those who are ``allowed``. Raises ConfigError if the
        address needs keys, and there are none.
        """
        found = self._at(address)
        if found is None:
            return None
        keys, _ = found
        allowed.replace({**allowed.users, **keys.users})
        return Guard(keys.pair, allowed, DOORS[door], door)

    def check_listening(self, address: str) -> None:
        """Raise ConfigError if an address needs keys, and there are none."""
        self._at(address)

    def warn_if_open(self, log: logging.Logger, address: str) -> None:
        """Say in the log if anybody who reaches an address may run code there."""
        if address.startswith("tcp://") and self._at(address) is None:
            log.warning("without keys: whoever reaches %s can run code here", address)

    def secret_at(self, address: str) -> bytes:
        """Return what only those know who listen there with these keys; empty: it needs none."""
        found = self._at(address)
        return blake2b(found[0].pair.secret.encode()).digest() if found is not None else b""

    # -- who connects --------------------------------------------------------------------------

    def passport(self, address: str, to: str = SCHEDULER) -> Passport | None:
        """Return what to show at an address, to the cluster's one process of a role.

        None: no keys are needed there. Raises ConfigError if they are, and there are none.
        """
        place, key = split_key(address)
        found = self._at(place)
        if found is None:
            return None
        _, keys = found
        return Passport(keys.pair, key or _key_of(to, keys))

    def addressed(self, address: str, others: str = "", role: str = "") -> str:
        """Return the address of what listens there, with the key that it has.

        It is this process, or the cluster's one process of a ``role``; ``others`` may know it by
        another address. Whoever knows the scheduler knows its key: so that is not added.
        """
        found = self._at(address)
        known_as = others or address
        if found is None:
            return known_as
        _, keys = found
        key = _key_of(role or self.role, keys)
        return known_as if key == keys.server(SCHEDULER) else f"{known_as}#{key}"

    def refused_at(self, address: str) -> str:
        """Return what else may be wrong where a process at an address refuses these; or nothing."""
        is_set = KEYS_VARIABLE in os.environ or KEY_VARIABLE in os.environ
        if not is_set or self.keys is not None or self.is_insecure or not is_loopback(address):
            return ""
        return f"; at a loopback address {KEYS_VARIABLE} does not count: pass keys"

    # -- which keys ----------------------------------------------------------------------------

    def _here(self, address: str) -> Credentials:
        """Return which of them count at an address: these, or those of the environment.

        At a loopback address they may have no keys: then its user's count. Raises ConfigError if
        there are none at another address that needs keys.
        """
        is_said = self.keys is not None or self.is_insecure
        if is_said or not address.startswith("tcp://") or is_loopback(address):
            return self
        if path := os.environ.get(KEYS_VARIABLE, ""):
            return Credentials.of(self.role, path)
        if text := os.environ.get(KEY_VARIABLE, ""):
            return replace(self, keys=_fit(parse(text, KEY_VARIABLE)[0], self.role, KEY_VARIABLE))
        raise ConfigError(
            f"{address} is not a loopback address, so it needs keys (whoever reaches it could run "
            f"code): {HINT}"
        )

    def _at(self, address: str) -> tuple[Keys, Keys] | None:
        """Return the keys of who listens at an address, and of who connects; None: none are needed.

        Raises ConfigError if they are, and there are none.
        """
        here = self._here(address)
        if here.is_insecure or not address.startswith("tcp://"):
            return None
        if here.keys is not None:
            return here.keys, here.keys
        scheduler, owner = loopback_keys()
        return scheduler, loopback_operator() if self.role == OPERATOR else owner


def is_loopback(address: str) -> bool:
    """Return True for an address of TCP that other machines cannot reach."""
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ip_address(str(place[0]).partition("%")[0]).is_loopback for *_, place in found)


def _file_of(role: str, path: Path) -> Path:
    return path / f"{role}{SUFFIX}" if path.is_dir() else path


def _key_of(role: str, keys: Keys) -> str:
    """Return the public key of a cluster's one process of a role; raises ConfigError."""
    key = keys.server(role)
    if not key:
        raise ConfigError(f"the keys of {keys.own.user} do not know the key of the {role}")
    return key


def _fit(keys: Keys, role: str, source: str) -> Keys:
    if keys.own.role != role:
        raise ConfigError(
            f"{source} has the keys of {_a(keys.own.role)}; this needs those of {_a(role)}"
        )
    return keys


def _a(role: str) -> str:
    return f"an {role}" if role in (OPERATOR, OWNER) else f"a {role}"

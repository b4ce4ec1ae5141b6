"""The scheduler's connections to object storages that run by themselves."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import ConfigError, ScalerError
from scaler_cluster.objects.source import Source
from scaler_cluster.process.process import make_peer_id
from scaler_cluster.users import STORAGE
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.security.credentials import Credentials

CONNECT_TIMEOUT_S = 5.0
"""A storage that has not answered after this is not there."""
LOOK_S = 0.1


class Storages:
    """Connects to storages; each is a peer of the core, and its address is the peer id.

    ``known_as`` are the addresses by which others reach them, ``name`` is what this scheduler and
    those that take its place are called. Raises ConfigError if one of them does not answer, or
    serves another scheduler.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: Credentials,
        known_as: Sequence[str] = (),
        name: str = "",
    ) -> None:
        peer = make_peer_id("S")
        self._known_as: dict[str, str] = {}
        self._sources: dict[bytes, Source] = {}
        self._news: list[tuple[bytes, m.Message]] = []
        try:
            for address, known in zip(addresses, known_as or addresses, strict=True):
                passport = credentials.passport(address, STORAGE)
                self._known_as[address] = credentials.addressed(address, known, STORAGE)
                source = Source(address, address, peer, passport, m.SCHEDULER, name)
                self._sources[self._known_as[address].encode()] = source
            hellos = [self._await_hello(source) for source in self._sources.values()]
            self.homes = tuple(hello.place for hello in hellos)
            self.are_stored = all(hello.is_stored for hello in hellos)
            """Whether they still have what the scheduler before this one had stored."""
        except ScalerError as error:
            # A storage that has answered serves no other scheduler until this one has left it.
            self.close()
            raise ConfigError(str(error)) from error

    def __contains__(self, key: bytes) -> bool:
        """Return True for the key of a storage."""
        return key in self._sources

    def __len__(self) -> int:
        """Return the number of storages."""
        return len(self._sources)

    @property
    def fds(self) -> list[int]:
        """Descriptors that become readable when something may have arrived."""
        return [source.fd for source in self._sources.values()]

    @property
    def deadline(self) -> float:
        """When :meth:`turn` has something to send again."""
        return min(source.deadline for source in self._sources.values())

    def send(self, key: bytes, messages: Sequence[m.Message]) -> None:
        """Send messages to a storage."""
        self._sources[key].send(messages)

    def turn(self) -> list[tuple[bytes, m.Message]]:
        """Return the messages that have arrived, each with its storage.

        Unknown is the message of a storage that was started anew.
        """
        news, self._news = self._news, []
        for key, source in self._sources.items():
            news += [(key, self._at(source, message)) for message in source.turn()]
        return news

    def close(self, reason: str = "") -> None:
        """Leave the storages; with a reason, the storages end as well."""
        for source in self._sources.values():
            source.close(reason)

    def _await_hello(self, source: Source) -> m.Hello:
        end = clock() + CONNECT_TIMEOUT_S
        while clock() < end:
            for message in source.turn():
                if isinstance(message, m.Refused):
                    raise ConfigError(f"the object storage at {source.address}: {message.reason}")
                if isinstance(message, m.Hello):
                    hello: m.Hello = self._at(source, message)
                    self._news.append((self._known_as[source.address].encode(), hello))
                    return hello
            source.wait(LOOK_S)
        raise ConfigError(
            f"no object storage answers at {source.address}: start one with "
            f"scaler_object_storage_server {source.address}"
        )

    def _at(self, source: Source, message: Any) -> Any:
        """Put the address of the connection into a Hello: the storage may only know 0.0.0.0."""
        if isinstance(message, m.Hello):
            address = self._known_as[source.address]
            return replace(message, place=replace(message.place, address=address))
        return message

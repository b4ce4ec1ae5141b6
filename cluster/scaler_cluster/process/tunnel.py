"""What a machine is told that reaches the others through a tunnel, and is reached by one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from scaler_cluster.links.link import split_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Tunnel:
    """The addresses at this end of a tunnel, and what they stand for."""

    storages: tuple[str, ...]
    """Where the storages of clients' objects are reached, in the order of ``Welcome.homes``."""
    machines: Mapping[str, str]
    """Where the storages of other machines are reached, by the addresses that others know."""
    listens: str
    """Where the storage of this machine listens."""
    known_as: str
    """By which address others reach that."""

    @classmethod
    def of(cls, text: str) -> Tunnel:
        """Return the one whose :attr:`text` this is."""
        values = json.loads(text)
        return cls(**{**values, "storages": tuple(values["storages"])})

    @property
    def text(self) -> str:
        """All of it as text."""
        return json.dumps(asdict(self))

    def detours(self, homes: Sequence[str]) -> dict[str, str]:
        """Return where each storage is reached from here, by its address without its key.

        ``homes`` are the addresses of those of clients' objects, as many as the tunnel leads to.
        """
        places = [split_key(home)[0] for home in homes]
        return {**self.machines, **dict(zip(places, self.storages, strict=True))}

"""What a client was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler_cluster.users import CLIENT

if TYPE_CHECKING:
    from scaler_cluster.client.serializer import Serializer
    from scaler_cluster.security.credentials import Credentials


@dataclass(frozen=True)
class ClientSettings:
    """What a client was given, but for its address: it takes that along where it is pickled."""

    timeout_s: float
    heartbeat_s: float
    serializer: type[Serializer] | Serializer | None
    storages: tuple[str, ...]
    reconnect_timeout_s: float
    keys: str | None
    """What it was given as keys: a path, or nothing."""

    @property
    def credentials(self) -> Credentials:
        """Return its keys; raises ConfigError."""
        # It brings the transport along, as the session does for which these are.
        from scaler_cluster.security.credentials import Credentials

        return Credentials.of(CLIENT, self.keys)

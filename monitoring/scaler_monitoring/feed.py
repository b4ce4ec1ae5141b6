"""Listens to a scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.ids import EVENTS, SNAPSHOT
from scaler_cluster.links import feed_link
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import MONITOR
from scaler_cluster.wire.feed_codec import FEED_BYTES_MAX, decode

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from scaler_cluster.config.shared_settings import Secured
    from scaler_cluster.wire.feed_codec import Message

OWN_KEYS = Credentials(role=MONITOR)
"""Those of this user, where nothing else was said."""


def keys_of(settings: Secured) -> Credentials:
    """Return the keys of a monitor that has these settings; raises ConfigError."""
    return Credentials.of(MONITOR, settings.given_keys)


class Feed:
    """What a scheduler publishes at its monitor address, from now on.

    The first message is a snapshot of everything. A scheduler that is not there yet, or goes and
    comes back, is listened to as soon as it is there. Raises ClusterUnreachableError if nothing can
    ever answer at such an address, ConfigError if that needs keys and there are none.
    """

    def __init__(
        self,
        address: str,
        topics: tuple[bytes, ...] = (SNAPSHOT, EVENTS),
        credentials: Credentials = OWN_KEYS,
    ) -> None:
        self.address = address
        self.credentials = credentials
        passport = credentials.passport(address)
        self._subscriber = feed_link.subscribe(address, topics, FEED_BYTES_MAX, passport)

    def listen(self, topic: bytes, *, is_on: bool) -> None:
        """Listen to another topic from now on, or no more."""
        self._subscriber.listen(topic, is_on=is_on)

    @property
    def refusal(self) -> str:
        """Return why the scheduler does not let this in; empty: nobody said so."""
        return self._subscriber.refusal

    @property
    def fd(self) -> int:
        """Return what becomes readable once :meth:`next` has something, after it had nothing."""
        return self._subscriber.fd

    def next(self, timeout_s: float = 0.0) -> Message | None:
        """Return the next message, None if there is none in time.

        Raises RemoteProtocolError for one of another version, or that is none.
        """
        frames = self._subscriber.receive(timeout_s)
        return decode(frames) if frames is not None else None

    def close(self) -> None:
        """Listen no more."""
        self._subscriber.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Listen no more."""
        self.close()

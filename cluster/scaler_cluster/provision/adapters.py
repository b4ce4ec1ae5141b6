"""Which adapter belongs to which settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scaler_cluster.config.webhook_settings import NativeAdapterSettings
from scaler_cluster.provision.adapter import Adapter
from scaler_cluster.provision.local import LocalBackend
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import WORKER

if TYPE_CHECKING:
    from scaler_cluster.config.webhook_settings import AdapterSettings


def make_adapter(settings: AdapterSettings) -> Adapter:
    """Return an adapter; raises ConfigError if what it needs is not there."""
    assert isinstance(settings, NativeAdapterSettings)
    # If the workers need keys that are not there, nothing is to be started.
    Credentials.of(WORKER, settings.given_keys).passport(settings.workers_address)
    return Adapter(settings, settings.group, partial(LocalBackend, settings))

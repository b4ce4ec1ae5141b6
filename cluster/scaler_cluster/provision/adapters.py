"""Which adapter belongs to which settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scaler_cluster.config.webhook_settings import NativeAdapterSettings
from scaler_cluster.provision.adapter import Adapter
from scaler_cluster.provision.local import LocalBackend

if TYPE_CHECKING:
    from scaler_cluster.config.webhook_settings import AdapterSettings


def make_adapter(settings: AdapterSettings) -> Adapter:
    """Return an adapter; raises ConfigError if what it needs is not installed."""
    assert isinstance(settings, NativeAdapterSettings)
    return Adapter(settings, settings.group, partial(LocalBackend, settings))

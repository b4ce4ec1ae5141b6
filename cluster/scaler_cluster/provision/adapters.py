"""Which adapter belongs to which settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scaler_cluster.config.aws_settings import ECSAdapterSettings
from scaler_cluster.config.webhook_settings import NativeAdapterSettings
from scaler_cluster.provision.adapter import Adapter
from scaler_cluster.provision.ecs import ECSBackend
from scaler_cluster.provision.local import LocalBackend

if TYPE_CHECKING:
    from scaler_cluster.config.webhook_settings import AdapterSettings


def make_adapter(settings: AdapterSettings) -> Adapter:
    """Return an adapter; raises ConfigError if what it needs is not there."""
    if isinstance(settings, ECSAdapterSettings):
        return Adapter(settings, settings.max_instances, partial(ECSBackend, settings))
    assert isinstance(settings, NativeAdapterSettings)
    return Adapter(settings, settings.max_workers, partial(LocalBackend, settings))

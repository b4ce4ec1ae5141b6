"""Which adapter belongs to which settings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scaler_cluster.config.aws_settings import ECSAdapterSettings
from scaler_cluster.config.proxy_settings import SymphonyAdapterSettings
from scaler_cluster.config.webhook_settings import NativeAdapterSettings
from scaler_cluster.process.process_config import SupervisorProcessConfig
from scaler_cluster.provision.adapter import Adapter
from scaler_cluster.provision.ecs import ECSBackend
from scaler_cluster.provision.local import LocalBackend
from scaler_cluster.provision.runners import ProxyProcessConfig, concurrency_of
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import WORKER

if TYPE_CHECKING:
    from scaler_cluster.config.webhook_settings import AdapterSettings


def make_adapter(settings: AdapterSettings) -> Adapter:
    """Return an adapter; raises ConfigError if what it needs is not there."""
    if isinstance(settings, ECSAdapterSettings):
        return Adapter(settings, settings.max_instances, partial(ECSBackend, settings))
    if isinstance(settings, SymphonyAdapterSettings):
        from scaler_cluster.provision.symphony import import_api

        import_api()
        settings = replace(settings, base_concurrency=concurrency_of(settings))
        most: int | None = 1
        make: Any = partial(ProxyProcessConfig.of, settings)
    else:
        assert isinstance(settings, NativeAdapterSettings)
        most = settings.max_workers
        make = partial(SupervisorProcessConfig.of_unit, settings)
    # If the workers need keys that are not there, nothing is to be started.
    Credentials.of(WORKER, settings.given_keys).passport(settings.workers_address)
    return Adapter(settings, most, partial(LocalBackend, make))

"""The settings of both sides of the webhook by which version 1.12 has workers started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scaler_cluster.config.manager_settings import ManagerSettings, UnitSettings
from scaler_cluster.config.option import option
from scaler_cluster.config.values import HOST, PORT, URL, whole


@dataclass(frozen=True, kw_only=True)
class WebhookSettings(ManagerSettings):
    """Of a manager whose units are the worker groups of an adapter at a URL."""

    types: ClassVar[tuple[str, ...]] = ("webhook",)

    url: str = option(
        "where the adapter answers, such as http://127.0.0.1:8080", URL, is_positional=True
    )


@dataclass(frozen=True, kw_only=True)
class AdapterSettings(UnitSettings):
    """Of an adapter, which starts and ends worker groups by HTTP."""

    adapter_web_host: str = option(
        "host name or address to listen on", HOST, also=("host",), default="localhost"
    )
    adapter_web_port: int = option(
        "port to listen on; 0: any free port", PORT, "-p", also=("port",), default=8080
    )
    group: ClassVar[tuple[str, str]]
    """What the ids of groups begin with, and the names of workers."""


@dataclass(frozen=True, kw_only=True)
class NativeAdapterSettings(AdapterSettings):
    """Of an adapter that starts workers on its own machine."""

    names: ClassVar[tuple[str, ...]] = ("native_worker_adapter",)
    group: ClassVar[tuple[str, str]] = ("native", "NAT")

    max_workers: int | None = option(
        "the most workers at once; -1: no limit (default: one for each CPU but one)",
        whole(1, unset=-1),
        "-mw",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class FixedNativeSettings(UnitSettings):
    """Of a cluster that always has as many workers as it may have."""

    names: ClassVar[tuple[str, ...]] = ("fixed_native_worker_adapter",)

    max_workers: int | None = option(
        "the number of workers (default: one for each CPU but one)", whole(1), "-mw", default=None
    )

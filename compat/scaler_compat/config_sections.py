"""Sections of settings as programs for the Scaler system make them.

Each is the section of this engine, and takes what Scaler's versions call by other names, or keep in
objects. What is wrong raises TypeError or ConfigError, which name the setting.
"""

from __future__ import annotations

import enum
from dataclasses import MISSING, fields
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from scaler_cluster.config.aws_settings import EC2Settings, ECSAdapterSettings, ECSSettings
from scaler_cluster.config.native_settings import NativeSettings
from scaler_cluster.config.option import Section
from scaler_cluster.config.proxy_settings import (
    BatchSettings,
    SymphonyAdapterSettings,
    SymphonySettings,
)
from scaler_cluster.config.sections import (
    SchedulerSettings,
    StorageSettings,
    TopSettings,
    WebSettings,
)
from scaler_cluster.config.values import suggest
from scaler_cluster.config.webhook_settings import NativeAdapterSettings
from scaler_cluster.config.worker_settings import ClusterSettings
from scaler_compat.config_groups import (
    LoggingConfig,
    PolicyConfig,
    SecurityConfig,
    WorkerConfig,
    WorkerManagerConfig,
)
from scaler_compat.config_values import (
    AddressConfig,
    HTTPConfig,
    NativeWorkerManagerMode,
    ObjectStorageConfig,
    WorkerCapabilities,
    WorkerNames,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GROUPS = MappingProxyType(
    {
        # Of each: what its settings begin with here.
        LoggingConfig: "logging_",
        PolicyConfig: "",
        SecurityConfig: "",
        WorkerConfig: "",
        WorkerManagerConfig: "",
    }
)


class _Given(Section):
    """Takes settings by Scaler's names, some by position."""

    order: ClassVar[tuple[str, ...]] = ()
    """The names of those that have the same position in all versions."""

    def __init__(self, *args: Any, **named: Any) -> None:
        if len(args) > len(self.order):
            raise TypeError(
                f"{type(self).__name__}() takes {len(self.order)} settings by position, and the "
                "others by name"
            )
        options = {name: one for one in self.options() for name in one.names}
        values: dict[str, Any] = {}
        placed = dict(zip(self.order, args, strict=False))
        given: dict[str, str] = {}
        for name, value in _flat([*placed.items(), *named.items()]):
            if name not in options:
                hint = suggest(name, options)
                raise TypeError(f"{name!r} is no setting of {type(self).__name__}{hint}")
            option = options[name]
            if option.name in given:
                raise TypeError(
                    f"{type(self).__name__}() is given {given[option.name]!r} and {name!r}, which "
                    "are the same setting"
                )
            given[option.name] = name
            if value is not None:
                values[option.name] = option.kind.argument(name, value)
        super().__init__(**values)


def _flat(given: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield settings in place of the groups that hold them, as plain values."""
    for name, value in given:
        if type(value) is SecurityConfig:
            continue
        if type(value) in GROUPS:
            for one in fields(value):
                held = getattr(value, one.name)
                made = one.default_factory
                # Not every section has all of a group, and what nobody changed needs no word.
                if held != (one.default if made is MISSING else made()):
                    yield GROUPS[type(value)] + one.name, plain(held)
        else:
            yield name, plain(value)


def plain(value: Any) -> Any:
    """Return a value as this engine has it: a text, a number, a dict, a tuple."""
    if isinstance(value, (AddressConfig, HTTPConfig, ObjectStorageConfig)):
        return str(value)
    if isinstance(value, WorkerCapabilities):
        return value.capabilities
    if isinstance(value, WorkerNames):
        return tuple(value.names)
    if isinstance(value, NativeWorkerManagerMode):
        return value.value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


class SchedulerConfig(_Given, SchedulerSettings):
    """Of a scheduler."""

    order = ("scheduler_address", "object_storage_address")


class ClusterConfig(_Given, ClusterSettings):
    """Of the workers of a machine."""

    order = ("scheduler_address", "object_storage_address")


class ObjectStorageServerConfig(_Given, StorageSettings):
    """Of an object storage."""

    order = ("object_storage_address",)


class TopConfig(_Given, TopSettings):
    """Of the monitor in a terminal."""

    order = ("monitor_address", "timeout")


class WebUIConfig(_Given, WebSettings):
    """Of the monitor in a browser, in version 1."""

    order = ("monitor_address",)


class WebGUIConfig(WebUIConfig):
    """The same in version 2."""


class NativeWorkerAdapterConfig(_Given, NativeAdapterSettings):
    """Of an adapter for workers of its machine."""

    order = ("scheduler_address", "object_storage_address")


class ECSWorkerAdapterConfig(_Given, ECSAdapterSettings):
    """Of an adapter for tasks of ECS."""

    order = ("adapter_web_host", "adapter_web_port", "scheduler_address")


class SymphonyWorkerConfig(_Given, SymphonyAdapterSettings):
    """Of an adapter for IBM Spectrum Symphony."""

    order = ("scheduler_address", "object_storage_address", "service_name")


class NativeWorkerManagerConfig(_Given, NativeSettings):
    """Of a manager of workers of its machine."""

    order = ("worker_manager_config", "worker_config", "logging_config", "security")


class ECSWorkerManagerConfig(_Given, ECSSettings):
    """Of a manager of tasks of ECS."""

    order = ("worker_manager_config", "worker_config", "logging_config")


class SymphonyWorkerManagerConfig(_Given, SymphonySettings):
    """Of a manager for IBM Spectrum Symphony."""

    order = ("service_name", "worker_manager_config", "worker_config", "logging_config")


class AWSBatchWorkerManagerConfig(_Given, BatchSettings):
    """Of a manager of jobs of AWS Batch."""

    order = ("worker_manager_config", "job_queue", "job_definition", "s3_bucket")


class ORBAWSEC2WorkerManagerConfig(_Given, EC2Settings):
    """Of a manager of machines of EC2."""

    order = ("worker_manager_config", "aws_region", "image_id")

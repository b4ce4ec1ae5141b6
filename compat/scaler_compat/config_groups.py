"""Settings that several sections of the Scaler system share, each group an object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.config.manager_settings import ManagerSettings
from scaler_cluster.config.sections import SchedulerSettings
from scaler_cluster.config.worker_settings import WorkerSettings
from scaler_cluster.errors import ConfigError
from scaler_compat.config_values import WorkerCapabilities

if TYPE_CHECKING:
    from scaler_compat.config_values import AddressConfig


@dataclass(frozen=True)
class PolicyConfig:
    """What a scheduler decides by: accepted and checked, see the settings of the same names."""

    policy_engine_type: str = SchedulerSettings.policy_engine_type
    policy_content: str = SchedulerSettings.policy_content


@dataclass
class LoggingConfig:
    """Where to log, and what."""

    paths: tuple[str, ...] = WorkerSettings.logging_paths
    config_file: str | None = None
    level: str = WorkerSettings.logging_level


@dataclass
class SecurityConfig:
    """The files of TLS, which is not there: raises ConfigError for any."""

    tls_cert: str | None = None
    tls_key: str | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError if there are such files."""
        if self.has_credentials():
            raise ConfigError(
                "there is no TLS between processes, but keys for both sides (CURVE): make them "
                "with scaler_keys, and pass their path as keys, or in SCALER_KEYS"
            )

    def has_credentials(self) -> bool:
        """Return True if there are such files."""
        return self.tls_cert is not None or self.tls_key is not None


@dataclass
class WorkerConfig:
    """What workers are told."""

    per_worker_capabilities: WorkerCapabilities = field(default_factory=WorkerCapabilities)
    per_worker_task_queue_size: int = WorkerSettings.per_worker_task_queue_size
    heartbeat_interval_seconds: float = WorkerSettings.heartbeat_interval_seconds
    task_timeout_seconds: float = WorkerSettings.task_timeout_seconds
    death_timeout_seconds: float = WorkerSettings.death_timeout_seconds
    garbage_collect_interval_seconds: float = WorkerSettings.garbage_collect_interval_seconds
    trim_memory_threshold_bytes: int = WorkerSettings.trim_memory_threshold_bytes
    hard_processor_suspend: bool = WorkerSettings.hard_processor_suspend
    io_threads: int = WorkerSettings.io_threads
    event_loop: str = WorkerSettings.event_loop
    preload: str | None = None


@dataclass
class WorkerManagerConfig:
    """What managers are told."""

    scheduler_address: AddressConfig
    worker_manager_id: str
    worker_scheduler_address: AddressConfig | None = None
    object_storage_address: AddressConfig | None = None
    max_task_concurrency: int | None = None
    scale_down_cooldown_seconds: float = ManagerSettings.scale_down_cooldown_seconds

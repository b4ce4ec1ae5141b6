"""The settings of proxies: workers whose tasks another system runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from scaler_cluster.config.aws_settings import AWSSettings
from scaler_cluster.config.manager_settings import UnitSettings
from scaler_cluster.config.option import option
from scaler_cluster.config.values import CAPABILITIES, CONNECT, PORT, TEXT, choice, whole
from scaler_cluster.config.webhook_settings import AdapterSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.wire.messages import GPU

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_PROCESSES = (
    "stopped_timeout_seconds",
    "hang_timeout_seconds",
    "garbage_collect_interval_seconds",
    "trim_memory_threshold_bytes",
    "memory_limit",
    "max_tasks_per_child",
    "failed_arguments",
    "preload",
    "threads_per_worker",
)
"""Settings for workers that are processes, which a proxy's are not."""


@dataclass(frozen=True, kw_only=True)
class ProxySettings(UnitSettings):
    """Of any proxy. ``system`` is what people call the system that runs the tasks."""

    system: ClassVar[str]
    group: ClassVar[tuple[str, str]]
    """What the ids of groups begin with, and the names of workers."""

    def __post_init__(self) -> None:
        """Raise ConfigError if something is offered that its tasks cannot have."""
        super().__post_init__()
        if GPU in self.machine_capabilities:
            raise ConfigError(
                f"machine_capabilities must have no {GPU} here: nobody tells tasks that run in "
                f"{self.system} which GPUs are their own"
            )

    @property
    def concurrency(self) -> int | None:
        """How many tasks there are at once; None: one for each CPU but one."""
        raise NotImplementedError

    @property
    def where(self) -> str:
        """What the place where tasks run is called in errors."""
        return self.system

    @property
    def prefix(self) -> str:
        """What the names of the workers begin with."""
        return self.group[1]

    @property
    def without_effect(self) -> list[str]:
        """The names of settings that differ from their defaults, and mean nothing here."""
        given = {one.name: getattr(self, one.name) != one.default for one in self.options()}
        return [name for name in OF_PROCESSES if given[name]]


@dataclass(frozen=True, kw_only=True)
class ProxyManagerSettings(ProxySettings):
    """Of a proxy that ``scaler_worker_manager`` runs."""

    names: ClassVar[tuple[str, ...]] = ("worker_manager",)
    types: ClassVar[tuple[str, ...]]
    """The words for it on a command line and in TOML, the usual one first."""

    type: str | None = option("which system runs the tasks", TEXT, default=None)
    worker_manager_id: str | None = option(
        "how rules of waterfall_v1 and monitors call the proxy (default: its machine and pid)",
        TEXT,
        "-wmi",
        default=None,
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if the type is another one."""
        super().__post_init__()
        if self.type is not None and self.type not in self.types:
            raise ConfigError(f"type must be {' or '.join(self.types)} here, not {self.type!r}")


@dataclass(frozen=True, kw_only=True)
class SymphonyAccess(ProxySettings):
    """Of any proxy whose tasks run in IBM Spectrum Symphony."""

    system: ClassVar[str] = "IBM Symphony"
    group: ClassVar[tuple[str, str]] = ("symphony", "SYM")

    service_name: str = option("the name of the application in Symphony", TEXT, "-sn")
    base_concurrency: int | None = option(
        "how many tasks Symphony has at once; tasks that tasks wait for may be more (default: one "
        "for each CPU of this machine but one)",
        whole(1),
        "-n",
        "-mtc",
        "-mw",
        default=None,
        also=("max_task_concurrency", "max_workers"),
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if the name is empty."""
        super().__post_init__()
        if not self.service_name.strip():
            raise ConfigError("service_name must name an application of Symphony")

    @property
    def concurrency(self) -> int | None:
        """How many tasks there are at once; None: one for each CPU but one."""
        return self.base_concurrency

    @property
    def where(self) -> str:
        """What the place where tasks run is called in errors."""
        return f"the application {self.service_name} of {self.system}"


@dataclass(frozen=True, kw_only=True)
class SymphonySettings(SymphonyAccess, ProxyManagerSettings):
    """Of workers whose tasks run in IBM Spectrum Symphony."""

    types: ClassVar[tuple[str, ...]] = ("symphony",)


@dataclass(frozen=True, kw_only=True)
class SymphonyClusterSettings(SymphonyAccess):
    """Of the same, as version 1.9 has it."""

    names: ClassVar[tuple[str, ...]] = ("symphony_cluster",)

    scheduler_address: str = option(
        "the scheduler, such as tcp://127.0.0.1:8516", CONNECT, is_positional=True
    )
    service_name: str = option("the name of the application in Symphony", TEXT, is_positional=True)
    worker_name: str | None = option(
        "what the names of the workers begin with (default: SYM)", TEXT, "-w", default=None
    )

    @property
    def prefix(self) -> str:
        """What the names of the workers begin with."""
        return self.worker_name or super().prefix


@dataclass(frozen=True, kw_only=True)
class SymphonyAdapterSettings(SymphonyAccess, AdapterSettings):
    """Of an adapter with one group of workers, whose tasks run in IBM Spectrum Symphony."""

    names: ClassVar[tuple[str, ...]] = ("symphony_worker_adapter",)

    adapter_web_port: int = option(
        "port to listen on; 0: any free port", PORT, "-p", also=("port",), default=0
    )
    per_worker_capabilities: Mapping[str, float] = option(
        "what each worker offers, such as linux,gpu=1; a name without a number is never used up",
        CAPABILITIES,
        "-pwc",
        "-wc",
        default={},
        also=("worker_capabilities",),
    )
    per_worker_task_queue_size: int = option(
        "how many tasks a worker may hold at most",
        whole(1),
        "-wtqs",
        default=1000,
        also=("worker_task_queue_size",),
    )

    @property
    def workers_in_unit(self) -> int:
        """How many workers the group has; set once the CPUs are counted."""
        return self.base_concurrency or 1


@dataclass(frozen=True, kw_only=True)
class BatchSettings(AWSSettings, ProxyManagerSettings):
    """Of workers whose tasks run as jobs of AWS Batch."""

    types: ClassVar[tuple[str, ...]] = ("aws_hpc",)
    system: ClassVar[str] = "AWS Batch"
    group: ClassVar[tuple[str, str]] = ("batch", "BAT")

    job_queue: str = option("the job queue", TEXT, "-q")
    job_definition: str = option("the job definition, with a revision or without", TEXT, "-d")
    s3_bucket: str = option("the bucket for calls and results", TEXT)
    s3_prefix: str = option(
        "what the names of objects in the bucket begin with", TEXT, default="scaler-tasks"
    )
    max_concurrent_jobs: int = option(
        "how many jobs there are at once; tasks that tasks wait for may be more",
        whole(1),
        "-mcj",
        "-mtc",
        "-mw",
        default=100,
        also=("max_task_concurrency", "max_workers"),
    )
    job_timeout_minutes: int = option(
        "a job that runs longer is ended, and its task fails", whole(1), default=60
    )
    backend: str = option(
        "the service, of which there is one", choice("batch"), "-b", default="batch"
    )
    name: str | None = option(
        "what the names of the workers begin with (default: BAT)", TEXT, "-n", default=None
    )

    @property
    def concurrency(self) -> int:
        """How many tasks there are at once."""
        return self.max_concurrent_jobs

    @property
    def prefix(self) -> str:
        """What the names of the workers begin with."""
        return self.name or super().prefix

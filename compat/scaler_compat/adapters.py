"""Worker adapters as programs for the Scaler system make them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scaler_cluster.config.aws_settings import ECSAdapterSettings
from scaler_cluster.config.proxy_settings import SymphonyAdapterSettings
from scaler_cluster.config.webhook_settings import NativeAdapterSettings
from scaler_cluster.provision.adapters import make_adapter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from scaler_cluster.config.webhook_settings import AdapterSettings


class _WorkerAdapter:
    """Starts and shuts down worker groups, by its methods or by HTTP."""

    def __init__(self, settings: AdapterSettings) -> None:
        self._adapter = make_adapter(settings)

    async def start_worker_group(self) -> str:
        """Start a group and return its id; raises CapacityExceededError if there are enough."""
        group, _ = await asyncio.to_thread(self._adapter.start)
        return group

    async def shutdown_worker_group(self, worker_group_id: str) -> None:
        """Shut a group down; raises WorkerGroupNotFoundError."""
        await asyncio.to_thread(self._adapter.shut_down, worker_group_id)

    async def webhook_handler(self, request: web.Request) -> web.Response:
        """Answer a request of a scheduler."""
        return await self._adapter.handle(request)

    def create_app(self) -> web.Application:
        """Return an application of aiohttp with the one route, ``POST /``."""
        return self._adapter.create_app()


class NativeWorkerAdapter(_WorkerAdapter):
    """Starts and shuts down worker groups on this machine, by its methods or by HTTP.

    The parameters are the settings of ``[native_worker_adapter]``. Raises ConfigError.
    """

    def __init__(
        self,
        address: object,
        object_storage_address: object = None,
        capabilities: Mapping[str, int] | None = None,
        io_threads: int = NativeAdapterSettings.io_threads,
        task_queue_size: int = NativeAdapterSettings.per_worker_task_queue_size,
        max_workers: int | None = NativeAdapterSettings.max_workers,
        heartbeat_interval_seconds: float = NativeAdapterSettings.heartbeat_interval_seconds,
        task_timeout_seconds: float = NativeAdapterSettings.task_timeout_seconds,
        death_timeout_seconds: float = NativeAdapterSettings.death_timeout_seconds,
        garbage_collect_interval_seconds: float = (
            NativeAdapterSettings.garbage_collect_interval_seconds
        ),
        trim_memory_threshold_bytes: int = NativeAdapterSettings.trim_memory_threshold_bytes,
        hard_processor_suspend: bool = NativeAdapterSettings.hard_processor_suspend,
        event_loop: str = NativeAdapterSettings.event_loop,
        logging_paths: Sequence[str] = NativeAdapterSettings.logging_paths,
        logging_level: str = NativeAdapterSettings.logging_level,
        logging_config_file: str | None = None,
    ) -> None:
        settings = NativeAdapterSettings.of(
            scheduler_address=str(address),
            object_storage_address=() if object_storage_address is None
            else str(object_storage_address),
            per_worker_capabilities=dict(capabilities or {}),
            io_threads=io_threads,
            per_worker_task_queue_size=task_queue_size,
            max_workers=max_workers,
            heartbeat_interval_seconds=heartbeat_interval_seconds,
            task_timeout_seconds=task_timeout_seconds,
            death_timeout_seconds=death_timeout_seconds,
            garbage_collect_interval_seconds=garbage_collect_interval_seconds,
            trim_memory_threshold_bytes=trim_memory_threshold_bytes,
            hard_processor_suspend=hard_processor_suspend,
            event_loop=event_loop,
            logging_paths=tuple(logging_paths),
            logging_level=logging_level,
            logging_config_file=logging_config_file,
        )  # fmt: skip
        super().__init__(settings)


class ECSWorkerAdapter(_WorkerAdapter):
    """Starts and shuts down worker groups that are tasks of ECS, by its methods or by HTTP.

    The parameters are the settings of ``[ecs_worker_adapter]``. Raises ConfigError.
    """

    def __init__(
        self,
        address: object,
        object_storage_address: object = None,
        capabilities: Mapping[str, int] | None = None,
        io_threads: int = ECSAdapterSettings.io_threads,
        per_worker_task_queue_size: int = ECSAdapterSettings.per_worker_task_queue_size,
        max_instances: int | None = ECSAdapterSettings.max_instances,
        heartbeat_interval_seconds: float = ECSAdapterSettings.heartbeat_interval_seconds,
        task_timeout_seconds: float = ECSAdapterSettings.task_timeout_seconds,
        death_timeout_seconds: float = ECSAdapterSettings.death_timeout_seconds,
        garbage_collect_interval_seconds: float = (
            ECSAdapterSettings.garbage_collect_interval_seconds
        ),
        trim_memory_threshold_bytes: int = ECSAdapterSettings.trim_memory_threshold_bytes,
        hard_processor_suspend: bool = ECSAdapterSettings.hard_processor_suspend,
        event_loop: str = ECSAdapterSettings.event_loop,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        aws_region: str = ECSAdapterSettings.aws_region,
        ecs_subnets: Sequence[str] = (),
        ecs_cluster: str = ECSAdapterSettings.ecs_cluster,
        ecs_task_image: str = ECSAdapterSettings.ecs_task_image,
        ecs_python_requirements: str = ECSAdapterSettings.ecs_python_requirements,
        ecs_python_version: str = ECSAdapterSettings.ecs_python_version,
        ecs_task_definition: str = ECSAdapterSettings.ecs_task_definition,
        ecs_task_cpu: int = ECSAdapterSettings.ecs_task_cpu,
        ecs_task_memory: int = ECSAdapterSettings.ecs_task_memory,
    ) -> None:
        settings = ECSAdapterSettings.of(
            scheduler_address=str(address),
            object_storage_address=() if object_storage_address is None
            else str(object_storage_address),
            per_worker_capabilities=dict(capabilities or {}),
            io_threads=io_threads,
            per_worker_task_queue_size=per_worker_task_queue_size,
            max_instances=max_instances,
            heartbeat_interval_seconds=heartbeat_interval_seconds,
            task_timeout_seconds=task_timeout_seconds,
            death_timeout_seconds=death_timeout_seconds,
            garbage_collect_interval_seconds=garbage_collect_interval_seconds,
            trim_memory_threshold_bytes=trim_memory_threshold_bytes,
            hard_processor_suspend=hard_processor_suspend,
            event_loop=event_loop,
            aws_access_key_id=aws_access_key_id,
            aws_secret_access_key=aws_secret_access_key,
            aws_region=aws_region,
            ecs_subnets=tuple(ecs_subnets),
            ecs_cluster=ecs_cluster,
            ecs_task_image=ecs_task_image,
            ecs_python_requirements=ecs_python_requirements,
            ecs_python_version=ecs_python_version,
            ecs_task_definition=ecs_task_definition,
            ecs_task_cpu=ecs_task_cpu,
            ecs_task_memory=ecs_task_memory,
        )  # fmt: skip
        super().__init__(settings)


class SymphonyWorkerAdapter(_WorkerAdapter):
    """Starts and shuts down the one group of workers whose tasks run in IBM Spectrum Symphony.

    The parameters are the settings of ``[symphony_worker_adapter]``. Raises ConfigError.
    """

    def __init__(
        self,
        address: object,
        object_storage_address: object = None,
        capabilities: Mapping[str, int] | None = None,
        task_queue_size: int = SymphonyAdapterSettings.per_worker_task_queue_size,
        service_name: str = "",
        base_concurrency: int | None = None,
        heartbeat_interval_seconds: float = SymphonyAdapterSettings.heartbeat_interval_seconds,
        death_timeout_seconds: float = SymphonyAdapterSettings.death_timeout_seconds,
        event_loop: str = SymphonyAdapterSettings.event_loop,
        io_threads: int = SymphonyAdapterSettings.io_threads,
        logging_paths: Sequence[str] = SymphonyAdapterSettings.logging_paths,
        logging_level: str = SymphonyAdapterSettings.logging_level,
        logging_config_file: str | None = None,
    ) -> None:
        settings = SymphonyAdapterSettings.of(
            scheduler_address=str(address),
            object_storage_address=() if object_storage_address is None
            else str(object_storage_address),
            per_worker_capabilities=dict(capabilities or {}),
            per_worker_task_queue_size=task_queue_size,
            service_name=service_name,
            base_concurrency=base_concurrency,
            heartbeat_interval_seconds=heartbeat_interval_seconds,
            death_timeout_seconds=death_timeout_seconds,
            event_loop=event_loop,
            io_threads=io_threads,
            logging_paths=tuple(logging_paths),
            logging_level=logging_level,
            logging_config_file=logging_config_file,
        )  # fmt: skip
        super().__init__(settings)

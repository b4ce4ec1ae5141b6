"""Scheduler, workers and object storage as processes of a program, in Scaler's form.

Each is a child of this process, with the settings of the command of its kind, and ends with it.
"""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

from scaler_cluster import arguments
from scaler_cluster.config.sections import SchedulerSettings, StorageSettings
from scaler_cluster.config.worker_settings import ClusterSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.process.child import STOP_TIMEOUT_S, ChildProcess
from scaler_cluster.process.process import Ready
from scaler_cluster.process.process_config import (
    SchedulerProcessConfig,
    StorageServerConfig,
    SupervisorProcessConfig,
)
from scaler_compat.config_groups import PolicyConfig
from scaler_compat.config_sections import plain

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    EngineConfig: TypeAlias = SchedulerProcessConfig | SupervisorProcessConfig | StorageServerConfig


MANAGER_STOP_S = 10.0
"""Managers that have not ended so long after their scheduler are killed."""


class EngineProcess:
    """A child of this process, started and ended in the manner of ``multiprocessing.Process``."""

    def __init__(self, name: str, config: EngineConfig, *, reports: bool) -> None:
        self.name = name
        self._config = config
        self._reports = reports
        self._child: ChildProcess | None = None
        self._ready = Ready()

    def start(self) -> None:
        """Start it; returns when it is ready. Raises ConfigError if it cannot be."""
        if self._child is not None:
            raise AssertionError("cannot start a process twice")
        self._child = ChildProcess(self.name, self._config, reports=self._reports)
        if self._reports:
            self._ready = self._child.await_ready()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most so long."""
        try:
            self._started().process.wait(timeout)
        except subprocess.TimeoutExpired:
            return
        if not isinstance(self._config, StorageServerConfig):
            # It may have been killed; a storage has removed its own.
            self._config.dirs.remove()

    def terminate(self) -> None:
        """Let it end."""
        self._started().let_go()

    def kill(self) -> None:
        """End it now."""
        self._started().process.kill()

    def is_alive(self) -> bool:
        """Return True if it was started and has not ended."""
        return self._child is not None and self._child.process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process id, once it was started."""
        return None if self._child is None else self._child.pid

    @property
    def exitcode(self) -> int | None:
        """How it ended, once it has."""
        return None if self._child is None else self._child.process.poll()

    def _started(self) -> ChildProcess:
        if self._child is None:
            raise AssertionError("can only be done to a process that was started")
        return self._child


def _text(address: object) -> str | None:
    """Return an address as text; it may be an object that shows itself as one."""
    return None if address is None else str(address)


def _one_of(name: str, value: object, older_name: str, older: object) -> str:
    """Return the address that is given by one of two names; raises TypeError."""
    if (value is None) == (older is None):
        raise TypeError(f"give one of {name} and {older_name}")
    return str(older if value is None else value)


class _ManagingProcess(EngineProcess):
    """A scheduler, with a manager for each adapter that it is to ask for workers."""

    def __init__(self, settings: SchedulerSettings) -> None:
        super().__init__("scheduler", SchedulerProcessConfig.from_settings(settings), reports=True)
        self._settings = settings
        self._managers: list[ChildProcess] = []

    def start(self) -> None:
        super().start()
        from scaler_cluster.cli.scheduler import webhook_managers

        for one in webhook_managers(self._settings, self.address):
            self._managers.append(ChildProcess("manager", one))

    def join(self, timeout: float | None = None) -> None:
        super().join(timeout)
        if not self.is_alive():
            for one in self._managers:
                one.stop(MANAGER_STOP_S)

    def terminate(self) -> None:
        self._let_go()
        super().terminate()

    def kill(self) -> None:
        self._let_go()
        super().kill()

    def _let_go(self) -> None:
        for one in self._managers:
            one.let_go()

    @property
    def address(self) -> str:
        """Where it listens, once it was started."""
        return self._ready.address


class SchedulerProcess(_ManagingProcess):
    """A scheduler at ``bind_address``; parameters as the settings of the same names.

    Version 1 calls the first one ``address``.
    """

    def __init__(
        self,
        bind_address: object = None,
        object_storage_address: object = None,
        advertised_object_storage_address: object = None,
        monitor_address: object = None,
        io_threads: int = SchedulerSettings.io_threads,
        max_number_of_tasks_waiting: int = SchedulerSettings.max_number_of_tasks_waiting,
        client_timeout_seconds: float = SchedulerSettings.client_timeout_seconds,
        worker_timeout_seconds: float = SchedulerSettings.worker_timeout_seconds,
        object_retention_seconds: float = SchedulerSettings.object_retention_seconds,
        load_balance_seconds: float = SchedulerSettings.load_balance_seconds,
        load_balance_trigger_times: int = SchedulerSettings.load_balance_trigger_times,
        protected: bool = SchedulerSettings.protected,
        policy: PolicyConfig | None = None,
        event_loop: str = SchedulerSettings.event_loop,
        logging_paths: Sequence[str] = SchedulerSettings.logging_paths,
        logging_config_file: str | None = None,
        logging_level: str = SchedulerSettings.logging_level,
        shutdown_event: None = None,
        security_config: str | os.PathLike[str] | None = None,
        scaling_controller_strategy: object = None,
        adapter_webhook_urls: Sequence[str] = (),
        *,
        address: object = None,
        allocate_policy: object = None,
    ) -> None:
        if shutdown_event is not None:
            raise ConfigError("shutdown_event must be None: use terminate()")
        policy = policy or PolicyConfig()
        settings = SchedulerSettings.of(
            scheduler_address=_one_of("bind_address", bind_address, "address", address),
            object_storage_address=_text(object_storage_address) or (),
            advertised_object_storage_address=_text(advertised_object_storage_address) or (),
            monitor_address=_text(monitor_address),
            io_threads=io_threads,
            max_number_of_tasks_waiting=max_number_of_tasks_waiting,
            client_timeout_seconds=client_timeout_seconds,
            worker_timeout_seconds=worker_timeout_seconds,
            object_retention_seconds=object_retention_seconds,
            load_balance_seconds=load_balance_seconds,
            load_balance_trigger_times=load_balance_trigger_times,
            protected=protected,
            policy_engine_type=policy.policy_engine_type,
            policy_content=policy.policy_content,
            allocate_policy=plain(allocate_policy) or SchedulerSettings.allocate_policy,
            event_loop=event_loop,
            logging_paths=logging_paths,
            logging_config_file=logging_config_file,
            logging_level=logging_level,
            keys=arguments.keys_path(None, security_config),
            scaling_controller_strategy=plain(scaling_controller_strategy),
            adapter_webhook_urls=tuple(adapter_webhook_urls),
        )
        super().__init__(settings)


class Scheduler:
    """A scheduler for programs with an event loop: it runs as long as :meth:`get_loops` does."""

    def __init__(self, config: SchedulerSettings) -> None:
        self._process = _ManagingProcess(config)
        self._process.start()
        self.address = self._process.address

    async def get_loops(self) -> None:
        """Wait until the scheduler has ended; end it if this is cancelled."""
        try:
            await asyncio.to_thread(self._process.join)
        finally:
            self._process.terminate()
            self._process.join(STOP_TIMEOUT_S)


def run_scheduler(config: SchedulerSettings) -> None:
    """Run a scheduler until SIGINT or SIGTERM, as the command does."""
    from scaler_cluster.cli.scheduler import run

    run(config)


class Cluster(EngineProcess):
    """Workers of this machine, one for each name; parameters as the settings of the same names."""

    def __init__(
        self,
        address: object = None,
        worker_names: Sequence[str] = (),
        worker_io_threads: int = ClusterSettings.io_threads,
        per_worker_capabilities: Mapping[str, int] | str | None = None,
        per_worker_task_queue_size: int = ClusterSettings.per_worker_task_queue_size,
        heartbeat_interval_seconds: float = ClusterSettings.heartbeat_interval_seconds,
        task_timeout_seconds: float = ClusterSettings.task_timeout_seconds,
        death_timeout_seconds: float = ClusterSettings.death_timeout_seconds,
        garbage_collect_interval_seconds: float = ClusterSettings.garbage_collect_interval_seconds,
        trim_memory_threshold_bytes: int = ClusterSettings.trim_memory_threshold_bytes,
        hard_processor_suspend: bool = ClusterSettings.hard_processor_suspend,
        event_loop: str = ClusterSettings.event_loop,
        logging_paths: Sequence[str] = ClusterSettings.logging_paths,
        logging_config_file: str | None = None,
        logging_level: str = ClusterSettings.logging_level,
        preload: str | None = None,
        keys: str | None = None,
        *,
        object_storage_address: object = None,
        config: ClusterSettings | None = None,
    ) -> None:
        settings = address if config is None else config
        if not isinstance(settings, ClusterSettings):
            settings = ClusterSettings.of(
                scheduler_address=_one_of("address", address, "config", None),
                object_storage_address=_text(object_storage_address) or (),
                worker_names=tuple(plain(worker_names)),
                io_threads=worker_io_threads,
                per_worker_capabilities=plain(per_worker_capabilities) or {},
                per_worker_task_queue_size=per_worker_task_queue_size,
                heartbeat_interval_seconds=heartbeat_interval_seconds,
                task_timeout_seconds=task_timeout_seconds,
                death_timeout_seconds=death_timeout_seconds,
                garbage_collect_interval_seconds=garbage_collect_interval_seconds,
                trim_memory_threshold_bytes=trim_memory_threshold_bytes,
                hard_processor_suspend=hard_processor_suspend,
                event_loop=event_loop,
                logging_paths=logging_paths,
                logging_config_file=logging_config_file,
                logging_level=logging_level,
                preload=preload,
                keys=keys,
            )
        process = SupervisorProcessConfig.from_settings(settings)
        super().__init__("supervisor", process, reports=False)


class Worker(Cluster):
    """One worker of this machine; parameters as the settings of the same names."""

    def __init__(
        self,
        event_loop: str,
        name: str,
        address: object,
        object_storage_address: object = None,
        preload: str | None = None,
        capabilities: Mapping[str, int] | None = None,
        io_threads: int = ClusterSettings.io_threads,
        task_queue_size: int = ClusterSettings.per_worker_task_queue_size,
        heartbeat_interval_seconds: float = ClusterSettings.heartbeat_interval_seconds,
        garbage_collect_interval_seconds: float = ClusterSettings.garbage_collect_interval_seconds,
        trim_memory_threshold_bytes: int = ClusterSettings.trim_memory_threshold_bytes,
        task_timeout_seconds: float = ClusterSettings.task_timeout_seconds,
        death_timeout_seconds: float = ClusterSettings.death_timeout_seconds,
        hard_processor_suspend: bool = ClusterSettings.hard_processor_suspend,
        logging_paths: Sequence[str] = ClusterSettings.logging_paths,
        logging_level: str = ClusterSettings.logging_level,
        worker_manager_id: str = "",
        deterministic_worker_ids: bool = False,
        security_config: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            address,
            (name,),
            io_threads,
            capabilities,
            task_queue_size,
            heartbeat_interval_seconds,
            task_timeout_seconds,
            death_timeout_seconds,
            garbage_collect_interval_seconds,
            trim_memory_threshold_bytes,
            hard_processor_suspend,
            event_loop,
            logging_paths,
            logging_level=logging_level,
            preload=preload,
            keys=arguments.keys_path(None, security_config),
        )
        self.identity = name.encode()


class ObjectStorageServerProcess(EngineProcess):
    """An object storage at ``bind_address``; parameters as the settings of the same names.

    Version 1 calls the first one ``object_storage_address``.
    """

    def __init__(
        self,
        bind_address: object = None,
        identity: str = StorageSettings.identity,
        logging_paths: Sequence[str] = StorageSettings.logging_paths,
        logging_level: str = StorageSettings.logging_level,
        logging_config_file: str | None = None,
        security_config: str | os.PathLike[str] | None = None,
        *,
        object_storage_address: object = None,
    ) -> None:
        settings = StorageSettings.of(
            object_storage_address=_one_of(
                "bind_address", bind_address, "object_storage_address", object_storage_address
            ),
            identity=identity,
            logging_paths=logging_paths,
            logging_level=logging_level,
            logging_config_file=logging_config_file,
            keys=arguments.keys_path(None, security_config),
        )
        config = StorageServerConfig.from_settings(settings)
        super().__init__("storage_server", config, reports=True)

    def wait_until_ready(self) -> None:
        """Do nothing: :meth:`start` has waited."""

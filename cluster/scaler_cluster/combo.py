"""A scheduler and workers on this machine, for clients to connect to."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from scaler_cluster import arguments
from scaler_cluster.config.sections import ClusterSettings, SchedulerSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.runtime.process_config import scheduling, supervising
from scaler_cluster.runtime.spawn import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from scaler_cluster.runtime.dashboard_link import DashboardLink

PRIVATE = "ipc://private"
"""Stands for the address of a cluster that none was given."""


class SchedulerClusterCombo:
    """Starts a scheduler and ``n_workers`` workers, which end with this object or this process.

    The settings have the names, units and defaults of the commands; ``docs/configuration.md`` says
    more of each.

    Args:
        n_workers: Number of worker processes, 0 or more.
        address: Where the scheduler listens, as ``tcp://127.0.0.1:8516``; port 0 takes a free
            one. Default: a socket file in a private directory.
        object_storage_address: Where the object storage listens. If something listens there
            already, it is taken to be ``scaler_object_storage_server``; with several addresses all
            are, and each object is kept by the one that its id chooses. Default: a free port
            beside the scheduler.
        monitor_address: Where monitors connect, as ``scaler_top``. Default: a socket file in a
            private directory.
        per_worker_capabilities: What each worker offers to tasks that demand it, as
            ``{"gpu": 1}``; -1: it is never used up.
        worker_io_threads: How many threads of each worker move bytes.
        scheduler_io_threads: How many of the scheduler do.
        max_number_of_tasks_waiting: How many tasks wait in the scheduler, before further ones wait
            at their clients; -1: no limit.
        heartbeat_interval_seconds: How often the workers' machine says that it lives.
        client_timeout_seconds: A client that is silent for so long is given up, with its tasks.
        worker_timeout_seconds: So are workers; their tasks run elsewhere.
        object_retention_seconds: How long a machine keeps its copy of an object that no task there
            uses (up to twice that); 0: as long as there is room.
        task_timeout_seconds: A task that runs longer, and has no timeout of its own, is stopped;
            0: none is.
        death_timeout_seconds: Workers end when the scheduler has been silent for so long.
        load_balance_seconds: A worker without work gets what others have queued after so many
            times so long; 0: at once; negative: never.
        load_balance_trigger_times: How many times ``load_balance_seconds`` that is.
        garbage_collect_interval_seconds: How often a worker collects garbage, between tasks;
            0: never.
        trim_memory_threshold_bytes: Resident memory beyond which a worker then gives free memory
            back to the system, in bytes or as text such as "1GiB".
        per_worker_task_queue_size: How many tasks a worker is given ahead at most.
        hard_processor_suspend: Accepted; a worker whose task waits for others is not stopped,
            another process takes its place.
        protected: Whether the scheduler refuses :meth:`Client.shutdown`.
        scaler_policy: Accepted, with its ``policy_content`` checked: each task goes to a worker
            that has what it demands, and the number of workers stays as it is.
        event_loop: The scheduler's: ``builtin`` or ``uvloop``.
        logging_paths: Where scheduler and workers log; nowhere by default.
        logging_level: What they log at least.
        logging_config_file: A file for ``logging.config.fileConfig``, instead of the former two.
        worker_manager_id: Accepted.
        security_config: Must be None: there is no encryption yet.
        preload: What each worker calls before its first task, as ``"pkg.mod:func(1)"``.
        threads_per_worker: How many threads numeric libraries start in each worker. A variable that
            is set when the cluster starts, as ``OMP_NUM_THREADS``, wins.
        per_worker_queue_size: An older name of ``per_worker_task_queue_size``.
        dashboard: Whether there is one, see :attr:`dashboard_link`.

    Raises:
        TypeError: A setting has the wrong type.
        ConfigError: A setting is wrong, the address cannot be bound, no object storage answers, or
            what the dashboard needs is not installed.

    """

    def __init__(
        self,
        n_workers: int,
        address: str | None = None,
        object_storage_address: str | Sequence[str] | None = None,
        monitor_address: str | None = None,
        per_worker_capabilities: Mapping[str, float] | str | None = None,
        worker_io_threads: int = ClusterSettings.io_threads,
        scheduler_io_threads: int = SchedulerSettings.io_threads,
        max_number_of_tasks_waiting: int = SchedulerSettings.max_number_of_tasks_waiting,
        heartbeat_interval_seconds: float = ClusterSettings.heartbeat_interval_seconds,
        client_timeout_seconds: float = SchedulerSettings.client_timeout_seconds,
        worker_timeout_seconds: float = SchedulerSettings.worker_timeout_seconds,
        object_retention_seconds: float = SchedulerSettings.object_retention_seconds,
        task_timeout_seconds: float = ClusterSettings.task_timeout_seconds,
        death_timeout_seconds: float = ClusterSettings.death_timeout_seconds,
        load_balance_seconds: float = SchedulerSettings.load_balance_seconds,
        load_balance_trigger_times: int = SchedulerSettings.load_balance_trigger_times,
        garbage_collect_interval_seconds: float = ClusterSettings.garbage_collect_interval_seconds,
        trim_memory_threshold_bytes: int | str = ClusterSettings.trim_memory_threshold_bytes,
        per_worker_task_queue_size: int = ClusterSettings.per_worker_task_queue_size,
        hard_processor_suspend: bool = ClusterSettings.hard_processor_suspend,
        protected: bool = True,
        scaler_policy: Any = None,
        event_loop: str = SchedulerSettings.event_loop,
        logging_paths: Sequence[str] = (),
        logging_level: str = SchedulerSettings.logging_level,
        logging_config_file: str | None = None,
        worker_manager_id: str = "combo",
        security_config: None = None,
        *,
        preload: str | None = None,
        threads_per_worker: int = ClusterSettings.threads_per_worker,
        per_worker_queue_size: int | None = None,
        dashboard: bool = False,
    ) -> None:
        n_workers = arguments.whole("n_workers", n_workers, 0)
        arguments.flag("dashboard", dashboard)
        arguments.instance("worker_manager_id", worker_manager_id, str, "a text")
        if security_config is not None:
            raise ConfigError("security_config must be None: there is no encryption yet")
        if object_storage_address is None:
            object_storage_address = ()
        log: dict[str, Any] = {
            "logging_paths": logging_paths,
            "logging_level": logging_level,
            "logging_config_file": logging_config_file,
        }
        policy = {
            name: getattr(scaler_policy, name)
            for name in ("policy_engine_type", "policy_content")
            if hasattr(scaler_policy, name)
        }
        scheduler = SchedulerSettings.of(
            {"scheduler_address": "address", "io_threads": "scheduler_io_threads"},
            scheduler_address=PRIVATE if address is None else address,
            object_storage_address=object_storage_address,
            monitor_address=monitor_address,
            protected=protected,
            max_number_of_tasks_waiting=max_number_of_tasks_waiting,
            client_timeout_seconds=client_timeout_seconds,
            worker_timeout_seconds=worker_timeout_seconds,
            object_retention_seconds=object_retention_seconds,
            load_balance_seconds=load_balance_seconds,
            load_balance_trigger_times=load_balance_trigger_times,
            event_loop=event_loop,
            io_threads=scheduler_io_threads,
            **policy,
            **log,
        )
        if per_worker_capabilities is None:
            per_worker_capabilities = {}
        if per_worker_queue_size is not None:
            per_worker_task_queue_size = per_worker_queue_size
        cluster = ClusterSettings.of(
            {"io_threads": "worker_io_threads"},
            scheduler_address=PRIVATE,
            per_worker_capabilities=per_worker_capabilities,
            per_worker_task_queue_size=per_worker_task_queue_size,
            heartbeat_interval_seconds=heartbeat_interval_seconds,
            task_timeout_seconds=task_timeout_seconds,
            death_timeout_seconds=death_timeout_seconds,
            garbage_collect_interval_seconds=garbage_collect_interval_seconds,
            trim_memory_threshold_bytes=trim_memory_threshold_bytes,
            hard_processor_suspend=hard_processor_suspend,
            preload=preload,
            threads_per_worker=threads_per_worker,
            io_threads=worker_io_threads,
            **log,
        )
        self._cluster = EmbeddedCluster(
            n_workers,
            None if address is None else scheduler.scheduler_address,
            scheduling=scheduling(scheduler),
            supervising=supervising(cluster),
            dashboard=dashboard,
        )
        self._stop = weakref.finalize(self, self._cluster.stop)

    def get_address(self) -> str:
        """Return the address to give to clients."""
        return self._cluster.address

    def get_monitor_address(self) -> str:
        """Return the address to give to ``scaler_top``."""
        return self._cluster.monitor_address

    @property
    def dashboard_link(self) -> DashboardLink | None:
        """What opens its dashboard in a browser of this machine; None if it was made without."""
        return self._cluster.dashboard_link

    def shutdown(self) -> None:
        """End the scheduler and the workers, whatever they run; idempotent."""
        self._stop()

    def __repr__(self) -> str:
        """Show whether it runs, how many workers it has, and where."""
        name, cluster = type(self).__name__, self.__dict__.get("_cluster")
        if cluster is None:
            return f"<{name} not made>"
        state = "running" if self._stop.alive else "shut down"
        return f"<{name} {state}, workers={cluster.workers}, address={cluster.address}>"

    def __enter__(self) -> Self:
        """Return the cluster."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down."""
        self.shutdown()

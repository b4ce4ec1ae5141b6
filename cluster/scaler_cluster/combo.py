"""A scheduler and workers on this machine, for clients to connect to."""

from __future__ import annotations

import weakref
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scaler_cluster import arguments
from scaler_cluster.config.sections import SchedulerSettings
from scaler_cluster.config.worker_settings import ClusterSettings
from scaler_cluster.process.dashboard_link import widget
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.process.process_config import PRIVATE, SchedulerOptions, SupervisorOptions
from scaler_cluster.texts import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from types import TracebackType

    from typing_extensions import Self

    from scaler_cluster.process.dashboard_link import DashboardLink

LOGGING = ("logging_paths", "logging_level", "logging_config_file")
SCHEDULER = MappingProxyType(
    {"scheduler_address": "address", "io_threads": "scheduler_io_threads", "keys": "keys"}
    | {
        name: name
        for name in (
            "object_storage_address",
            "monitor_address",
            "protected",
            "max_number_of_tasks_waiting",
            "client_timeout_seconds",
            "worker_timeout_seconds",
            "object_retention_seconds",
            "load_balance_seconds",
            "load_balance_trigger_times",
            "event_loop",
            *LOGGING,
        )
    }
)
"""The settings of the scheduler, each with the argument of SchedulerClusterCombo that gives it."""
WORKERS = MappingProxyType(
    {"io_threads": "worker_io_threads"}
    | {
        name: name
        for name in (
            "per_worker_capabilities",
            "machine_capabilities",
            "per_worker_task_queue_size",
            "heartbeat_interval_seconds",
            "task_timeout_seconds",
            "stopped_timeout_seconds",
            "hang_timeout_seconds",
            "death_timeout_seconds",
            "garbage_collect_interval_seconds",
            "trim_memory_threshold_bytes",
            "memory_limit",
            "max_tasks_per_child",
            "failed_arguments",
            "hard_processor_suspend",
            "preload",
            "threads_per_worker",
            *LOGGING,
        )
    }
)
"""The settings of the workers, in the same way."""
NOTHING: Mapping[str, Any] = MappingProxyType(
    {"object_storage_address": (), "per_worker_capabilities": {}, "machine_capabilities": {}}
)
"""What None means."""


class SchedulerClusterCombo:
    """Starts a scheduler and ``n_workers`` workers, which end with this object or this process.

    The settings have the names, units and defaults of the commands; ``docs/configuration.md``
    explains them.

    Args:
        n_workers: Number of worker processes, 0 or more.
        address: Where the scheduler listens, such as ``tcp://127.0.0.1:8516``; port 0: any free
            port. Default: a socket file in a private directory.
        object_storage_address: Where the object storage listens. If a
            ``scaler_object_storage_server`` listens there already, the cluster uses it. With
            several addresses a server must listen at each, and the id of an object decides which
            one stores it. Default: a free port beside the scheduler.
        monitor_address: Where monitors such as ``scaler_top`` connect. Default: a socket file in a
            private directory.
        per_worker_capabilities: What each worker offers to tasks that demand it, such as
            ``{"gpu": 1}``; -1: it is never used up.
        machine_capabilities: What all workers offer together: with ``{"gpu": 4}``, four tasks run
            at once that demand one, and each is told which is its own.
        worker_io_threads: How many threads of each worker send and receive.
        scheduler_io_threads: How many threads of the scheduler send and receive.
        max_number_of_tasks_waiting: How many tasks may wait in the scheduler; more wait in their
            clients. -1: no limit.
        heartbeat_interval_seconds: How often the supervisor tells the scheduler that it lives.
        client_timeout_seconds: The scheduler gives a client up that is silent for this time, and
            cancels its tasks.
        worker_timeout_seconds: The scheduler gives workers up whose supervisor is silent for this
            time, and runs their tasks elsewhere.
        object_retention_seconds: How long a machine keeps its copy of an object that no task there
            uses (up to twice as long); 0: as long as there is room.
        task_timeout_seconds: A task without a timeout of its own is stopped after this time;
            0: never.
        death_timeout_seconds: The workers end when the scheduler has been silent for this time.
        load_balance_seconds: A worker gets tasks that are queued on other workers when it has been
            idle for this time, multiplied by ``load_balance_trigger_times``; 0: at once;
            negative: never.
        load_balance_trigger_times: The factor for ``load_balance_seconds``.
        garbage_collect_interval_seconds: How often a worker collects garbage, between tasks;
            0: never.
        trim_memory_threshold_bytes: After a collection, a worker with more resident memory than
            this gives free memory back to the system; in bytes, or as text such as "1GiB".
        per_worker_task_queue_size: How many tasks a worker may hold at most.
        hard_processor_suspend: Accepted, without effect: a worker whose task waits for other tasks
            is not stopped; another process takes its place.
        protected: The scheduler refuses :meth:`Client.shutdown`.
        scaler_policy: Its ``policy_content`` says by which rule :meth:`adapt` and managers have
            workers started, see ``docs/managers.md``.
        event_loop: The event loop of the scheduler: ``builtin`` or ``uvloop``.
        logging_paths: Where the scheduler and the workers log; by default they do not.
        logging_level: The lowest level that they log.
        logging_config_file: A file for ``logging.config.fileConfig``, used instead of paths and
            level.
        worker_manager_id: Accepted, without effect.
        security_config: The same as ``keys``; configurations of TLS are refused.
        preload: A function that each worker calls before its first task, such as
            ``"pkg.mod:func(1)"``.
        threads_per_worker: How many threads numeric libraries start in each worker. A variable such
            as ``OMP_NUM_THREADS`` that is set when the cluster starts has precedence.
        memory_limit: Resident memory beyond which a worker is killed and replaced, in bytes or as
            text such as "2GB"; 32 MiB or more; 0: no limit.
        max_tasks_per_child: Tasks after which a worker is replaced by a new process; 0: never.
        failed_arguments: Tell all who watch what the arguments of tasks that raise look like, in
            200 characters, whatever secrets are in them.
        initializer: A callable that each worker calls before its first task. If it raises, the
            cluster is broken, with the traceback.
        initargs: Its arguments, a tuple or list.
        per_worker_queue_size: An older name of ``per_worker_task_queue_size``.
        stopped_timeout_seconds: A worker whose process was stopped (SIGSTOP) for this time is
            killed, and another one takes its place; 0: never.
        hang_timeout_seconds: So is a worker whose task used no CPU time for this time, also if it
            sleeps or waits on purpose; 0: never.
        dashboard: Start a dashboard, see :attr:`dashboard_link`.
        keys: For an address that is no loopback address: a file or directory of the scheduler's
            keys, which ``scaler_keys`` made, or "insecure" to go without. Default: the
            environment's (``SCALER_KEYS``).
        allocate_policy: Accepted, without effect: ``even`` and ``capability`` do the same.

    Raises:
        TypeError: A setting has the wrong type.
        ConfigError: A setting is wrong, an address cannot be bound, no object storage answers, or
            the dashboard needs packages that are not installed.

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
        security_config: str | PathLike[str] | None = None,
        *,
        machine_capabilities: Mapping[str, float] | str | None = None,
        preload: str | None = None,
        threads_per_worker: int = ClusterSettings.threads_per_worker,
        memory_limit: int | str = ClusterSettings.memory_limit,
        max_tasks_per_child: int = ClusterSettings.max_tasks_per_child,
        failed_arguments: bool = ClusterSettings.failed_arguments,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
        per_worker_queue_size: int | None = None,
        stopped_timeout_seconds: float = ClusterSettings.stopped_timeout_seconds,
        hang_timeout_seconds: float = ClusterSettings.hang_timeout_seconds,
        dashboard: bool = False,
        keys: str | PathLike[str] | None = None,
        allocate_policy: Any = None,
    ) -> None:
        given = dict(locals())
        n_workers = arguments.whole("n_workers", n_workers, 0)
        arguments.flag("dashboard", dashboard)
        arguments.instance("worker_manager_id", worker_manager_id, str, "a text")
        given["keys"] = arguments.keys_path(keys, security_config)
        given["address"] = PRIVATE if address is None else address
        scheduler, workers = _settings_of(given)
        self._cluster = EmbeddedCluster(
            n_workers,
            None if address is None else scheduler.scheduler_address,
            **_beginning(initializer, initargs),
            scheduling=SchedulerOptions.from_settings(scheduler),
            supervising=SupervisorOptions.from_settings(workers),
            dashboard=dashboard,
        )
        self._stop = weakref.finalize(self, self._cluster.stop)

    def get_address(self) -> str:
        """Return the address of the scheduler, for clients."""
        return self._cluster.address

    def get_monitor_address(self) -> str:
        """Return the address for monitors, such as ``scaler_top``."""
        return self._cluster.monitor_address

    @property
    def dashboard_link(self) -> DashboardLink | None:
        """The link that opens the dashboard in a browser of this machine; None: there is none."""
        return self._cluster.dashboard_link

    def scale(self, n_workers: int) -> None:
        """Have so many workers from now on; those that are too many finish what they run.

        With 0, tasks wait until there are workers again. There may be 256, or as many as at first.
        Raises TypeError, ConfigError, or RuntimeError after :meth:`shutdown`.
        """
        self._cluster.scale(n_workers)

    def adapt(self, minimum: int = 0, maximum: int | None = None) -> None:
        """Have as many workers as there is work for, from now on.

        Workers come at once when tasks wait, and go when fewer have been enough for 5 seconds.

        Args:
            minimum: The fewest workers.
            maximum: The most workers; default: one for each CPU.

        Raises:
            TypeError: A number is none.
            ConfigError: A number is out of its bounds.
            RuntimeError: The cluster was shut down.

        """
        self._cluster.adapt(minimum, maximum)

    def shutdown(self) -> None:
        """End the scheduler and the workers, even if tasks are running; idempotent."""
        self._stop()

    def __repr__(self) -> str:
        """Show whether it runs, how many workers it has, and where."""
        name, cluster = type(self).__name__, self.__dict__.get("_cluster")
        if cluster is None:
            return f"<{name} not made>"
        state = "running" if self._stop.alive else "shut down"
        return f"<{name} {state}, workers={cluster.workers}, address={cluster.address}>"

    def _repr_html_(self) -> str:
        """Show the same in a notebook, and the dashboard, if there is one."""
        cluster = self.__dict__.get("_cluster")
        if cluster is None or not self._stop.alive:
            return widget(self, None)
        return widget(self, cluster.dashboard_link)

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


def _settings_of(given: dict[str, Any]) -> tuple[SchedulerSettings, ClusterSettings]:
    """Return what the arguments mean for the scheduler and for the workers; raises as they do."""
    for name, empty in NOTHING.items():
        given[name] = empty if given[name] is None else given[name]
    if given["per_worker_queue_size"] is not None:
        given["per_worker_task_queue_size"] = given["per_worker_queue_size"]
    scheduler = SchedulerSettings.of(
        SCHEDULER,
        **{setting: given[name] for setting, name in SCHEDULER.items()},
        **_policy(given["scaler_policy"], given["allocate_policy"]),
    )
    workers = ClusterSettings.of(
        WORKERS,
        scheduler_address=PRIVATE,
        **{setting: given[name] for setting, name in WORKERS.items()},
    )
    return scheduler, workers


def _beginning(initializer: object, initargs: object) -> dict[str, Any]:
    """Return what each worker is to call first; raises TypeError."""
    if initializer is not None and not callable(initializer):
        raise TypeError(f"initializer must be a callable, not {shown(initializer)}")
    checked = arguments.instance("initargs", initargs, (tuple, list), "a tuple")
    return {"initializer": initializer, "initargs": tuple(checked)}


def _policy(policy: object, allocate: Any) -> dict[str, Any]:
    """Return the settings that a policy of Scaler has, as far as it has them."""
    names = "policy_engine_type", "policy_content"
    found = {name: getattr(policy, name) for name in names if hasattr(policy, name)}
    if allocate is not None:
        # Scaler has an enumeration, whose names these are.
        found["allocate_policy"] = getattr(allocate, "name", allocate)
    return found

"""What each process of the engine is told at its start: frozen records, made of users' settings.

``config/sections.py`` has the settings under the names that users know. The records here have what
a process needs of them, in its own terms: seconds for "0 means never", the number of workers for
"one for each CPU". The parent makes a record whole, and writes it to the child's standard input,
see :func:`scaler_cluster.process.process.read_config`.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from scaler_cluster.config.worker_settings import WorkerSettings
from scaler_cluster.core.records.limits import TASKS_MAX
from scaler_cluster.core.scheduler.config import QuotaConfig, SchedulerConfig
from scaler_cluster.core.supervisor.config import HEARTBEAT_S, SupervisorConfig
from scaler_cluster.process.directories import ClusterDirs
from scaler_cluster.process.gpus import check_gpus
from scaler_cluster.process.log_config import LogConfig
from scaler_cluster.process.process import PYTHON_VERSION, address_after, usable_cpus
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import SCHEDULER, STORAGE, WORKER
from scaler_cluster.wire.messages import GPU, Offer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_cluster.config.manager_settings import UnitSettings
    from scaler_cluster.config.native_settings import NativeSettings
    from scaler_cluster.config.sections import SchedulerSettings, StorageSettings
    from scaler_cluster.config.worker_settings import ClusterSettings
    from scaler_cluster.process.process import Ready
    from scaler_cluster.process.tunnel import Tunnel
    from scaler_cluster.wire.messages import Capabilities

log = logging.getLogger("scaler.supervisor")

PRIVATE = "ipc://private"
"""Stands for the address of a cluster that was given none."""
WORKERS_MAX = 256
"""More workers than any machine of ours has CPUs, where nobody has said how many."""
SCHEDULERS_OWN, WORKERS_OWN, STORAGES_OWN = map(Credentials.of, (SCHEDULER, WORKER, STORAGE))
"""The keys of a process that was given none."""


# -- the scheduler -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """What any scheduler is told, in a program's cluster as in one of its own."""

    core: SchedulerConfig = field(default_factory=lambda: SchedulerConfig(PYTHON_VERSION))
    """The scheduler adds what it finds out only when it listens: addresses, and where its objects
    lie."""
    io_threads: int = 1
    event_loop: str = "builtin"
    storages: tuple[str, ...] = ()
    """Addresses of object storages that run by themselves; of one alone, if nothing listens there,
    the scheduler starts a storage; none: it starts one at a free port."""
    known_as: tuple[str, ...] = ()
    """By which addresses others reach these storages, if it is not the same."""
    monitor_address: str | None = None
    """Where monitors connect; None: two ports after the scheduler's address."""
    check: bool = False
    """Whether the invariants of the core are checked after each turn, which takes long."""
    credentials: Credentials = SCHEDULERS_OWN
    logging: LogConfig | None = None

    @classmethod
    def from_settings(cls, settings: SchedulerSettings) -> SchedulerOptions:
        """Return what a user's settings mean for a scheduler."""
        idle_s = settings.load_balance_seconds * settings.load_balance_trigger_times
        return cls(
            core=SchedulerConfig(
                PYTHON_VERSION,
                tasks_max=settings.per_worker_task_queue_size or TASKS_MAX,
                tasks_waiting_max=settings.max_number_of_tasks_waiting,
                quotas=QuotaConfig(
                    settings.max_tasks_per_client,
                    settings.max_graphs_per_client,
                    settings.max_bytes_per_client,
                ),
                scaling=settings.scaling,
                protected=settings.protected,
                client_timeout_s=settings.client_timeout_seconds,
                supervisor_timeout_s=settings.worker_timeout_seconds,
                idle_s=idle_s if idle_s >= 0 else math.inf,
                object_retention_s=settings.object_retention_seconds or math.inf,
                unplaced_timeout_s=settings.unplaced_timeout_seconds or math.inf,
                feed_interval_s=settings.status_report_interval_seconds,
                feed_objects=settings.object_report_limit,
                hides_logs=settings.hide_logs,
            ),
            io_threads=settings.io_threads,
            event_loop=settings.event_loop,
            storages=settings.object_storage_address,
            known_as=settings.advertised_object_storage_address,
            monitor_address=settings.monitor_address,
            credentials=Credentials.of(SCHEDULER, settings.given_keys),
            logging=LogConfig.from_settings(settings),
        )


@dataclass(frozen=True, kw_only=True)
class SchedulerProcessConfig:
    """What a scheduler's process is told."""

    address: str
    """Where the scheduler listens."""
    dirs: ClusterDirs
    """The scheduler makes them, and the last process that holds them removes them."""
    dirs_are_there: bool = False
    """True for a scheduler that takes the place of another one: they were made for that, and hold
    what its clients stored."""
    follows: str = ""
    """How the scheduler ended whose place this one takes, for the log; empty: that is logged."""
    is_kept: bool = False
    """Whether a command keeps it: SIGTERM ends it; if the command is killed, it dies as well, and
    says nothing to its clients, which then wait for another one."""
    beside: str = ""
    """Where the storage that the scheduler starts listens; empty: at any free port."""
    dashboard: str = ""
    """Link of the cluster's dashboard, for clients; empty: there is none."""
    epoch: int | None = None
    """See :class:`SchedulerConfig`; None: nobody has counted the schedulers at this address."""
    options: SchedulerOptions

    @classmethod
    def from_settings(
        cls, settings: SchedulerSettings, dashboard: str = ""
    ) -> SchedulerProcessConfig:
        """Return what a scheduler is told; others find its storage at the next port."""
        address, beside = settings.scheduler_address, ""
        options = SchedulerOptions.from_settings(settings)
        options.credentials.check_listening(address)
        if address.startswith("tcp://"):
            beside = address_after(address, 1)
        return cls(
            address=address,
            dirs=ClusterDirs.named(),
            beside="" if beside.endswith(":0") else beside,
            dashboard=dashboard,
            options=options,
        )

    def of_next(self, ready: Ready) -> SchedulerProcessConfig:
        """Return what the scheduler is told that takes the place of one that said this."""
        options = replace(self.options, monitor_address=ready.monitor_address)
        if ready.storage_address:
            options = replace(options, storages=())
        return replace(
            self,
            address=ready.address,
            beside=ready.storage_address,
            dirs_are_there=True,
            options=options,
        )


# -- workers -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SupervisorOptions:
    """What any supervisor is told, for itself and for its workers."""

    heartbeat_s: float = HEARTBEAT_S
    death_timeout_s: float = math.inf
    task_timeout_s: float = math.inf
    memory_limit_bytes: int = 0
    stopped_timeout_s: float = 30.0
    hang_timeout_s: float = math.inf
    """For these six see :class:`scaler_cluster.core.supervisor.config.SupervisorConfig`."""
    worker_names: tuple[str, ...] = ()
    """What users call the workers, as far as they have names for them."""
    capabilities: Capabilities = ()
    """What each worker offers."""
    shared: Capabilities = ()
    """What they offer together."""
    queue: int = 0
    """How many tasks a worker is given ahead at most; 0: as many as the scheduler likes."""
    max_tasks_per_child: int = 0
    """Tasks after which a worker is replaced by a new process; 0: never."""
    threads_per_worker: int = 1
    io_threads: int = 1
    preload: str | None = None
    """What each worker calls before its first task, as "pkg.mod:func(1)"."""
    collect_interval_s: float = 0.0
    """How often a worker collects garbage, between tasks; 0: never."""
    trim_above_bytes: int = 0
    """Resident memory beyond which a worker then gives free memory back."""
    failed_arguments: bool = False
    """Tell what the arguments of tasks that raised look like."""
    credentials: Credentials = WORKERS_OWN
    logging: LogConfig | None = None

    def sharing(self, machine_capabilities: Mapping[str, float]) -> SupervisorOptions:
        """Return the same for workers that share this; raises TypeError or ConfigError."""
        settings = WorkerSettings.of(
            scheduler_address=PRIVATE, machine_capabilities=machine_capabilities
        )
        check_gpus(os.environ, settings.machine_capabilities.get(GPU, 0))
        own, shared = settings.offered_by_worker, settings.offered_by_machine
        return replace(self, capabilities=own, shared=shared)

    @classmethod
    def from_settings(cls, settings: WorkerSettings) -> SupervisorOptions:
        """Return what a user's settings mean for a supervisor and its workers.

        Raises ConfigError if this process's environment names fewer GPUs than the settings.
        """
        check_gpus(os.environ, settings.machine_capabilities.get(GPU, 0))
        return cls(
            heartbeat_s=settings.heartbeat_interval_seconds,
            death_timeout_s=settings.death_timeout_seconds,
            task_timeout_s=settings.task_timeout_seconds or math.inf,
            stopped_timeout_s=settings.stopped_timeout_seconds or math.inf,
            hang_timeout_s=settings.hang_timeout_seconds or math.inf,
            memory_limit_bytes=settings.memory_limit,
            max_tasks_per_child=settings.max_tasks_per_child,
            capabilities=settings.offered_by_worker,
            shared=settings.offered_by_machine,
            queue=settings.per_worker_task_queue_size,
            threads_per_worker=settings.threads_per_worker,
            io_threads=settings.io_threads,
            preload=settings.preload,
            collect_interval_s=settings.garbage_collect_interval_seconds,
            trim_above_bytes=settings.trim_memory_threshold_bytes,
            failed_arguments=settings.failed_arguments,
            credentials=Credentials.of(WORKER, settings.given_keys),
            logging=LogConfig.from_settings(settings),
        )


@dataclass(frozen=True, kw_only=True)
class SupervisorProcessConfig:
    """What a supervisor's process is told."""

    address: str
    """Address of the scheduler."""
    workers: int
    capacity: int = 0
    """The most workers there may ever be; 0: no more than ``workers``."""
    offer: Offer | None = None
    """Within which bounds the scheduler chooses how many there are; None: always ``workers``."""
    manager: str = ""
    """Id of the manager that has this process started; empty: none."""
    unit: str = ""
    """What that manager calls it."""
    name: str = ""
    """Its id among managers, if it has workers started itself; empty: its host and pid."""
    dirs: ClusterDirs
    """The scheduler's, if that has started this process; else the supervisor makes and removes
    them, if it needs any."""
    is_home: bool = False
    """True if the objects in these directories are the scheduler's."""
    leaves_if_broken: bool = False
    """Whether the supervisor ends once no worker can start."""
    sys_path: tuple[str, ...]
    """Where workers find modules."""
    authkey: bytes = b""
    """The key of the program's ``multiprocessing``, which tasks then share; empty: they do not."""
    initializer: bytes = b""
    """What each worker calls before its first task, pickled; empty: nothing."""
    inherited: tuple[int, ...] = ()
    """Descriptors that the initializer needs, by these numbers."""
    tunnel: Tunnel | None = None
    """Through which this machine and the others reach each other; None: they need none."""
    options: SupervisorOptions

    @classmethod
    def from_settings(cls, settings: ClusterSettings) -> SupervisorProcessConfig:
        """Return what the supervisor of a machine is told."""
        options = SupervisorOptions.from_settings(settings)
        options = replace(options, worker_names=settings.worker_names)
        # If it needs keys that are not there, nothing is to be started.
        options.credentials.passport(settings.scheduler_address)
        workers = settings.num_of_workers or len(settings.worker_names)
        if not workers:
            workers = max(usable_cpus() - 1, 1)
        return cls(
            address=settings.scheduler_address,
            workers=workers,
            dirs=ClusterDirs.named(),
            leaves_if_broken=True,
            manager=settings.worker_manager_id or "",
            unit=settings.unit or "",
            # The workers find modules in the current directory as well.
            sys_path=(*sys.path, str(Path.cwd())),
            options=options,
        )

    @classmethod
    def of_unit(
        cls, settings: UnitSettings, manager: str, unit: str, worker_names: tuple[str, ...] = ()
    ) -> SupervisorProcessConfig:
        """Return what the supervisor of a unit is told that its manager starts on its machine."""
        options = SupervisorOptions.from_settings(settings)
        return cls(
            address=settings.workers_address,
            workers=settings.workers_in_unit,
            dirs=ClusterDirs.named(),
            leaves_if_broken=True,
            manager=manager,
            unit=unit,
            sys_path=(*sys.path, str(Path.cwd())),
            options=replace(options, worker_names=worker_names),
        )

    @classmethod
    def from_native_settings(cls, settings: NativeSettings) -> SupervisorProcessConfig:
        """Return what the supervisor of a machine is told that has as many workers as are wanted.

        Without a limit it has up to WORKERS_MAX.
        """
        for name in settings.without_effect:
            log.warning("ClusterProcess: %s has no effect for workers of this machine", name)
        most = usable_cpus() if settings.max_workers is None else settings.max_workers
        most = WORKERS_MAX if most == -1 else max(most, settings.min_workers)
        if settings.mode == "fixed":
            return cls.fixed(settings, most, settings.worker_type or "FIX")
        config = cls.fixed(settings, most, settings.worker_type or "NAT")
        offer = Offer(
            settings.types[0],
            settings.min_workers,
            most,
            1,
            settings.scale_down_cooldown_seconds,
            settings.offered,
        )
        name = settings.worker_manager_id or ""
        return replace(config, workers=settings.min_workers, capacity=most, offer=offer, name=name)

    @classmethod
    def fixed(cls, settings: UnitSettings, workers: int, prefix: str) -> SupervisorProcessConfig:
        """Return what the supervisor of a machine is told whose workers' names begin alike."""
        options = SupervisorOptions.from_settings(settings)
        options.credentials.passport(settings.workers_address)
        names = tuple(f"{prefix}|{secrets.token_hex(16)}" for _ in range(workers))
        return cls(
            address=settings.workers_address,
            workers=workers,
            dirs=ClusterDirs.named(),
            leaves_if_broken=True,
            sys_path=(*sys.path, str(Path.cwd())),
            options=replace(options, worker_names=names),
        )

    @property
    def core(self) -> SupervisorConfig:
        """What the core of the supervisor is told."""
        options = self.options
        return SupervisorConfig(
            self.workers,
            self.capacity,
            self.address,
            options.memory_limit_bytes,
            options.heartbeat_s,
            options.death_timeout_s,
            leaves_if_broken=self.leaves_if_broken,
            stopped_timeout_s=options.stopped_timeout_s,
            hang_timeout_s=options.hang_timeout_s,
            task_timeout_s=options.task_timeout_s,
        )

    @property
    def places(self) -> int:
        """How many ordinary workers there may be at once; others are spare ones."""
        return max(self.capacity, self.workers)

    def name_of(self, slot: int) -> str:
        """Return what users call the worker of a slot; empty if they have no name for it."""
        names = self.options.worker_names
        return names[slot] if slot < len(names) else ""


# -- the object storage ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StorageServerConfig:
    """What an object storage is told that runs by itself."""

    address: str
    """Where it listens."""
    memory_limit: int | None
    """Bytes of shared memory that objects may take; None: the default share of the machine's."""
    credentials: Credentials
    logging: LogConfig | None

    @classmethod
    def from_settings(cls, settings: StorageSettings) -> StorageServerConfig:
        """Return what a user's settings mean for a storage."""
        return cls(
            address=settings.object_storage_address,
            memory_limit=settings.memory_limit,
            credentials=Credentials.of(STORAGE, settings.given_keys),
            logging=LogConfig.from_settings(settings),
        )


@dataclass(frozen=True, kw_only=True)
class StorageProcessConfig:
    """What an object storage is told once its directories have names and its socket listens."""

    peer: bytes = b""
    """The peer id that it has; empty: one that it makes."""
    scheduler: str = ""
    """Address of the scheduler to connect to; empty: wait until one connects."""
    dirs: ClusterDirs
    serve: str = ""
    """Where it listens; empty: only processes that see its directories use it."""
    known_as: str = ""
    """By which address others reach it, if it is not the same."""
    listener: int = -1
    """Descriptor of the socket that listens, inherited by this number; -1: there is none."""
    supervisor: bytes = b""
    """Peer id of the machine's supervisor; empty: this is the scheduler's machine."""
    detours: Mapping[str, str] = field(default_factory=dict)
    """Where it reaches other storages, by their addresses, if not there."""
    credentials: Credentials = STORAGES_OWN
    """Of the process that started it."""

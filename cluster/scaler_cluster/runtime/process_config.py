"""What a process of the engine is told at its start, made of the settings that users know."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.credit import TASKS_MAX
from scaler_cluster.runtime.directories import name_directories
from scaler_cluster.runtime.process import address_after, host_name, usable_cpus

if TYPE_CHECKING:
    from scaler_cluster.config.sections import (
        ClusterSettings,
        Logging,
        SchedulerSettings,
        StorageSettings,
        WebSettings,
    )
    from scaler_cluster.runtime.dashboard_listener import DashboardListener


def scheduler_process_config(settings: SchedulerSettings) -> dict[str, Any]:
    """Return what a scheduler is told that others can reach: its storage is on the next port."""
    address, beside = settings.scheduler_address, ""
    if address.startswith("tcp://"):
        beside = address_after(address, 1)
    return (
        name_directories()
        | scheduling(settings)
        | {
            "address": address,
            "beside": "" if beside.endswith(":0") else beside,
        }
    )


def scheduling(settings: SchedulerSettings) -> dict[str, Any]:
    """Return what any scheduler is told besides its address and where objects lie."""
    idle_s = settings.load_balance_seconds * settings.load_balance_trigger_times
    return {
        "io_threads": settings.io_threads,
        "storages": list(settings.object_storage_address),
        "known_as": list(settings.advertised_object_storage_address),
        "event_loop": settings.event_loop,
        "monitor": {"address": settings.monitor_address},
        "scheduler": {
            "tasks_max": settings.per_worker_task_queue_size or TASKS_MAX,
            "tasks_waiting_max": settings.max_number_of_tasks_waiting,
            "protected": settings.protected,
            "client_timeout_s": settings.client_timeout_seconds,
            "supervisor_timeout_s": settings.worker_timeout_seconds,
            "idle_s": idle_s if idle_s >= 0 else math.inf,
            "object_retention_s": settings.object_retention_seconds or math.inf,
            "unplaced_timeout_s": settings.unplaced_timeout_seconds or math.inf,
            "feed_interval_s": settings.status_report_interval_seconds,
            "feed_objects": settings.object_report_limit,
        },
        **logging(settings),
    }


def supervisor_process_config(settings: ClusterSettings) -> dict[str, Any]:
    """Return what the supervisor of a machine is told; its workers find modules here as well."""
    workers = settings.num_of_workers or len(settings.worker_names)
    if not workers:
        workers = max(usable_cpus() - settings.cpus_left, 1)
    return (
        name_directories()
        | supervising(settings)
        | {
            "address": settings.scheduler_address,
            "leaves_if_broken": True,
            "workers": workers,
            "sys_path": [*sys.path, str(Path.cwd())],
        }
    )


def supervising(settings: ClusterSettings) -> dict[str, Any]:
    """Return what any supervisor is told besides the scheduler's address and its workers."""
    return {
        "io_threads": settings.io_threads,
        "capabilities": dict(settings.per_worker_capabilities),
        "worker_names": list(settings.worker_names),
        "heartbeat_s": settings.heartbeat_interval_seconds,
        "death_timeout_s": settings.death_timeout_seconds,
        "queue": settings.per_worker_task_queue_size,
        "preload": settings.preload,
        "threads_per_worker": settings.threads_per_worker,
        "collect_interval_s": settings.garbage_collect_interval_seconds,
        "trim_above_bytes": settings.trim_memory_threshold_bytes,
        "task_timeout_s": settings.task_timeout_seconds or math.inf,
        **logging(settings),
    }


def storage_process_config(settings: StorageSettings) -> dict[str, Any]:
    """Return what an object storage is told that runs by itself."""
    return {
        "address": settings.object_storage_address,
        "memory_limit": settings.memory_limit,
        **logging(settings),
    }


def dashboard_process_config(settings: WebSettings, door: DashboardListener) -> dict[str, Any]:
    """Return what a dashboard is told.

    ``monitor_address`` is what it watches, and ``record`` the file that it writes that to, or None;
    or else ``replay`` is the recording that it shows. ``fd`` is the descriptor of a socket that
    listens already, inherited by this number; ``token`` is what a browser must bring, ``prefix``
    what paths begin with, "" or as "/scaler"; ``hosts`` are the names by which a browser may call
    it besides IP addresses and localhost, ``link`` what it says once it is ready. ``interval_s`` is
    how often browsers are told, ``rows_max`` how many tasks are listed.
    """
    return {
        "monitor_address": settings.monitor_address,
        "record": settings.record,
        "replay": settings.replay,
        "fd": door.listener.fileno(),
        "token": door.token,
        "prefix": door.prefix,
        "hosts": [door.host, host_name(), *settings.hosts],
        "link": door.link,
        "interval_s": settings.broadcast_interval_seconds,
        "rows_max": settings.task_log_max_size,
        **logging(settings),
    }


def logging(settings: Logging) -> dict[str, Any]:
    """Return where a process logs; nothing if it is to be quiet."""
    paths, file = list(settings.logging_paths), settings.logging_config_file
    if not paths and file is None:
        return {}
    return {"logging": {"paths": paths, "level": settings.logging_level, "config_file": file}}

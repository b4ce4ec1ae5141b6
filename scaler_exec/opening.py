"""How an executor comes to its session: it joins a cluster, or starts one.

This brings along what a connection needs, and the start of processes. It is imported when the first
executor is made: who imports the package to do something else does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster import arguments
from scaler_cluster.client.session import OWN_KEYS, Session
from scaler_cluster.config.worker_settings import MEMORY_LIMIT_MIN
from scaler_cluster.core.client.liveness import HEARTBEAT_S
from scaler_cluster.errors import ConfigError
from scaler_cluster.process.child import START_TIMEOUT_S
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.process.process import usable_cpus
from scaler_cluster.process.process_config import SupervisorOptions
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import CLIENT

if TYPE_CHECKING:
    import os


def supervising(
    max_tasks_per_child: int | None, threads_per_worker: int | None, memory_limit: int | str | None
) -> SupervisorOptions:
    """Return what these arguments of an executor mean for its workers; raises ConfigError."""
    tasks_max, threads, memory_bytes = 0, 1, 0
    if max_tasks_per_child is not None:
        tasks_max = arguments.whole("max_tasks_per_child", max_tasks_per_child, 1, bound=">= 1")
    if threads_per_worker is not None:
        threads = arguments.whole("threads_per_worker", threads_per_worker, 1)
    if memory_limit is not None:
        bound = "32 MiB or more, as a worker that does nothing takes most of that"
        memory_bytes = arguments.size("memory_limit", memory_limit, MEMORY_LIMIT_MIN, bound=bound)
    return SupervisorOptions(
        max_tasks_per_child=tasks_max,
        threads_per_worker=threads,
        memory_limit_bytes=memory_bytes,
    )


def check_joining(*, is_sized: bool, dashboard: bool) -> None:
    """Raise ConfigError if what was given is for an embedded cluster."""
    if is_sized:
        raise ConfigError(
            "max_workers, initializer, max_tasks_per_child, threads_per_worker, "
            "machine_capabilities and the memory limits belong to an embedded cluster; those of a "
            "running cluster are set where it is started"
        )
    if dashboard:
        raise ConfigError(
            "dashboard=True belongs to an embedded cluster; a running one has its own, if any: see "
            "dashboard_link"
        )


def keys_of(given: str | os.PathLike[str] | None) -> Credentials:
    """Return the keys of a client that was given a path, "insecure" or nothing."""
    return Credentials.of(CLIENT, arguments.keys_path(given))


def join(
    address: str,
    timeout: float,
    waits_s: float,
    credentials: Credentials = OWN_KEYS,
    cluster: EmbeddedCluster | None = None,
) -> Session:
    """Connect to a scheduler; if it falls silent later, it has ``waits_s`` to come back."""
    heartbeat_s = min(HEARTBEAT_S, waits_s / 2)
    return Session(
        address,
        timeout=timeout,
        cluster=cluster,
        heartbeat_s=heartbeat_s,
        silence_s=waits_s,
        credentials=credentials,
    )


def start(workers: int | None, **how: Any) -> EmbeddedCluster:
    """Start a cluster, by default with a worker for each CPU that this process may use."""
    return EmbeddedCluster(workers or usable_cpus(), **how)


def session_of(cluster: EmbeddedCluster, waits_s: float) -> Session:
    """Connect to a cluster that was just started; it is stopped if that fails."""
    try:
        return join(cluster.address, START_TIMEOUT_S, waits_s, cluster=cluster)
    except BaseException:
        cluster.stop()
        raise

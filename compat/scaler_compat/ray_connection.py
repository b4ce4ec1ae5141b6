"""What a program for Ray is connected to: a cluster that it names, or one of its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from scaler_cluster.client import worker_context
from scaler_cluster.client.client import Client
from scaler_cluster.combo import SchedulerClusterCombo
from scaler_cluster.process.process import usable_cpus

OF_CLIENT = ("profiling", "timeout_seconds", "serializer", "stream_output")
"""What :func:`scaler_init` passes to the client; the rest is the cluster's."""
OF_BOTH = ("object_storage_address", "heartbeat_interval_seconds")


@dataclass
class _Connection:
    """What this program is connected to."""

    client: Client | None = None
    cluster: SchedulerClusterCombo | None = None
    """None: the program has not started it."""
    workers: int | None = None
    """How many the cluster gets that the first task starts; None: nobody has said so."""


_lock = threading.RLock()
_mine = _Connection()


def scaler_init(address: str | None = None, *, n_workers: int | None = None, **named: Any) -> None:
    """Connect to a cluster, or start one on this machine. Without it, the first task starts one.

    Args:
        address: Of the scheduler; None: a cluster of this process is started.
        n_workers: How many workers that has; default: one for each CPU.
        **named: Settings of :class:`Client` (``profiling``, ``timeout_seconds``, ``serializer``,
            ``stream_output``) and, without an address, of :class:`SchedulerClusterCombo`.

    Raises:
        RuntimeError: It was called before, or a task has started a cluster.
        TypeError: There is no such setting, or it is of a cluster that is there already.
        ConfigError: A setting is wrong.
        ClusterUnreachableError: No scheduler answers.

    """
    with _lock:
        if _mine.client is not None:
            raise RuntimeError("cannot initialize twice: call shutdown() in between")
        both = {name: named[name] for name in OF_BOTH if name in named}
        of_client = {name: named.pop(name) for name in OF_CLIENT if name in named} | both
        cluster = None
        if address is None:
            count = _mine.workers if n_workers is None else n_workers
            cluster = SchedulerClusterCombo(count or usable_cpus(), **named)
            address = cluster.get_address()
        elif n_workers is not None or set(named) - set(OF_BOTH):
            wrong = "n_workers" if n_workers is not None else min(set(named) - set(OF_BOTH))
            raise TypeError(f"{wrong} is a setting of a new cluster, and {address} is one already")
        try:
            _mine.client = Client(address, **of_client)
        except BaseException:
            if cluster is not None:
                cluster.shutdown()
            raise
        _mine.cluster = cluster


def init(address: str | None = None, *, num_cpus: int | None = None, **_: Any) -> None:
    """Say how many workers the cluster gets that the first task starts; other settings are Ray's.

    Raises ValueError for the address of a cluster of Ray.
    """
    if address not in (None, "auto", "local"):
        raise ValueError(
            f"there is no cluster of Ray at {address!r} here: scaler_init(address=...) connects to "
            "a scheduler"
        )
    _mine.workers = num_cpus or usable_cpus()


def is_initialized() -> bool:
    """Return True after :func:`init` or :func:`scaler_init`, and in tasks."""
    return _mine.client is not None or _mine.workers is not None or worker_context.is_worker()


def shutdown(**_: Any) -> None:
    """Leave the cluster, and end it if this program has started it; pending tasks are cancelled."""
    with _lock:
        client, cluster = _mine.client, _mine.cluster
        _mine.client = _mine.cluster = _mine.workers = None
    try:
        if client is not None:
            client.disconnect()
    finally:
        if cluster is not None:
            cluster.shutdown()


def connected() -> Client:
    """Return the client of this program, or of the task that calls."""
    if worker_context.is_worker():
        return Client()
    with _lock:
        if _mine.client is None:
            scaler_init()
        assert _mine.client is not None
        return _mine.client

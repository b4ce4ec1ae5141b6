"""Python functions on many cores and many machines: an executor, a client, a cluster."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from scaler_cluster import __version__
from scaler_cluster.client.call_options import task
from scaler_cluster.client.client import Client
from scaler_cluster.client.worker_context import gpu_ids, rejoin, secede
from scaler_cluster.errors import (
    ActorDiedError,
    ClusterBrokenError,
    ClusterUnreachableError,
    CodeError,
    ConfigError,
    Death,
    DeserializeObjectError,
    FutureInsideError,
    LocalProtocolError,
    MissingObjectsError,
    NamedCallError,
    NoSuitableWorkerError,
    ObjectStorageError,
    OperationRefusedError,
    PayloadError,
    ProtocolError,
    QuotaExceededError,
    RemoteCallError,
    RemoteError,
    RemoteProtocolError,
    RemoteTraceback,
    ScalerError,
    SessionClosedError,
    SessionForkedError,
    StorageFullError,
    StorageUnreachableError,
    TaskInterrupted,
    TaskLostError,
    TaskTimeoutError,
    UnpicklableResultError,
    WorkerDiedError,
)
from scaler_cluster.pickling.named_function import NamedFunction
from scaler_exec.executor import ScalerExecutor

if TYPE_CHECKING:
    from scaler_cluster.client.cache import ResultCache
    from scaler_cluster.client.coordination import (
        Event,
        Lock,
        MultiLock,
        Queue,
        Semaphore,
        Variable,
    )
    from scaler_cluster.client.future import ProfileResult, ScalerFuture
    from scaler_cluster.client.operator import Met, Operator
    from scaler_cluster.client.serializer import DefaultSerializer, Serializer
    from scaler_cluster.combo import SchedulerClusterCombo
    from scaler_cluster.pickling.payload import ObjectReference
    from scaler_compat.dask import scaler_get
    from scaler_exec.async_client import AsyncClient

__all__ = [
    "ActorDiedError",
    "AsyncClient",
    "Client",
    "ClusterBrokenError",
    "ClusterUnreachableError",
    "CodeError",
    "ConfigError",
    "Death",
    "DefaultSerializer",
    "DeserializeObjectError",
    "Event",
    "FutureInsideError",
    "LocalProtocolError",
    "Lock",
    "Met",
    "MissingObjectsError",
    "MultiLock",
    "NamedCallError",
    "NamedFunction",
    "NoSuitableWorkerError",
    "ObjectReference",
    "ObjectStorageError",
    "OperationRefusedError",
    "Operator",
    "PayloadError",
    "ProfileResult",
    "ProtocolError",
    "Queue",
    "QuotaExceededError",
    "RemoteCallError",
    "RemoteError",
    "RemoteProtocolError",
    "RemoteTraceback",
    "ResultCache",
    "ScalerError",
    "ScalerExecutor",
    "ScalerFuture",
    "SchedulerClusterCombo",
    "Semaphore",
    "Serializer",
    "SessionClosedError",
    "SessionForkedError",
    "StorageFullError",
    "StorageUnreachableError",
    "TaskInterrupted",
    "TaskLostError",
    "TaskTimeoutError",
    "UnpicklableResultError",
    "Variable",
    "WorkerDiedError",
    "__version__",
    "gpu_ids",
    "rejoin",
    "scaler_get",
    "secede",
    "task",
]

_HOMES = {
    "AsyncClient": "scaler_exec.async_client",
    "DefaultSerializer": "scaler_cluster.client.serializer",
    "Event": "scaler_cluster.client.coordination",
    "Lock": "scaler_cluster.client.coordination",
    "Met": "scaler_cluster.client.operator",
    "MultiLock": "scaler_cluster.client.coordination",
    "ObjectReference": "scaler_cluster.pickling.payload",
    "Operator": "scaler_cluster.client.operator",
    "ProfileResult": "scaler_cluster.client.future",
    "Queue": "scaler_cluster.client.coordination",
    "ResultCache": "scaler_cluster.client.cache",
    "ScalerFuture": "scaler_cluster.client.future",
    "SchedulerClusterCombo": "scaler_cluster.combo",
    "Semaphore": "scaler_cluster.client.coordination",
    "Serializer": "scaler_cluster.client.serializer",
    "Variable": "scaler_cluster.client.coordination",
    "scaler_get": "scaler_compat.dask",
}
"""Names of which each program needs few, and the modules that have them."""


def __getattr__(name: str) -> object:
    """Import a module when one of its names is asked for: without it, nobody waits for it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """Return all names, as a notebook offers them: also what is not imported yet."""
    return sorted({*globals(), *__all__})

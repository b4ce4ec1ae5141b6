"""Python functions on many cores and many machines: an executor, a client, a cluster."""

from __future__ import annotations

from scaler_cluster import __version__
from scaler_cluster.client.client import Client
from scaler_cluster.client.future import ProfileResult, ScalerFuture
from scaler_cluster.client.serializer import DefaultSerializer, Serializer
from scaler_cluster.combo import SchedulerClusterCombo
from scaler_cluster.errors import (
    ClusterBroken,
    ClusterUnreachable,
    ConfigError,
    Death,
    DeserializeObjectError,
    FutureInside,
    MissingObjects,
    NoSuitableWorker,
    ObjectStorageException,
    PayloadError,
    RemoteException,
    RemoteTraceback,
    ResultUnpicklable,
    ScalerError,
    SessionClosed,
    SessionForked,
    StorageFull,
    StorageUnreachable,
    TaskInterrupted,
    TaskLost,
    TaskTimeout,
    WorkerDied,
)
from scaler_cluster.payload import ObjectReference
from scaler_cluster.runtime.inside import rejoin, secede
from scaler_compat.dask import scaler_get
from scaler_exec.executor import ScalerExecutor

__all__ = [
    "Client",
    "ClusterBroken",
    "ClusterUnreachable",
    "ConfigError",
    "Death",
    "DefaultSerializer",
    "DeserializeObjectError",
    "FutureInside",
    "MissingObjects",
    "NoSuitableWorker",
    "ObjectReference",
    "ObjectStorageException",
    "PayloadError",
    "ProfileResult",
    "RemoteException",
    "RemoteTraceback",
    "ResultUnpicklable",
    "ScalerError",
    "ScalerExecutor",
    "ScalerFuture",
    "SchedulerClusterCombo",
    "Serializer",
    "SessionClosed",
    "SessionForked",
    "StorageFull",
    "StorageUnreachable",
    "TaskInterrupted",
    "TaskLost",
    "TaskTimeout",
    "WorkerDied",
    "__version__",
    "rejoin",
    "scaler_get",
    "secede",
]

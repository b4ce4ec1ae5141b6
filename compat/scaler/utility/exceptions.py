"""The errors of the engine, under the names that the Scaler system has for them."""

from scaler_cluster.errors import (
    ClusterBroken,
    ClusterUnreachable,
    DeserializeObjectError,
    MissingObjects,
    NoSuitableWorker,
    ObjectStorageException,
    RemoteException,
    RemoteProtocolError,
    ScalerError,
    SessionClosed,
    WorkerDied,
)

# The meaning is the same, so the class is: what is raised under one name is caught under both.
CapnpDeserializationError = RemoteProtocolError
ClientCancelledException = SessionClosed
ClientQuitException = SessionClosed
ClientShutdownException = ClusterBroken
DisconnectedError = ClusterUnreachable
NoWorkerError = NoSuitableWorker
ProcessorDiedError = WorkerDied
TaskExceptionNotSerializableError = RemoteException
WorkerDiedError = WorkerDied


class SchedulerError(ScalerError):
    """A task met a fault of the scheduler; never raised here: such a scheduler ends."""


class TaskNotFoundError(ScalerError):
    """Nobody knows a task; never raised, there as here."""


__all__ = [
    "CapnpDeserializationError",
    "ClientCancelledException",
    "ClientQuitException",
    "ClientShutdownException",
    "DeserializeObjectError",
    "DisconnectedError",
    "MissingObjects",
    "NoWorkerError",
    "ObjectStorageException",
    "ProcessorDiedError",
    "SchedulerError",
    "TaskExceptionNotSerializableError",
    "TaskNotFoundError",
    "WorkerDiedError",
]

"""The errors of the engine, under the names that the Scaler system has for them."""

from scaler_cluster.errors import (
    ClusterBrokenError,
    ClusterUnreachableError,
    DeserializeObjectError,
    MissingObjectsError,
    NoSuitableWorkerError,
    ObjectStorageError,
    RemoteError,
    RemoteProtocolError,
    ScalerError,
    SessionClosedError,
    WorkerDiedError,
)

# The meaning is the same, so the class is: what is raised under one name is caught under both.
CapnpDeserializationError = RemoteProtocolError
ClientCancelledException = SessionClosedError
ClientQuitException = SessionClosedError
ClientShutdownException = ClusterBrokenError
DisconnectedError = ClusterUnreachableError
MissingObjects = MissingObjectsError
NoWorkerError = NoSuitableWorkerError
ObjectStorageException = ObjectStorageError
ProcessorDiedError = WorkerDiedError
TaskExceptionNotSerializableError = RemoteError


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

"""Every error that the engine raises.

::

    ScalerError
    ├── ProtocolError                            (abstract: one of the next two is raised)
    │   ├── LocalProtocolError                   this side broke the protocol: a bug here
    │   └── RemoteProtocolError                  the peer sent what the protocol forbids
    ├── ConfigError(ValueError)                  a setting that cannot work
    ├── ClusterUnreachableError(ConnectionError) no scheduler answers there, or no longer
    ├── SessionClosedError(RuntimeError)         the client or executor was closed
    ├── SessionForkedError(RuntimeError)         used in a forked child process
    ├── PayloadError                             an object could not be pickled or unpickled
    │   ├── FutureInsideError(TypeError)         a future inside a value that must be pickled
    │   ├── NamedCallError                       a named function where it cannot be called
    │   ├── DeserializeObjectError               a worker could not unpickle function or argument
    │   └── UnpicklableResultError               a worker could not pickle the result
    ├── ObjectStorageError                       about large data, which the object storage keeps
    │   ├── StorageFullError                     neither memory nor disk has room for an object
    │   ├── StorageUnreachableError              the storage of an object does not answer
    │   └── MissingObjectsError                  an object is gone, or is not this client's
    ├── RemoteError                              stands in for an exception that cannot travel
    ├── RemoteCallError                          what runs tasks for a proxy did not run this one
    ├── CodeError                                workers cannot use what was uploaded for them
    ├── NoSuitableWorkerError                    no worker with what it demands joined in time
    ├── OperationRefusedError                    what an operator asked for was not done
    ├── QuotaExceededError                       its client has as much there as one client may
    ├── TaskTimeoutError(TimeoutError)           the task ran longer than its ``timeout``
    ├── WorkerDiedError(BrokenExecutor)          the process that ran the task died
    │   ├── TaskLostError                        the task was lost with its machine or worker
    │   └── ActorDiedError                       the actor that was called is gone
    └── ClusterBrokenError(BrokenExecutor)       no task can run any more

``scaler_exec`` exports each of them, and each name ends in ``Error``. Two exceptions that are
not errors have other names, like Python's own ``KeyboardInterrupt``: :class:`TaskInterrupted` stops
a task, and :class:`RemoteTraceback` only shows where a remote exception was raised.

A cancelled task raises :class:`concurrent.futures.CancelledError`. A task's own exception comes
back as the same exception, with :class:`RemoteTraceback` as its ``__cause__``.
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ScalerError(Exception):
    """Base of every error of the engine."""


class ProtocolError(ScalerError):
    """A rule of the protocol was broken; raised only as one of its two subclasses."""


class LocalProtocolError(ProtocolError):
    """This side did what the protocol forbids: a bug on this side."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol forbids. It is dropped; no other peer is affected."""


class ConfigError(ScalerError, ValueError):
    """A setting cannot work. The message names it and says what to do."""


class ClusterUnreachableError(ScalerError, ConnectionError):
    """No scheduler answers at the address, or it stopped answering; the message has the address."""


class SessionClosedError(ScalerError, RuntimeError):
    """A task was submitted to a client or executor that had been closed."""


class SessionForkedError(ScalerError, RuntimeError):
    """A client or executor was used in a forked child; make a new one there."""


class PayloadError(ScalerError):
    """An object could not be pickled or unpickled.

    The message names the object and the part of it that is at fault, says why, and what to do if
    that is known. The cause is the exception that pickling raised.
    """


class FutureInsideError(PayloadError, TypeError):
    """A future is inside a value that had to be pickled."""


class NamedCallError(PayloadError):
    """A named function was passed to what calls pickled functions alone."""


class DeserializeObjectError(PayloadError):
    """A worker could not unpickle the function or the arguments of this task.

    If the worker lacks a module, or has another version of it, the message names the module, the
    machine, the Python and what to do.
    """


class UnpicklableResultError(PayloadError):
    """The task finished, but the worker could not pickle its result.

    The message names the part at fault and says why.
    """


class ObjectStorageError(ScalerError):
    """Something is wrong with the storage of large objects."""


class StorageFullError(ObjectStorageError):
    """Neither the memory for objects nor the disk has room for this one."""


class StorageUnreachableError(ObjectStorageError):
    """An object storage did not answer in time."""


class MissingObjectsError(ObjectStorageError):
    """An object is gone, or it does not belong to this client."""


class RemoteError(ScalerError):
    """Replaces an exception whose class could not be pickled there or unpickled here.

    The text has the name of the original type, the message, and the reason. The cause is the remote
    traceback.
    """


class RemoteCallError(ScalerError):
    """The system that runs the tasks of a proxy did not run this one, or not to its end.

    The message has the system's reason.
    """


class CodeError(ScalerError):
    """Workers cannot use what was uploaded or registered; the message says which, and why.

    ``failed`` has the exception of each of them, by its name.
    """

    def __init__(self, message: str, failed: Mapping[str, BaseException] | None = None) -> None:
        super().__init__(message)
        self.failed = dict(failed or {})


class NoSuitableWorkerError(ScalerError):
    """The task demands what no worker has, and no worker that has it joined in time."""


class OperationRefusedError(ScalerError):
    """The scheduler did not do what an operator asked for; the message says why."""


class QuotaExceededError(ScalerError):
    """The scheduler did not take the task in: its client has as much there as one client may.

    The message names the setting. Nothing else of the client is affected: submit it again once
    other tasks have ended.
    """


class TaskTimeoutError(ScalerError, TimeoutError):
    """The task ran longer than its ``timeout``, or its cluster's, and was stopped."""


@dataclass(frozen=True)
class Death:
    """What is known about the death of a worker process."""

    pid: int = 0
    """Process id on its machine."""
    host: str = ""
    """Name of the machine."""
    exit_code: int | None = None
    """Exit code, if the process exited by itself."""
    signal: int | None = None
    """Number of the signal that killed it, if one did."""
    peak_rss_bytes: int = 0
    """Largest resident set that the process ever had, in bytes. If it ran tasks with profiling:
    since the last of these began."""
    out_of_memory: bool = False
    """True if it was killed because it exceeded its memory limit."""
    stderr_tail: str = ""
    """The last lines that it wrote to stderr."""
    reason: str = ""
    """Why the engine itself killed it, if it did."""


class WorkerDiedError(ScalerError, BrokenExecutor):
    """The worker process that ran this task died; ``death`` says how."""

    def __init__(self, message: str, death: Death | None = None) -> None:
        super().__init__(message)
        self.death = death if death is not None else Death()


class TaskLostError(WorkerDiedError):
    """The task was lost with its machine or worker, and may not run again."""


class ActorDiedError(WorkerDiedError):
    """The actor that was called is gone, with its state; it is never made anew by itself.

    The message names the actor and its worker, and says how it ended. ``actor`` is its id, and
    ``death`` says how its worker died, if it did. A call that was under way may have run.
    """

    def __init__(self, message: str, death: Death | None = None, actor: str = "") -> None:
        super().__init__(message, death)
        self.actor = actor


class ClusterBrokenError(ScalerError, BrokenExecutor):
    """No task can run any more; the message says why."""


class TaskInterrupted(BaseException):
    """Raised inside a running task to stop it, because it was cancelled or its timeout passed."""


INTERRUPTS = (KeyboardInterrupt, TaskInterrupted)
"""What a signal handler raises, wherever its thread is. The code there is never at fault."""


class RemoteTraceback(Exception):
    """Shows the traceback of a remote exception as the cause of the local one."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        """Return the traceback as the remote interpreter printed it."""
        return f'\n"""\n{self.text}"""'

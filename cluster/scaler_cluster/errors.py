"""Every error that the engine raises.

::

    ScalerError
    ├── ProtocolError                    (abstract: whose fault is it?)
    │   ├── LocalProtocolError           this side broke a rule: a bug here
    │   └── RemoteProtocolError          the peer sent what it must not
    ├── ConfigError(ValueError)          a setting that cannot work
    ├── ClusterUnreachable(ConnectionError)   nobody answers at that address, or no longer
    ├── SessionClosed(RuntimeError)      the client or executor was closed
    ├── SessionForked(RuntimeError)      used in a forked child of the process that made it
    ├── PayloadError                     could not pickle or unpickle; says which object
    │   ├── FutureInside(TypeError)      a future where none can be
    │   ├── DeserializeObjectError       a worker could not unpickle a function or an argument
    │   └── ResultUnpicklable            a worker could not pickle the result
    ├── ObjectStorageException           about large data, which lies in the object storage
    │   ├── StorageFull                  neither memory nor disk have room for an object
    │   ├── StorageUnreachable           nobody answers where an object is to go, or lies
    │   └── MissingObjects               an object is not there, or not this client's to name
    ├── RemoteException                  stands in for a remote exception that cannot travel
    ├── NoSuitableWorker                 no worker with what a task demands came in time
    ├── TaskTimeout(TimeoutError)        the task ran longer than its ``timeout``
    ├── WorkerDied(BrokenExecutor)       the process that ran the task died
    ├── TaskLost(WorkerDied)             the machine that ran it was lost too many times
    └── ClusterBroken(BrokenExecutor)    no task can run any more (a failing initializer, a kill)

A cancelled task raises :class:`concurrent.futures.CancelledError`; a task's own exception comes
back as itself, with :class:`RemoteTraceback` as its ``__cause__``.
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from dataclasses import dataclass


class ScalerError(Exception):
    """Base of every error of the engine."""


class ProtocolError(ScalerError):
    """A rule of the protocol was broken; raised only as one of its two subclasses."""


class LocalProtocolError(ProtocolError):
    """This side did what the protocol forbids: a bug on this side."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol forbids; it is dropped, nobody else notices."""


class ConfigError(ScalerError, ValueError):
    """A setting that cannot work; the message says which one and what to do."""


class ClusterUnreachable(ScalerError, ConnectionError):
    """No scheduler answers at the address, or it stopped answering; the message names it."""


class SessionClosed(ScalerError, RuntimeError):
    """Work was given to a client or executor that had been closed."""


class SessionForked(ScalerError, RuntimeError):
    """A client or executor was used in a forked child; make a new one there."""


class PayloadError(ScalerError):
    """An object could not be pickled or unpickled.

    The message says which, which part of it is at fault, why, and what to do if that is known. What
    was raised there is the cause.
    """


class FutureInside(PayloadError, TypeError):
    """A future is inside of a value that was to be pickled."""


class DeserializeObjectError(PayloadError):
    """A worker could not unpickle the function or the arguments of this task.

    If a module is missing there, or is another version, the message names the module, the machine,
    the Python and what to do.
    """


class ResultUnpicklable(PayloadError):
    """The task finished, but a worker could not pickle what it returned.

    The message says which part of it is at fault, and why.
    """


class ObjectStorageException(ScalerError):
    """Something is wrong with the storage of large objects."""


class StorageFull(ObjectStorageException):
    """Neither the memory for objects nor the disk has room for this one."""


class StorageUnreachable(ObjectStorageException):
    """An object storage did not answer in time."""


class MissingObjects(ObjectStorageException):
    """An object is not there (any more), or it is not this client's to name."""


class RemoteException(ScalerError):
    """Stands in for an exception whose class could not be pickled, or not unpickled here.

    The text holds the original type's name and message, and why it did not come itself; the remote
    traceback is the cause.
    """


class NoSuitableWorker(ScalerError):
    """The task demands what no worker has, and none that has it came in time."""


class TaskTimeout(ScalerError, TimeoutError):
    """The task ran longer than its ``timeout``, or its cluster's, and was stopped."""


@dataclass(frozen=True)
class Death:
    """What is known of the death of a worker process."""

    pid: int = 0
    """Process id on its machine."""
    host: str = ""
    """Name of the machine."""
    exit_code: int | None = None
    """Exit code, where the process exited by itself."""
    signal: int | None = None
    """Number of the signal that killed it, where one did."""
    peak_rss_bytes: int = 0
    """Largest resident set the process ever had, in bytes; of one that ran tasks with profiling,
    since the last of those began."""
    out_of_memory: bool = False
    """True if it was killed for exceeding its memory limit."""
    stderr_tail: str = ""
    """The last lines it wrote to stderr."""
    reason: str = ""
    """Why the engine itself killed it, if it did."""


class WorkerDied(ScalerError, BrokenExecutor):
    """The worker process that ran this task died; ``death`` says how."""

    def __init__(self, message: str, death: Death | None = None) -> None:
        super().__init__(message)
        self.death = death if death is not None else Death()


class TaskLost(WorkerDied):
    """The task was lost with its machine more often than it may be run again."""


class ClusterBroken(ScalerError, BrokenExecutor):
    """No task can run any more; the message says why."""


class TaskInterrupted(BaseException):
    """Raised inside a running task to stop it: it was cancelled, or its time is over."""


INTERRUPTS = (KeyboardInterrupt, TaskInterrupted)
"""What a signal handler raises, wherever its thread is: never the fault of the code there."""


class RemoteTraceback(Exception):
    """Shows the traceback of a remote exception as the cause of the local one."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        """Return the traceback as the remote interpreter printed it."""
        return f'\n"""\n{self.text}"""'

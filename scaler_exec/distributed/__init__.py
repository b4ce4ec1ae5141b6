"""The client of ``distributed`` on this engine: programs change the import.

``from scaler_exec.distributed import Client`` in place of ``from distributed import Client``, or of
``dask.distributed``. What is the same, what differs and what is not served stands in
``docs/distributed.md``. It needs Dask: ``pip install 'scaler-exec[dask]'``.

Theory of operation
-------------------

A :class:`Client` has a client of the engine (``scaler_cluster.client``), whose session it uses. A
:class:`Future` stands for a :class:`~scaler_exec.distributed.future.Task`, which all futures of one
key share (``future.py``), and that for a future of the engine. The engine knows a Future where it
is an argument (``FutureHandle``): the result goes from task to task as it came from its worker, by
reference if it is large. The client holds its tasks by weak references: when the last future of a
task goes, a finalizer notes it down, and the next turn of the session cancels it.

``submitting.py`` submits, ``arriving.py`` waits, ``computing.py`` takes Dask's collections,
``current.py`` is what Dask finds as its scheduler, ``observing.py`` asks the feed for monitors.
``sharing.py`` has what clients share by a name. All calls are written to wait; ``awaiting.py``
makes those of an asynchronous client in threads, where an event loop would be kept waiting.
Names that are not served stand in ``refused.py``, and can be imported, but not called.
"""

from __future__ import annotations

from builtins import print  # noqa: A004
from concurrent.futures import CancelledError, TimeoutError  # noqa: A004
from typing import Any
from warnings import warn

try:
    import dask
except ImportError as error:
    raise ImportError(
        "scaler_exec.distributed needs Dask: pip install 'scaler-exec[dask]' brings it"
    ) from error
from dask.config import config

from scaler_cluster.client.future import ScalerFuture as ActorFuture
from scaler_cluster.client.worker_context import rejoin, secede
from scaler_cluster.errors import WorkerDiedError as KilledWorker
from scaler_exec.distributed.acting import Actor
from scaler_exec.distributed.arriving import as_completed, wait
from scaler_exec.distributed.client import Client
from scaler_exec.distributed.cluster import LocalCluster
from scaler_exec.distributed.coding import (
    Environ,
    PipInstall,
    UploadDirectory,
    UploadFile,
    WorkerPlugin,
)
from scaler_exec.distributed.coordinating import (
    Event,
    Lock,
    MultiLock,
    Queue,
    Semaphore,
    Variable,
)
from scaler_exec.distributed.current import default_client
from scaler_exec.distributed.finding import (
    fire_and_forget,
    get_client,
    get_worker,
    local_client,
    worker_client,
)
from scaler_exec.distributed.future import Future
from scaler_exec.distributed.futures_of import futures_of
from scaler_exec.distributed.refused import REFUSED, refused
from scaler_exec.distributed.watching import performance_report, progress, span

BaseActorFuture = ActorFuture

__all__ = [
    "Actor",
    "ActorFuture",
    "BaseActorFuture",
    "CancelledError",
    "Client",
    "Environ",
    "Event",
    "Future",
    "KilledWorker",
    "LocalCluster",
    "Lock",
    "MultiLock",
    "PipInstall",
    "Queue",
    "Semaphore",
    "TimeoutError",
    "UploadDirectory",
    "UploadFile",
    "Variable",
    "WorkerPlugin",
    "as_completed",
    "config",
    "dask",
    "default_client",
    "fire_and_forget",
    "futures_of",
    "get_client",
    "get_worker",
    "local_client",
    "performance_report",
    "print",
    "progress",
    "rejoin",
    "secede",
    "span",
    "wait",
    "warn",
    "worker_client",
]


def __getattr__(name: str) -> Any:
    """Return what stands for a name that is not served."""
    if name in REFUSED:
        return refused(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

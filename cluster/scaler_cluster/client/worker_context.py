"""Whether this process is a worker: what a client asks that was made, or unpickled, in here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.client.task_session import TaskSession

open_session: Callable[[], TaskSession] | None = None
"""Returns the session of this worker's tasks; the worker sets it. None in all other processes."""


name = ""
"""What the cluster calls this worker, else ``HOST/PID``; empty in all other processes."""

leave: Callable[[], None] | None = None
"""Has this worker end once it has run all it was given. None where an actor cannot live."""

keep_code: Callable[[], None] | None = None
"""Has this worker use no other code than now, as an actor is made. None where none can live."""

gpus: tuple[str, ...] = ()
"""The GPUs that the task of this worker has to itself."""


def gpu_ids() -> tuple[str, ...]:
    """Return the GPUs that this task has to itself, as CUDA_VISIBLE_DEVICES names them.

    Empty outside of tasks, and in a task that demands no ``gpu`` of those that the workers of its
    machine share.
    """
    return gpus


def is_worker() -> bool:
    """Return True if this process is a worker."""
    return open_session is not None


def nested_session(address: str | None = None, cluster: str = "") -> TaskSession | None:
    """Return the session of this worker's tasks; None outside of them, or for another cluster.

    A cluster is known by its ``address``, or by the directory of its objects.
    """
    if open_session is None:
        return None
    session = open_session()
    is_ours = address in (None, session.address) or cluster == session.cluster_name != ""
    return session if is_ours else None


def secede() -> None:
    """Give the place of this task's worker to other tasks, while this task waits for long.

    The tasks that wait behind this one go to other workers, and another process takes the place of
    this worker, until :func:`rejoin` or the end of the task. Raises ConfigError outside of tasks.
    """
    _in_task().set_seceded(seceded=True)


def rejoin() -> None:
    """Take back the place that :func:`secede` gave away; without effect if it was not."""
    _in_task().set_seceded(seceded=False)


def _in_task() -> TaskSession:
    session = nested_session()
    if session is None:
        raise ConfigError("this is no task: only a task can leave its worker's place to others")
    return session

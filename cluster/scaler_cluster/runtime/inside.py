"""Whether this process is a worker: what a client asks that was made, or unpickled, in here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from scaler_cluster.runtime.nested import NestedSession
    from scaler_cluster.runtime.worker import WorkerShell

shell: WorkerShell | None = None
"""The worker that this process is; None in all other processes."""


def nested_session(address: str | None = None, cluster: str = "") -> NestedSession | None:
    """Return the session of this worker's tasks; None outside of them, or for another cluster.

    A cluster is known by its ``address``, or by the directory of its objects.
    """
    if shell is None:
        return None
    from scaler_cluster.runtime.nested import open_session

    session = open_session(shell)
    is_ours = address in (None, session.address) or cluster == session.cluster_name != ""
    return session if is_ours else None


def secede() -> None:
    """Let others have the place of this task's worker while it waits for long for something else.

    What waits behind it goes elsewhere, and another process takes the place, until :func:`rejoin`
    or the end of the task. Raises ConfigError outside of tasks.
    """
    _in_task().set_seceded(seceded=True)


def rejoin() -> None:
    """Take the place back that :func:`secede` gave away; without effect if nothing was."""
    _in_task().set_seceded(seceded=False)


def _in_task() -> NestedSession:
    session = nested_session()
    if session is None:
        raise ConfigError("this is no task: only a task can leave its worker's place to others")
    return session

"""What the tasks of a worker need of their worker, whichever class that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from scaler_cluster.core.worker.work import FunctionEntry, Work
    from scaler_cluster.security.credentials import Credentials
    from scaler_cluster.wire import messages as m


class TaskHost(Protocol):
    """The worker as the session of its tasks sees it."""

    @property
    def address(self) -> str:
        """Address of the scheduler."""

    @property
    def credentials(self) -> Credentials:
        """The keys with which it reaches the scheduler."""

    @property
    def peer(self) -> bytes:
        """Peer id of the worker."""

    @property
    def process(self) -> tuple[int, str]:
        """Pid and machine that the worker has said."""

    @property
    def where(self) -> str:
        """What this process is called in errors."""

    def may_run(self, options: m.TaskOptions) -> bool:
        """Return True if this worker has what tasks with these options demand."""

    def enter_task(self) -> Work | None:
        """Return the work whose task runs now, and let it be the last of its work.

        None if no task runs.
        """

    def end_if_forked(self) -> None:
        """End the process if a task forked it and it came back from the task."""

    def map_segments(self, segments: tuple[bytes, ...]) -> list[memoryview]:
        """Return segments as buffers; raises MissingObjectsError."""

    def loaded_function(self, digest: bytes) -> FunctionEntry | None:
        """Return a function that the scheduler has sent to this worker, if it is still known."""

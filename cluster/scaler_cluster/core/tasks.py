"""The scheduler's record of tasks: contiguous ones that share their story are one *run*."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.core.lifecycle import State

if TYPE_CHECKING:
    from scaler_cluster.core.graph import GraphRecord
    from scaler_cluster.core.records import WorkerRecord
    from scaler_cluster.wire.batch import Batch
    from scaler_cluster.wire.messages import TaskOptions


@dataclass(slots=True, eq=False)
class Run:
    """Contiguous tasks of one session that share function, options, state and place.

    A run is split where its tasks go different ways; a single ``submit`` is a run of one.
    """

    session: int
    first: int
    function: bytes
    call: int
    options: TaskOptions
    batch: Batch
    objects: tuple[bytes, ...] = ()
    """Ids of the objects that each of its payloads refers to, in order."""
    state: State = State.READY
    worker: WorkerRecord | None = field(default=None, repr=False)
    unit_s: float = 0.0
    """What one task was expected to take when the run was assigned, in seconds."""
    tries: int = 0
    """How often it was run again after it raised or its worker died."""
    losses: int = 0
    """How often it was lost with its machine."""
    graph: GraphRecord | None = field(default=None, repr=False)
    """The graph whose nodes these are, on a worker: else its nodes are in no run."""
    number: int = 0
    """Counts the runs of nodes that its worker was given."""

    @property
    def count(self) -> int:
        """Number of tasks."""
        return len(self.batch.ends)

    @property
    def stop(self) -> int:
        """Id after the last task."""
        return self.first + len(self.batch.ends)

    def holds(self, session: int, task: int) -> bool:
        """Return True if this is one of its tasks."""
        return self.session == session and self.first <= task < self.stop

    @property
    def may_retry(self) -> bool:
        """Return True if it may be started again after it raised or its worker died."""
        return self.tries < self.options.retries and not self.options.at_most_once

    def cut_head(self, count: int) -> Run:
        """Take the first ``count`` tasks out, as a run of their own."""
        head = Run(
            self.session,
            self.first,
            self.function,
            self.call,
            self.options,
            self.batch.cut(0, count),
            self.objects,
            self.state,
            self.worker,
            self.unit_s,
            self.tries,
            self.losses,
            self.graph,
            self.number,
        )
        self.drop_head(count)
        return head

    def drop_head(self, count: int) -> None:
        """Forget the first ``count`` tasks; at least one stays."""
        self.batch = self.batch.cut(count, self.count)
        self.first += count

    def drop_tail(self, count: int) -> None:
        """Forget the last ``count`` tasks; at least one stays."""
        self.batch = self.batch.cut(0, self.count - count)

    def __str__(self) -> str:
        """Tell the run's story in one line, for errors and logs."""
        place = f" on worker {self.worker.peer.hex()}" if self.worker is not None else ""
        return (
            f"tasks {self.first}..{self.stop - 1} of session {self.session}: "
            f"{self.state.name}{place}, tries {self.tries}, losses {self.losses}"
        )

"""What a scheduler tells its watchers while it works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_cluster.core.graph.graph import GraphRecord
    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.totals import Totals
    from scaler_cluster.core.records.workers import Run, WorkerRecord
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.wire import messages as m


class Observer:
    """Is told what happens, and does nothing: this one is there while nobody watches."""

    now = 0.0
    """When what is told happens; each door of the scheduler sets it."""

    # -- tasks ---------------------------------------------------------------------------------

    def assigned(self, worker: WorkerRecord, run: Run) -> None:
        """A worker was given a run."""

    def done(self, worker: WorkerRecord, run: Run, first: int, count: int, busy_s: float) -> None:
        """Tasks of a run returned."""

    def failed(self, run: Run, kind: str, detail: Mapping[str, Any], busy_s: float) -> None:
        """All tasks of a run failed, for the same reason."""

    def retried(self, run: Run, kind: str, detail: Mapping[str, Any], busy_s: float) -> None:
        """The task of a run is about to be begun again."""

    def moved(self, worker: WorkerRecord, run: Run) -> None:
        """A worker gave a run back."""

    def cancelled(self, run: Run, first: int, count: int) -> None:
        """Tasks of a run were cancelled."""

    # -- peers and graphs ----------------------------------------------------------------------

    def worker_joined(self, worker: WorkerRecord) -> None:
        """A worker was welcomed."""

    def worker_left(self, worker: WorkerRecord) -> None:
        """A worker ended in order, alone or with its machine."""

    def worker_died(self, worker: WorkerRecord, lost: m.WorkerLost | None) -> None:
        """A worker died, as its supervisor says; None: the worker or its supervisor is given up."""

    def machine_joined(self, supervisor: SupervisorRecord) -> None:
        """A supervisor was welcomed."""

    def machine_left(self, supervisor: SupervisorRecord) -> None:
        """A supervisor left or was given up."""

    def client_joined(self, session: SessionRecord) -> None:
        """A client was welcomed."""

    def client_left(self, session: SessionRecord) -> None:
        """A client left or was given up."""

    def operated(self, user: str, action: str, what: str, count: int) -> None:
        """An operator acted on so many tasks or workers."""

    def graph_begun(self, graph: GraphRecord) -> None:
        """A graph came."""

    def graph_over(self, graph: GraphRecord, totals: Totals) -> None:
        """A graph ended; the totals say what became of its nodes."""

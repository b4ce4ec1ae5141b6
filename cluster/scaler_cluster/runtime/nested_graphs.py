"""The graphs that tasks of a worker ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.client.live_graphs import GraphSession, SessionGraphs
from scaler_cluster.core.worker.subtasks import OwnGraph
from scaler_cluster.process.interrupts import deferred

if TYPE_CHECKING:
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.packing import Packed
    from scaler_cluster.runtime.nested_connection import NestedConnection
    from scaler_cluster.runtime.task_context import Scope
    from scaler_cluster.wire import messages as m


class NestedGraphSession(GraphSession, Protocol):
    """What the graphs of tasks need of the session that asks for them."""

    @property
    def connection(self) -> NestedConnection:
        """What the graphs are sent through."""

    def scope(self) -> Scope:
        """Return the task in which this is called."""

    def deeper(self, options: m.TaskOptions, scope: Scope) -> m.TaskOptions:
        """Return the options of what a task submits."""


class NestedGraphs(SessionGraphs):
    """Asks for the graphs of tasks; their nodes run elsewhere, or on the stack of who waits."""

    _session: NestedGraphSession

    def _submit(
        self, packed: Packed, wanted: dict[int, int], *, is_single: bool
    ) -> dict[int, ScalerFuture[Any]]:
        session = self._session
        scope = session.scope()
        packed.options = {session.deeper(one, scope): None for one in packed.options}
        inputs = [one._task for one in packed.inputs if not one.done()]
        with deferred:
            futures = super()._submit(packed, wanted, is_single=is_single)
            key, future = next(iter(futures.items()))
            graph = OwnGraph(
                scope.number, future._task - wanted[key], packed.function, tuple(packed.options),
                packed.kinds, inputs, session.pickler.retain(packed.function[2]),
            )  # fmt: skip
            session.connection.own_graph(graph, [one._task for one in futures.values()])
        return futures

"""What an operator cancels: a task, all tasks of a function, a graph, or all work of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records.lifecycle import State
from scaler_cluster.ids import TASK_ID_MAX, session_label
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.core.graph.graph import GraphRecord
    from scaler_cluster.core.records.workers import Run
    from scaler_cluster.core.scheduler.graph_moves import Graphs
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.core.scheduler.stopping import Stopping
    from scaler_cluster.core.scheduler.table import Table


class UnknownNameError(Exception):
    """An operator names what is not there."""


class Cancelling:
    """Finds live tasks by what an operator calls them, and cancels them for their clients."""

    def __init__(self, table: Table, stopping: Stopping, graphs: Graphs) -> None:
        self._table = table
        self._stopping = stopping
        self._graphs = graphs

    def cancel(self, kind: str, name: str, *, is_trial: bool, now: float) -> dict[int, int]:
        """Cancel what has this name; return how many tasks that meets, by number of the session.

        With ``is_trial`` they are only counted. Raises UnknownNameError if there are none.
        """
        met: dict[int, int] = {}
        for session, first, stop, graph in list(self._found(kind, name)):
            count = self._count(session, first, stop, graph)
            if not count:
                continue
            met[session.number] = met.get(session.number, 0) + count
            if not is_trial:
                self._cancel(session, first, stop, graph, now)
        if not met:
            raise UnknownNameError(f"no {kind} {name:.200} has tasks that have not ended")
        return met

    def tell(self, met: dict[int, int], text: str) -> None:
        """Tell the clients whose tasks were met."""
        for number in met:
            self._table.answers.send(number, m.Notice(text))

    def _found(
        self, kind: str, name: str
    ) -> Iterator[tuple[SessionRecord, int, int, GraphRecord | None]]:
        """Yield sessions with ranges of their tasks, and the graph if they are of one."""
        if kind == m.FUNCTION:
            yield from self._of_function(name)
            return
        label, _, task = name.partition(":")
        session = self._session(label)
        if kind == m.SESSION:
            yield from ((session, run.first, run.stop, None) for run in session.runs.values())
            yield from ((session, one.first, one.stop, one) for one in session.graphs.values())
            return
        first = _number(task, name)
        graphs = session.graphs.overlapping(first, first + 1)
        if kind == m.GRAPH:
            yield from ((session, one.first, one.stop, one) for one in graphs)
            return
        yield from ((session, first, first + 1, one) for one in graphs)
        if not graphs:
            yield session, first, first + 1, None

    def _of_function(
        self, name: str
    ) -> Iterator[tuple[SessionRecord, int, int, GraphRecord | None]]:
        functions = self._table.functions
        for session in self._table.sessions.values():
            for run in session.runs.values():
                if functions[run.function].name == name:
                    yield session, run.first, run.stop, None
            for graph in session.graphs.values():
                for first, stop in graph.nodes_named(name):
                    yield session, first, stop, graph

    def _session(self, label: str) -> SessionRecord:
        """Return a session by its number, or by what people call it."""
        number = _number(label, label)
        sessions = self._table.session_by_number.values()
        found = [one for one in sessions if number in (one.number, session_label(one.number))]
        if not found:
            raise UnknownNameError(f"there is no client {label:.40}")
        if len(found) > 1:
            numbers = ", ".join(str(one.number) for one in found)
            raise UnknownNameError(
                f"several clients are called {number}, as schedulers have followed one another: "
                f"name one by its whole number, of {numbers:.200}"
            )
        return found[0]

    def _count(
        self, session: SessionRecord, first: int, stop: int, graph: GraphRecord | None
    ) -> int:
        if graph is not None:
            nodes = graph.nodes
            return sum(map(nodes.is_live, range(first - graph.first, stop - graph.first)))
        return sum(
            min(run.stop, stop) - max(run.first, first)
            for run in session.runs.overlapping(first, stop)
            if _is_to_stop(run)
        )

    def _cancel(
        self, session: SessionRecord, first: int, stop: int, graph: GraphRecord | None, now: float
    ) -> None:
        if graph is not None:
            self._graphs.cancel_for_client(graph, first, stop)
            return
        for run in session.runs.overlapping(first, stop):
            if _is_to_stop(run):
                low, high = max(run.first, first), min(run.stop, stop)
                self._stopping.cancel(run, low, high, now)
                self._table.answers.answer(session.number, m.Cancelled(low, high - low))


def _is_to_stop(run: Run) -> bool:
    return not isinstance(run, NodeRun) and run.state is not State.CANCELLING


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > TASK_ID_MAX:
        raise UnknownNameError(f"{name[:80]!r} is no CLIENT, or no CLIENT:TASK")
    return int(text[:20])

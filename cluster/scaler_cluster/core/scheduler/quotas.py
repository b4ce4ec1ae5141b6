"""How much one client may have in the scheduler at once, where that is limited."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.errors import RemoteProtocolError

if TYPE_CHECKING:
    from scaler_cluster.core.scheduler.config import QuotaConfig
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.wire import messages as m
    from scaler_cluster.wire.batch import Batch

EXCESS = 2
"""A client that has so many times its quota is dropped. It may have somewhat more than the quota:
objects, and the rest of a graph that has begun, come without being asked for."""


class Quotas:
    """Says which tasks are too many, with those that their client has already."""

    def __init__(self, table: Table, config: QuotaConfig) -> None:
        self._table = table
        self._config = config
        self._nbytes: dict[int, int] = {}
        """How many bytes each session has at most, by its number: what has ended since they were
        counted is still among them."""
        self._refused: set[tuple[int, int]] = set()
        """Session and first task of the graphs of which more parts may come."""

    def admit(self, session: SessionRecord, batch: Batch) -> tuple[int, str]:
        """Return how many of these tasks a client may submit, from the first, and why not all."""
        count, most = len(batch), self._config.bytes_max
        if most and self._add(session, batch.nbytes, most) > most:
            self._nbytes[session.number] -= batch.nbytes
            return 0, f"more than {most} bytes of one client at once (max_bytes_per_client)"
        most = self._config.tasks_max
        room = max(most - session.totals.pending, 0)
        if most and room < count:
            return room, f"more than {most} tasks of one client at once (max_tasks_per_client)"
        return count, ""

    def refuses(self, session: SessionRecord, graph: m.Graph) -> str:
        """Return why a client may not submit a graph, or this part of it; empty: it may.

        Raises RemoteProtocolError for the rest of a graph with which it has far too much.
        """
        number, most = session.number, self._config.graphs_max
        if graph.start and (number, graph.first) not in self._refused:
            self._check(session, len(graph.batch), graph.batch.nbytes)
            return ""
        if graph.start:
            reason = "the graph was refused"
        elif most and len(session.graphs) >= most:
            reason = f"more than {most} graphs of one client at once (max_graphs_per_client)"
        else:
            _, reason = self.admit(session, graph.batch)
        if reason and not graph.is_last:
            self._refused.add((number, graph.first))
        else:
            self._refused.discard((number, graph.first))
        return reason

    def stored(self, session: SessionRecord, nbytes: int) -> None:
        """A client stored an object; raises RemoteProtocolError if it has far too much."""
        self._check(session, 0, nbytes)

    def forget(self, session: SessionRecord) -> None:
        """A client is gone."""
        self._nbytes.pop(session.number, None)
        self._refused = {one for one in self._refused if one[0] != session.number}

    def _check(self, session: SessionRecord, count: int, nbytes: int) -> None:
        most = self._config.tasks_max
        if most and session.totals.pending + count > EXCESS * most:
            raise RemoteProtocolError(f"more than {EXCESS} times max_tasks_per_client")
        most = self._config.bytes_max
        if most and self._add(session, nbytes, EXCESS * most) > EXCESS * most:
            raise RemoteProtocolError(f"more than {EXCESS} times max_bytes_per_client")

    def _add(self, session: SessionRecord, nbytes: int, most: int) -> int:
        """Count bytes that come; return how many there are, exactly if these may be too many."""
        number = session.number
        total = self._nbytes.get(number, 0) + nbytes
        if total > most:
            total = self._count(session) + nbytes
        self._nbytes[number] = total
        return total

    def _count(self, session: SessionRecord) -> int:
        records, functions = self._table.objects.records, self._table.functions
        graphs = session.graphs.values()
        batches = chain(
            (run.batch for run in session.runs.values() if not isinstance(run, NodeRun)),
            chain.from_iterable(graph.topology.batches for graph in graphs),
        )
        named = [functions[one] for one, is_whole in session.functions.items() if is_whole]
        return (
            sum(batch.nbytes for batch in batches)
            + sum(records[one].nbytes for one in session.objects)
            + sum(len(function.payload) for function in named)
        )

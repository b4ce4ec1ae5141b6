"""Under which names tasks are counted: that of their function, or for a node that of its layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.records import credit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scaler_cluster.core.records.functions import FunctionRecord
    from scaler_cluster.core.records.totals import Totals
    from scaler_cluster.core.records.workers import Run
    from scaler_cluster.core.scheduler.table import Table


def name_of(functions: Mapping[bytes, FunctionRecord], run: Run) -> str:
    """Return the name under which the first task of a run is counted."""
    if isinstance(run, NodeRun):
        return run.graph.name_of(run.first)
    return functions[run.function].name


def tally(functions: Mapping[bytes, FunctionRecord], run: Run) -> list[tuple[Totals, int]]:
    """Return the totals under whose names the tasks of a run are counted, and how many."""
    if not isinstance(run, NodeRun):
        return [(functions[run.function].totals, run.count)]
    first = run.first - run.graph.first
    shares = run.graph.layers.shares(first, first + run.count)
    return [(layer.totals, count) for layer, count in shares]


def parts(
    functions: Mapping[bytes, FunctionRecord], run: Run, first: int, count: int
) -> Iterable[tuple[int, int, str]]:
    """Return tasks of a run in parts of one name each: first task, number of tasks, name."""
    if not isinstance(run, NodeRun):
        return ((first, count, functions[run.function].name),)
    graph = run.graph
    low = first - graph.first
    return (
        (graph.first + start, stop - start, name)
        for start, stop, name in graph.layers.stretches(low, low + count)
    )


def measure(
    functions: Mapping[bytes, FunctionRecord], run: Run, first: int, count: int, busy_s: float
) -> None:
    """Tasks of a run took so long together, whatever became of them."""
    function = functions[run.function]
    if isinstance(run, NodeRun):
        credit.expect(function, count, busy_s)
        run.graph.layers.measured(first - run.graph.first, count, busy_s)
    else:
        credit.measure(function, count, busy_s)


def find_name(table: Table, session: int, task: int, function: bytes) -> str:
    """Return the name of a task that a worker speaks of; empty: its client may have left."""
    client = table.session_by_number.get(session)
    for graph in client.graphs.overlapping(task, task + 1) if client is not None else ():
        return graph.name_of(task)
    record = table.functions.get(function)
    return record.name if record is not None else ""

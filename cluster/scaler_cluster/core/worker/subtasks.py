"""What a task submitted: tasks, pieces of maps, graphs, and nodes of those that may run here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.worker.work import values_of
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.client.requests import Function, Objects
    from scaler_cluster.wire.batch import Batch


class Subtask:
    """Contiguous tasks that a task submitted: one ``submit``, or a piece of a map."""

    __slots__ = (
        "at", "batch", "call", "first", "function", "is_recalled", "kept", "objects", "options",
        "owner",
    )  # fmt: skip

    def __init__(
        self,
        owner: int,
        function: Function,
        call: int,
        options: m.TaskOptions,
        objects: Objects,
        batch: Batch,
        kept: Objects = (),
    ) -> None:
        self.owner = owner
        """Number of the task that submitted it."""
        self.function = function
        self.call = call
        self.options = options
        self.objects = objects
        self.batch = batch
        self.kept = kept
        """Objects that it alone may need by now; to be released when it has ended."""
        self.first = -1
        self.at = 0.0
        """Since when it is held."""
        self.is_recalled = False
        """The scheduler had it, and gave it back."""

    def part(self, start: int, stop: int) -> Subtask:
        """Return some of its tasks."""
        batch = self.batch.cut(start, stop)
        part = Subtask(self.owner, self.function, self.call, self.options, self.objects, batch)
        part.first = self.first + start
        part.is_recalled = self.is_recalled
        return part

    @property
    def stop(self) -> int:
        """Id after the last task."""
        return self.first + len(self.batch)


class OwnGraph:
    """A graph that a task submitted."""

    def __init__(
        self,
        owner: int,
        first: int,
        function: Function,
        options: Sequence[m.TaskOptions],
        kinds: Sequence[int],
        inputs: Sequence[int],
        kept: Objects = (),
    ) -> None:
        self.owner = owner
        self.first = first
        self.function = function
        self.inputs = inputs
        """Tasks that it takes the results of, as far as they had not come back."""
        self.kept = kept
        """Objects of its functions; to be released when it is over."""
        self._options = options
        self._kinds = kinds
        """Which of the options each node has; empty: all have the first."""
        self.pending = 0
        """Number of its nodes that are waited for."""
        self.handed_over: dict[int, HandedOver] = {}
        """Its nodes that may run here."""

    def options_of(self, task: int) -> m.TaskOptions:
        """Return the options of a node."""
        return self._options[self._kinds[task - self.first] if self._kinds else 0]


class HandedOver(Subtask):
    """A node of a graph that is ready, with what it depends on."""

    __slots__ = ("graph", "values")

    def __init__(self, graph: OwnGraph, message: m.AssignNodes) -> None:
        options = graph.options_of(message.first)
        objects, batch = message.objects, message.batch
        super().__init__(graph.owner, graph.function, m.CALL_NODE, options, objects, batch)
        self.first = message.first
        self.graph = graph
        self.values = values_of(message)

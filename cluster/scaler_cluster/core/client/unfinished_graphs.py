"""The graphs that a client has asked for and waits for, to ask for them again.

A graph is asked for whole: nodes whose results only the lost scheduler had run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.ids import CALL_BITS, ranges_of
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scaler_cluster.core.client.held_objects import HeldObjects


def lost(task: int, kind: str = m.FAILED_LOST) -> m.Failed:
    """Return what becomes of a task that is not asked for again."""
    return m.Failed(task, kind, b"", {"losses": 1} if kind == m.FAILED_LOST else {})


class _Graph:
    """A graph that somebody waits for."""

    __slots__ = ("first", "function", "inputs", "parts", "waited", "wanted")

    def __init__(self, first: int, wanted: Iterable[int], inputs: Sequence[object]) -> None:
        self.first = first
        self.wanted = tuple(wanted)
        self.waited = set(self.wanted)
        """Wanted nodes that have not come back."""
        self.inputs = inputs
        self.function: m.Function | None = None
        self.parts: list[m.Graph] = []
        """What of it was sent."""


class UnfinishedGraphs:
    """Keeps the messages of each graph until its last wanted node comes back."""

    def __init__(self, objects: HeldObjects) -> None:
        self._objects = objects
        self.open: dict[int, _Graph] = {}
        """By the first task of each, in the order in which they were asked for."""
        self._owners: dict[int, _Graph] = {}
        """By call; those whose numbers are single tasks: by the inverse of each wanted node."""
        self._void: set[int] = set()
        """First tasks of graphs that are not asked for again, and of which more may follow."""

    def begin(self, first: int, wanted: Iterable[int], inputs: Sequence[object]) -> None:
        """Note a graph that is about to be asked for, and which of its nodes are waited for."""
        graph = self.open[first] = _Graph(first, wanted, inputs)
        self._owners.update(dict.fromkeys(self._keys(graph), graph))

    def inputs_of(self, first: int) -> Sequence[object]:
        """Return what stands for the inputs of a graph; empty if nobody waits for that."""
        graph = self.open.get(first)
        return graph.inputs if graph is not None else ()

    def sent(self, part: m.Graph, functions: Mapping[bytes, m.Function]) -> None:
        """Note what is sent of a graph; its function was sent before its first part."""
        graph = self.open.get(part.first)
        if graph is not None:
            if graph.function is None:
                graph.function = functions[part.function]
                self._objects.use(graph.function.objects)
            graph.parts.append(part)
            self._objects.use(part.objects)

    def came(self, first: int, stop: int) -> None:
        """Nobody waits for these tasks any more, of which some may be nodes."""
        number = first >> CALL_BITS
        for key in (number,) if number else range(~(stop - 1), ~first + 1):
            graph = self._owners.get(key)
            if graph is not None:
                graph.waited.difference_update(range(first, stop))
                if not graph.waited:
                    self._drop(graph)

    def is_void(self, part: m.Graph) -> bool:
        """Return True if the rest of a graph must not be said, as the scheduler has no first."""
        if part.first not in self._void:
            return False
        if part.is_last:
            self._void.remove(part.first)
        return True

    def again(
        self, failed: list[m.Failed], *, is_stored: bool
    ) -> Iterator[tuple[m.Function, m.Message]]:
        """Yield what to say, each with the function that is to be known before.

        ``failed`` gets the nodes that wait for what must not start again, or is gone if it was
        stored and ``is_stored`` no more.
        """
        for graph in list(self.open.values()):
            function, parts = graph.function, graph.parts
            if function is None:
                # Nothing of it was sent.
                continue
            if any(options.at_most_once for part in parts for options in part.options):
                failed += self.fail(parts[-1], m.FAILED_LOST)
                continue
            if function.objects and not is_stored:
                failed += self.fail(parts[-1], m.FAILED_MISSING)
                continue
            graph.function, graph.parts = None, []
            for part in parts:
                yield function, part
            came = [task for task in graph.wanted if task not in graph.waited]
            for first, stop in ranges_of(came):
                yield function, m.Cancel(first, stop - first)

    def fail(self, last: m.Graph, kind: str) -> list[m.Failed]:
        """Give a graph up, of which this part came last; return what becomes of its nodes."""
        graph = self.open.get(last.first)
        if not last.is_last:
            self._void.add(last.first)
        if graph is None:
            return []
        self._drop(graph)
        return [lost(task, kind) for task in sorted(graph.waited)]

    def _keys(self, graph: _Graph) -> Iterable[int]:
        number = graph.first >> CALL_BITS
        return (number,) if number else (~task for task in graph.wanted)

    def _drop(self, graph: _Graph) -> None:
        del self.open[graph.first]
        for key in self._keys(graph):
            self._owners.pop(key, None)
        if graph.function is not None:
            self._objects.used(graph.function.objects)
        for part in graph.parts:
            self._objects.used(part.objects)

"""The inputs of the graphs that tasks submit: who tells the scheduler what becomes of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class GraphInputs:
    """An input is what a task returns. The scheduler sees what it has itself; the rest is owed."""

    def __init__(self) -> None:
        self._tasks: dict[int, Sequence[int]] = {}
        """Tasks that the inputs of graphs are of, until the scheduler has said which it knows."""
        self._watched: dict[int, list[int]] = {}
        """Inputs of graphs by the task that each is of, which the scheduler has."""
        self._owed: dict[int, list[int]] = {}
        """The same of tasks that it has not: it is to be told."""

    @property
    def is_empty(self) -> bool:
        """Return True if no graph has inputs to be told of."""
        return not (self._tasks or self._watched or self._owed)

    def expect(self, graph: int, tasks: Sequence[int]) -> None:
        """Note the tasks that the inputs of a graph are of."""
        self._tasks[graph] = tasks

    def answer(
        self,
        graph: int,
        wanted: Iterable[int],
        is_away: Callable[[int], bool],
        is_pending: Callable[[int], bool],
    ) -> list[int]:
        """The scheduler wants these inputs; return those to be supplied at once."""
        tasks = self._tasks.pop(graph, ())
        unmet = bytearray(len(tasks))
        for node in wanted:
            unmet[node] = 1
        supplied = []
        for node, task in enumerate(tasks):
            if not unmet[node]:
                if is_away(task):
                    self._watched.setdefault(task, []).append(graph + node)
            elif is_pending(task):
                self._owed.setdefault(task, []).append(graph + node)
            else:
                supplied.append(node)
        return supplied

    def is_here_again(self, task: int) -> None:
        """The scheduler has lost sight of a task: it is to be told."""
        if task in self._watched:
            self._owed.setdefault(task, []).extend(self._watched.pop(task))

    def pay(self, task: int) -> Sequence[int]:
        """A task comes back, or is given up; return the inputs that the scheduler waits for."""
        if not (self._watched or self._owed):
            return ()
        self._watched.pop(task, None)
        return self._owed.pop(task, ())

"""What stands for the inputs of graphs that the scheduler has not said it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.client.events import InputWanted
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class GraphInputs:
    """Keeps the inputs of each graph until the scheduler says which of them it has to be sent."""

    def __init__(self) -> None:
        self._inputs: dict[int, Sequence[object]] = {}

    def __bool__(self) -> bool:
        return bool(self._inputs)

    def expect(self, part: m.Graph, inputs: Sequence[object]) -> bool:
        """Note what the inputs of a graph are; return True if the scheduler will say something."""
        is_asked = any(task != m.SUPPLIED for task in numbers(part.inputs, "Q"))
        if is_asked:
            self._inputs[part.first] = inputs
        return is_asked

    def take(self, graph: int) -> Sequence[object]:
        """Return the inputs of a graph, of which the scheduler says no more."""
        return self._inputs.pop(graph, ())

    def again(
        self, parts: Iterable[m.Graph], inputs_of: Callable[[int], Sequence[object]]
    ) -> Iterator[InputWanted]:
        """Yield what is to be supplied: of all graphs, only these are about to be asked for.

        ``inputs_of`` knows the inputs of those that somebody waits for.
        """
        before, self._inputs = self._inputs, {}
        for part in parts:
            inputs = inputs_of(part.first) or before.get(part.first, ())
            self.expect(part, inputs)
            for node, (task, waiter) in enumerate(
                zip(numbers(part.inputs, "Q"), inputs, strict=False)
            ):
                if task == m.SUPPLIED:
                    yield InputWanted(part.first + node, waiter)

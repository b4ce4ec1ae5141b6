"""Random graphs of simulated tasks, and the messages that a client sends of them."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from scaler_cluster.testing.tasks import Task
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

OBJECTS = 6
"""How many different objects there are."""

NAMES = ("load", "mean", "sum")
"""What the nodes of simulated graphs are called, in turn."""


class SimulatedGraph:
    """Nodes, each of which takes the results of some before it; the first ones are inputs."""

    def __init__(
        self,
        nodes: Sequence[Task],
        inputs: int,
        wanted: Sequence[int],
        options: Sequence[m.TaskOptions],
        kinds: Sequence[int],
        *,
        is_shared: bool = False,
    ) -> None:
        self.nodes = nodes
        """What each does; of an input only the number counts."""
        self.inputs = inputs
        self.wanted = wanted
        self.options = options
        self.kinds = kinds
        """Which of the options each node has; empty: all have the first."""
        self.is_shared = is_shared
        """Workers keep large results until other workers need them."""

    def deeper(self, depth: int) -> SimulatedGraph:
        """Return the same for a task that submits it."""
        options = [replace(one, depth=depth) for one in self.options]
        return SimulatedGraph(
            self.nodes, self.inputs, self.wanted, options, self.kinds, is_shared=self.is_shared
        )

    @classmethod
    def draw(
        cls,
        dice: random.Random,
        name: bytes,
        count: int,
        inputs: int = 0,
        levels: int = 0,
        options: Sequence[m.TaskOptions] = (m.DEFAULT_OPTIONS,),
        *,
        is_large: bool = False,
    ) -> SimulatedGraph:
        """Make up a graph of so many nodes, each of which is needed or wanted."""
        nodes = [Task(name)] * inputs
        reach = dice.choice((2, 5, 1000))
        for node in range(inputs, count):
            low = max(node - reach, 0)
            some = min(dice.randint(0, 3), node - low)
            # A client sends no input that no node needs: so the first node needs all of them.
            needs = tuple(sorted(dice.sample(range(low, node), some)))
            if node == inputs:
                needs = tuple(range(inputs))
            objects = (dice.randrange(OBJECTS),) if is_large and dice.random() < 0.2 else ()
            nodes.append(Task(b"%s.%d" % (name, node), levels, is_large, needs, objects))
        needed = set(chain.from_iterable(node.needs for node in nodes))
        ends = [node for node in range(inputs, count) if node not in needed]
        others = [node for node in range(inputs, count) if dice.random() < 0.1]
        several = range(len(options))
        kinds = [dice.choice(several) for _ in nodes] if len(options) > 1 else []
        wanted = sorted({*ends, *others})
        return cls(nodes, inputs, wanted, options, kinds, is_shared=dice.random() < 0.6)

    def options_of(self, node: int) -> m.TaskOptions:
        """Return what is asked of a node."""
        return self.options[self.kinds[node] if self.kinds else 0]

    def sources(self) -> list[frozenset[int]]:
        """Return for each node those whose end can be its own: itself and all it needs."""
        found: list[frozenset[int]] = []
        for node, task in enumerate(self.nodes):
            needs = task.needs if node >= self.inputs else ()
            found.append(frozenset((node,)).union(*(found[one] for one in needs)))
        return found

    def messages(
        self,
        first: int,
        function: bytes,
        inputs: Sequence[int],
        objects: Mapping[int, bytes],
        parts: int = 1,
    ) -> Iterator[m.Graph]:
        """Yield what a client sends; ``inputs`` are tasks, ``objects`` ids by their number."""
        count = len(self.nodes)
        below = [task.needs if n >= self.inputs else () for n, task in enumerate(self.nodes)]
        uses = [int(node in self.wanted) for node in range(count)]
        for one in chain.from_iterable(below):
            uses[one] += 1
        size = max(-(-count // parts), self.inputs, 1)
        for start in range(0, count, size):
            stop = min(start + size, count)
            mine = range(start, stop)
            owned = [(n, one) for n in mine for one in self.nodes[n].objects if n >= self.inputs]
            yield m.Graph(
                first,
                start,
                function,
                () if start else tuple(self.options),
                Batch.of([b"" if n < self.inputs else self.nodes[n].payload for n in mine]),
                array("I", accumulate(len(below[n]) for n in mine)).tobytes(),
                array("I", chain.from_iterable(below[start:stop])).tobytes(),
                array("I", uses[start:stop]).tobytes(),
                bytes(n in self.wanted for n in mine),
                array("Q", inputs).tobytes() if not start else b"",
                tuple(objects[one] for _, one in owned),
                array("I", (n for n, _ in owned)).tobytes(),
                is_last=stop == count,
                kinds=array("I", self.kinds[start:stop]).tobytes(),
                is_shared=self.is_shared,
                names=() if start else NAMES,
                layers=bytes(n % len(NAMES) for n in mine),
            )

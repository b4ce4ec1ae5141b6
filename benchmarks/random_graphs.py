"""Random graphs, and what a plain evaluation, one node after the other, says of them.

Nodes nap, raise, return numbers, bytes or arrays of all sizes; they take each other, literals,
lists of those, large data, and futures of other graphs, of their own client or of another one.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.expected import Expected
from benchmarks.tasks import as_number, mix, mixed
from scaler_exec import Client

if TYPE_CHECKING:
    from concurrent.futures import Future

    from scaler_exec import ScalerExecutor

SIZES = (1, 5, 20, 60, 400)
REACHES = (1, 3, 1_000)
"""How far back a node looks for what it takes: chains, branches, or anything."""
NAPS_S = (0.0,) * 12 + (0.001, 0.005, 0.02)
FORMS = ("number",) * 12 + ("bytes", "array")
WORDS = (10, 1_000, 20_000)
"""Lengths of results in words of 8 bytes: inside of messages, or beside them."""
LITERALS = 1 << 30
"""Literals are above, keys that are numbers below."""
CLIENTS = 3
RECENT = 12
"""Graphs whose futures further ones take, or cancel; more than are under way at once."""


class Node:
    """A node of a graph, and what a plain evaluation says of it."""

    def __init__(self, name: int, graph: int = -1, value: int | None = None) -> None:
        self.name = name
        self.graph = graph
        self.below: list[Node] = []
        self.value = value
        """None if it must fail."""
        self.errors: frozenset[int] = frozenset()
        """Names of the nodes that raise, if it must fail: it does so with one of them."""
        self.future: Future[Any] | None = None
        """Its own, if it is wanted."""
        self.was_given_up = False
        """That future was cancelled by us, which changes nothing for others in its graph."""
        self.has_returned = graph < 0
        self.is_cancelled = False

    def evaluate(self, arguments: list[Any], *, raises: bool) -> None:
        """Find out what becomes of it, given its arguments."""
        failed = [one.errors for one in self.below if one.value is None]
        if failed:
            self.errors = frozenset().union(*failed)
        elif raises:
            self.errors = frozenset([self.name])
        else:
            self.value = mix(self.name, arguments)

    def needs(self, *, elsewhere: bool) -> list[Node]:
        """Return it and all that may be to blame for its end, also in other graphs or not."""
        found: dict[Node, None] = {}
        todo = [self]
        while todo:
            node = todo.pop()
            if node not in found and not node.has_returned:
                found[node] = None
                if elsewhere or node.graph == self.graph:
                    todo += node.below
        return list(found)


class NodeExpected(Expected):
    """The future of a node."""

    def __init__(self, future: Future[Any], node: Node) -> None:
        super().__init__(future, node.name, node.value)
        self._node = node

    def verdict(self) -> str:
        node, future = self._node, self.future
        if future.done():
            node.is_cancelled = future.cancelled()
            node.has_returned = not node.is_cancelled and future.exception() is None
        return super().verdict()

    def is_right(self, value: Any) -> bool:
        return self.value is not None and as_number(value) == self.value

    def may_fail_with(self, error: BaseException) -> bool:
        return type(error) is ValueError and error.args[0] in self._node.errors

    def may_be_cancelled(self) -> bool:
        """Return True if we did that, or cancelled a future that went into it.

        The graph of that future may not have been judged yet.
        """
        node = self._node
        return node.was_given_up or any(
            one.was_given_up or one.is_cancelled
            for one in node.needs(elsewhere=True)
            if one.graph != node.graph
        )

    def suspects(self) -> set[int]:
        return {one.name for one in self._node.needs(elsewhere=True)}


class RandomGraphs:
    """Several clients that run random graphs on one cluster."""

    def __init__(self, executor: ScalerExecutor, seed: int) -> None:
        self._seed = seed
        self._clients = [Client(executor.address) for _ in range(CLIENTS)]
        self._data = np.full(max(WORDS), LITERALS)
        self._references = [client.send_object(self._data) for client in self._clients]
        self._recent: deque[tuple[int, list[Node]]] = deque()

    def close(self) -> None:
        """Let the clients leave."""
        for client in self._clients:
            client.disconnect()

    def start(self, number: int) -> list[Expected]:
        """Start a graph, cancel some futures, and return what is to be expected."""
        dice = random.Random(self._seed + number)
        owner = dice.randrange(CLIENTS)
        graph, nodes = self._make(number, owner, dice)
        count = len(nodes) if dice.random() < 0.2 else min(len(nodes), dice.randint(1, 5))
        wanted = dict(dice.sample(list(nodes.items()), count))
        futures = self._clients[owner].get(graph, wanted, block=False)
        for key, node in wanted.items():
            node.future = futures[key]
        self._recent.append((owner, list(wanted.values())))
        if len(self._recent) > RECENT:
            for node in self._recent.popleft()[1]:
                node.future = None
        expected: list[Expected] = [
            NodeExpected(futures[key], node) for key, node in wanted.items()
        ]
        if dice.random() < 0.4:
            self._cancel_some(dice)
        return expected

    def _cancel_some(self, dice: random.Random) -> None:
        nodes = [node for _, wanted in self._recent for node in wanted]
        for node in dice.sample(nodes, min(len(nodes), dice.randint(1, 4))):
            if node.future is not None and not node.future.done() and node.future.cancel():
                node.was_given_up = True

    def _make(
        self, number: int, owner: int, dice: random.Random
    ) -> tuple[dict[Any, Any], dict[Any, Node]]:
        """Return a graph, and what is known of its nodes, by key."""
        graph: dict[Any, Any] = {}
        nodes: dict[Any, Node] = {}
        sources = self._sources(graph, number, owner, dice)
        size, reach, width = dice.choice(SIZES), dice.choice(REACHES), dice.randint(1, 3)
        raising = dice.sample(range(size), min(size, dice.choice((0, 0, 0, 1, 2))))
        for index in range(size):
            node = Node(LITERALS + 1_000 * number + index, number)
            key = dice.choice((index, f"node {index}", ("node", index)))
            near = sources[-reach:]
            chosen = dice.choices(near, k=dice.randint(0, width)) if near else []
            if reach == 1 and sources:
                chosen = sources[-1:]
            elif index == size - 1 and dice.random() < 0.3:
                chosen = sources
            arguments, values = self._arguments(chosen, dice)
            node.below = [one for _, one in chosen]
            node.evaluate(values, raises=index in raising)
            form = "raises" if index in raising else dice.choice(FORMS)
            # In a tuple, as what is no key by itself.
            how = (node.name, dice.choice(NAPS_S), form, dice.choice(WORDS))
            graph[key] = (mixed, how, *arguments)
            nodes[key] = node
            sources.append((key, node))
        return graph, nodes

    def _sources(
        self, graph: dict[Any, Any], number: int, owner: int, dice: random.Random
    ) -> list[tuple[Any, Node]]:
        """Return what nodes may take beside each other, by what stands for it in a graph."""
        known = [(LITERALS + 5, LITERALS + 5), (self._data, LITERALS)]
        sources = [(literal, Node(-1, value=value)) for literal, value in known]
        graph |= {"one": 1, "data": self._data, "sent": self._references[owner]}
        sources += [("one", Node(-1, value=1)), ("data", Node(-1, value=LITERALS))]
        # Within a list a task brings it, whose worker may die.
        sources.append(("sent", Node(-number, number, LITERALS)))
        sources = dice.sample(sources, dice.randint(0, 2))
        futures = [
            (node.future, node)
            for of, wanted in self._recent
            for node in wanted
            # That of another client must have come back.
            if node.future is not None and (of == owner or node.future.done())
        ]
        for future, node in dice.sample(futures, min(len(futures), dice.choice((0, 0, 1, 2, 5)))):
            if dice.random() < 0.5:
                graph["input", node.name] = future
                sources.append((("input", node.name), node))
            else:
                sources.append((future, node))
        return sources

    def _arguments(
        self, chosen: list[tuple[Any, Node]], dice: random.Random
    ) -> tuple[list[Any], list[Any]]:
        """Return arguments, some of them in lists, and the same with values for what is a key."""
        arguments: list[Any] = [one for one, _ in chosen]
        values: list[Any] = [node.value for _, node in chosen]
        if chosen and dice.random() < 0.3:
            cut = dice.randrange(len(chosen))
            arguments[cut:] = [[LITERALS, arguments[cut:]]]
            values[cut:] = [[LITERALS, values[cut:]]]
        return arguments, values

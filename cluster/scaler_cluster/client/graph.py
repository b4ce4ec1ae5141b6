"""A graph as its user wrote it: what the wanted keys need, each after what it depends on.

One branch comes after the other, so that few results wait for others at any time.
"""

from __future__ import annotations

import graphlib
from typing import TYPE_CHECKING, Any

from scaler_cluster.client.future import ScalerFuture
from scaler_cluster.nodes import Call, Ref, Result
from scaler_cluster.payload import ObjectReference
from scaler_cluster.texts import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scaler_cluster.client.serializer import Serialization


class Node:
    """A call of the graph, and what it depends on."""

    __slots__ = ("args", "dependencies", "function", "holes", "kwargs", "nested")

    def __init__(
        self,
        function: Callable[..., Any],
        args: list[Any],
        holes: list[Any],
        kwargs: dict[str, Any] | None,
        nested: list[Nested],
    ) -> None:
        self.function = function
        self.args = args
        self.holes = holes
        """Positions in ``args``, each followed by the key (later the number) of what goes there."""
        self.kwargs = kwargs
        self.nested = nested
        """What stands deeper in its arguments for other nodes."""
        self.dependencies: list[Any] = holes[1::2]
        if nested:
            self.dependencies += [one.key for one in nested]

    def rename(self, end_of: Callable[[Any], Any]) -> None:
        """Let keys be what they stand for."""
        self.holes[1::2] = map(end_of, self.holes[1::2])
        for one in self.nested:
            one.key = end_of(one.key)
        self.dependencies = self.holes[1::2] + [one.key for one in self.nested]

    def serialize(self, serialization: Serialization) -> None:
        """Let the user's serializer make bytes of the arguments that are whole values."""
        holes = set(self.holes[::2])
        for index, arg in enumerate(self.args):
            if index not in holes and not (self.nested and type(arg) in (list, tuple, dict)):
                self.args[index] = serialization.value(arg)


class Nested:
    """Stands for a key anywhere below the arguments of a node; see :class:`Result`."""

    __slots__ = ("key", "value")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.value: Any = None

    def __reduce__(self) -> Any:
        value = self.value
        if type(value) is Result:
            return value.__reduce__()
        # A copy of the value, pickled where it stands.
        return itself, (value,)


def itself(value: Any) -> Any:
    """Return the value: a node that brings it."""
    return value


class GraphCycle(graphlib.CycleError):
    """Nodes depend on each other; the second argument is the list of their keys.

    Each needs the next one, and the last is the first again.
    """

    def __init__(self, keys: list[Any]) -> None:
        super().__init__("nodes depend on each other", keys)

    def __str__(self) -> str:
        """Return the keys with arrows; of a long cycle the first ones and the last."""
        keys = self.args[1]
        texts = [shown(key) for key in keys[:CYCLE_KEYS_MAX]]
        if len(keys) > CYCLE_KEYS_MAX:
            texts += [f"({len(keys) - CYCLE_KEYS_MAX - 1} more)", shown(keys[-1])]
        return f"{self.args[0]}: {' -> '.join(texts)}"

    def __reduce__(self) -> Any:
        return GraphCycle, (self.args[1],)


_DONE, _ALIAS = object(), object()
CYCLE_KEYS_MAX = 10
"""So many keys of a cycle are shown."""


class Arrangement:
    """What the wanted keys need: ``nodes`` by key in the order to run them, and plain values."""

    def __init__(self, graph: Mapping[Any, Any], keys: Iterable[Any]) -> None:
        self.graph = graph
        self.nodes: dict[Any, Node] = {}
        self.values: dict[Any, Any] = {}
        """Data, by key."""
        self.aliases: dict[Any, Any] = {}
        """Keys that stand for another one."""
        self.futures: dict[Any, ScalerFuture[Any]] = {}
        """Futures whose results are needed, by what names them: themselves, or a key."""
        self._met: dict[Any, Any] = {}
        """Keys that were come to: _DONE; while its needs are looked at, its node or _ALIAS."""
        self._brought: dict[Any, Ref] = {}
        """Keys of the nodes that bring what references stand for, by the keys of those."""
        for key in keys:
            if key not in graph:
                raise KeyError(key)
            self._visit(key)

    def _visit(self, wanted: Any) -> None:
        """Take in a key after all that it needs; without recursion, as chains are long."""
        graph, met = self.graph, self._met
        stack = [wanted]
        while stack:
            key = stack[-1]
            node = met.get(key)
            if node is not None:
                del stack[-1]
                if node is not _DONE:
                    # All that it needs is there.
                    met[key] = _DONE
                    if node is _ALIAS:
                        self.aliases[key] = graph[key].key
                    else:
                        if node.nested:
                            self._bring_nested(node)
                        self.nodes[key] = node
                continue
            spec = graph[key]
            kind = type(spec)
            if kind is tuple and spec and callable(spec[0]):
                node = self._task(spec)
                below = node.dependencies
            elif kind is Call:
                node = self.call(spec)
                below = node.dependencies
            elif kind is Ref:
                self._known(spec.key)
                node, below = _ALIAS, [spec.key]
            else:
                if isinstance(spec, ScalerFuture):
                    self.futures[key] = spec
                else:
                    self.values[key] = spec
                met[key] = _DONE
                del stack[-1]
                continue
            met[key] = node
            for one in reversed(below):
                known = met.get(one)
                if known is None:
                    stack.append(one)
                elif known is not _DONE:
                    raise self._cycle(wanted)

    def _add_future(self, future: ScalerFuture[Any]) -> None:
        self.futures[future] = future
        self._met[future] = _DONE

    def bring(self, key: Any) -> Ref:
        """Return the key of a node that returns what a reference stands for."""
        if key not in self._brought:
            brought = self._brought[key] = Ref(key)
            self.nodes[brought] = Node(itself, [self.values[key]], [], None, [])
        return self._brought[key]

    def _bring_nested(self, node: Node) -> None:
        """Let a node take what references stand for: they can be arguments, but not inside of one.

        All that it needs is there.
        """
        for one in node.nested:
            end = self.end_of(one.key)
            if type(self.values.get(end)) is ObjectReference:
                one.key = self.bring(end)
                node.rename(self.end_of)

    def _known(self, key: Any) -> None:
        if key not in self.graph:
            raise KeyError(key)

    def _task(self, spec: tuple[Any, ...]) -> Node:
        """Return the node that ``(function, *args)`` is: what names a key stands for it."""
        graph = self.graph
        args = list(spec)
        function = args[0]
        del args[0]
        holes: list[Any] = []
        nested: list[Nested] = []
        for index, arg in enumerate(args):
            kind = type(arg)
            try:
                named = arg in graph
            except TypeError:
                named = False
            if named:
                holes += index, arg
            elif kind is str:
                raise KeyError(arg)
            elif kind is list:
                args[index] = self._list(arg, nested)
            elif isinstance(arg, ScalerFuture):
                self._add_future(arg)
                holes += index, arg
        return Node(function, args, holes, None, nested)

    def _list(self, items: list[Any], nested: list[Nested]) -> list[Any]:
        graph = self.graph
        out: list[Any] = []
        for item in items:
            try:
                named = item in graph
            except TypeError:
                named = False
            if named:
                nested.append(Nested(item))
                out.append(nested[-1])
            elif type(item) is str:
                raise KeyError(item)
            elif type(item) is list:
                out.append(self._list(item, nested))
            elif isinstance(item, ScalerFuture):
                self._add_future(item)
                nested.append(Nested(item))
                out.append(nested[-1])
            else:
                out.append(item)
        return out

    def call(self, call: Call) -> Node:
        """Return the node that a Call is: only what is a Ref, or a future, stands for another."""
        holes: list[Any] = []
        nested: list[Nested] = []
        args = list(call.args)
        for index, arg in enumerate(args):
            kind = type(arg)
            if kind is Ref:
                self._known(arg.key)
                holes += index, arg.key
            elif kind is list or kind is tuple or kind is dict:
                args[index] = self._deep(arg, nested)
            elif isinstance(arg, ScalerFuture):
                self._add_future(arg)
                holes += index, arg
        kwargs = call.kwargs and {
            name: self._deep(value, nested) for name, value in call.kwargs.items()
        }
        return Node(call.function, args, holes, kwargs, nested)

    def _deep(self, value: Any, nested: list[Nested]) -> Any:
        kind = type(value)
        if kind is Ref:
            self._known(value.key)
            nested.append(Nested(value.key))
            return nested[-1]
        if kind is list or kind is tuple:
            return kind([self._deep(one, nested) for one in value])
        if kind is dict:
            return {name: self._deep(one, nested) for name, one in value.items()}
        if isinstance(value, ScalerFuture):
            self._add_future(value)
            nested.append(Nested(value))
            return nested[-1]
        return value

    def _cycle(self, wanted: Any) -> Exception:
        """Return the error of a cycle, which graphlib finds."""
        sorter: graphlib.TopologicalSorter[Any] = graphlib.TopologicalSorter()
        todo, seen = [wanted], {wanted}
        while todo:
            key = todo.pop()
            spec = self.graph[key]
            kind = type(spec)
            below: list[Any] = []
            if kind is tuple and spec and callable(spec[0]):
                below = self._task(spec).dependencies
            elif kind is Call:
                below = self.call(spec).dependencies
            elif kind is Ref:
                below = [spec.key]
            below = [one for one in below if not isinstance(one, ScalerFuture)]
            sorter.add(key, *below)
            for one in below:
                if one not in seen:
                    seen.add(one)
                    todo.append(one)
        try:
            sorter.prepare()
        except graphlib.CycleError as error:
            return GraphCycle(error.args[1][::-1])
        raise AssertionError("no cycle")

    def end_of(self, key: Any) -> Any:
        """Return the key that a key stands for."""
        while key in self.aliases:
            key = self.aliases[key]
        return key

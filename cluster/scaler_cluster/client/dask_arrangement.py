"""What keys of a graph of Dask need: its tasks are read as they are, once, when they are met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask import _task_spec as spec

from scaler_cluster.client.dask_persisted import Persisted
from scaler_cluster.client.dask_subgraphs import (
    call_task,
    chain_of,
    compiled,
    execute_subgraph,
    run_subgraph,
)
from scaler_cluster.client.graph import (
    FLAT,
    FUTURES,
    NEW,
    KeyedArrangement,
    Nested,
    future_of,
    step_of,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from scaler_cluster.client.dask_subgraphs import Subgraph
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.graph import Step

_identity_cast = spec._identity_cast
_NOTHING: tuple[Any, Subgraph | None] = None, None


class DaskArrangement(KeyedArrangement):
    """The arrangement of a graph of Dask's tasks, aliases and data."""

    def __init__(self, graph: Mapping[Any, Any], keys: Iterable[Any]) -> None:
        self._names: dict[int, dict[Any, int]] = {}
        """What keys mean to tasks that stand within another one."""
        self._subgraphs: dict[int, tuple[Any, Subgraph | None]] = {}
        """Graphs that were met within tasks, by their identity; a function once met again."""
        super().__init__(graph, keys)

    @staticmethod
    def futures_of(graph: Mapping[Any, Any]) -> list[ScalerFuture[Any]]:
        """Return the futures that are values of a graph, or stand in its data."""
        others = (_value(node) for node in graph.values() if type(node) is not spec.Task)
        return [future_of(value) for value in others if isinstance(value, FUTURES)]

    def _meet(self, key: Any, node: Any) -> int:
        if type(node) is not spec.Task:
            node = self._node(key)
            if type(node) is spec.Alias:
                return self._follow(key)
            node = _value(node)
        if isinstance(node, spec.GraphNode):
            number = self._add(key, node, NEW)
        else:
            number = self._add_data(key, node)
        self.numbers[key] = number
        return number

    def _node(self, key: Any) -> Any:
        """Return the node of a key, or what is no node; raises KeyError."""
        node = self.graph[key]
        if not isinstance(node, spec.GraphNode):
            # Users still write tuples.
            node = spec.convert_legacy_task(key, node, self.graph)
        if type(node) is spec.Alias and node.target == key:
            raise KeyError(key)
        return node

    def _target(self, key: Any) -> tuple[Any] | None:
        node = self._node(key)
        return (node.target,) if type(node) is spec.Alias else None

    def _needs(self, key: Any) -> list[Any]:
        return list(getattr(self._node(key), "dependencies", ()))

    def _read(self, number: int) -> Step:
        return self._task_step(self.steps[number], self.keys[number], self._names.get(number))

    def _task_step(self, task: Any, key: Any, names: dict[Any, int] | None) -> Step:
        """Return the call that a task is; ``names`` say what the keys in its arguments mean."""
        if type(task) is not spec.Task:
            return self._whole(task, names)
        if task.func is execute_subgraph and type(task.args[0]) is dict:
            return self._read_subgraph(task, key, names)
        return self._fill(task, task.func, list(task.args), names)

    def _fill(
        self, task: Any, function: Any, args: list[Any], names: dict[Any, int] | None
    ) -> Step:
        """Return the call of a function with arguments of a task."""
        known = self.numbers if names is None else names
        holes: list[int] = []
        nested: list[Nested] = []
        try:
            for index, arg in enumerate(args):
                kind = type(arg)
                if kind in FLAT:
                    continue
                if kind is spec.TaskRef or kind is spec.Alias:
                    named = arg.key if kind is spec.TaskRef else arg.target
                    number = known.get(named)
                    if number is None:
                        number = self._meet(named, self.graph[named])
                elif kind is Persisted or isinstance(arg, FUTURES):
                    number = self._add_future(_value(arg))
                else:
                    args[index] = self._argument(arg, nested, known)
                    continue
                args[index] = None
                holes += index, number
            kwargs = task.kwargs and {
                name: one if type(one) in FLAT else self._argument(one, nested, known)
                for name, one in task.kwargs.items()
            }
        except _TooDeep:
            return self._whole(task, names)
        return step_of(function, args, holes, kwargs or None, nested)

    def _whole(self, task: Any, names: dict[Any, int] | None) -> Step:
        """Return the call that lets Dask run a task."""
        keys: list[Any] = list(task.dependencies)
        holes: list[int] = []
        for index, key in enumerate(keys, 2):
            holes += index, self._named(key, names)
        return step_of(call_task, [task, keys, *[None] * len(keys)], holes, None, [])

    def _read_subgraph(self, task: Any, key: Any, names: dict[Any, int] | None) -> Step:
        """Return the call of a subgraph, or the last one of the chain that it is.

        One that only one task has travels with that; the blocks of a layer share another one.
        """
        inner, end, inputs, *values = task.args
        met, subgraph = self._subgraphs.get(id(inner), _NOTHING)
        if met is inner:
            if subgraph is None:
                subgraph = compiled(inner, end, inputs)
                self._subgraphs[id(inner)] = inner, subgraph
            return self._fill(task, subgraph, values, names)
        self._subgraphs[id(inner)] = inner, None
        chain = chain_of(inner, end)
        if chain and all(type(one) is spec.TaskRef for one in values):
            names = {
                name: self._named(one.key, names) for name, one in zip(inputs, values, strict=True)
            }
            for name in chain[:-1]:
                number = self._add(key, inner[name], NEW)
                self._names[number] = names
                names = {name: number}
            return self._task_step(inner[end], key, names)
        return self._fill(task, run_subgraph, [compiled(inner, end, inputs), *values], names)

    def _named(self, key: Hashable, names: dict[Any, int] | None) -> int:
        return self._number(key) if names is None else names[key]

    def _argument(self, value: Any, nested: list[Nested], known: dict[Any, int]) -> Any:
        """Return an argument, in which something stands for the values of keys."""
        kind = type(value)
        if kind is spec.TaskRef or kind is spec.Alias:
            named = value.key if kind is spec.TaskRef else value.target
            number = known.get(named)
            if number is None:
                number = self._meet(named, self.graph[named])
            nested.append(Nested(number))
            return nested[-1]
        if kind is Persisted or kind is spec.DataNode or not isinstance(value, spec.GraphNode):
            return self._deep(_value(value), nested)
        if kind is spec.Task and value.func is _identity_cast:
            # A list or tuple of a graph of tuples.
            container = value.kwargs.get("typ")
        else:
            container = _CONTAINERS.get(kind)
        if container not in _CONTAINERS.values():
            raise _TooDeep
        args = [
            one if type(one) in FLAT else self._argument(one, nested, known) for one in value.args
        ]
        if container is dict:
            return dict(zip(args[::2], args[1::2], strict=True))
        return container(args)


_CONTAINERS: dict[type, type] = {spec.List: list, spec.Tuple: tuple, spec.Dict: dict}


class _TooDeep(Exception):
    """A call stands within the arguments of another."""


def _value(node: Any) -> Any:
    """Return what a node stands for that is data; anything else as it is."""
    kind = type(node)
    if kind is Persisted:
        return node.future
    return node.value if kind is spec.DataNode else node

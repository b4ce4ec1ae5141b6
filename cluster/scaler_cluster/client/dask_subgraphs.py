"""Dask's tasks that are graphs themselves, as functions of ours.

Dask makes one task of several by fusing them: a call of ``_execute_subgraph`` with the tasks
inside, which it puts in order anew each time that one runs. All blocks of a layer share the inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from dask import _task_spec as spec

from scaler_cluster.pickling.constant import Constant
from scaler_cluster.pickling.payload import function_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    Call: TypeAlias = tuple[Callable[..., Any], list[Any], list[int], dict[str, Any]]
    """Function, args, pairs of a position in these and the value that goes there, and kwargs."""
    Move: TypeAlias = tuple[Callable[..., Any], list[Any], list[int], dict[str, Any], list[int]]
    """The same, and the values that nothing needs from then on."""

execute_subgraph = spec._execute_subgraph
_REFERENCES = frozenset((spec.TaskRef, spec.Alias))
_SIMPLE = _REFERENCES | {spec.DataNode}


class Subgraph(Constant):
    """A function that runs tasks of Dask, one after the other, and returns what the last returns.

    Its values are numbered: what it is called with, and what each task returned.
    """

    __slots__ = ("_moves",)

    def __init__(self, moves: list[Move]) -> None:
        self._moves = moves

    @property
    def label(self) -> str:
        """The name of the function that makes what it returns."""
        return function_name(self._moves[-1][0])

    def __call__(self, *values: Any) -> Any:
        known = list(values)
        del values
        value = None
        for function, args, holes, kwargs, done in self._moves:
            filled = list(args)
            for index in range(0, len(holes), 2):
                filled[holes[index]] = known[holes[index + 1]]
            for one in done:
                known[one] = None
            value = function(*filled, **kwargs)
            del filled
            known.append(value)
        return value

    def __reduce__(self) -> Any:
        return Subgraph, (self._moves,)


def run_subgraph(subgraph: Subgraph, *values: Any) -> Any:
    """Call a subgraph that only one node has."""
    return subgraph(*values)


def call_task(task: Any, keys: list[Any], *values: Any) -> Any:
    """Let Dask run a task of its own."""
    return task(dict(zip(keys, values, strict=True)))


def compiled(inner: Mapping[Hashable, Any], end: Hashable, inputs: Sequence[Hashable]) -> Subgraph:
    """Return the function that ``_execute_subgraph`` with these arguments is of the others."""
    order = _ordered(inner, end)
    known = {key: number for number, key in enumerate([*inputs, *order])}
    calls = [_call(inner[key], known) for key in order]
    last_use = {one: place for place, call in enumerate(calls) for one in call[2][1::2]}
    moves: list[Move] = []
    for place, (function, args, holes, kwargs) in enumerate(calls):
        done = [one for one in dict.fromkeys(holes[1::2]) if last_use[one] == place]
        moves.append((function, args, holes, kwargs, done))
    return Subgraph(moves)


def _ordered(inner: Mapping[Hashable, Any], end: Hashable) -> list[Hashable]:
    """Return the keys of the tasks, each after what it needs."""
    order: dict[Hashable, None] = {}
    todo = [end]
    while todo:
        key = todo[-1]
        missing = [one for one in inner[key].dependencies if one in inner and one not in order]
        if missing:
            todo += missing
        else:
            order[todo.pop()] = None
    return list(order)


def _call(task: Any, known: Mapping[Hashable, int]) -> Call:
    if type(task) is spec.Task:
        function, args = task.func, list(task.args)
        if function is execute_subgraph and type(args[0]) is dict:
            function, args = compiled(*args[:3]), args[3:]
        if _is_flat(args, task.kwargs):
            holes: list[int] = []
            for index, arg in enumerate(args):
                kind = type(arg)
                if kind is spec.DataNode:
                    args[index] = arg.value
                elif kind in _REFERENCES:
                    holes += index, known[arg.key if kind is spec.TaskRef else arg.target]
                    args[index] = None
            return function, args, holes, task.kwargs
    keys = list(task.dependencies)
    holes = [one for index, key in enumerate(keys, 2) for one in (index, known[key])]
    return call_task, [task, keys, *[None] * len(keys)], holes, {}


def _is_flat(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return True if what stands for the value of a key is an argument of its own."""
    nodes = spec.GraphNode, spec.TaskRef
    return not (
        any(isinstance(arg, nodes) and type(arg) not in _SIMPLE for arg in args)
        or any(isinstance(arg, nodes) for arg in kwargs.values())
    )


def chain_of(inner: Mapping[Hashable, Any], end: Hashable) -> list[Hashable]:
    """Return the keys of a subgraph in order if its tasks are a chain, otherwise none.

    In a chain each task but the first takes what the one before returned, as an argument of its
    own, and nothing else that comes from elsewhere.
    """
    keys = [end]
    task = inner[end]
    while not (needed := task.dependencies).isdisjoint(inner):
        if len(needed) > 1 or type(task) is not spec.Task or len(keys) == len(inner):
            return []
        if not _is_flat(task.args, task.kwargs):
            return []
        keys += needed
        task = inner[keys[-1]]
    return keys[::-1] if len(keys) == len(inner) and type(task) is spec.Task else []

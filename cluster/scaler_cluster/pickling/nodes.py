"""What the payload of a graph's node holds, and how a worker makes a call of it.

A payload is the pickle of a *fused step* ``(function, args, holes, kwargs)``, or of a list of them:
a chain, in which each step takes what the one before returned. ``function`` is an index into the
graph's table of functions (None: the table is the function itself). ``holes`` are pairs of a
position in ``args`` and the node whose result goes there (PREVIOUS: the step before). A
:class:`Result` stands for one anywhere deeper.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, TypeAlias

from scaler_cluster.core.worker.kept_results import KeptResults, Pickled
from scaler_cluster.pickling.constant import Constant
from scaler_cluster.pickling.payload import function_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from scaler_cluster.wire.batch import Buffer

    Values: TypeAlias = dict[int, tuple[Buffer, tuple[bytes, ...]]]

FusedStep: TypeAlias = "tuple[int | None, list[Any], tuple[int, ...], dict[str, Any] | None]"

PREVIOUS = -1
LABELLED_MAX = 4
"""Functions of a graph that stand in its name."""


class Ref:
    """Stands for the result of another node, in the arguments of a :class:`Call`."""

    __slots__ = ("key",)

    def __init__(self, key: Hashable) -> None:
        self.key = key

    def __repr__(self) -> str:
        return f"Ref({self.key!r})"


class Call:
    """A node that calls a function; a :class:`Ref` may stand anywhere in its lists and dicts."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"Call({self.function!r}, {self.args!r}, {self.kwargs!r})"


class Result:
    """Stands for the result of a node where that is pickled; unpickled, it is the result."""

    __slots__ = ("node",)

    def __init__(self, node: int) -> None:
        self.node = node

    def __reduce__(self) -> Any:
        return fetch, (self.node,)


class FunctionTable(Constant):
    """The functions of a graph; where it is unpickled, a list of them."""

    __slots__ = ("functions",)

    def __init__(self, functions: list[Callable[..., Any]]) -> None:
        self.functions = functions

    @property
    def label(self) -> str:
        """The names of some of them; nodes have names of their own."""
        names = list(dict.fromkeys(map(function_name, self.functions[:LABELLED_MAX])))
        more = ", ..." if len(self.functions) > LABELLED_MAX else ""
        return ", ".join(names) + more

    def __reduce__(self) -> Any:
        return list, (self.functions,)


class NotReturned(Exception):
    """A node is to be run whose dependency did not return on this worker."""


class NodeLoader:
    """Makes calls of payloads, for one work of nodes.

    ``values`` are the results that came with the nodes, ``kept`` those of nodes that ran here.
    """

    __slots__ = ("_functions", "_kept", "_loads", "_map", "_map_once", "_values", "taken")

    def __init__(
        self,
        functions: Any,
        values: Values,
        kept: KeptResults,
        loads: Callable[[Any], Any],
        map_segments: Callable[[tuple[bytes, ...]], list[memoryview]],
        map_once: Callable[[tuple[bytes, ...]], list[memoryview]],
    ) -> None:
        self._functions = functions
        self._values = values
        self._kept = kept
        self.taken: dict[int, None] = {}
        """Large results that the node takes which was loaded last."""
        self._loads = loads
        self._map = map_segments
        self._map_once = map_once

    def load(self, payload: Buffer) -> tuple[Any, ...]:
        """Return function, arguments and keyword arguments of the call that a payload is."""
        _loaders[0] = self
        self.taken.clear()
        link = self._loads(payload)
        if type(link) is list:
            for index, (name, args, holes, kwargs) in enumerate(link):
                link[index] = self._function(name), self._fill(args, holes), kwargs, holes
            return run_chain, (link,), {}
        name, args, holes, kwargs = link
        if holes:
            self._fill(args, holes)
        return self._functions if name is None else self._functions[name], args, kwargs or {}

    def _function(self, name: int | None) -> Any:
        return self._functions if name is None else self._functions[name]

    def _fill(self, args: list[Any], holes: tuple[int, ...]) -> list[Any]:
        for index in range(0, len(holes), 2):
            node = holes[index + 1]
            if node != PREVIOUS:
                args[holes[index]] = self.value(node)
        return args

    def value(self, node: int) -> Any:
        """Return what a node returned; raises NotReturned.

        What was kept as it is, is returned as it is; else it is a new instance each time.
        """
        kept = self._kept
        if node in kept.values:
            found = kept.values[node]
            if node in kept.uses:
                self.taken[node] = None
            if type(found) is not Pickled:
                return found
            payload, segments = found
            views = self._map_once
        elif node in self._values:
            payload, segments = self._values[node]
            views = self._map
        else:
            raise NotReturned
        if segments:
            return pickle.loads(payload, buffers=views(segments))
        return pickle.loads(payload)


_loaders: list[NodeLoader | None] = [None]
"""The loader of the payload that is being unpickled, or was last."""


def fetch(node: int) -> Any:
    """Return the result of a node, while the payload of one that needs it is unpickled."""
    loader = _loaders[0]
    if loader is None:
        raise NotReturned
    return loader.value(node)


def call_with(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Make one call of a chunk, whose arguments were pickled by themselves."""
    return function(*args)


def call_node(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Make the call that :meth:`NodeLoader.load` returned."""
    return function(*args, **kwargs)


def run_chain(links: list[Any]) -> Any:
    """Call the links of a chain, one after the other."""
    value = None
    for function, args, kwargs, holes in links:
        for index in range(0, len(holes), 2):
            if holes[index + 1] == PREVIOUS:
                args[holes[index]] = value
        value = function(*args, **(kwargs or {}))
    return value

"""A graph as its user wrote it: what the wanted keys need, each after what it depends on.

One branch comes after the other, so that few results wait for others at any time. Keys are looked
up once, where they are met: from there on each is a number.
"""

from __future__ import annotations

import contextlib
import gc
import graphlib
from typing import TYPE_CHECKING, Any, TypeAlias

from scaler_cluster.client.future import FutureHandle, ScalerFuture
from scaler_cluster.client.key_prefixes import prefix_of
from scaler_cluster.pickling.nodes import Call, Ref, Result, fetch
from scaler_cluster.pickling.payload import SIMPLE, ObjectReference, function_name
from scaler_cluster.texts import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Step: TypeAlias = """tuple[
    Callable[..., Any], list[Any], list[int], dict[str, Any] | None, list[Nested], list[int]
]"""
"""A call: function, args, pairs of a position in these and the number of what goes there, kwargs,
what stands deeper for other results, and the numbers of all that it depends on, each once."""

FLAT = SIMPLE | {slice, range, type(Ellipsis)}
"""Types of values in which nothing can stand for a result."""
FUTURES = (ScalerFuture, FutureHandle)
"""What stands for the result of a task that was submitted before."""


class Nested(Result):
    """Stands for a key anywhere below the arguments of a call.

    When that is pickled, ``node`` is where its result comes from; negative: it is a value.
    """

    __slots__ = ("number", "value")

    def __init__(self, number: int) -> None:
        self.node = -1
        self.number = number
        self.value: Any = None

    def __reduce__(self) -> Any:
        if self.node >= 0:
            return fetch, (self.node,)
        # A copy of the value, pickled where it stands.
        return itself, (self.value,)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from looking again and again at what is made and stays.

    With 100,000 nodes that takes as long as making them. It is the process's; so not for long.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


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


CYCLE_KEYS_MAX = 10
"""So many keys of a cycle are shown."""
_NOWHERE = object()
NEW, _OPEN, _DONE = range(3)
"""What became of a number: met only, its needs are looked at, all of them are there."""


class Arrangement:
    """What the wanted keys need: calls in the order to run them, futures and plain values.

    What is met first gets the next number. A key that stands for another one has its number.
    """

    def __init__(self, graph: Mapping[Any, Any], keys: Iterable[Any]) -> None:
        self.graph = graph
        self.numbers: dict[Any, int] = {}
        """The number of each key, and of each future that is an argument."""
        self.keys: list[Any] = []
        """The key of each number; several calls have one key where that stands for them all."""
        self.steps: list[Any] = []
        """For each number its Step; before it is looked at, what was written; None: no call."""
        self.order: list[int] = []
        """The calls, in the order to run them."""
        self.values: dict[int, Any] = {}
        self.futures: dict[int, ScalerFuture[Any]] = {}
        self._states = bytearray()
        self._follows = True
        """Whether a key is taken for what it stands for."""
        self._brought: dict[int, int] = {}
        """The calls that bring what references stand for, by the numbers of those."""
        for key in keys:
            if key not in graph:
                raise KeyError(key)
            number = self._number(key)
            if not self._states[number]:
                self._visit(number, key)

    @staticmethod
    def futures_of(graph: Mapping[Any, Any]) -> list[ScalerFuture[Any]]:
        """Return the futures that are values of a graph."""
        return [future_of(value) for value in graph.values() if isinstance(value, FUTURES)]

    def by_number(self, said: Mapping[Any, Any]) -> dict[int, Any]:
        """Return what is said of keys, by the numbers of their calls."""
        keys = self.keys
        return {number: said[keys[number]] for number in self.order if keys[number] in said}

    def kind_of(self, number: int) -> Any:
        """Return what calls have in common that are counted together; it can be a key of a dict."""
        return id(self.steps[number][0])

    def name_of(self, number: int) -> str:
        """Return the name under which a call is counted."""
        return function_name(self.steps[number][0])

    def bring(self, number: int) -> int:
        """Return the number of a call that returns what a reference stands for."""
        if number not in self._brought:
            step: Step = (itself, [self.values[number]], [], None, [], [])
            self._brought[number] = self._add(self.keys[number], step, _DONE)
            self.order.append(self._brought[number])
        return self._brought[number]

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> int:
        """Return the number of a call of its own, which is the last to run."""
        number = self._add(None, None, _DONE)
        self.steps[number] = self._call(Call(function, args, kwargs))
        self.order.append(number)
        return number

    def _number(self, key: Any) -> int:
        """Return the number of a key; raises KeyError."""
        number = self.numbers.get(key)
        return self._meet(key, self.graph[key]) if number is None else number

    def _meet(self, key: Any, spec: Any) -> int:
        """Give a key of the graph its number; raises KeyError."""
        if type(spec) is Ref and self._follows:
            return self._follow(key)
        if type(spec) is Call or (type(spec) is tuple and spec and callable(spec[0])):
            number = self.numbers[key] = self._add(key, spec, NEW)
        else:
            number = self.numbers[key] = self._add_data(key, spec)
        return number

    def _follow(self, key: Any) -> int:
        """Give a key that stands for another one the number of that."""
        aliases = {}
        end = key
        while (target := self._target(end)) is not None:
            if end in aliases:
                raise self._cycle(key)
            aliases[end] = end = target[0]
        number = self._number(end)
        self.numbers.update(dict.fromkeys(aliases, number))
        return number

    def _target(self, key: Any) -> tuple[Any] | None:
        """Return what a key stands for, if it does."""
        spec = self.graph[key]
        return (spec.key,) if type(spec) is Ref else None

    def _add(self, key: Any, step: Any, state: int) -> int:
        number = len(self.keys)
        self.keys.append(key)
        self.steps.append(step)
        self._states.append(state)
        return number

    def _add_data(self, key: Any, value: Any) -> int:
        number = self._add(key, None, _DONE)
        if isinstance(value, FUTURES):
            self.futures[number] = future_of(value)
        else:
            self.values[number] = value
        return number

    def _add_future(self, given: ScalerFuture[Any] | FutureHandle) -> int:
        future = future_of(given)
        number = self.numbers.get(future)
        if number is None:
            number = self.numbers[future] = self._add_data(future, future)
        return number

    def _visit(self, wanted: int, name: Any) -> None:
        """Take in a call after all that it needs; without recursion, as chains are long."""
        states, steps, order, read = self._states, self.steps, self.order, self._read
        stack = [wanted]
        while stack:
            number = stack.pop()
            if number < 0:
                # All that it needs is there.
                number = ~number
            elif states[number]:
                continue
            else:
                step = steps[number] = read(number)
                missing = [one for one in step[5] if states[one] != _DONE]
                if missing:
                    states[number] = _OPEN
                    stack.append(~number)
                    for one in reversed(missing):
                        if states[one]:
                            raise self._cycle(name)
                        stack.append(one)
                    continue
            if steps[number][4]:
                self._bring_nested(number)
            states[number] = _DONE
            order.append(number)

    def _bring_nested(self, number: int) -> None:
        """Let a call take what references stand for: they can be arguments, but not inside of one.

        All that it needs is there.
        """
        function, args, holes, kwargs, nested, _ = self.steps[number]
        is_changed = False
        for one in nested:
            if type(self.values.get(one.number)) is ObjectReference:
                one.number = self.bring(one.number)
                is_changed = True
        if is_changed:
            self.steps[number] = step_of(function, args, holes, kwargs, nested)

    def _read(self, number: int) -> Step:
        """Return the call that was written; in a tuple, what names a key stands for it."""
        spec = self.steps[number]
        if type(spec) is Call:
            return self._call(spec)
        graph, numbers = self.graph, self.numbers
        function, *args = spec
        holes: list[int] = []
        nested: list[Nested] = []
        for index, arg in enumerate(args):
            try:
                source = numbers.get(arg)
                if source is None:
                    found = graph.get(arg, _NOWHERE)
                    if found is not _NOWHERE:
                        source = self._meet(arg, found)
            except TypeError:
                source = None
            if source is None:
                if type(arg) is str:
                    raise KeyError(arg)
                if type(arg) is list:
                    args[index] = self._list(arg, nested)
                    continue
                if not isinstance(arg, FUTURES):
                    continue
                source = self._add_future(arg)
            args[index] = None
            holes += index, source
        return step_of(function, args, holes, None, nested)

    def _list(self, items: list[Any], nested: list[Nested]) -> list[Any]:
        out: list[Any] = []
        for item in items:
            try:
                named = item in self.graph
            except TypeError:
                named = False
            if named:
                nested.append(Nested(self._number(item)))
                out.append(nested[-1])
            elif type(item) is str:
                raise KeyError(item)
            elif type(item) is list:
                out.append(self._list(item, nested))
            elif isinstance(item, FUTURES):
                nested.append(Nested(self._add_future(item)))
                out.append(nested[-1])
            else:
                out.append(item)
        return out

    def _call(self, call: Call) -> Step:
        """Return the call that a Call is: only what is a Ref, or a future, stands for another."""
        holes: list[int] = []
        nested: list[Nested] = []
        args = list(call.args)
        for index, arg in enumerate(args):
            kind = type(arg)
            if kind is Ref:
                number = self._number(arg.key)
            elif isinstance(arg, FUTURES):
                number = self._add_future(arg)
            else:
                if kind not in FLAT:
                    args[index] = self._deep(arg, nested)
                continue
            args[index] = None
            holes += index, number
        kwargs = call.kwargs and {
            name: self._deep(value, nested) for name, value in call.kwargs.items()
        }
        return step_of(call.function, args, holes, kwargs, nested)

    def _deep(self, value: Any, nested: list[Nested]) -> Any:
        kind = type(value)
        if kind is Ref:
            nested.append(Nested(self._number(value.key)))
            return nested[-1]
        if kind is list or kind is tuple:
            return kind([one if type(one) in FLAT else self._deep(one, nested) for one in value])
        if kind is dict:
            return {name: self._deep(one, nested) for name, one in value.items()}
        if isinstance(value, FUTURES):
            nested.append(Nested(self._add_future(value)))
            return nested[-1]
        return value

    def _cycle(self, wanted: Any) -> Exception:
        """Return the error of a cycle, which graphlib finds."""
        sorter: graphlib.TopologicalSorter[Any] = graphlib.TopologicalSorter()
        todo, seen = [wanted], {wanted}
        while todo:
            key = todo.pop()
            below = self._needs(key)
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

    def _needs(self, key: Any) -> list[Any]:
        """Return the keys that a key needs, as they are written: for the text of an error."""
        target = self._target(key)
        if target is not None:
            return list(target)
        reader = Arrangement(self.graph, ())
        reader._follows = False
        number = reader._number(key)
        if reader.steps[number] is None:
            return []
        found = [reader.keys[one] for one in reader._read(number)[5]]
        return [one for one in found if not isinstance(one, ScalerFuture)]


class KeyedArrangement(Arrangement):
    """An arrangement of what Dask wrote: its calls are counted by their keys."""

    def kind_of(self, number: int) -> Any:
        """Return the part of a key that the name is made of."""
        key = self.keys[number]
        return key[0] if type(key) is tuple and key else key

    def name_of(self, number: int) -> str:
        """Return the prefix of a key."""
        return prefix_of(self.keys[number])


def future_of(given: ScalerFuture[Any] | FutureHandle) -> ScalerFuture[Any]:
    """Return the future that is given, or that stands behind what is given."""
    return given if isinstance(given, ScalerFuture) else given.future


def step_of(
    function: Callable[..., Any],
    args: list[Any],
    holes: list[int],
    kwargs: dict[str, Any] | None,
    nested: list[Nested],
) -> Step:
    """Return a call as a Step."""
    below = holes[1::2]
    if nested:
        below += [one.number for one in nested]
    if len(below) > 1 and len(set(below)) < len(below):
        below = list(dict.fromkeys(below))
    return function, args, holes, kwargs, nested, below

"""Dask's graphs and calling conventions, as graphs of ours.

Dask passes expressions, layered graphs and dictionaries of three kinds of nodes: its tasks (from
2024.12 on), tuples that begin with a callable (before that, and whatever users write), and data.
"""

from __future__ import annotations

import inspect
import queue
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scaler_cluster import arguments
from scaler_cluster.client.future import ScalerFuture
from scaler_cluster.client.graph import itself
from scaler_cluster.nodes import Call, Ref

try:
    import dask
    from dask.callbacks import local_callbacks, unpack_callbacks
    from dask.core import flatten, get_dependencies, istask
    from dask.local import finish_task, nested_get, start_state_from_dask
    from dask.order import order
except ImportError as error:
    raise ImportError(
        "Dask is not installed: pip install 'scaler-exec[dask]' brings what is needed"
    ) from error
try:
    from dask import _task_spec as spec
except ImportError:  # before Dask 2024.12
    spec = None

_STARTS_FROM_KEYS = "keys" in inspect.signature(start_state_from_dask).parameters
"""Whether Dask runs what the wanted keys need; before 2025 it ran whatever a graph has."""
_identity_cast = getattr(spec, "_identity_cast", None)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from scaler_cluster.client.graph_runner import GraphRunner
    from scaler_cluster.wire.messages import TaskOptions

    Graph = Mapping[Hashable, Any]


def get(runner: GraphRunner, graph: Any, keys: Any, options: TaskOptions, **named: Any) -> Any:
    """Return what Dask's ``get`` returns: the value of a key, or for a list a tuple, however deep.

    ``named`` are Dask's keyword arguments: ``retries``, ``priority``, ``resources`` and ``workers``
    are those of each task that is not annotated otherwise. Other keywords are ignored.
    """
    options = merge_options(options, named)
    wanted = list(dict.fromkeys(flatten(keys))) if type(keys) is list else [keys]
    annotations = annotations_of(graph)
    dsk = materialize(graph)
    with ExitStack() as stack:
        callbacks = stack.enter_context(local_callbacks(named.get("callbacks")))
        if callbacks:
            values = _get_watched(runner, dsk, wanted, options, annotations, callbacks)
        else:
            nodes = convert(dsk)
            own = own_options(options, annotations, nodes)
            _await_others(runner, nodes)
            values = runner.run(nodes, wanted, options, own)
    return nested_get(keys, values)


def persist(runner: GraphRunner, collections: Any, options: TaskOptions, **named: Any) -> Any:
    """Return collections like these whose values are on the cluster, or on their way there.

    A list of collections gives a list, a single one gives one.
    """
    if dask.is_dask_collection(collections):
        return persist(runner, [collections], options, **named)[0]
    optimize = named.pop("optimize_graph", True)
    options = merge_options(options, named)
    collections = list(collections)
    for collection in collections:
        if not dask.is_dask_collection(collection):
            raise TypeError(f"persist takes collections of Dask, not {collection!r}")
    if not collections:
        return []
    graph, keys = _graph_of(collections, optimize)
    wanted = list(dict.fromkeys(flatten(keys)))
    annotations = annotations_of(graph)
    nodes = convert(materialize(graph))
    own = own_options(options, annotations, nodes)
    _await_others(runner, nodes)
    futures = runner.start(nodes, wanted, options, own)
    kept: dict[Hashable, Any] = dict(futures)
    if spec is not None:
        kept = {key: Persisted(key, future) for key, future in futures.items()}
    rebuilt = []
    for collection, own_keys in zip(collections, keys, strict=True):
        rebuild, state = collection.__dask_postpersist__()
        rebuilt.append(rebuild({key: kept[key] for key in flatten(own_keys)}, *state))
    return rebuilt


if spec is not None:

    class Persisted(spec.DataNode):  # type: ignore[misc]
        """A value on the cluster, as data in the graph of a collection.

        The collections that have it keep it: it is no name that somebody else must know. Dask's own
        schedulers fetch the value, as does whoever pickles it. To libraries that look for a future
        of Dask in a graph it is one.
        """

        block_fusion = True
        """Dask must not put it inside of another node: it would travel through this process."""

        def __init__(
            self, key: Hashable, future: ScalerFuture[Any], token: str | None = None
        ) -> None:
            # Not the parent's, which wants the value.
            self.key = key
            self._dependencies: frozenset[Hashable] = frozenset()
            self.future = future
            self.token = token or uuid4().hex

        @property
        def value(self) -> Any:
            """The value itself, once it is there; raises what its task raised."""
            return self.future.result()

        @property
        def status(self) -> str:
            """What became of it: "pending", "finished", "error" or "cancelled"."""
            future = self.future
            if not future.done():
                return "pending"
            if future.cancelled():
                return "cancelled"
            return "error" if future._has_failed() else "finished"

        def result(self, timeout: float | None = None) -> Any:
            """Return the value, as :meth:`ScalerFuture.result` does."""
            return self.future.result(timeout)

        def exception(self, timeout: float | None = None) -> BaseException | None:
            """Return what its task raised, as :meth:`ScalerFuture.exception` does."""
            return self.future.exception(timeout)

        def done(self) -> bool:
            """Return True if its task came back or was cancelled."""
            return self.future.done()

        def cancelled(self) -> bool:
            """Return True if its task was cancelled."""
            return self.future.cancelled()

        def copy(self) -> Persisted:
            """Return the same under the same key; Dask may change that."""
            return Persisted(self.key, self.future, self.token)

        def substitute(self, subs: dict[Any, Any], key: Hashable | None = None) -> Persisted:
            """Return the same under another key."""
            if key is None or key == self.key:
                return self
            return Persisted(key, self.future, self.token)

        def __dask_tokenize__(self) -> tuple[str, str]:
            return type(self).__name__, self.token

        def __repr__(self) -> str:
            return f"Persisted({self.key!r}, {self.status})"

        def __sizeof__(self) -> int:
            return object.__sizeof__(self)

        def __reduce__(self) -> Any:
            return spec.DataNode, (self.key, self.value)


def _await_others(runner: GraphRunner, nodes: Mapping[Hashable, Any]) -> None:
    """Wait for what other clients keep: only they know when it is there."""
    session = runner.session
    futures = [node for node in nodes.values() if isinstance(node, ScalerFuture)]
    wait([future for future in futures if future._session is not session])


def merge_options(options: TaskOptions, named: Mapping[str, Any]) -> TaskOptions:
    """Return task options with what Dask's keyword arguments, or annotations, say of tasks.

    Raises TypeError or ConfigError for values that a task cannot have.
    """
    changes: dict[str, Any] = {}
    for name, least in (("retries", 0), ("priority", -arguments.WHOLE_MAX)):
        value = named.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is not None:
            changes[name] = arguments.whole(name, value, least)
    resources = named.get("resources")
    if resources is not None:
        changes["capabilities"] = arguments.capabilities("resources", resources)
    workers = named.get("workers")
    if workers is not None and not named.get("allow_other_workers"):
        changes["workers"] = arguments.names("workers", workers)
    return replace(options, **changes) if changes else options


def annotations_of(graph: Any) -> Mapping[str, Mapping[Hashable, Any]]:
    """Return what ``dask.annotate`` said of the keys of a graph, by what it says.

    Dask drops that where it makes a plain dictionary of a graph, as when it optimizes arrays.
    """
    if hasattr(graph, "__dask_annotations__"):
        return graph.__dask_annotations__()  # type: ignore[no-any-return]
    found: dict[str, dict[Hashable, Any]] = {}
    for layer in getattr(graph, "layers", {}).values():
        for name, value in (getattr(layer, "annotations", None) or {}).items():
            said = found.setdefault(name, {})
            said.update((key, value(key) if callable(value) else value) for key in layer)
    return found


def own_options(
    options: TaskOptions,
    annotations: Mapping[str, Mapping[Hashable, Any]],
    nodes: Mapping[Hashable, Any],
) -> dict[Hashable, TaskOptions]:
    """Return the options of nodes that are annotated."""
    said: dict[Hashable, dict[str, Any]] = {}
    for name, values in annotations.items():
        for key, value in values.items():
            if key in nodes:
                said.setdefault(key, {})[name] = value
    made: dict[TaskOptions, TaskOptions] = {}
    own = ((key, merge_options(options, named)) for key, named in said.items())
    return {key: made.setdefault(one, one) for key, one in own}


def materialize(graph: Any) -> Graph:
    """Return the dictionary that an expression or a layered graph stands for."""
    if hasattr(graph, "__dask_graph__"):
        graph = graph.__dask_graph__()
    if hasattr(graph, "to_dict"):
        graph = graph.to_dict()
    if spec is not None:
        graph = spec.convert_legacy_graph(graph)
    return graph  # type: ignore[no-any-return]


def convert(graph: Graph) -> dict[Hashable, Any]:
    """Return a graph of ours: calls, references, data and futures by key."""
    if spec is None:
        return {key: _convert_tuple(value, graph) for key, value in graph.items()}
    return {key: _convert_task(node) for key, node in graph.items()}


def _graph_of(collections: list[Any], optimize: bool) -> tuple[Any, list[Any]]:
    """Return one graph of several collections, and the keys of each."""
    if hasattr(dask.base, "collections_to_expr"):
        expression = dask.base.collections_to_expr(collections, optimize)
        expression = expression.optimize()
        return expression, list(expression.__dask_keys__())
    keys = [collection.__dask_keys__() for collection in collections]
    return dask.base.collections_to_dsk(collections, optimize), keys


# -- Dask's tasks ----------------------------------------------------------------------------


def _convert_task(node: Any) -> Any:
    kind = type(node)
    if kind is spec.Task:
        try:
            args = [_convert_argument(one) for one in node.args]
            kwargs = node.kwargs and {k: _convert_argument(v) for k, v in node.kwargs.items()}
        except _TooDeep:
            pass
        else:
            return Call(node.func, args, kwargs or None)
    elif kind is spec.DataNode:
        return _convert_data(node.value)
    elif kind is Persisted:
        return node.future
    elif kind is spec.Alias:
        return Ref(node.target)
    dependencies = list(node.dependencies)
    return Call(_call_task, [node, dependencies, *map(Ref, dependencies)])


class _TooDeep(Exception):
    """A call stands within the arguments of another."""


def _convert_argument(value: Any) -> Any:
    kind = type(value)
    if kind is spec.TaskRef or kind is spec.Alias:
        return Ref(value.key if kind is spec.TaskRef else value.target)
    if not isinstance(value, spec.GraphNode):
        return value
    if kind is spec.List:
        return [_convert_argument(one) for one in value.args]
    if kind is spec.Tuple:
        return tuple([_convert_argument(one) for one in value.args])
    if kind is spec.DataNode:
        return value.value
    if kind is Persisted:
        return value.future
    if value.func is _identity_cast and value.kwargs.get("typ") in (list, tuple):
        # A list or tuple of a graph of tuples.
        return value.kwargs["typ"]([_convert_argument(one) for one in value.args])
    raise _TooDeep


def _convert_data(value: Any) -> Any:
    if isinstance(value, (Call, Ref)) or (type(value) is tuple and value and callable(value[0])):
        # Data that looks like a node.
        return Call(itself, [value])
    return value


def _call_task(task: Any, keys: list[Any], *values: Any) -> Any:
    """Let Dask run a task of its own."""
    return task(dict(zip(keys, values, strict=True)))


# -- tuples that begin with a callable -------------------------------------------------------


def _convert_tuple(value: Any, graph: Graph) -> Any:
    """Return a value of a graph of tuples: a string or tuple in it may be a key."""
    if _is_key(value, graph):
        return Ref(value)
    if type(value) is tuple and istask(value):
        if not any(type(one) in (tuple, list) and not _is_key(one, graph) for one in value[1:]):
            args = [Ref(one) if _is_key(one, graph) else one for one in value[1:]]
            return Call(value[0], args)
    elif type(value) is not list:
        return value
    dependencies = list(get_dependencies(graph, task=value))
    return Call(_call_tuple, [_Tuple(value), dependencies, *map(Ref, dependencies)])


class _Tuple:
    """Hides a tuple from who looks for nodes in it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return _Tuple, (self.value,)


def _call_tuple(task: _Tuple, keys: list[Any], *values: Any) -> Any:
    """Let Dask run a tuple, whose arguments are calls and lists."""
    return dask.core._execute_task(task.value, dict(zip(keys, values, strict=True)))


def _is_key(value: Any, graph: Graph) -> bool:
    try:
        return value in graph
    except TypeError:
        return False


# -- callbacks -------------------------------------------------------------------------------


def _get_watched(
    runner: GraphRunner,
    dsk: Graph,
    wanted: list[Hashable],
    options: TaskOptions,
    annotations: Mapping[str, Mapping[Hashable, Any]],
    callbacks: Any,
) -> dict[Hashable, Any]:
    """Run a graph and tell Dask's callbacks of every task, so the result of each comes back.

    The state that they see is Dask's own, and moves as if there was a worker for each task.
    """
    dsk = dict(dsk)
    state: dict[str, Any] = {}
    begun = []
    has_failed = True
    try:
        for callback in callbacks:
            if callback[0]:
                callback[0](dsk)
            begun.append(callback)
        # Now: a callback may have put values that it knows into the graph.
        nodes = convert(materialize(dsk))
        watched = _Watched(dsk, wanted, callbacks)
        state = watched.state
        for callback in callbacks:
            if callback[1]:
                callback[1](dsk, state)
        every = list(dict.fromkeys([*wanted, *state["waiting"], *state["ready"]]))
        own = own_options(options, annotations, nodes)
        _await_others(runner, nodes)
        futures = runner.start(nodes, every, options, own)
        try:
            kept = {key: futures[key] for key in wanted}
            watched.follow(futures)
            values = {key: future.result() for key, future in kept.items()}
        except BaseException:
            runner.cancel_made(nodes, futures.values())
            raise
        has_failed = False
        return values
    finally:
        for callback in begun:
            if callback[4]:
                callback[4](dsk, state, has_failed)


class _Watched:
    """What Dask's callbacks are told of the tasks of a graph."""

    def __init__(self, dsk: dict[Hashable, Any], wanted: list[Hashable], callbacks: Any) -> None:
        _, _, self._pretasks, self._posttasks, _ = unpack_callbacks(callbacks)
        self._dsk = dsk
        self._wanted = set(wanted)
        self._order = order(dsk).get
        only = {"keys": self._wanted} if _STARTS_FROM_KEYS else {}
        self.state: dict[str, Any] = start_state_from_dask(
            dsk, cache={}, sortkey=self._order, **only
        )

    def follow(self, futures: dict[Hashable, ScalerFuture[Any]]) -> None:
        """Tell of each task when it ended, until all have; raises what the first failed with.

        Lets go of the futures of what is told.
        """
        state = self.state
        ended: queue.SimpleQueue[Hashable] = queue.SimpleQueue()
        for key in [*state["waiting"], *state["ready"]]:
            futures[key].add_done_callback(lambda _, key=key: ended.put(key))  # type: ignore[misc]
        arrived: set[Hashable] = set()
        self._begin()
        while state["running"]:
            key = ended.get()
            futures[key].result()
            arrived.add(key)
            # Tasks come back in any order, but are told of after what they depend on.
            todo = [key]
            while todo:
                key = todo.pop()
                if key in arrived and key in state["running"]:
                    self._end(key, futures.pop(key).result())
                    todo += self._begin()

    def _begin(self) -> list[Hashable]:
        """Tell of the tasks whose dependencies have ended; return them."""
        state = self.state
        begun: list[Hashable] = []
        while state["ready"]:
            begun.append(state["ready"].pop())
            state["running"].add(begun[-1])
            for pretask in self._pretasks:
                pretask(begun[-1], self._dsk, state)
        return begun

    def _end(self, key: Hashable, result: Any) -> None:
        state = self.state
        state["cache"][key] = result
        finish_task(self._dsk, key, state, self._wanted, self._order)
        for posttask in self._posttasks:
            posttask(key, result, self._dsk, state, "scaler")

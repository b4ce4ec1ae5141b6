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
from scaler_cluster.client.graph import Arrangement, KeyedArrangement, collector_paused
from scaler_cluster.pickling.nodes import Call, Ref

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

if spec is not None:
    from scaler_cluster.client.dask_arrangement import DaskArrangement
    from scaler_cluster.client.dask_persisted import Persisted

KIND: type[Arrangement] = KeyedArrangement if spec is None else DaskArrangement
"""What reads the graphs that :func:`convert` returns."""

_STARTS_FROM_KEYS = "keys" in inspect.signature(start_state_from_dask).parameters
"""Whether Dask runs what the wanted keys need; before 2025 it ran whatever a graph has."""

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from scaler_cluster.client.future import ScalerFuture
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
    with collector_paused():
        # Here Dask optimizes arrays, bags and what is delayed, and makes as many objects as we do.
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
            values = runner.run(nodes, wanted, options, own, kind=KIND, share=True)
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
    futures = start(runner, graph, keys, options)
    kept: dict[Hashable, Any] = dict(futures)
    if spec is not None:
        kept = {key: Persisted(key, future) for key, future in futures.items()}
    rebuilt = []
    for collection, own_keys in zip(collections, keys, strict=True):
        rebuild, state = collection.__dask_postpersist__()
        rebuilt.append(rebuild({key: kept[key] for key in flatten(own_keys)}, *state))
    return rebuilt


def start(
    runner: GraphRunner, graph: Any, keys: Any, options: TaskOptions
) -> dict[Hashable, ScalerFuture[Any]]:
    """Submit a graph; return the futures of these keys, which may stand in lists, however deep."""
    wanted = list(dict.fromkeys(flatten(keys)))
    with collector_paused():
        annotations = annotations_of(graph)
        nodes = convert(materialize(graph))
    own = own_options(options, annotations, nodes)
    _await_others(runner, nodes)
    return runner.start(nodes, wanted, options, own, kind=KIND, share=True)


def futures_given(graph: Any) -> list[ScalerFuture[Any]]:
    """Return the futures that are values of a graph: others have them as well."""
    return KIND.futures_of(convert(materialize(graph)))


def compute(
    runner: GraphRunner, collections: list[Any], options: TaskOptions, *, optimize: bool = True
) -> dict[Hashable, ScalerFuture[Any]]:
    """Submit what collections need; return a future of the whole value of each, by a new key."""
    graph, keys = _graph_of(collections, optimize)
    annotations = annotations_of(graph)
    nodes = dict(materialize(graph))
    ends: list[Hashable] = []
    for collection, own_keys in zip(collections, keys, strict=True):
        finish, extra = collection.__dask_postcompute__()
        ends.append(f"finalize-{uuid4().hex}")
        nodes[ends[-1]] = (finish, own_keys, *extra)
    converted = convert(nodes)
    own = own_options(options, annotations, converted)
    _await_others(runner, converted)
    return runner.start(converted, ends, options, own, kind=KIND, share=True)


def _await_others(runner: GraphRunner, nodes: Mapping[Hashable, Any]) -> None:
    """Wait for what other clients keep: only they know when it is there."""
    session = runner.session
    wait([future for future in KIND.futures_of(nodes) if future._session is not session])


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
    return graph  # type: ignore[no-any-return]


def convert(graph: Graph) -> Graph:
    """Return a graph that is read as KIND: of tuples one of ours, another as it is."""
    if spec is None:
        return {key: _convert_tuple(value, graph) for key, value in graph.items()}
    return graph


def _graph_of(collections: list[Any], optimize: bool) -> tuple[Any, list[Any]]:
    """Return one graph of several collections, and the keys of each."""
    if hasattr(dask.base, "collections_to_expr"):
        expression = dask.base.collections_to_expr(collections, optimize)
        expression = expression.optimize()
        return expression, list(expression.__dask_keys__())
    keys = [collection.__dask_keys__() for collection in collections]
    return dask.base.collections_to_dsk(collections, optimize), keys


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
    dsk = dict(dsk) if spec is None else spec.convert_legacy_graph(dsk)
    state: dict[str, Any] = {}
    begun = []
    has_failed = True
    try:
        for callback in callbacks:
            if callback[0]:
                callback[0](dsk)
            begun.append(callback)
        # Now: a callback may have put values that it knows into the graph.
        nodes = convert(dsk)
        watched = _Watched(dsk, wanted, callbacks)
        state = watched.state
        for callback in callbacks:
            if callback[1]:
                callback[1](dsk, state)
        every = list(dict.fromkeys([*wanted, *state["waiting"], *state["ready"]]))
        own = own_options(options, annotations, nodes)
        _await_others(runner, nodes)
        futures = runner.start(nodes, every, options, own, kind=KIND)
        try:
            kept = {key: futures[key] for key in wanted}
            watched.follow(futures)
            values = {key: future.result() for key, future in kept.items()}
        except BaseException:
            runner.cancel_made(KIND.futures_of(nodes), futures.values())
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

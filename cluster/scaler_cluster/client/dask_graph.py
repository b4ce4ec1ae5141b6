"""Dask's graphs and calling conventions, as graphs of ours.

Dask passes expressions, layered graphs and dictionaries of three kinds of nodes: its tasks (from
2024.12 on), tuples that begin with a callable (before that, and whatever users write), and data.
"""

from __future__ import annotations

import queue
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaler_cluster import arguments
from scaler_cluster.client.graph import itself
from scaler_cluster.nodes import Call, Ref

try:
    import dask
    from dask.callbacks import local_callbacks, unpack_callbacks
    from dask.core import flatten, get_dependencies, istask
    from dask.local import nested_get
except ImportError as error:
    raise ImportError(
        "Dask is not installed: pip install 'scaler-exec[dask]' brings what is needed"
    ) from error
try:
    from dask import _task_spec as spec
except ImportError:  # before Dask 2024.12
    spec = None

_identity_cast = getattr(spec, "_identity_cast", None)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from scaler_cluster.client.client import Client
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.wire.messages import TaskOptions

    Graph = Mapping[Hashable, Any]


def get(client: Client, graph: Any, keys: Any, options: TaskOptions, **named: Any) -> Any:
    """Return what Dask's ``get`` returns: the value of a key, or for a list a tuple, however deep.

    ``named`` are Dask's keyword arguments: ``retries``, ``priority``, ``resources`` and ``workers``
    are those of each task that is not annotated otherwise, whatever else Dask's schedulers know is
    of no meaning here.
    """
    options = merge_options(options, named)
    wanted = list(dict.fromkeys(flatten(keys))) if type(keys) is list else [keys]
    annotations = annotations_of(graph)
    dsk = materialize(graph)
    nodes = convert(dsk)
    own = own_options(options, annotations, nodes)
    _add_persisted(client, dsk, nodes, wanted)
    with ExitStack() as stack:
        callbacks = stack.enter_context(local_callbacks(named.get("callbacks")))
        if callbacks:
            values = _get_watched(client, dsk, nodes, wanted, options, own, callbacks)
        else:
            values = client._get_graph(nodes, wanted, options, own)
    return nested_get(keys, values)


def persist(client: Client, collections: Iterable[Any], options: TaskOptions, **named: Any) -> Any:
    """Return collections like these whose values are on the cluster, or on their way there."""
    optimize = named.pop("optimize_graph", True)
    options = merge_options(options, named)
    collections = list(collections)
    graph, keys = _graph_of(collections, optimize)
    wanted = list(dict.fromkeys(flatten(keys)))
    annotations = annotations_of(graph)
    dsk = materialize(graph)
    nodes = convert(dsk)
    own = own_options(options, annotations, nodes)
    _add_persisted(client, dsk, nodes, wanted)
    futures = client._start_graph(nodes, wanted, options, own)
    if spec is None:
        kept: dict[Hashable, Any] = dict(futures)
    else:
        kept = {key: Persisted(key, future) for key, future in futures.items()}
        client._persisted.update(kept)
    rebuilt = []
    for collection, own in zip(collections, keys, strict=True):
        rebuild, state = collection.__dask_postpersist__()
        rebuilt.append(rebuild({key: kept[key] for key in flatten(own)}, *state))
    return rebuilt


if spec is not None:

    class Persisted(spec.TaskRef):  # type: ignore[misc]
        """What stands for a value on the cluster in the graph of a collection.

        Dask makes a mere reference to its key of it, so the client knows it by that.
        """

        __slots__ = ("__weakref__", "future")

        def __init__(self, key: Hashable, future: ScalerFuture[Any]) -> None:
            super().__init__(key)
            self.future = future

        def __reduce__(self) -> Any:
            return itself, (self.future,)


def _add_persisted(client: Client, dsk: Graph, nodes: dict[Hashable, Any], wanted: Any) -> None:
    """Add what a graph needs, or is wanted, and is on the cluster already."""
    if not client._persisted:
        return
    needed = [*wanted, *(one for node in dsk.values() for one in node.dependencies)]
    for key in needed:
        if key not in nodes and (persisted := client._persisted.get(key)) is not None:
            nodes[key] = persisted.future


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
    """Return a graph of ours: calls, references and data by key."""
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
    client: Client,
    dsk: Graph,
    nodes: dict[Hashable, Any],
    wanted: list[Hashable],
    options: TaskOptions,
    own: Mapping[Hashable, TaskOptions],
    callbacks: Any,
) -> dict[Hashable, Any]:
    """Run a graph and tell Dask's callbacks of every task that ended, so each comes back."""
    _, _, pretasks, posttasks, _ = unpack_callbacks(callbacks)
    state: dict[str, Any] = {
        "dependencies": {key: set(get_dependencies(dsk, key)) for key in dsk},
        "waiting": {}, "ready": [], "running": set(), "finished": set(), "cache": {},
        "released": set(),
    }  # fmt: skip
    begun = []
    has_failed = True
    try:
        for callback in callbacks:
            if callback[0]:
                callback[0](dsk)
            begun.append(callback)
        tasks = [key for key, node in nodes.items() if isinstance(node, Call)]
        state["running"].update(tasks)
        for callback in callbacks:
            if callback[1]:
                callback[1](dsk, state)
        for key in tasks:
            for pretask in pretasks:
                pretask(key, dsk, state)
        ended: queue.SimpleQueue[Hashable] = queue.SimpleQueue()
        every = list(dict.fromkeys([*wanted, *tasks]))
        futures = client._start_graph(nodes, every, options, own)
        try:
            kept = {key: futures[key] for key in wanted}
            for key in tasks:
                _tell_when_done(futures[key], key, ended)
            for _ in tasks:
                key = ended.get()
                result = futures.pop(key).result()
                state["running"].discard(key)
                state["finished"].add(key)
                for posttask in posttasks:
                    posttask(key, result, dsk, state, "scaler")
            values = {key: future.result() for key, future in kept.items()}
        except BaseException:
            client._cancel(futures.values())
            raise
        has_failed = False
        return values
    finally:
        for callback in begun:
            if callback[4]:
                callback[4](dsk, state, has_failed)


def _tell_when_done(
    future: ScalerFuture[Any], key: Hashable, ended: queue.SimpleQueue[Hashable]
) -> None:
    future.add_done_callback(lambda _: ended.put(key))

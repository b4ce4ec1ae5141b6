"""The futures in what users pass: containers and collections that were persisted."""

from __future__ import annotations

from typing import Any

import dask

from scaler_exec.distributed.current import find_current
from scaler_exec.distributed.future import Future

try:
    from scaler_cluster.client.dask_persisted import Persisted
except ImportError:  # before Dask 2024.12
    Persisted = None  # type: ignore[assignment, misc]


def futures_of(o: Any, client: Any = None) -> list[Future[Any]]:
    """Return the futures in lists, tuples, sets and dicts, and in collections of Dask.

    Args:
        o: What they are in, however deep.
        client: The client that futures of collections get; default: the default one.

    """
    found: list[Future[Any]] = []
    # What was seen is kept: what comes after might be made where it was. A list may hold itself.
    seen: dict[int, Any] = {}
    stack = [o]
    while stack:
        one = stack.pop()
        if isinstance(one, Future):
            found.append(one)
            continue
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if dask.is_dask_collection(one):
            owner: Any = client or find_current()
            nodes = [node for node in one.__dask_graph__().values() if type(node) is Persisted]
            stack += [Future.beside(node.key, node.future, owner) for node in nodes]
        elif type(one) is dict:
            stack += one.values()
        elif isinstance(one, (list, tuple, set, frozenset)):
            stack += one
    return list(dict.fromkeys(reversed(found)))

"""A scheduler for Dask: ``dask.compute(x, scheduler=scaler_get)``."""

from __future__ import annotations

import os
import threading
from typing import Any

from scaler_cluster.client.client import Client
from scaler_cluster.combo import SchedulerClusterCombo
from scaler_cluster.process.process import usable_cpus

_lock = threading.Lock()
_mine: dict[int, tuple[SchedulerClusterCombo, Client]] = {}
"""The cluster of this process and a client of that, by the process: one that was forked makes its
own."""


def scaler_get(dsk: Any, keys: Any, **named: Any) -> Any:
    """Run a Dask graph; as a scheduler: ``dask.config.set(scheduler=scaler_get)``.

    On a cluster of this process, with a worker for each CPU that it may use, made when it is first
    needed and ended with the process. On another cluster: ``scheduler=client`` or
    ``client.dask_get``.

    Args:
        dsk: Whatever Dask passes: an expression, a layered graph, a dictionary.
        keys: A key, or keys in lists, however deep.
        **named: ``retries``, ``priority``, ``resources`` and ``workers`` of each task that
            ``dask.annotate`` does not say otherwise of; others are ignored.

    Returns:
        The value of the key, or tuples of values.

    """
    return _client().dask_get(dsk, keys, **named)


def _persist(collections: Any, **named: Any) -> Any:
    return _client().persist(collections, **named)


# Dask knows no type for a function with an attribute.
scaler_get.persist = _persist  # type: ignore[attr-defined]


def _client() -> Client:
    with _lock:
        mine = _mine.get(os.getpid())
        if mine is None:
            cluster = SchedulerClusterCombo(usable_cpus())
            mine = _mine[os.getpid()] = cluster, Client(cluster.get_address())
        return mine[1]

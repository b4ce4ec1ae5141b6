"""The functions that a worker was sent: each is unpickled once, before the first of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.pickling.by_value import set_classes
from scaler_cluster.runtime import pools, worker_code
from scaler_cluster.runtime.callees import load_callee

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.worker.work import FunctionEntry
    from scaler_cluster.wire.batch import Buffer


def load_function(entry: FunctionEntry, buffers: Sequence[Buffer]) -> None:
    """Unpickle a function; raises what that raises."""
    before = set_classes()
    entry.runs.clear()
    payload, buffers = worker_code.enter(entry.payload, buffers)
    entry.call = load_callee(payload, buffers)
    entry.code = worker_code.active
    pools.know(entry.call)
    after = set_classes()
    entry.set_classes = after if after != before else None


def is_loaded(entry: FunctionEntry) -> bool:
    """Return True if a function was unpickled, and its classes have the attributes that it knew."""
    return entry.call is not None and entry.set_classes in {None, set_classes()}

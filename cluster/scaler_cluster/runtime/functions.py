"""The functions that a worker was sent: each is unpickled once, before the first of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.pickling.by_value import set_classes
from scaler_cluster.pickling.nodes import call_node
from scaler_cluster.runtime import pools, worker_code
from scaler_cluster.runtime.callees import load_callee
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from scaler_cluster.client.call_pickler import CallPickler
    from scaler_cluster.core.worker.work import FunctionEntry
    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.objects.worker_store import WorkerStore
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


class TasksSession(Protocol):
    """The session of the worker's tasks."""

    @property
    def pickler(self) -> CallPickler:
        """What pickles the functions that they submit."""

    def remember(self, digest: bytes, entry: FunctionEntry) -> None:
        """Note what a function was unpickled from just now."""


class LoadingHost(Protocol):
    """The worker whose functions these are."""

    @property
    def nested(self) -> TasksSession | None:
        """None as long as no task has submitted anything."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held by the thread that uses the core."""


class FunctionLoader:
    """Unpickles the functions of a worker's tasks, each with the code that its client uploaded."""

    def __init__(self, host: LoadingHost, core: WorkerCore, store: WorkerStore) -> None:
        self._host = host
        self._core = core
        self._store = store
        self._code = worker_code.active

    def load_call(self, entry: FunctionEntry, kind: int, digest: bytes) -> Callable[..., Any]:
        """Return what to call with a payload's items; raises whatever unpickling it raises."""
        try:
            if not is_loaded(entry):
                load_function(entry, self._store.map(entry.objects))
                if self._host.nested is not None:
                    self._host.nested.remember(digest, entry)
            elif entry.code is not worker_code.active:
                worker_code.switch(entry.code)
        finally:
            if self._code is not worker_code.active:
                self._use_code()
        # What a peer sent that speaks for itself may be None: that fails where it is called.
        found: Any = entry.call
        function: Callable[..., Any] = found
        if kind == m.CALL_ARGS:
            return function
        if kind == m.CALL_NODE:
            return call_node
        if kind == m.CALL_KWARGS:
            return lambda args, kwargs: function(*args, **kwargs)
        return lambda *chunk: [function(*args) for args in chunk]

    def _use_code(self) -> None:
        """The code in here is another client's now, or nobody's: tasks of others come by again."""
        self._code = worker_code.active
        core = self._core
        with self._host.lock:
            # Some that wait may have been forgotten.
            for entry in (*core.functions.values(), *(work.function for work in core.queue)):
                if entry.code is not self._code:
                    entry.runs.clear()
        if self._host.nested is not None:
            self._host.nested.pickler.carry(worker_code.carried())

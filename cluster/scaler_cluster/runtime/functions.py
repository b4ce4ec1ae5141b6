"""The functions that a worker was sent: each is unpickled once, before the first of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.pickling.by_value import set_classes
from scaler_cluster.pickling.named import is_named, load_named
from scaler_cluster.pickling.nodes import call_node
from scaler_cluster.runtime import pools, worker_code
from scaler_cluster.runtime.callees import load_callee
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.client.call_pickler import CallPickler
    from scaler_cluster.core.worker.work import FunctionEntry
    from scaler_cluster.runtime.worker_code import LoadedCode
    from scaler_cluster.wire.batch import Buffer


class TasksSession(Protocol):
    """The session of the worker's tasks."""

    @property
    def pickler(self) -> CallPickler:
        """What pickles the functions that they submit."""

    def remember(self, digest: bytes, entry: FunctionEntry) -> None:
        """Note what a function was unpickled from just now."""


def enter(
    entry: FunctionEntry,
    digest: bytes,
    view: Callable[[tuple[bytes, ...]], Sequence[Buffer]],
    session: TasksSession | None,
) -> None:
    """Use the code that goes with a function, and unpickle the function unless it was before.

    All that is about to call a function comes here first, unless :func:`is_entered`. Raises
    whatever unpickling it raises; ``session`` is None as long as no task has submitted anything.
    """
    is_new = not _is_loaded(entry)
    try:
        if is_new:
            _load(entry, view(entry.objects))
        else:
            worker_code.switch(entry.code)
    finally:
        if session is not None:
            session.pickler.carry(worker_code.carried())
    if is_new and session is not None:
        session.remember(digest, entry)


def is_entered(entry: FunctionEntry) -> bool:
    """Return True if a function that was unpickled can be called as things are."""
    is_same = entry.set_classes is None or entry.set_classes == set_classes()
    return is_same and entry.code is worker_code.active


def go_back(code: LoadedCode | None, session: TasksSession) -> None:
    """Use the code again that was used before a function was entered."""
    if worker_code.active is not code:
        worker_code.switch(code)
        session.pickler.carry(worker_code.carried())


def function_of(entry: FunctionEntry, kind: int) -> Callable[..., Any]:
    """Return what to call with the items of a payload."""
    # What a peer sent that speaks for itself may be None: that fails where it is called.
    found: Any = entry.call
    function: Callable[..., Any] = found
    if kind in (m.CALL_ARGS, m.CALL_NAMED):
        return function
    if kind == m.CALL_NODE:
        return call_node
    if kind == m.CALL_KWARGS:
        return lambda args, kwargs: function(*args, **kwargs)
    return lambda *chunk: [function(*args) for args in chunk]


def _load(entry: FunctionEntry, buffers: Sequence[Buffer]) -> None:
    before = set_classes()
    entry.runs.clear()
    payload, buffers = worker_code.enter(entry.payload, buffers)
    entry.call = load_named(payload) if is_named(payload) else load_callee(payload, buffers)
    entry.code = worker_code.active
    pools.know(entry.call)
    after = set_classes()
    entry.set_classes = after if after != before else None


def _is_loaded(entry: FunctionEntry) -> bool:
    """Return True if a function was unpickled, and its classes have the attributes that it knew."""
    return entry.call is not None and entry.set_classes in {None, set_classes()}

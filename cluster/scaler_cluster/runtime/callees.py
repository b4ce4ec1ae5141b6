"""What tasks call: each task gets its own copy of whatever a task could change.

A bound method, a partial or another callable travels with what it holds. It is unpickled once,
for many tasks; what one of them changes in it must not reach the next. So it is copied for each
call, except for what no task changes: functions, classes, large texts and read-only memory.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from scaler_cluster.pickling.by_value import PROTOCOL
from scaler_cluster.pickling.constant import Constant
from scaler_cluster.pickling.payload import SIMPLE, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.wire.batch import Buffer

SHARED_ITEMS = 1000
"""Longer texts and bytes are not copied."""


def load_callee(payload: Buffer, buffers: Sequence[Buffer]) -> Any:
    """Return what to call, as often as wanted, with the function that a payload holds.

    Of a graph, that is the list of its functions.
    """
    load = partial(loads, payload, buffers=buffers)
    function = load()
    if type(function) is list:
        return [_callee(one, partial(_load_item, load, i)) for i, one in enumerate(function)]
    return _callee(function, load)


def _load_item(load: Callable[[], list[Any]], index: int) -> Any:
    return load()[index]


def _callee(function: Any, load: Callable[[], Any]) -> Any:
    if not callable(function) or _holds_nothing(function):
        return function
    return _Callee(function, load)


class _Callee:
    """Calls a copy of a callable, a new one each time."""

    __slots__ = ("_copy", "_function", "_load")

    def __init__(self, function: Callable[..., Any], load: Callable[[], Any]) -> None:
        self._function = function
        self._load = load
        self._copy: Callable[[], Callable[..., Any]] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._copy is None:
            self._copy = self._copier()
        return self._copy()(*args, **kwargs)

    def _copier(self) -> Callable[[], Callable[..., Any]]:
        try:
            copy = _Template(self._function).copy
            copy()
        except Exception:
            # It could be unpickled, but can't be pickled again here.
            return self._load
        return copy


def _holds_nothing(function: Callable[..., Any]) -> bool:
    """Return True for what no call of it can change, but for its globals, defaults and closure."""
    kind = type(function)
    if kind is FunctionType or isinstance(function, (type, Constant)):
        return True
    # mypy narrows by isinstance; a subclass may hold more.
    if isinstance(function, partial) and kind is partial:
        held = (*function.args, *function.keywords.values())
        return _holds_nothing(function.func) and all(type(one) in SIMPLE for one in held)
    owner = getattr(function, "__self__", None)
    if kind is BuiltinFunctionType or isinstance(function, MethodType):
        is_steady = isinstance(owner, (type, ModuleType)) or type(owner) in SIMPLE
        if isinstance(function, MethodType):
            return is_steady and _holds_nothing(function.__func__)
        return is_steady
    try:
        reduce = copyreg.dispatch_table.get(kind)
        reduced = reduce(function) if reduce is not None else function.__reduce_ex__(PROTOCOL)
    except Exception:
        return False
    # It is pickled by its name.
    return type(reduced) is str


class _Template:
    """Makes copies of a callable, which share what cannot be changed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        shared: list[Any] = []
        buffers: list[pickle.PickleBuffer] = []

        def is_copied(buffer: pickle.PickleBuffer) -> bool:
            """Return True if a buffer is to be copied, because a task may write to it."""
            if not buffer.raw().readonly:
                return True
            buffers.append(buffer)
            return False

        file = io.BytesIO()
        _Pickler(file, shared, is_copied).dump(function)
        self._data, self._shared, self._buffers = file.getvalue(), shared, buffers

    def copy(self) -> Callable[..., Any]:
        """Return a copy of the callable as it was at first."""
        function: Callable[..., Any] = _Unpickler(self._data, self._shared, self._buffers).load()
        return function


class _Pickler(pickle.Pickler):
    def __init__(
        self,
        file: io.BytesIO,
        shared: list[Any],
        is_copied: Callable[[pickle.PickleBuffer], bool],
    ) -> None:
        # A method of its own would keep it, and with it what it has pickled.
        super().__init__(file, PROTOCOL, buffer_callback=is_copied)
        self._shared = shared

    def persistent_id(self, obj: Any) -> int | None:
        """Return the place of what is not copied."""
        is_text = isinstance(obj, (bytes, str)) and len(obj) > SHARED_ITEMS
        if not is_text and not isinstance(obj, (FunctionType, ModuleType, type)):
            return None
        self._shared.append(obj)
        return len(self._shared) - 1

    def reducer_override(self, obj: Any) -> Any:
        """Pickle a method as what it is: its function's name need not be that of an attribute."""
        if type(obj) is MethodType:
            return MethodType, (obj.__func__, obj.__self__)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, shared: list[Any], buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self._shared = shared

    def persistent_load(self, pid: int) -> Any:
        """Return what was not copied."""
        return self._shared[pid]

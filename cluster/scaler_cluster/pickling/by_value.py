"""Pickles by value what other processes cannot import: functions and classes of ``__main__``.

cloudpickle does the work. What it does not do:

- It sets the attributes of a class anew wherever the class is unpickled, so a result that names a
  class would overwrite that class in the process that defined it, with what its attributes were
  when the task was sent.
- It forgets the slots of a class, so instances that come back would not fit the class here.
- What ``functools`` makes of functions (``cache``, ``singledispatch``, ``cached_property``) it
  pickles by name, or not at all for the sake of a lock. Here it is made anew from its functions.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import sys
from enum import Enum
from itertools import repeat
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import cloudpickle

from scaler_cluster.pickling.cloud import CloudPickler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROTOCOL = 5
"""The version of pickle, in which large buffers are kept out of the stream."""
HEAP_TYPE = 1 << 9
"""Flag of classes that were made by Python code (CPython's ``Py_TPFLAGS_HEAPTYPE``)."""
REGISTERED: set[str] = cloudpickle.cloudpickle._PICKLE_BY_VALUE_MODULES
"""Modules that ``cloudpickle.register_pickle_by_value`` was called with; it adds to this set."""

_defined: WeakSet[type] = WeakSet()
"""Classes that were defined in this process, and pickled here."""
_received: WeakSet[type] = WeakSet()
"""Classes that came from another process."""
_count = 0


def dumps_by_value(
    value: object, buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None
) -> bytes:
    """Pickle a value, and with it all that it names and that cannot be imported elsewhere."""
    file = io.BytesIO()
    Pickler(file, PROTOCOL, buffer_callback=buffer_callback).dump(value)
    return file.getvalue()


class Pickler(CloudPickler):
    """cloudpickle's, but for classes and for what ``functools`` makes."""

    def reducer_override(self, obj: Any) -> Any:
        """Say how to pickle a function or a class; NotImplemented: as C pickle does."""
        kind = type(obj)
        if kind is _Cached and not is_importable(obj):
            return _make_cached, (obj.__wrapped__, obj.cache_parameters()), obj.__dict__
        if kind is functools.cached_property:
            # Its lock, where it has one, is never held for long.
            return _make_cached_property, (obj.func, obj.attrname)
        reduced = super().reducer_override(obj)
        if type(reduced) is not tuple or len(reduced) != 6:
            return reduced
        if kind is FunctionType and obj.__code__ is _DISPATCHER:
            own = {name: one for name, one in obj.__dict__.items() if name not in _OF_DISPATCHERS}
            state = {"registry": dict(obj.registry), **own}
            return _make_dispatcher, (), state, None, None, set_dispatcher
        if not isinstance(obj, type):
            return reduced
        if obj not in _received:
            _defined.add(obj)
        make, args, state, items, pairs, set_state = reduced
        slots = vars(obj).get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else tuple(slots)
        if names and not issubclass(obj, Enum):
            meta, name, bases, given, *others = args
            args = meta, name, bases, {**given, "__slots__": names}, *others
        return make, args, (set_state, state), items, pairs, set_class_state


_Cached = type(functools.cache(len))
# Any: mypy does not know that it is a function.
_example: Any = functools.singledispatch(len)
_DISPATCHER = _example.__code__
_OF_DISPATCHERS = _example.__dict__.keys() - {"__wrapped__"}


def is_importable(value: Any) -> bool:
    """Return True if a function or class is pickled by its name, which other processes import."""
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if type(module) is not str or type(path) is not str:
        return False
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is value and not travels_by_value(module)


def travels_by_value(module: str) -> bool:
    """Return True if functions and classes of a module are pickled with all they name."""
    return module == "__main__" or any(
        module == one or module.startswith(f"{one}.") for one in list(REGISTERED)
    )


def names_by_value(data: bytes) -> bool:
    """Return True if a C pickle may name something that is to travel by value."""
    if not (b"__main__" in data or any(name.encode() in data for name in list(REGISTERED))):
        return False
    if copyreg._extension_registry:  # type: ignore[attr-defined]
        # What a number stands for, an Unpickler keeps for all others.
        return True
    try:
        _Names(io.BytesIO(data), buffers=repeat(b"")).load()
    except Exception:
        # It names such a thing, or nobody knows.
        return True
    return False


class _Names(pickle.Unpickler):
    """Makes nothing of what a pickle holds, but sees the names that it imports.

    A text may be the name of such a module as well: Python's own filters of warnings have one.
    """

    def find_class(self, module: str, _name: str) -> Any:
        if travels_by_value(module):
            raise LookupError(module)
        return _Inert


class _Inert:
    """Stands for whatever a pickle imports, calls or makes."""

    def __init__(self, *args: object, **named: object) -> None:
        """Take what it is made from."""

    def __call__(self, *args: object) -> _Inert:
        return self

    __setstate__ = __setitem__ = append = extend = add = __init__


def _make_cached(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _make_dispatcher() -> Any:
    return functools.singledispatch(_unset)


def _unset(*_: object) -> None:
    """Stand in for what :func:`set_dispatcher` sets."""


def set_dispatcher(dispatcher: Any, state: dict[str, Any]) -> None:
    """Give a function of ``functools.singledispatch`` its functions."""
    registry = state.pop("registry")
    for kind, function in registry.items():
        dispatcher.register(kind, function)
    functools.update_wrapper(dispatcher, registry[object], updated=())
    dispatcher.__dict__.update(state)


def _make_cached_property(function: Callable[[Any], Any], name: str | None) -> Any:
    made = functools.cached_property(function)
    made.attrname = name
    return made


def set_class_state(cls: type, state: tuple[Callable[[type, Any], object], Any]) -> None:
    """Set the attributes of a class that was unpickled, unless it was defined in this process."""
    global _count  # noqa: PLW0603
    if cls not in _defined:
        _count += 1
        _received.add(cls)
        set_state, attributes = state
        set_state(cls, attributes)


def keep_class(cls: type) -> None:
    """Let a class keep the attributes that it has in this process, whatever is unpickled here."""
    _defined.add(cls)


def set_classes() -> int:
    """Return how often the attributes of classes were set by what was unpickled so far.

    Once there is more, a function that was unpickled before may see attributes of another time.
    """
    return _count

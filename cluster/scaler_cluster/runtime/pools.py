"""Functions and classes of a client's ``__main__``, in processes where that is another module.

They reach a worker by value, each function with globals of its own.

What ``multiprocessing`` pickles for pools inside of tasks has them by value as well. Functions that
share their globals in the task share them in each of the pool's processes, as those of a module do:
what the pool's initializer sets, its functions see. Whoever unpickles one of them imports this
module, so what it returns and what it starts is served as well, however it was started itself.
"""

from __future__ import annotations

import functools
import os
import pickle
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

import cloudpickle
from cloudpickle.cloudpickle import (
    _DYNAMIC_CLASS_TRACKER_BY_CLASS,
    _class_setstate,
    _function_setstate,
)

from scaler_cluster.pickling.by_value import dumps_by_value, keep_class
from scaler_cluster.pickling.cloud import CloudPickler

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "__scaler_globals__"
"""Among the globals of functions: names them for other processes."""
KEPT = ("__name__", "__file__", "__package__")
_owners: WeakValueDictionary[str, FunctionType] = WeakValueDictionary()
"""By token, a function that has these globals; a forked process finds those of its parent."""
_made: dict[str, dict[str, Any]] = {}
"""By token, the globals of functions that came from another process."""
_classes: WeakSet[type] = WeakSet()
"""Classes that this process has, and their attributes are its own."""


def know(function: object) -> None:
    """Take in a function that reached a task: processes that the task forks will have it, too."""
    if isinstance(function, MethodType):
        function = function.__func__
    if isinstance(function, FunctionType) and function.__globals__.get("__name__") == "__main__":
        _owners[_token(function)] = function


def _token(function: FunctionType) -> str:
    token: str = function.__globals__.setdefault(NAME, os.urandom(8).hex())
    return token


def reduce_main(pickler: ForkingPickler, value: object) -> Any:
    """Return how to make a function or class of ``__main__``: a ``reducer_override``."""
    if isinstance(value, (FunctionType, type)) and value.__module__ == "__main__":
        file = BytesIO()
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
        return load, (file.getvalue(),)
    return NotImplemented


def load(data: bytes) -> Any:
    """Return what :func:`reduce_main` pickled."""
    return pickle.loads(data)


# cloudpickle ships no types, and CloudPickler does not have what it keeps to itself.
class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions and classes by value, but for the state that a process has of its own."""

    dispatch_table = CloudPickler.dispatch_table

    def reducer_override(self, value: Any) -> Any:
        reduced = super().reducer_override(value)
        if isinstance(value, type) and type(reduced) is tuple and reduced[5:] == (_class_setstate,):
            _classes.add(value)
            return (*reduced[:5], set_class_state)
        return reduced

    def _dynamic_function_reduce(self, function: FunctionType) -> Any:
        names = function.__globals__
        if names.get("__name__") == "__main__" and id(names) not in self.globals_ref:
            self.globals_ref[id(names)] = _Globals(function)
        return (*super()._dynamic_function_reduce(function)[:5], set_state)


class _Globals:
    """Stands for the globals of a function where it is pickled."""

    def __init__(self, function: FunctionType) -> None:
        names = function.__globals__
        self._token = _token(function)
        _owners.setdefault(self._token, function)
        self._names = {name: names[name] for name in KEPT if name in names}

    def __reduce__(self) -> Any:
        return globals_of, (self._token, self._names)


def globals_of(token: str, names: dict[str, Any]) -> dict[str, Any]:
    """Return the globals of a token in this process."""
    owner = _owners.get(token)
    return owner.__globals__ if owner is not None else _made.setdefault(token, names)


def set_state(function: FunctionType, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Complete a function that is unpickled; globals that this process has already stay."""
    names, slots = function.__globals__, state[1]
    came = slots["__globals__"].items()
    slots["__globals__"] = {name: value for name, value in came if name not in names}
    _function_setstate(function, state)


def set_class_state(cls: type, state: Any) -> None:
    """Complete a class that is unpickled, unless this process has it already."""
    if cls not in _classes:
        _classes.add(cls)
        _class_setstate(cls, state)


def _on_forked() -> None:
    """Keep all classes that came by value as they are, in a process that was forked here."""
    _classes.update(_DYNAMIC_CLASS_TRACKER_BY_CLASS)


def call_initializer(initializer: Callable[..., object], initargs: tuple[Any, ...]) -> None:
    """Call a worker's initializer; tasks see what it has set or changed in ``__main__``.

    They have globals of their own, but of the same module. Another program's functions are left
    alone.
    """
    function: Any = initializer
    while isinstance(function, functools.partial):
        function = function.func
    names: dict[str, Any] = getattr(function, "__globals__", {})
    if names.get("__name__") != "__main__":
        initializer(*initargs)
        return
    before = {name: (value, _look(value)) for name, value in _own(names)}
    initializer(*initargs)
    new: dict[str, Any] = {}
    for name, value in _own(names):
        was, look = before.get(name, (value, ""))
        if was is not value or look != _look(value):
            new[name] = value
            if isinstance(value, type):
                keep_class(value)

    @functools.wraps(_function_setstate)
    def complete(function: FunctionType, state: Any) -> None:
        _function_setstate(function, state)
        its = function.__globals__
        if its.get("__name__") == "__main__" and its.get("__file__") == names.get("__file__"):
            its.update(new)

    # By this name pickles of functions ask for it.
    cloudpickle.cloudpickle._function_setstate = complete


def _own(names: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in names.items() if not name.startswith("__")]


def _look(value: object) -> object:
    """Return what differs once a value was changed in place."""
    if isinstance(value, (FunctionType, BuiltinFunctionType, ModuleType)):
        return None
    try:
        return dumps_by_value(value)
    except Exception:
        return None


os.register_at_fork(after_in_child=_on_forked)
# It is a method there, and here a function of ours, which C pickle calls all the same.
ForkingPickler.reducer_override = reduce_main  # type: ignore[assignment, method-assign]

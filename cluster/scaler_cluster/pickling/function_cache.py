"""What was made of a function, for as long as nothing that the function uses has changed.

To pickle a function by value takes some 20 us, to see that it is unchanged one or two. It is
unchanged if its code, its defaults, what its closure holds and the globals that it names are the
very same objects as before, and if these cannot change themselves (numbers, strings, modules) or
are looked at in the same way (functions, classes, lists, dictionaries, plain instances). What else
a function refers to, such as an array, may have changed unseen: then it is pickled anew each time.
The name, the docstring and the annotations of a function are taken to stay what they are.
"""

from __future__ import annotations

import abc
import copyreg
import functools
import sys
import types
from itertools import chain, repeat
from operator import is_
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from scaler_cluster.pickling.by_value import HEAP_TYPE, is_importable, travels_by_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

T = TypeVar("T")
FUNCTIONS_MAX = 1000
"""A function that its own globals name is kept by its snapshot, so there must be an end to them."""
OBJECTS_MAX = 256
"""A function that refers to more objects than this is pickled anew: looking would take as long."""

_MISSING = object()
_missing = repeat(_MISSING)
_END = (object(),)

_NEVER_CHANGE = frozenset(
    (
        type(None), type(...), type(NotImplemented), bool, int, float, complex, str, bytes, range,
        types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType,
        types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    )
)  # fmt: skip
_NEVER_CHANGE_BY_NAME = frozenset(
    (
        "datetime.date", "datetime.datetime", "datetime.time",
        "datetime.timedelta", "datetime.timezone", "decimal.Decimal", "fractions.Fraction",
        "logging.Logger", "logging.RootLogger", "numpy.ufunc", "re.Pattern", "typing._SpecialForm",
        "uuid.UUID",
    )
)  # fmt: skip
"""The same, of modules that are not imported for it; a logger is pickled by its name."""
_TYPES_BY_NAME = frozenset(
    (
        "types.GenericAlias", "types.UnionType", "typing.TypeVar", "typing.Union",
        "typing._GenericAlias", "typing._UnionGenericAlias",
    )
)  # fmt: skip
"""What annotations are made of; the classes that these refer to may change."""
_PARTS_OF_TYPES = ("__origin__", "__args__", "__bound__", "__constraints__")


class FunctionCache(Generic[T]):
    """Keeps one value per function, weakly.

    :meth:`look` comes before something is made of a function, :meth:`put` after it: what changes
    in between is noticed by the next :meth:`get`.
    """

    def __init__(self) -> None:
        self._entries: WeakKeyDictionary[Any, tuple[Any, T | None]] = WeakKeyDictionary()

    def get(self, function: Callable[..., Any]) -> T | None:
        """Return what was put for a function; None if there is nothing, or it has changed."""
        entry = self._entries.get(function)
        if entry is None:
            return None
        state, made = entry
        return made if state is True or (state and state.holds(function)) else None

    def look(self, function: Callable[..., Any]) -> Any:
        """Return what :meth:`put` takes.

        Most functions are used once, or change: only the second time it is worth a snapshot.
        """
        if is_importable(function):
            return True
        if type(function) is not types.FunctionType:
            return False
        entry = self._entries.get(function)
        if entry is None:
            return None
        return entry[0] is not False and (Snapshot.of(function) or False)

    def put(self, function: Callable[..., Any], state: Any, made: T) -> None:
        """Keep what was made of a function; with the state True for as long as that lives."""
        if len(self._entries) >= FUNCTIONS_MAX:
            self._entries.clear()
        self._entries[function] = state, (made if state else None)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()


class Snapshot:
    """The objects that a function refers to, directly or not; it does not keep the function."""

    __slots__ = (
        "_attributes", "_dicts", "_empty", "_entries", "_holders", "_items", "_keys", "_names",
        "_own", "_root", "_views",
    )  # fmt: skip

    def __init__(self, walk: _Walk) -> None:
        root = walk.root
        self._root = root.__code__, root.__defaults__, root.__kwdefaults__
        self._holders, self._names = tuple(walk.holders), tuple(walk.names)
        self._attributes = tuple(walk.attributes)
        self._dicts, self._keys, self._entries = walk.dicts, walk.keys, walk.entries
        self._empty = tuple(walk.empty)
        self._views, self._items = walk.views, (*walk.items, *_END)
        self._own = walk.own

    @classmethod
    def of(cls, function: types.FunctionType) -> Snapshot | None:
        """Return a function's snapshot; None if it refers to what may change unseen."""
        walk = _Walk(function)
        return cls(walk) if walk.run() else None

    def holds(self, function: types.FunctionType) -> bool:
        """Return True if nothing has changed."""
        code, defaults, kwdefaults = self._root
        try:
            return (
                function.__code__ is code
                and function.__defaults__ is defaults
                and function.__kwdefaults__ is kwdefaults
                and all(map(is_, map(dict.get, self._dicts, self._keys, _missing), self._entries))
                and all(
                    map(is_, map(getattr, self._holders, self._names, _missing), self._attributes)
                )
                and not any(self._empty)
                and (not self._views or self._shows_the_same())
                and (not self._own or all(d.get(key) is function for d, key in self._own))
            )
        except (ValueError, RuntimeError):
            # A closure's cell is empty now, or another thread changes a dictionary.
            return False

    def _shows_the_same(self) -> bool:
        # With an end of its own: one more item is a change, too.
        now = chain(chain.from_iterable(self._views), _END)
        return all(map(is_, now, self._items))


class _Walk:
    """Follows what a function refers to, and notes where each object is found."""

    def __init__(self, root: types.FunctionType) -> None:
        self.root = root
        self.holders: list[Any] = []
        self.names: list[str] = []
        self.attributes: list[Any] = []
        """Attributes by name of objects, and what they are."""
        self.dicts: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.entries: list[Any] = []
        """Globals by name, and what they are."""
        self.empty: list[Collection[Any]] = []
        """What holds nothing."""
        self.views: list[Collection[Any]] = []
        self.items: list[Any] = []
        """What is looked at item by item, and what it holds in all."""
        self.own: list[tuple[dict[str, Any], str]] = []
        """Globals that are the function itself: a snapshot that held it would keep it for ever."""
        self._seen: dict[int, Any] = {}
        self._todo: list[Any] = []

    def run(self) -> bool:
        """Return True if everything was followed to what cannot change unseen."""
        self._seen[id(self.root)] = self.root
        if not self._follow_function(self.root):
            return False
        while self._todo:
            if not self._visit(self._todo.pop()):
                return False
        return True

    def _visit(self, value: Any) -> bool:
        kind = type(value)
        if kind in _NEVER_CHANGE:
            return True
        if value is self.root:
            return False
        if id(value) in self._seen:
            return True
        self._seen[id(value)] = value
        if len(self._seen) > OBJECTS_MAX:
            return False
        follow = _FOLLOW.get(kind)
        if follow is not None:
            return follow(self, value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in _NEVER_CHANGE_BY_NAME:
            return True
        if name in _TYPES_BY_NAME:
            try:
                self._todo += [getattr(value, part, None) for part in _PARTS_OF_TYPES]
            except Exception:
                # A bound is evaluated when it is asked for, since Python 3.12.
                return False
            return True
        if isinstance(value, type):
            return self._follow_class(value)
        return self._follow_instance(value)

    def _look_at(self, view: Collection[Any]) -> bool:
        """Note all items of something that may be iterated again and again."""
        if len(view) > OBJECTS_MAX:
            return False
        if not view:
            self.empty.append(view)
            return True
        items = tuple(view)
        self.views.append(view)
        self.items += items
        self._todo += items
        return True

    def _note(self, holder: Any, name: str, value: Any) -> None:
        self.holders.append(holder)
        self.names.append(name)
        self.attributes.append(value)

    def _follow_function(self, function: types.FunctionType) -> bool:
        if function is not self.root:
            if is_importable(function):
                return True
            for name in ("__code__", "__defaults__", "__kwdefaults__"):
                self._note(function, name, getattr(function, name))
        self._todo += (function.__defaults__, function.__kwdefaults__, function.__dict__)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                return False
            self._note(cell, "cell_contents", content)
            self._todo.append(content)
        namespace = function.__globals__
        for name in dict.fromkeys(_names_in(function.__code__)):
            value = namespace.get(name, _MISSING)
            if value is self.root:
                self.own.append((namespace, name))
                continue
            self.dicts.append(namespace)
            self.keys.append(name)
            self.entries.append(value)
            if value is not _MISSING:
                self._todo.append(value)
        return True

    def _follow_class(self, cls: type) -> bool:
        if is_importable(cls):
            return True
        self._note(cls, "__bases__", cls.__bases__)
        self._todo += (type(cls), *cls.__bases__)
        return self._follow_dict(vars(cls))

    def _follow_instance(self, value: Any) -> bool:
        """Follow the attributes of an instance, if these are all that pickle takes of it."""
        kind = type(value)
        if not _is_plain(kind):
            return False
        self._note(value, "__class__", kind)
        for base in kind.__mro__:
            for name, one in vars(base).items():
                if type(one) is types.MemberDescriptorType:
                    content = getattr(value, name, _MISSING)
                    self._note(value, name, content)
                    if content is not _MISSING:
                        self._todo.append(content)
        namespace = getattr(value, "__dict__", None)
        if namespace is not None:
            self._note(value, "__dict__", namespace)
            self._todo.append(namespace)
        self._todo.append(kind)
        return True

    def _follow_dict(self, value: Any) -> bool:
        if not value:
            return self._look_at(value)
        return self._look_at(value.keys()) and self._look_at(value.values())

    def _follow_items(self, value: Any) -> bool:
        """Follow what cannot get other items: to see that it is the same one is enough."""
        self._todo += value
        return True

    def _follow_parts(self, value: Any) -> bool:
        names = _PARTS[type(value)]
        self._todo += (getattr(value, name) for name in names)
        return True

    def _give_up(self, _: Any) -> bool:
        return False

    def _follow_module(self, module: types.ModuleType) -> bool:
        name = module.__name__
        return sys.modules.get(name) is module and not travels_by_value(name)


_PARTS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    types.MethodType: ("__func__", "__self__"),
    types.BuiltinFunctionType: ("__self__",),
    types.MethodWrapperType: ("__self__",),
    functools.partial: ("func", "args", "keywords", "__dict__"),
}
# Any: what an abstract class keeps is private.
_ABSTRACT: Any = abc.ABC
_FOLLOW: dict[type, Callable[[_Walk, Any], bool]] = {
    types.FunctionType: _Walk._follow_function,
    type: _Walk._follow_class,
    types.ModuleType: _Walk._follow_module,
    # The classes that were registered with an abstract one: nobody else sees them.
    type(_ABSTRACT._abc_impl): _Walk._give_up,
    dict: _Walk._follow_dict,
    types.MappingProxyType: _Walk._follow_dict,
    list: _Walk._look_at,
    set: _Walk._look_at,
    tuple: _Walk._follow_items,
    frozenset: _Walk._follow_items,
    **dict.fromkeys(_PARTS, _Walk._follow_parts),
}


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Yield all names that code, or code inside of it, could mean globals by."""
    yield from code.co_names
    for one in code.co_consts:
        if type(one) is types.CodeType:
            yield from _names_in(one)


def _is_plain(kind: Any) -> bool:
    """Return True if pickle takes nothing of an instance but its ``__dict__`` and its slots."""
    return (
        all(getattr(kind, name, None) is getattr(object, name, None) for name in _PICKLING)
        and kind not in copyreg.dispatch_table
        and all(base is object or base.__flags__ & HEAP_TYPE for base in kind.__mro__)
    )


_PICKLING = (
    "__getattr__",
    "__getattribute__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__getstate__",
    "__reduce__",
    "__reduce_ex__",
)

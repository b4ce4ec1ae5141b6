"""What of a value cannot be pickled. It is looked for only once it is known that something cannot.

The value is walked as the pickler walks it, in the same order, so what is found first is what the
pickler stumbled over. The way there is written as Python would write it: ``model.layers[3].lock``.
"""

from __future__ import annotations

import copyreg
import functools
import io
import itertools
import pickle
from concurrent.futures import Executor
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from scaler_cluster.errors import INTERRUPTS
from scaler_cluster.pickling.by_value import PROTOCOL, Pickler, set_class_state, set_dispatcher
from scaler_cluster.texts import kind_of, look_of, named, show, with_article

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Part: TypeAlias = tuple[str, object]
    """How to come from a value to a part of it, and that part.

    An expression (``.name``, ``[key]``), the name of something that no expression reaches, or
    nothing for what is no part of the value in the eyes of people.
    """

VALUES_MAX = 1_000_000
"""So many values are looked at: about a second. Who pickles more is told what the pickler said."""
PATH_CHARS_MAX = 400
ATOMS = frozenset((type(None), bool, int, float, complex, str, bytes, bytearray))
"""Types of values that have no parts and can always be pickled."""
REDUCED = f".__reduce_ex__({PROTOCOL})"
SEALED = {
    "asyncio",
    "concurrent",
    "logging",
    "multiprocessing",
    "queue",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
}
"""Modules of the standard library whose objects are named as a whole: nobody knows their locks."""

OF_A_PROCESS = (
    "Each process has its own: make it in the task or in the initializer, or let __getstate__ of "
    "the object that has it leave it out."
)
LOCAL = "Make it in the task, or once per worker in the initializer."
MANAGED = (
    "Those of a multiprocessing.Manager() can be passed to tasks. Give others to an initializer, "
    "which keeps them under a name that the program itself does not use."
)
REMEDIES = {
    "_asyncio": LOCAL,
    "_io": "Pass the path of the file, and open it in the task.",
    "_queue": MANAGED,
    "_socket": LOCAL,
    "_ssl": LOCAL,
    "_thread": OF_A_PROCESS,
    "asyncio": LOCAL,
    "async_generator": "Use a list of what it yields.",
    "concurrent": "Make one in the task.",
    "coroutine": "Run it in the task, with asyncio.run.",
    "generator": "Use a list of what it yields.",
    "mappingproxy": "Use a dict of it.",
    "multiprocessing": MANAGED,
    "queue": MANAGED,
    "socket": LOCAL,
    "sqlite3": LOCAL,
    "ssl": LOCAL,
    "subprocess": LOCAL,
    "tempfile": "Pass the path of the file, and open it in the task.",
    "threading": OF_A_PROCESS,
    "traceback": "Use the text that traceback.format_exception makes.",
}
"""What to do instead, by the name of a type or of its package."""
# Any: two of its functions have no types.
_COPYREG: Any = copyreg


class Found(NamedTuple):
    """The part of a value that cannot be pickled."""

    path: tuple[str, ...]
    """How to come there."""
    part: object
    error: BaseException
    """What is raised where it is pickled."""


def why(value: object, error: BaseException) -> str:
    """Return why a value cannot be pickled, for people; ``error`` is what the pickler raised."""
    found = find(value)
    if found is None:
        return show(error, str)
    where, kind = _path_text(found.path), kind_of(found.part)
    what = "it" if not where else f"its {where}"
    if isinstance(found.error, TypeError) and show(found.error, str).startswith("cannot pickle "):
        text = f"{what} is {with_article(kind)}, which cannot be pickled"
    else:
        raised = f"{type(found.error).__qualname__}: {show(found.error, str)}"
        text = f"{what} is {with_article(kind)}, whose pickling raises {raised}"
    remedy = _remedy(kind)
    return f"{text.rstrip('.')}. {remedy}" if remedy else text


def find(value: object) -> Found | None:
    """Return the part that cannot be pickled, unless it has too many to be looked at, or it can.

    Raises nothing but INTERRUPTS, whatever the methods of these objects do.
    """
    pickler = Pickler(io.BytesIO(), PROTOCOL)
    seen: dict[int, object] = {}
    """What was looked at, by its id. It is kept, so that no id comes back."""
    way: list[tuple[str, object, Iterator[Part]]] = [("", None, iter((("", value),)))]
    for _ in range(VALUES_MAX):
        one: object = None
        try:
            step, one = next(way[-1][2])
            if type(one) in ATOMS or id(one) in seen:
                continue
            seen[id(one)] = one
            way.append((step, one, _parts(pickler, one)))
        except StopIteration:
            way.pop()
            if not way:
                return None
        except INTERRUPTS:
            raise
        except BaseException as error:
            # Its traceback would hold this frame, and so the value.
            return _outermost(way[1:], error.with_traceback(None))
    return None


def _outermost(way: list[tuple[str, object, Iterator[Part]]], error: BaseException) -> Found | None:
    """Return what is to be blamed, at the end of the way or, where that is sealed, above it."""
    for depth, (_, one, _) in enumerate(way, 1):
        if issubclass(type(one), Executor) or kind_of(one).partition(".")[0] in SEALED:
            way = way[:depth]
            kind = kind_of(one).rpartition(".")[2]
            if depth < len(way):
                error = TypeError(f"cannot pickle {kind!r} object")
            break
    return Found(tuple(step for step, _, _ in way if step), way[-1][1], error) if way else None


# -- parts -----------------------------------------------------------------------------------


def _parts(pickler: Pickler, one: Any) -> Iterator[Part]:
    """Yield the parts of a value in the pickler's order; raises what its pickling raises."""
    kind = type(one)
    if kind in (list, tuple):
        yield from ((f"[{i}]", part) for i, part in enumerate(one) if type(part) not in ATOMS)
    elif kind is dict:
        yield from _entries(list(one.items()))
    elif kind in (set, frozenset):
        yield from (("member", part) for part in one)
    elif kind is not pickle.PickleBuffer:
        yield from _reduced_parts(pickler, one)


def _entries(items: Iterable[tuple[object, object]]) -> Iterator[Part]:
    for key, part in items:
        if type(key) not in ATOMS:
            yield f"key {named(key)}", key
        if type(part) not in ATOMS:
            yield f"[{_text(key)}]", part


def _attributes(state: dict[Any, object]) -> Iterator[Part]:
    for name, part in list(state.items()):
        yield (f".{name}" if type(name) is str else f"[{_text(name)}]"), part


def _reduced_parts(pickler: Pickler, one: Any) -> Iterator[Part]:
    """Yield the parts of what is reduced to others."""
    reduced = pickler.reducer_override(one)
    reducer = pickler.dispatch_table.get(type(one)) if reduced is NotImplemented else None
    is_own = False
    """True if the value's own method says how it is pickled."""
    if reducer is not None:
        reduced = reducer(one)
    elif reduced is NotImplemented and not issubclass(type(one), (type, FunctionType)):
        is_own = True
        reduced = one.__reduce_ex__(PROTOCOL)
    if reduced is NotImplemented or isinstance(reduced, str):
        # By its name.
        pickle.dumps(one, PROTOCOL)
        return
    if not isinstance(reduced, tuple) or not 2 <= len(reduced) <= 6:
        raise pickle.PicklingError(f"__reduce__ returned {named(reduced)}")
    make, args, state, items, entries, setter = reduced + (None,) * (6 - len(reduced))
    if setter is set_class_state:
        setter, state = state
    if issubclass(type(one), FunctionType) and setter is not set_dispatcher:
        yield from _function_parts(one, state)
        return
    yield f"{REDUCED}[0]", make
    yield from _made_from(one, make, args, is_own=is_own)
    if items is not None:
        yield from ((f"[{i}]", part) for i, part in enumerate(items))
    if entries is not None:
        yield from _entries(entries)
    yield f"{REDUCED}[5]", setter
    if issubclass(type(one), functools.partial):
        _, arguments, keywords, attributes = state
        yield from ((f".args[{i}]", part) for i, part in enumerate(arguments))
        yield from ((f".keywords[{name!r}]", part) for name, part in keywords.items())
        yield from _attributes(attributes or {})
        return
    # Of an object with slots, a pair.
    is_pair = isinstance(state, tuple) and all(part is None or type(part) is dict for part in state)
    for part in state if is_pair else (state,):
        if type(part) is dict:
            yield from _attributes(part)
        else:
            yield f"{REDUCED}[2]" if is_own else "", part


def _made_from(one: Any, make: Any, args: Any, *, is_own: bool) -> Iterator[Part]:
    """Yield the arguments that a value is made from anew."""
    if not isinstance(args, tuple):
        raise pickle.PicklingError(f"__reduce__ returned the arguments {named(args)}")
    if issubclass(type(one), type):
        for part in args:
            if type(part) is dict:
                yield from _attributes(part)
            else:
                yield "", part
        return
    names: Iterable[str] = ()
    if make is _COPYREG.__newobj__ or make is _COPYREG.__newobj_ex__:
        yield f"class {type(one).__qualname__}", args[0]
        fields = getattr(type(one), "_fields", ()) if issubclass(type(one), tuple) else ()
        names = ("", *(f".{name}" for name in fields))
    elif issubclass(type(one), BaseException) and make is type(one):
        names = (f".args[{i}]" for i in range(len(args)))
    elif issubclass(type(one), functools.partial):
        names = (".func",)
    elif issubclass(type(one), MethodType):
        names = (".__func__", ".__self__")
    elif make is getattr:
        names = (".__self__",)
    elif not is_own:
        names = ("" for _ in args)
    for i, (name, part) in enumerate(itertools.zip_longest(names, args)):
        yield f"{REDUCED}[1][{i}]" if name is None else name, part


def _function_parts(function: FunctionType, state: Any) -> Iterator[Part]:
    """Yield what a function takes along that travels by value."""
    attributes, slots = state
    code = function.__code__
    for name, part in slots.get("__globals__", {}).items():
        yield f"global variable {name}", part
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            part = cell.cell_contents
        except ValueError:
            # Nothing was assigned to it yet.
            continue
        yield f"closure variable {name}", part
    defaults = function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    for name, part in zip(positional[len(positional) - len(defaults) :], defaults, strict=True):
        yield f"default of the parameter {name}", part
    for name, part in (function.__kwdefaults__ or {}).items():
        yield f"default of the parameter {name}", part
    yield from _attributes(attributes)
    known = ("__globals__", "__closure__", "__defaults__", "__kwdefaults__")
    yield from ((f".{name}", part) for name, part in slots.items() if name not in known)


# -- texts -----------------------------------------------------------------------------------


def _path_text(path: tuple[str, ...]) -> str:
    """Return the way to a part, with what it is: ``attribute a.b[3]``."""
    text = ""
    for step in path:
        if not step.startswith((".", "[")):
            text += f", its {step}" if text else step
        elif text:
            text += step
        elif step.startswith("["):
            text = f"item {step}"
        else:
            text = f"attribute {step[1:]}" if step[1:].isidentifier() else step[1:]
    if len(text) > PATH_CHARS_MAX:
        text = f"{text[: PATH_CHARS_MAX // 2]} ... {text[-PATH_CHARS_MAX // 2 :]}"
    return text


def _text(key: object) -> str:
    return look_of(key) or kind_of(key)


def _remedy(kind: str) -> str:
    """Return what to do about a part of this type; empty if that is not known."""
    known = REMEDIES.get(kind) or REMEDIES.get(kind.partition(".")[0])
    if known is None and kind.endswith(("Connection", "Cursor")):
        return LOCAL
    return known or ""

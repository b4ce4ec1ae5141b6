"""Digests of functions and values that are the same in every process and run.

A pickle is no such thing: the order of a set, what is shared between values, the line numbers of a
function differ from run to run. Here each value is taken apart as pickle would do it, and what it
consists of is digested in an order that does not depend on the process. Two values that behave
differently have different digests. The converse is not promised: a value may have another digest
in the next run, and then a task is merely run again.

- A function that is pickled by value counts with its code (not its line numbers), its defaults,
  its closure, and the globals that it names.
- What a module on this machine defines that is not installed counts with the code of its whole
  file, and with the modules that this imports, as far as they are not installed either.
- What is installed counts with its name; the versions are noted in :attr:`Digester.versions`.
"""

from __future__ import annotations

import contextlib
import copyreg
import dis
import functools
import importlib.metadata
import importlib.util
import struct
import sys
import sysconfig
import types
import zipimport
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaler_cluster.client.calls import MARK
from scaler_cluster.objects.digest import lasting_digest_of
from scaler_cluster.pickling.by_value import PROTOCOL, is_importable, travels_by_value
from scaler_cluster.texts import show, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

DEPTH_MAX = 200
"""Values that are nested deeper have no digest: Python's stack ends before long."""
FEW = 16
_SIMPLE = frozenset((type(None), bool, int, float, str, bytes))
"""Types whose values are told apart by how they are shown."""
_ANYTHING = frozenset(("eval", "exec", "globals", "locals", "vars", "__import__"))
"""Who calls these may use what the code does not name."""
_OURS = frozenset(("scaler_exec", "scaler_cluster", "scaler_compat", "scaler"))
_GLOBALS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
_MISSING = object()
_INSTALLED = tuple(
    Path(path).resolve()
    for path in {
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)
_NOT_OF_FUNCTIONS = frozenset((MARK, "__wrapped__"))
_NOT_OF_CLASSES = frozenset(
    ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__",
     "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "_abc_impl",
     # Of pickle, which notes it when it meets the first instance.
     "__slotnames__")
)  # fmt: skip


class NoDigestError(Exception):
    """There is no digest of a value that would be the same in another process; it says why."""


class Digester:
    """Makes the digests of one call."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        """Of the installed packages that something named."""
        self._known: dict[int, tuple[bytes, Any]] = {}
        """The digest of each object, which is kept for its identity."""
        self._walked: dict[int, tuple[int, Any]] = {}
        """The functions and classes that were met, in their order."""
        self._open: dict[int, int] = {}
        """What is being taken apart, with its depth: a value may contain itself."""
        self._lowest = DEPTH_MAX
        """The lowest depth of what the values taken apart just now refer back to."""

    def digest(self, value: Any) -> bytes:
        """Return a value's digest; raises NoDigestError."""
        kind = type(value)
        plain = _PLAIN.get(kind)
        if plain is not None:
            return _join(kind.__name__, [plain(value)])
        if id(value) in self._known:
            return self._known[id(value)][0]
        depth = self._open.get(id(value))
        if depth is not None:
            self._lowest = min(self._lowest, depth)
            return _join("back", [b"%d" % (len(self._open) - depth)])
        depth = len(self._open)
        if depth >= DEPTH_MAX:
            raise NoDigestError(f"{shown(value)} is nested too deeply")
        if id(value) in self._walked:
            # A part of a circle, which is closed by now: it refers to what is above it.
            self._lowest = -1
            return _join("met", [b"%d" % self._walked[id(value)][0]])
        if kind is types.FunctionType or isinstance(value, type):
            self._walked[id(value)] = len(self._walked), value
        outer, self._lowest = self._lowest, DEPTH_MAX
        self._open[id(value)] = depth
        try:
            made = self._take_apart(kind, value)
        finally:
            del self._open[id(value)]
            lowest = self._lowest
            self._lowest = min(outer, lowest if lowest < depth else DEPTH_MAX)
        if lowest >= depth:
            # It refers to nothing around it: elsewhere it is the same.
            self._known[id(value)] = made, value
        return made

    def _take_apart(self, kind: type, value: Any) -> bytes:
        if kind in (list, tuple):
            if len(value) > FEW and _SIMPLE.issuperset(map(type, value)):
                # Ten times as fast as one by one. A huge number cannot be shown.
                with contextlib.suppress(ValueError):
                    return _join(f"{kind.__name__} of simple", [repr(value).encode()])
            return self._all(kind.__name__, value)
        if kind is dict:
            return self._all("dict", chain.from_iterable(value.items()))
        if kind in (set, frozenset):
            return _join(kind.__name__, sorted(map(self.digest, value)))
        if kind is types.FunctionType:
            return self._function(value)
        if kind is types.CodeType:
            return self._code(value)
        if kind is types.MappingProxyType:
            return self._all("proxy", (dict(value),))
        if kind is _Cached:
            return self._all("cached", (value.__wrapped__, value.cache_parameters()))
        if isinstance(value, types.ModuleType):
            if travels_by_value(value.__name__) or sys.modules.get(value.__name__) is not value:
                raise NoDigestError(f"the module {value.__name__} may have anything in it")
            return _join("module", [value.__name__.encode(), self._module(value.__name__)])
        if kind is types.MethodType:
            return self._all("method", (value.__func__, value.__self__))
        if kind in (staticmethod, classmethod):
            return self._all(kind.__name__, (value.__func__,))
        if kind is property:
            return self._all("property", (value.fget, value.fset, value.fdel))
        if isinstance(value, type):
            return self._class(value)
        if kind is types.BuiltinFunctionType and not isinstance(value.__self__, types.ModuleType):
            return self._all("builtin", (value.__name__, value.__self__))
        if kind in (types.MemberDescriptorType, types.GetSetDescriptorType):
            return _join("slot", [value.__name__.encode()])
        if (kind.__module__, kind.__name__) == ("numpy", "ndarray") and not value.dtype.hasobject:
            return self._array(value)
        if is_importable(value):
            return self._named(value.__module__, value.__qualname__)
        return self._reduced(value)

    def _all(self, name: str, values: Iterable[Any]) -> bytes:
        return _join(name, map(self.digest, values))

    def _array(self, array: Any) -> bytes:
        is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        laid = array.T if is_fortran else array
        data = (
            laid.tobytes()
            if not laid.flags.c_contiguous
            else memoryview(laid.reshape(-1).view("u1"))
        )
        # Sums of the same numbers in another order may differ in their last digits.
        self._note("numpy")
        said = repr((array.dtype, array.shape, is_fortran)).encode()
        return _join("array", [said, lasting_digest_of(data)])

    def _reduced(self, value: Any) -> bytes:
        """Return the digest of what pickle would make a value of."""
        kind = type(value)
        if kind.__module__ == "builtins" and kind.__name__ in _LIVE:
            raise NoDigestError(f"{shown(value)} is no value")
        try:
            reduce = copyreg.dispatch_table.get(kind)
            reduced: Any = reduce(value) if reduce else value.__reduce_ex__(PROTOCOL)
        except Exception as error:
            raise NoDigestError(f"{shown(value)} cannot be pickled: {show(error)}") from error
        if isinstance(reduced, str):
            module = getattr(value, "__module__", None) or kind.__module__
            if travels_by_value(module):
                raise NoDigestError(f"{shown(value)} is pickled by its name alone")
            return self._named(module, reduced)
        items = [list(one) if index in (3, 4) and one is not None else one
                 for index, one in enumerate(reduced)]  # fmt: skip
        return self._all("reduced", items)

    # -- code ----------------------------------------------------------------------------------

    def _named(self, module: str, name: str) -> bytes:
        return _join("named", [module.encode(), name.encode(), self._module(module)])

    def _function(self, function: types.FunctionType) -> bytes:
        if is_importable(function):
            return self._named(function.__module__, function.__qualname__)
        own = {name: one for name, one in vars(function).items() if name not in _NOT_OF_FUNCTIONS}
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:
                cells.append(_EMPTY)
        parts = [
            self.digest(function.__code__),
            self.digest(function.__defaults__),
            self.digest(function.__kwdefaults__),
            self.digest(cells),
            self.digest(own),
        ]
        # Not every stub of types knows of it.
        known: Any = function
        namespace, builtins = function.__globals__, known.__builtins__
        for name in sorted(_globals_of(function.__code__)):
            value = namespace.get(name, _MISSING)
            if value is _MISSING:
                if name in _ANYTHING:
                    raise NoDigestError(f"{function.__qualname__}() uses {name}()")
                value = builtins.get(name, _EMPTY)
            parts += [name.encode(), self._said(f"the global {name!r}", value)]
        return _join("function", parts)

    def _said(self, what: str, value: Any) -> bytes:
        try:
            return self.digest(value)
        except NoDigestError as error:
            raise NoDigestError(f"{what}: {error}") from error

    def _code(self, code: types.CodeType) -> bytes:
        said = (
            code.co_name, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
            code.co_flags, code.co_code, code.co_names, code.co_varnames, code.co_freevars,
            code.co_cellvars, getattr(code, "co_exceptiontable", b""),
        )  # fmt: skip
        return _join("code", [self.digest(said), self.digest(code.co_consts), *self._imports(code)])

    def _imports(self, code: types.CodeType) -> list[bytes]:
        return [self._module(name) for name in sorted(set(_imports_of(code)))]

    def _class(self, cls: type) -> bytes:
        if is_importable(cls):
            return self._named(cls.__module__, cls.__qualname__)
        own = {name: one for name, one in vars(cls).items() if name not in _NOT_OF_CLASSES}
        return self._all("class", (cls.__qualname__, type(cls), cls.__bases__, own))

    def _module(self, name: str) -> bytes:
        """Return the digest of what the module of a name is made of; empty if it is installed."""
        local: dict[str, Path] = {}
        todo = [name]
        while todo:
            one = todo.pop()
            found = None if one in local else self._local_file(one)
            if found is not None:
                local[one] = found
                parent = one.rpartition(".")[0]
                todo += [parent] if parent else []
                todo += _source(found, one)[1]
        if not local:
            return b""
        parts: list[bytes] = []
        for one, found in sorted(local.items()):
            parts += [one.encode(), _source(found, one)[0]]
        return _join("modules", parts)

    def _local_file(self, name: str) -> Path | None:
        """Return the file of a module that is not installed; note the version of one that is."""
        top = name.partition(".")[0]
        if top == "__main__":
            raise NoDigestError("it imports __main__, which may have anything in it")
        if travels_by_value(name):
            return _file_of(name)
        above = _file_of(top)
        # One of the user's may have the name of a module of Python, and be found before it.
        if top in sys.stdlib_module_names and (above is None or _is_installed(above)):
            return None
        if above is None and _is_unseen(top):
            raise NoDigestError(f"the module {top} has no file that could be looked at")
        if top in _OURS or (above is not None and _is_installed(above)):
            self._note(top)
            return None
        found = above if top == name else _file_of(name)
        if found is not None and _is_installed(found):
            self._note(top)
            return None
        return found

    def _note(self, top: str) -> None:
        if top not in self.versions:
            self.versions[top] = _version_of(top)


_LIVE = frozenset(("generator", "coroutine", "async_generator", "frame", "weakref"))


_Cached = type(functools.cache(len))


class _Empty:
    """Stands for what is not there."""

    def __reduce__(self) -> str:
        return "_EMPTY"


_EMPTY = _Empty()


def _float(value: float) -> bytes:
    return struct.pack("<d", value)


_PLAIN: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"",
    type(...): lambda _: b"",
    type(NotImplemented): lambda _: b"",
    bool: lambda value: b"%d" % value,
    int: lambda value: b"%x" % value,
    float: _float,
    complex: lambda value: _float(value.real) + _float(value.imag),
    str: lambda value: value.encode("utf-8", "surrogatepass"),
    bytes: lasting_digest_of,
    bytearray: lambda value: lasting_digest_of(bytes(value)),
    range: lambda value: repr(value).encode(),
}
"""Types of values that have nothing inside."""


def _join(name: str, parts: Iterable[bytes]) -> bytes:
    """Return the digest of these, each with its length: no other parts have the same."""
    pieces = [name.encode()]
    for part in parts:
        pieces += (struct.pack("<Q", len(part)), part)
    return lasting_digest_of(b"\0".join((pieces[0], b"".join(pieces[1:]))))


def _globals_of(code: types.CodeType) -> set[str]:
    """Return the names by which code, and code inside of it, takes globals."""
    names = {one.argval for one in dis.get_instructions(code) if one.opname in _GLOBALS}
    return names.union(*(_globals_of(one) for one in code.co_consts if type(one) is types.CodeType))


def _imports_of(code: types.CodeType, package: str = "") -> Iterator[str]:
    """Yield the modules that code imports by itself, and what may be modules of these."""
    before: list[Any] = [None, None]
    for one in dis.get_instructions(code):
        if one.opname == "EXTENDED_ARG":
            # Before an instruction whose name is not among the first 256 of the code.
            continue
        if one.opname == "IMPORT_NAME":
            level, names = before
            module = one.argval
            if level and not package:
                raise NoDigestError(f"{code.co_name}() imports a module relative to its own")
            if level:
                module = importlib.util.resolve_name("." * level + module, package)
            yield module
            yield from (f"{module}.{name}" for name in names or () if name != "*")
        before = [before[1], one.argval]


def _file_of(name: str) -> Path | None:
    """Return the file that a module is made of, which may lie in an archive.

    None if there is none, or no such module.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is None:
        try:
            spec = importlib.util.find_spec(name)
        except Exception:
            # To find it, the package that it should be in is imported.
            return None
    origin = getattr(spec, "origin", None) or getattr(module, "__file__", None)
    path = Path(origin) if isinstance(origin, str) else None
    return path if path is not None and (path.is_file() or _archive_of(path)) else None


def _archive_of(file: Path) -> Path | None:
    return next((one for one in file.parents if one.is_file()), None)


def _is_unseen(name: str) -> bool:
    """Return True if a module was imported, and is neither made of a file nor a mere directory."""
    module = sys.modules.get(name)
    return module is not None and getattr(module, "__path__", None) is None


def _read(file: Path) -> bytes:
    archive = None if file.is_file() else _archive_of(file)
    if archive is None:
        return file.read_bytes()
    return zipimport.zipimporter(str(archive)).get_data(str(file))


@functools.lru_cache(maxsize=10_000)
def _is_installed(file: Path) -> bool:
    resolved = file.resolve()
    return (
        any(resolved.is_relative_to(place) for place in _INSTALLED)
        or "site-packages" in resolved.parts
        or "dist-packages" in resolved.parts
    )


@functools.lru_cache(maxsize=10_000)
def _source(file: Path, name: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the digest of a module's file, and the modules that it imports.

    As the file was when this first looked at it: the module that was imported stays what it is.
    """
    try:
        data = _read(file)
        if file.suffix != ".py":
            return lasting_digest_of(data), ()
        code = compile(data, "", "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError) as error:
        raise NoDigestError(f"the module {name} cannot be read: {show(error)}") from error
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    return _Source().digest(code), tuple(dict.fromkeys(_deep_imports(code, package)))


def forget_sources() -> None:
    """Look at each module's file again: one was reloaded."""
    _source.cache_clear()


class _Source(Digester):
    """Digests code by itself: what it imports is looked at elsewhere."""

    def _imports(self, _: types.CodeType) -> list[bytes]:
        return []


def _deep_imports(code: types.CodeType, package: str) -> Iterator[str]:
    yield from _imports_of(code, package)
    for one in code.co_consts:
        if type(one) is types.CodeType:
            yield from _deep_imports(one, package)


@functools.lru_cache(maxsize=10_000)
def _version_of(top: str) -> str:
    """Return the version of a package by the name of its module; without one its content's."""
    version = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(version, str):
        return version
    for name in _distributions().get(top, ()):
        return importlib.metadata.version(name)
    file = _file_of(top)
    return "" if file is None else lasting_digest_of(_read(file)).hex()


@functools.lru_cache(maxsize=1)
def _distributions() -> Any:
    return importlib.metadata.packages_distributions()

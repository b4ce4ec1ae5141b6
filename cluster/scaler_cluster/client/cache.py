"""Results that are kept on disk, and found again by what was called."""

from __future__ import annotations

import json
import logging
import pickle
import sys
import threading
import warnings
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaler_cluster import arguments
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.pickling import reloads
from scaler_cluster.pickling.by_value import PROTOCOL
from scaler_cluster.pickling.function_cache import FunctionCache
from scaler_cluster.texts import show, shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from scaler_cluster.client.result_files import ResultFiles

LIMIT_BYTES = 10_000_000_000
PYTHON = ".".join(map(str, sys.version_info[:3])) + f" ({sys.implementation.name})"
SHORT = 16
"""So many digits tell the parts of calls apart, for people; a call's name has all of them."""
log = logging.getLogger("scaler_cluster.client")


@dataclass(frozen=True)
class CallName:
    """What is called: the digests of its parts."""

    function: str
    """The function's name, which says only whose calls to compare."""
    code: str
    arguments: dict[str, str]
    versions: dict[str, str]
    """Of what is installed and was named."""
    python: str

    @property
    def key(self) -> str:
        """By which its result is found."""
        return _hex(json.dumps([1, asdict(self)], sort_keys=False))

    @property
    def line(self) -> str:
        """What is noted of it."""
        return json.dumps({
            "key": self.key,
            "python": self.python,
            "code": self.code[:SHORT],
            "versions": self.versions,
            "arguments": {name: one[:SHORT] for name, one in self.arguments.items()},
        })  # fmt: skip


class ResultCache:
    """Results of tasks in a directory, for any number of clients, processes and runs.

    Args:
        directory: Where they are kept; made if it is not there. It must be the user's own.
        limit: How much may be kept, in bytes or as text such as "10GB", the default. Beyond that,
            results that were not used for longest are removed.

    Raises:
        TypeError: An argument has the wrong type.
        ConfigError: The directory cannot be used, or others may write to it.

    """

    def __init__(self, directory: str | PathLike[str], limit: int | str = LIMIT_BYTES) -> None:
        if not isinstance(directory, str) and not hasattr(directory, "__fspath__"):
            raise TypeError(f"cache must be a directory or a ResultCache, not {shown(directory)}")
        self._begin(str(Path(directory).absolute()), arguments.size("limit", limit, 1))
        _ = self._files

    def _begin(self, directory: str, limit_bytes: int) -> None:
        self._given = directory, limit_bytes
        self._lock = threading.Lock()
        """Guards what is known of functions."""
        self._writing = threading.Lock()
        """Held while something is written, which no submit waits for."""
        self._codes: FunctionCache[tuple[str, dict[str, str]]] = FunctionCache()
        self._reloads = reloads.noted
        self._warned: set[str] = set()

    @cached_property
    def _files(self) -> ResultFiles:
        from scaler_cluster.client.result_files import ResultFiles

        return ResultFiles(Path(self._given[0]), self._given[1])

    def explain(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> str:
        """Return a sentence that says whether the result of a call is kept, and if not, why not."""
        from scaler_cluster.client.lasting_digest import NoDigestError

        try:
            name = self._name(fn, args, kwargs)
        except NoDigestError as error:
            return f"never kept: {error}"
        what = f"{name.function}()"
        if self._files.read(name.key) is not None:
            return f"kept: the result of this call of {what} is there"
        noted = self._noted(name.function)
        if not noted:
            return f"never seen: no result of {what} was kept here"
        if any(one["key"] == name.key for one in noted):
            return (
                f"was evicted: the result of this call of {what} was kept, and was removed since, "
                "to make room or as its file was damaged"
            )
        now = json.loads(name.line)
        changes = [_changes(one, now) for one in noted]
        # The last of the nearest.
        nearest = min(reversed(changes), key=len)
        return f"was not called so: compared with the nearest call of {what}, {_listed(nearest)}"

    def clear(self) -> None:
        """Remove all results, and what is known of earlier calls."""
        with self._writing:
            self._files.clear()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResultCache):
            return NotImplemented
        return self._given == other._given

    def __hash__(self) -> int:
        return hash(self._given)

    def __repr__(self) -> str:
        return f"<ResultCache {self._given[0]}, limit={self._given[1]}>"

    def __reduce__(self) -> Any:
        """Become a cache of the same directory, which is looked at when it is first used."""
        return _revive, self._given

    # -- for clients ---------------------------------------------------------------------------

    def name(self, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> CallName | None:
        """Return what names a call; None, with one warning for each function: nothing does."""
        from scaler_cluster.client.lasting_digest import NoDigestError

        try:
            return self._name(fn, args, kwargs)
        except NoDigestError as error:
            what = payloads.function_name(fn)
            if what not in self._warned:
                self._warned.add(what)
                warnings.warn(
                    f"results of {what}() are not kept: {error}", RuntimeWarning, stacklevel=5
                )
            return None

    def find(self, name: CallName) -> tuple[bool, Any]:
        """Return whether the result of a call is there, and the result."""
        content = self._files.read(name.key)
        if content is None:
            return False, None
        try:
            return True, pickle.loads(content)
        except Exception:
            # A class of it is not what it was: the task makes a new one.
            return False, None

    def keep(self, name: CallName, value: object) -> None:
        """Keep what a task returned; what cannot be kept is logged, once for each function.

        Classes and functions are kept by their names, also those of ``__main__``: another run of
        the program gets what it has itself under these.
        """
        try:
            content = pickle.dumps(value, PROTOCOL)
            with self._writing:
                self._files.write(name.key, content)
                self._files.note(_hex(name.function), name.line)
        except Exception as error:
            # The disk is full, or it cannot be pickled so: a class that has no name of its own.
            if name.function not in self._warned:
                self._warned.add(name.function)
                log.warning("results of %s() are not kept: %s", name.function, show(error))

    def _name(self, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> CallName:
        from scaler_cluster.client.lasting_digest import Digester, NoDigestError

        code, versions = self._code(fn)
        digester = Digester()
        found: dict[str, str] = {}
        # A keyword may be any text, also a number: only the places are written as such.
        named = ((one if one.isidentifier() else repr(one), kwargs[one]) for one in kwargs)
        for key, value in chain(enumerate(args), named):
            try:
                found[str(key)] = digester.digest(value).hex()
            except NoDigestError as error:
                raise NoDigestError(f"argument {key}: {error}") from error
        versions = dict(sorted({**versions, **digester.versions}.items()))
        return CallName(payloads.function_name(fn), code, found, versions, PYTHON)

    def _code(self, fn: Callable[..., Any]) -> tuple[str, dict[str, str]]:
        from types import FunctionType

        from scaler_cluster.client.lasting_digest import Digester, forget_sources

        is_function = type(fn) is FunctionType
        with self._lock:
            if self._reloads is not reloads.noted:
                self._reloads = reloads.noted
                self._codes.clear()
                forget_sources()
            known = self._codes.get(fn) if is_function else None
            if known is not None:
                return known
            state = self._codes.look(fn) if is_function else None
            reloaded = self._reloads
        # Not under the lock: it reads files, and what is pickled may have code of the user.
        digester = Digester()
        known = digester.digest(fn).hex(), digester.versions
        if is_function:
            with self._lock:
                if self._reloads is reloaded:
                    self._codes.put(fn, state, known)
        return known

    def _noted(self, function: str) -> list[dict[str, Any]]:
        found = []
        for line in self._files.notes(_hex(function)):
            try:
                one = json.loads(line)
                found.append({name: one[name] for name in _PARTS})
            except (ValueError, TypeError, KeyError):
                # Half of it was written.
                continue
        return found


def _revive(directory: str, limit_bytes: int) -> ResultCache:
    cache = object.__new__(ResultCache)
    cache._begin(directory, limit_bytes)
    return cache


_PARTS = ("key", "python", "code", "versions", "arguments")


def _changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what is different between two calls of a function, in words."""
    found = []
    if old["python"] != new["python"]:
        found.append(f"Python changed from {old['python']} to {new['python']}")
    if old["code"] != new["code"]:
        found.append("the function's code changed, or what it refers to")
    for name in sorted(old["versions"].keys() | new["versions"].keys()):
        before, after = old["versions"].get(name), new["versions"].get(name)
        if before is None or after is None:
            if old["code"] == new["code"]:
                found.append(f"{name} is {'not ' if after is None else ''}used")
        elif before != after:
            found.append(f"{name} changed from {before} to {after}")
    for name in dict.fromkeys([*old["arguments"], *new["arguments"]]):
        before, after = old["arguments"].get(name), new["arguments"].get(name)
        if before is None or after is None:
            found.append(f"argument {name} was {'added' if before is None else 'left out'}")
        elif before != after:
            found.append(f"argument {name} changed")
    return found


def _listed(changes: list[str]) -> str:
    return " and ".join(changes) if changes else "its keyword arguments come in another order"


def _hex(text: str) -> str:
    from scaler_cluster.objects.digest import lasting_digest_of

    return lasting_digest_of(text.encode("utf-8", "surrogatepass")).hex()

"""Functions to bytes: each call gets the function as it is when the call is made."""

from __future__ import annotations

from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import PayloadError
from scaler_cluster.ids import FUNCTION_NAME_CHARS_MAX, function_id
from scaler_cluster.pickling import reloads
from scaler_cluster.pickling.by_value import REGISTERED
from scaler_cluster.pickling.code_bundle import Arrival
from scaler_cluster.pickling.constant import Constant
from scaler_cluster.pickling.function_cache import FunctionCache, Snapshot
from scaler_cluster.pickling.named import refuse
from scaler_cluster.pickling.named_function import NamedFunction
from scaler_cluster.pickling.payload import (
    OBJECT_BYTES,
    Collector,
    Whole,
    dumps,
    function_name,
    load_parts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.client.requests import Function, Objects
    from scaler_cluster.objects.sent import SentObjects
    from scaler_cluster.pickling.code_bundle import CarriedCode

_CACHED = (FunctionType, BuiltinFunctionType, type)
"""Not partials, bound methods or other callables: what they hold may change, and they are light."""


class FunctionPickler:
    """Pickles functions; one that is known to be unchanged is pickled once.

    ``stored`` returns what keeps the large buffers of functions; without it they stay in the
    pickle.
    """

    def __init__(self, stored: Callable[[], SentObjects] | None) -> None:
        self._stored = stored
        self._cache: FunctionCache[Function] = FunctionCache()
        self._reloads = reloads.noted
        self._registered = set(REGISTERED)
        self._code: CarriedCode | None = None

    def __call__(self, function: Callable[..., Any], held: list[bytes]) -> Function:
        """Return digest, pickle, objects and name; raises PayloadError, StorageFullError.

        Raises NamedCallError for a named function, which has no pickle; no other function is asked
        whether it is one. Objects that were stored just now are added to ``held``: to be released
        after its use.
        """
        if self._reloads is not reloads.noted or self._registered != REGISTERED:
            self._reloads = reloads.noted
            self._registered = set(REGISTERED)
            self.clear()
        # What another thread changes meanwhile comes with a cache of its own.
        cache = self._cache
        state = None
        is_function = type(function) in _CACHED
        is_constant = not is_function and isinstance(function, Constant)
        if is_function or is_constant:
            known = cache.get(function)
            if known is not None:
                return known
            state = is_constant or cache.look(function)
        payload, buffers = self._dumps(function)
        objects: Objects = ()
        if self._stored is not None and buffers:
            objects = self._stored().hold(buffers)
            held += objects
        name = function_name(function)[:FUNCTION_NAME_CHARS_MAX]
        packed = function_id(payload, objects), payload, objects, name
        if self._stored is not None and objects:
            self._stored().pin_to_owner(getattr(function, "__self__", function), packed)
        if is_function or is_constant:
            cache.put(function, state, packed)
        return packed

    def remember(self, function: FunctionType, packed: Function) -> None:
        """Note what a function was unpickled from, which serves as its pickle until it changes.

        It has not been called yet.
        """
        self._cache.put(function, Snapshot.of(function) or False, packed)

    def carry(self, code: CarriedCode | None) -> None:
        """Let all functions carry this code from now on."""
        if self._code is not code:
            self._code = code
            self.clear()

    def clear(self) -> None:
        """Pickle everything anew: objects that functions name were dropped."""
        self._cache = FunctionCache()

    def _dumps(self, function: Callable[..., Any]) -> tuple[bytes, list[memoryview]]:
        """Return a function's pickle, and the large buffers that are to be stored."""
        if type(function) is NamedFunction:
            raise refuse(function)
        collector = Collector() if self._stored is not None else None
        try:
            payload = dumps(function, collector)
        except PayloadError as error:
            raise PayloadError(
                f"the function {function_name(function)}: {error}"
            ) from error.__cause__
        buffers = collector.buffers if collector is not None else []
        is_large = collector is not None and len(payload) >= OBJECT_BYTES
        if self._reloads or is_large:
            load = partial(reloads.load_after, self._reloads) if self._reloads else load_parts
            whole = Whole(load, (payload, *buffers))
            collector = Collector() if collector is not None else None
            payload = dumps(whole, collector)
            buffers = collector.buffers if collector is not None else []
        code = function.code if isinstance(function, Arrival) else self._code
        if code is not None:
            return code.put_before(payload, buffers, stores=self._stored is not None)
        return payload, buffers

"""Makes bytes of the calls of a client: functions, arguments, and what of them is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.client.function_pickler import FunctionPickler
from scaler_cluster.errors import MissingObjectsError
from scaler_cluster.pickling import payload as payloads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FunctionType

    from scaler_cluster.client.connection import Connection
    from scaler_cluster.core.client.requests import Function, Objects
    from scaler_cluster.objects.sent import CallObjects
    from scaler_cluster.pickling.code_bundle import CarriedCode
    from scaler_cluster.pickling.payload import ObjectReference


class CallPickler:
    """Pickles calls; large buffers are stored where :attr:`stores` is true."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._functions = FunctionPickler(connection.stored if connection.stores else None)
        connection.on_forgotten = self._functions.clear

    @property
    def stores(self) -> bool:
        """Return True if large values are stored; else they travel inside of messages."""
        return self._connection.stores

    def function(self, function: Callable[..., Any], held: list[bytes]) -> Function:
        """Return a function as it is sent; see :class:`FunctionPickler`."""
        return self._functions(function, held)

    def remember(self, function: FunctionType, packed: Function) -> None:
        """Note what a function was unpickled from; see :class:`FunctionPickler`."""
        self._functions.remember(function, packed)

    def carry(self, code: CarriedCode | None) -> None:
        """Let all functions carry this code from now on."""
        self._functions.carry(code)

    def call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        held: list[bytes],
        *,
        again: bool,
    ) -> tuple[Function, bytes, Objects]:
        """Pickle a call; what was stored for it is added to ``held``, to be released after."""
        objects: Objects = ()
        try:
            packed = self._functions(function, held)
            stores = self._connection.stores
            payload, buffers = payloads.dumps_call(function, args, kwargs, stores=stores)
            if buffers:
                objects = self._connection.stored().hold(buffers, again=again)
                held += objects
        except BaseException:
            self.release(held)
            raise
        return packed, payload, objects

    def hold(self, buffers: Sequence[memoryview]) -> Objects:
        """Return the ids of buffers, stored now unless they are; the caller releases them."""
        return self._connection.stored().hold(buffers)

    def retain(self, objects: Objects) -> Objects:
        """Keep what was stored until it is released once more; return it."""
        if objects:
            self._connection.stored().retain(objects)
        return objects

    def release(self, held: Sequence[bytes]) -> None:
        """Let go of objects that were stored for what has been asked for by now."""
        if held:
            self._connection.stored().release(held)

    def send_object(self, value: object, name: str) -> ObjectReference:
        """Store a value now; raises PayloadError, StorageFullError, MissingObjectsError."""
        if not self._connection.stores:
            raise MissingObjectsError(
                "this client is not on the machine of the cluster's object storage: pass the "
                "value itself"
            )
        return self._connection.stored().send(value, name)

    def clear(self) -> None:
        """Let go of every object that was stored."""
        sent = self._connection.sent
        if sent is not None:
            self._functions.clear()
            sent.clear()

    def call_objects(self, *, again: bool, steady: bool) -> CallObjects:
        """Return what stores the large values of one map or graph."""
        from scaler_cluster.objects.sent import CallObjects

        return CallObjects(self._connection.stored(), again=again, steady=steady)

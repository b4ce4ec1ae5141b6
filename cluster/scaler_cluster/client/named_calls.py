"""Calls of named functions: what is sent, and what comes back, is no pickle."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from scaler_cluster.client.future import PLAIN, ScalerFuture
from scaler_cluster.errors import PayloadError
from scaler_cluster.pickling.named import pack_call, packed, unpack
from scaler_cluster.wire.messages import Failed

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from scaler_cluster.client.future import FutureOwner
    from scaler_cluster.core.client.requests import Function
    from scaler_cluster.wire import messages as m
    from scaler_cluster.wire.batch import Buffer

T = TypeVar("T")


class NamedCalls(Protocol):
    """The session that asks for them."""

    def ask_named(
        self, packed: Function, payload: bytes, options: m.TaskOptions
    ) -> ScalerFuture[Any]:
        """Ask for one call."""

    def failed(self, error: Exception) -> ScalerFuture[Any]:
        """Return the future of a call that could not be asked for."""


def submit_named(
    session: NamedCalls,
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: m.TaskOptions,
) -> ScalerFuture[Any]:
    """Ask for one call; what cannot be packed fails its future alone."""
    try:
        payload = pack_call(function, args, kwargs)
    except PayloadError as error:
        return session.failed(error)
    return session.ask_named(packed(function), payload, options)


class NamedFuture(ScalerFuture[T]):
    """A future that reads its result as MessagePack.

    It can be an argument of a task once it is done: its value is pickled then.
    """

    __slots__ = ()

    def __init__(self, session: FutureOwner) -> None:
        super().__init__(session)
        # A future with a condition is settled slowly: by the method below.
        self._cond = threading.Condition()

    def _settle_slowly(self, payload: Any) -> list[Callable[[Future[T]], object]]:
        return super()._settle_slowly(_unpickled(payload))


def _unpickled(payload: Any) -> object:
    """Return what came back without any pickle in it, whatever the worker has sent."""
    if type(payload) in PLAIN:
        return _Packed(payload)
    if isinstance(payload, Failed):
        return Failed(payload.task, payload.kind, b"", payload.detail)
    if isinstance(payload, BaseException):
        return payload
    return PayloadError("the result lies in segments, as no result of a named call does")


class _Packed:
    """A result in MessagePack; a future loads it as it does what is stored elsewhere."""

    __slots__ = ("_payload",)

    def __init__(self, payload: Buffer) -> None:
        self._payload = payload

    def fetch(self, _: float | None) -> bool:
        """Return True: it is here."""
        return True

    def load(self) -> Any:
        """Return the value; raises PayloadError."""
        return unpack(self._payload)

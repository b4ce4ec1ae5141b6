"""The future of a call of a named function: what comes back is no pickle."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from scaler_cluster.client.future import PLAIN, ScalerFuture
from scaler_cluster.errors import PayloadError
from scaler_cluster.pickling.named import unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from scaler_cluster.client.future import FutureOwner
    from scaler_cluster.wire.batch import Buffer

T = TypeVar("T")


class NamedFuture(ScalerFuture[T]):
    """A future that reads its result as MessagePack, and cannot be an argument of a task."""

    __slots__ = ()

    def __init__(self, session: FutureOwner) -> None:
        super().__init__(session)
        # A future with a condition is settled slowly: by the method below.
        self._cond = threading.Condition()

    def __reduce__(self) -> Any:
        """Refuse to be pickled, and to be passed on: its result is no pickle either."""
        raise PayloadError("the future of a named call cannot be an argument: pass its result")

    def _settle_slowly(self, payload: object) -> list[Callable[[Future[T]], object]]:
        return super()._settle_slowly(_Packed(payload) if type(payload) in PLAIN else payload)


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

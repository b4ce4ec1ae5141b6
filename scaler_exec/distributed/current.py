"""Which client is the default, for this package and for Dask."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import dask
from dask.base import named_schedulers

from scaler_compat.dask import scaler_get

if TYPE_CHECKING:
    from collections.abc import Iterator


class DaskClient(Protocol):
    """What Dask needs of a client."""

    def get(self, dsk: Any, keys: Any, **named: Any) -> Any:
        """Return values of keys of a graph."""

    def persist(self, collections: Any, **named: Any) -> Any:
        """Return collections like these, with their values on the cluster."""


_lock = Lock()
_clients: list[DaskClient] = []
"""Those that are to be the default, the last one first to be it."""
_of_context: ContextVar[DaskClient | None] = ContextVar("scaler_distributed_client", default=None)
_before: list[Any] = []
"""What Dask's ``scheduler`` was before the first client became the default."""


class DefaultScheduler:
    """Dask's ``scheduler`` while there is a default client, and ``scheduler="scaler"``.

    Without a default client, it is :func:`scaler_exec.scaler_get`. It equals ``get`` of the client
    that it uses: so programs find out whether Dask uses that.
    """

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        client = find_current()
        return self is other or (client is not None and client.get == other)

    def __call__(self, dsk: Any, keys: Any, **named: Any) -> Any:
        """Return values of keys of a graph."""
        client = find_current()
        return scaler_get(dsk, keys, **named) if client is None else client.get(dsk, keys, **named)

    def persist(self, collections: Any, **named: Any) -> Any:
        """Return collections like these, with their values on the cluster."""
        client = find_current()
        persist = scaler_get.persist if client is None else client.persist  # type: ignore[attr-defined]
        return persist(collections, **named)


DEFAULT = DefaultScheduler()
named_schedulers["scaler"] = DEFAULT


def find_current(*, is_global: bool = True) -> DaskClient | None:
    """Return the default client of this context, else of this process; None: there is none."""
    found = _of_context.get()
    return found or (_clients[-1] if _clients and is_global else None)


def default_client(c: Any = None, *, is_global: bool = True) -> Any:
    """Return the default client, or the one that is given; raises ValueError if there is none.

    That of this context alone, if it is not ``is_global``.
    """
    found = c or find_current(is_global=is_global)
    if found is None:
        raise ValueError("there is no client: make one with Client(), or Client(address)")
    return found


def make_default(client: DaskClient) -> None:
    """Let a client be the default, for Dask as well, until :func:`drop_default`."""
    with _lock:
        if not _clients:
            _before[:] = [dask.config.get("scheduler", None)]
            dask.config.set(scheduler=DEFAULT)
        _clients.append(client)


def drop_default(client: DaskClient) -> None:
    """Let the client that was the default before be it again; idempotent."""
    with _lock:
        if client not in _clients:
            return
        _clients.remove(client)
        if not _clients and dask.config.get("scheduler", None) is DEFAULT:
            dask.config.set(scheduler=_before.pop())


@contextlib.contextmanager
def as_current(client: DaskClient) -> Iterator[None]:
    """Let a client be the default of this thread, or of this coroutine."""
    token = _of_context.set(client)
    try:
        with dask.config.set(scheduler=DEFAULT):
            yield
    finally:
        _of_context.reset(token)

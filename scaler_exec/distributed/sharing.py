"""What clients share by a name: futures in queues and variables, datasets, and metadata.

The scheduler keeps these values, which are small. A future is there as what its task returned or
raised: whoever puts it there waits for the task, and whoever takes it gets a future that is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import MutableMapping
from concurrent.futures import CancelledError
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from scaler_cluster.client import coordination
from scaler_cluster.pickling import payload
from scaler_exec.distributed.awaiting import awaited, is_in_loop
from scaler_exec.distributed.current import default_client
from scaler_exec.distributed.future import Future, futures_in, replaced

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterator

    from scaler_cluster.client.client import Client as EngineClient

DATASETS = "scaler.datasets"
"""The lock of all datasets, and the variable with their names."""
METADATA = "scaler.metadata"
"""The lock of the metadata, and the variable with it."""
NO_DEFAULT = object()


class Receiver(Protocol):
    """Whose futures those are that come."""

    def received(self, key: Hashable, came: object) -> Future[Any]:
        """Return a future that is done."""


_receiver: ContextVar[Callable[[], Receiver] | None] = ContextVar(
    "scaler_distributed_receiver", default=None
)


class _Sent:
    """Stands for a future where that is pickled; it comes out as a future."""

    def __init__(self, future: Future[Any]) -> None:
        value, error = future.task.outcome()
        if isinstance(error, CancelledError):
            raise error
        self._key = future.key
        self._came = payload.dumps(value) if error is None else error

    def __reduce__(self) -> Any:
        return _received, (self._key, self._came)


def _received(key: Hashable, came: object) -> Future[Any]:
    find = _receiver.get() or default_client
    return find().received(key, came)


def sendable(value: Any) -> Any:
    """Return a value with what can be pickled in place of futures, once these are done."""
    return replaced(value, {id(one): _Sent(one) for one in futures_in(value)})


@contextlib.contextmanager
def receiving(find: Callable[[], Receiver]) -> Iterator[None]:
    """Let the futures that come be those of the client that ``find()`` returns."""
    token = _receiver.set(find)
    try:
        yield
    finally:
        _receiver.reset(token)


class Sharing:
    """The part of a client that keeps values for all clients of its cluster."""

    _engine: EngineClient
    asynchronous: bool

    def received(self, key: Hashable, came: object) -> Future[Any]:
        """Return a future of a task of others, which came back with this, see :class:`Client`."""
        raise NotImplementedError

    def _itself(self) -> Sharing:
        return self

    def _variable(self, name: str) -> coordination.Variable:
        return coordination.Variable(name, self._engine)

    def _kept(self, name: str) -> dict[Hashable, Any]:
        """Return what a variable keeps by names."""
        try:
            return dict(self._variable(name).get(timeout=0))
        except TimeoutError:
            return {}

    def _names(self) -> dict[Hashable, str]:
        """Return the names of the datasets, with those of their variables."""
        return self._kept(DATASETS)

    @awaited
    def publish_dataset(
        self, *args: Any, name: Hashable | None = None, override: bool = False, **kwargs: Any
    ) -> None:
        """Keep values in the scheduler for all clients, until they are unpublished.

        A value has at most 1 MiB, pickled. A collection that was persisted is published with its
        values, and a future as what its task returns.

        Args:
            *args: One value, if ``name`` says what it is called; none otherwise.
            name: A text, number or tuple.
            override: Replace values of the same names.
            **kwargs: Values by their names.

        Raises:
            KeyError: There is one of this name.
            ValueError: A value has no name.
            PayloadError: A value cannot be pickled, or is too large.

        """
        if len(args) != (name is not None):
            raise ValueError("publish_dataset takes one value and its name=, or NAME=value")
        given: dict[Hashable, Any] = dict(kwargs.items())
        if name is not None:
            given[name] = args[0]
        values = {one: sendable(value) for one, value in given.items()}
        with coordination.Lock(DATASETS, self._engine):
            names = self._names()
            for one, value in values.items():
                if one in names and not override:
                    raise KeyError(f"a dataset {one!r} exists: override=True replaces it")
                place = names.setdefault(one, f"{DATASETS}.{uuid4().hex}")
                self._variable(place).set(value)
                self._variable(DATASETS).set(names)

    @awaited
    def get_dataset(self, name: Hashable, default: Any = NO_DEFAULT) -> Any:
        """Return a value that was published; raises KeyError if there is none and no default."""
        place = self._names().get(name)
        if place is not None:
            # Somebody may unpublish it meanwhile.
            with contextlib.suppress(TimeoutError), receiving(self._itself):
                return self._variable(place).get(timeout=0)
        if default is not NO_DEFAULT:
            return default
        raise KeyError(f"dataset {name!r} not found")

    @awaited
    def list_datasets(self) -> tuple[Hashable, ...]:
        """Return the names of the datasets."""
        return tuple(self._names())

    @awaited
    def unpublish_dataset(self, name: Hashable) -> None:
        """Remove a dataset, if there is one of this name."""
        with coordination.Lock(DATASETS, self._engine):
            names = self._names()
            place = names.pop(name, None)
            if place is not None:
                self._variable(DATASETS).set(names)
                self._variable(place).delete()

    @awaited
    def set_metadata(self, key: Any, value: object) -> None:
        """Keep a value in the scheduler for all clients and tasks.

        All metadata of a cluster has at most 1 MiB, pickled.

        Args:
            key: What it is called. A list or tuple of keys is a path: each is in the one before.
            value: The value; that of the same key is replaced.

        Raises:
            ValueError: There is no key in the list.
            PayloadError: A value cannot be pickled, or all together are too large.

        """
        path = _path_of(key)
        if not path:
            raise ValueError("set_metadata needs a key")
        with coordination.Lock(METADATA, self._engine):
            place = kept = self._kept(METADATA)
            for one in path[:-1]:
                inner = place.get(one)
                place[one] = inner if isinstance(inner, dict) else {}
                place = place[one]
            place[path[-1]] = value
            self._variable(METADATA).set(kept)

    @awaited
    def get_metadata(self, keys: Any, default: Any = NO_DEFAULT) -> Any:
        """Return a value of :meth:`set_metadata`; raises KeyError if there is none and no default.

        No keys at all give everything.
        """
        value: Any = self._kept(METADATA)
        for one in _path_of(keys):
            if not isinstance(value, dict) or one not in value:
                if default is NO_DEFAULT:
                    raise KeyError(one)
                return default
            value = value[one]
        return value

    @property
    def datasets(self) -> Datasets:
        """The datasets, as a mapping."""
        return Datasets(self)


def _path_of(keys: Any) -> list[Any]:
    return list(keys) if isinstance(keys, (list, tuple)) else [keys]


class Datasets(MutableMapping["Hashable", Any]):
    """The datasets of a client's cluster, by their names.

    Of an asynchronous client, in its event loop, the values are awaited, the names come by
    ``async for``, and the rest is a TypeError: there are methods of the client, to be awaited.
    """

    def __init__(self, client: Sharing) -> None:
        self._client = client

    def _check(self, *, is_asynchronous: bool = False) -> None:
        if is_asynchronous != (self._client.asynchronous and is_in_loop()):
            raise TypeError(
                "a client that is not asynchronous has its datasets without `async for`"
                if is_asynchronous
                else "in an event loop, await publish_dataset() and its likes of the client"
            )

    def __getitem__(self, name: Hashable) -> Any:
        return self._client.get_dataset(name)

    def __setitem__(self, name: Hashable, value: Any) -> None:
        self._check()
        self._client.publish_dataset(value, name=name, override=True)

    def __delitem__(self, name: Hashable) -> None:
        self._check()
        self._client.unpublish_dataset(name)

    def __contains__(self, name: object) -> bool:
        self._check()
        return name in self._client.list_datasets()

    def __iter__(self) -> Iterator[Hashable]:
        self._check()
        return iter(self._client.list_datasets())

    def __aiter__(self) -> AsyncIterator[Hashable]:
        self._check(is_asynchronous=True)
        return self._names()

    async def _names(self) -> AsyncIterator[Hashable]:
        for name in await self._client.list_datasets():
            yield name

    def __len__(self) -> int:
        self._check()
        return len(self._client.list_datasets())

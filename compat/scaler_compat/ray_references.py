"""References to values that are not there yet, as Ray has them; see :mod:`scaler_compat.ray`.

Each is a future. One that is an argument is resolved on the cluster. One that is inside of other
values is a reference for the task as well, whose value travels with the arguments.
"""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scaler_cluster.errors import FutureInsideError
from scaler_cluster.pickling.payload import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from scaler_cluster.client.client import Client

T = TypeVar("T")


class Inside(threading.local):
    """The references inside of values that this thread pickles or unpickles."""

    was_met = False
    """One was met where none can be pickled."""
    found: list[ObjectRef[Any]] | None = None
    """While arguments are pickled in which there are some."""
    values: tuple[Any, ...] = ()
    """While such arguments are unpickled."""


inside = Inside()


class ObjectRef(Generic[T]):
    """Stands for a value that a task returns, or that was stored by :func:`put`."""

    def __init__(self, source: Callable[[], Future[T]] | Future[T], task: Any = None) -> None:
        self._source = source
        """Its future, or what makes that when it is first needed."""
        self._task = task

    def future(self) -> Future[T]:
        """Return its future."""
        if not isinstance(self._source, Future):
            self._source = self._source()
        return self._source

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the value in asyncio."""
        import asyncio

        return asyncio.wrap_future(self.future()).__await__()

    def __reduce__(self) -> Any:
        """Let what calls a remote function send the value along; refuse everywhere else."""
        if inside.found is None:
            inside.was_met = True
            raise FutureInsideError(
                "a reference can be an argument of a remote function, also inside of other values, "
                "but a task cannot return it, and no function or file keeps it: pass its value"
            )
        inside.found.append(self)
        return _arrived, (len(inside.found) - 1,)

    def as_argument(self, *, is_positional: bool = True) -> Any:
        """Return what a task is given in its place."""
        if is_positional and isinstance(self._source, Stored):
            return self._source.reference
        future = self.future()
        # One that came with arguments has its value.
        return future.result() if type(future) is Future else future

    def cancel(self) -> None:
        """Cancel the task, unless it has ended."""
        self.future().cancel()
        if self._task is not None:
            self._task.cancel()


class Stored:
    """A value that is stored on the cluster; a call fetches it."""

    def __init__(self, client: Client, value: Any) -> None:
        self._client = client
        self.reference = client.send_object(value)

    def __call__(self) -> Future[Any]:
        return self._client.submit(same, self.reference)


def _arrived(index: int) -> ObjectRef[Any]:
    future: Future[Any] = Future()
    future.set_result(inside.values[index])
    return ObjectRef(future)


def call_with_values(function: Callable[..., T], pickled: bytes, *values: Any) -> T:
    """Call a function, in a task, with arguments in which there are references."""
    inside.values = values
    try:
        args, kwargs = pickle.loads(pickled)
    finally:
        inside.values = ()
    args = tuple(map(value_of, args))
    return function(*args, **{name: value_of(value) for name, value in kwargs.items()})


def value_of(argument: Any) -> Any:
    """Return the value of a reference, which is waited for, or what is none as it is."""
    return argument.future().result() if isinstance(argument, ObjectRef) else argument


def same(value: T) -> T:
    """Return a value, which a task is given by reference."""
    return value


def with_values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the pickle of arguments, and what stands for the references in it."""
    found: list[ObjectRef[Any]] = []
    inside.found = found
    try:
        pickled = dumps((args, kwargs))
    finally:
        inside.found = None
    return [pickled, *(one.as_argument() for one in found)]


def given(value: Any, *, is_positional: bool = True) -> Any:
    """Return what a task is given in place of an argument."""
    if isinstance(value, ObjectRef):
        return value.as_argument(is_positional=is_positional)
    return value

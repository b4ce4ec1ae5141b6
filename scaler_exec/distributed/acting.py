"""Actors as distributed has them: methods return futures, and attributes are waited for."""

from __future__ import annotations

from typing import Any

from scaler_cluster.client import actors
from scaler_cluster.pickling.exceptions import label_of
from scaler_exec.distributed.awaiting import is_in_loop
from scaler_exec.distributed.current import find_current


class Actor:
    """Stands for an object that lives in a worker of its own; see :mod:`scaler_exec.actors`.

    A method returns the future of its call; an attribute its value, which is waited for, or in the
    event loop of an asynchronous client awaited. It may be pickled: into tasks, and into other
    actors.
    """

    def __init__(self, handle: actors.ActorHandle) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._handle._methods:
            return getattr(self._handle, name)
        value = actors.value(self._handle, name)
        is_awaited = is_in_loop() and getattr(find_current(), "asynchronous", False)
        return value if is_awaited else value.result()

    def __dir__(self) -> list[str]:
        return dir(self._handle)

    @property
    def key(self) -> str:
        """What tells it from others."""
        return self._handle._actor

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {label_of(self.key)}, key={self.key}>"

    def __reduce__(self) -> Any:
        return Actor, (self._handle,)


def find(handle: actors.ActorHandle, made: object) -> Actor:
    """Return the actor; the task that stands for it, which needs the one that made it."""
    return Actor(handle)

"""The code that a client's functions bring along: what of it there is, and how it is framed.

A worker that is sent such a function has the code before it unpickles the function, whenever the
worker was started, and on whatever machine. The contents are objects of the function, so they are
stored once, and each machine fetches one copy.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from scaler_cluster.pickling.by_value import PROTOCOL
from scaler_cluster.pickling.constant import Constant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.wire.batch import Buffer

MARK = b"scaler-code\n"
"""Begins the payload of a function that brings code; no pickle begins like this."""
LENGTH_BYTES = 4


class Part(NamedTuple):
    """A file, or a plugin; its content travels beside it."""

    is_plugin: bool
    name: str
    digest: bytes
    modules: tuple[str, ...] = ()
    """The modules and packages of a file that others import by these names."""


@dataclass(frozen=True)
class Bundle:
    """All that a client has its workers use; a change of it makes a new one."""

    owner: bytes
    """Names the client; nobody else can guess it."""
    revision: int
    """Grows with each change."""
    parts: tuple[Part, ...] = ()
    variables: Mapping[str, str] | None = None
    """Of the environment."""

    @property
    def is_empty(self) -> bool:
        """Return True if all was taken back: workers only have to tear down what they set up."""
        return not self.parts and not self.variables


@dataclass(frozen=True)
class CarriedCode:
    """A bundle with its contents, as functions carry it."""

    bundle: Bundle
    contents: tuple[memoryview, ...]

    @cached_property
    def _head(self) -> bytes:
        return _framed((self.bundle, ()))

    def put_before(
        self, payload: bytes, buffers: Sequence[memoryview], *, stores: bool
    ) -> tuple[bytes, list[memoryview]]:
        """Return payload and buffers of a function that carries this code.

        Unless the contents can be stored, they travel in the payload.
        """
        if stores:
            return self._head + payload, [*self.contents, *buffers]
        inside = tuple(bytes(one) for one in self.contents)
        return _framed((self.bundle, inside)) + payload, list(buffers)


class Arrival(Constant):
    """A function that brings code of its own: a worker that was sent it has that code."""

    __slots__ = ("code",)

    def __init__(self, code: CarriedCode | None = None) -> None:
        self.code = code

    @property
    def label(self) -> str:
        """What people call it."""
        return "arrival of code"

    def __reduce__(self) -> Any:
        return Arrival, ()

    def __call__(self) -> None:
        """Do nothing."""


def split(
    payload: Buffer, buffers: Sequence[Buffer]
) -> tuple[CarriedCode | None, Buffer, Sequence[Buffer]]:
    """Return the code that a function brings, if any, its pickle, and the pickle's buffers."""
    view = memoryview(payload)
    start = len(MARK) + LENGTH_BYTES
    if view[: len(MARK)] != MARK:
        return None, payload, buffers
    end = start + int.from_bytes(view[len(MARK) : start], "big")
    bundle, inside = pickle.loads(view[start:end])
    contents = inside or buffers[: len(bundle.parts)]
    rest = buffers if inside else buffers[len(bundle.parts) :]
    carried = CarriedCode(bundle, tuple(memoryview(one) for one in contents))
    return carried, view[end:], rest


def _framed(value: object) -> bytes:
    head = pickle.dumps(value, PROTOCOL)
    return MARK + len(head).to_bytes(LENGTH_BYTES, "big") + head

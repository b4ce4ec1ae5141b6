"""A user's own way to turn functions, arguments and results into bytes and back.

What is serialized so travels inside of our pickles as bytes, large ones as objects: there is one
path for all. A serializer is known by a token in every process that it has reached.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from hashlib import blake2b
from types import FunctionType
from typing import TYPE_CHECKING, Any

import cloudpickle

from scaler_cluster.errors import INTERRUPTS, PayloadError
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.pickling.by_value import PROTOCOL
from scaler_cluster.pickling.constant import Constant
from scaler_cluster.pickling.function_cache import FunctionCache
from scaler_cluster.texts import named, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.wire.batch import Buffer

_known: dict[bytes, type[Serializer] | Serializer] = {}
"""Serializers of this process by token."""


class Serializer(ABC):
    """Turns functions, arguments and results of tasks into bytes and back.

    Pass a class (or an object) with these two methods to :class:`Client`. Both methods run in the
    client and in workers, so the modules that they import must be installed in both places.
    """

    @staticmethod
    @abstractmethod
    def serialize(obj: Any) -> bytes:
        """Return an object as bytes; called for the function, each argument and the result."""

    @staticmethod
    @abstractmethod
    def deserialize(payload: bytes) -> Any:
        """Return the object from the bytes that :meth:`serialize` made."""


class DefaultSerializer(Serializer):
    """What the engine does by itself: C pickle where it can, cloudpickle elsewhere."""

    @staticmethod
    def serialize(obj: Any) -> bytes:
        """Return the object's pickle; raises PayloadError."""
        return payloads.dumps(obj)

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        """Return the pickled object."""
        return payloads.loads(payload)


class Serialized:
    """Bytes that become an object where they are unpickled."""

    __slots__ = ("_data", "_token")

    def __init__(self, token: bytes, data: bytes) -> None:
        self._token = token
        self._data = data

    def __reduce__(self) -> Any:
        return _deserialize, (self._token, pickle.PickleBuffer(self._data))


class SerializedFunction(Constant):
    """A function as bytes, and the serializer that makes it a function again."""

    __slots__ = ("_data", "_label", "_serializer", "_token")

    def __init__(self, token: bytes, serializer: bytes, data: bytes, label: str) -> None:
        self._token = token
        self._serializer = serializer
        self._data = data
        self._label = label

    @property
    def label(self) -> str:
        """The name of the function."""
        return self._label

    def __reduce__(self) -> Any:
        return _deserialize_function, (
            self._token,
            self._serializer,
            pickle.PickleBuffer(self._data),
        )


class Serialization:
    """What a client with a serializer of its user does to calls before they are pickled."""

    def __init__(self, serializer: type[Serializer] | Serializer) -> None:
        self._serializer = serializer
        self._pickled = cloudpickle.dumps(serializer, PROTOCOL)
        self.serializer = serializer
        self._token = blake2b(self._pickled, digest_size=16).digest()
        self._functions: FunctionCache[SerializedFunction] = FunctionCache()
        _known[self._token] = serializer

    def function(self, function: Callable[..., Any]) -> Any:
        """Return what to submit in place of a function, serialized once until it changes.

        Raises PayloadError, as does :meth:`value`.
        """
        is_plain = type(function) is FunctionType
        known = self._functions.get(function) if is_plain else None
        if known is None:
            state = self._functions.look(function) if is_plain else None
            data = self._serialize(function)
            name = payloads.function_name(function)
            known = SerializedFunction(self._token, self._pickled, data, name)
            if is_plain:
                self._functions.put(function, state, known)
        return known

    def value(self, value: Any) -> Any:
        """Return what to pass in place of an argument."""
        if isinstance(value, payloads.ObjectReference):
            return value
        return Serialized(self._token, self._serialize(value))

    def _serialize(self, value: Any) -> bytes:
        try:
            return self._serializer.serialize(value)
        except (PayloadError, *INTERRUPTS):
            raise
        except BaseException as error:
            raise PayloadError(f"cannot serialize {named(value)}: {show(error)}") from error


class ByteItems(bytes):
    """Bytes whose items are bytes as well: what the documents of Scaler take ``payload[0]`` for."""

    def __getitem__(self, index: Any) -> Any:
        """Return one byte, or a slice, both as bytes."""
        if isinstance(index, slice):
            return super().__getitem__(index)
        return bytes([super().__getitem__(index)])


def _deserialize(token: bytes, data: Buffer) -> Any:
    return _deserialize_by(_known[token], bytes(data))


def _deserialize_by(serializer: type[Serializer] | Serializer, payload: bytes) -> Any:
    try:
        return serializer.deserialize(payload)
    except ValueError as error:
        # Their example looks its first byte up among kinds that are named by bytes.
        try:
            return serializer.deserialize(ByteItems(payload))
        except Exception:
            raise error from None


def _deserialize_function(token: bytes, pickled: bytes, data: Buffer) -> Callable[..., Any]:
    serializer = _known.get(token)
    if serializer is None:
        serializer = _known[token] = pickle.loads(pickled)
    function = _deserialize_by(serializer, bytes(data))

    def call(*args: Any, **kwargs: Any) -> Serialized:
        return Serialized(token, serializer.serialize(function(*args, **kwargs)))

    return call

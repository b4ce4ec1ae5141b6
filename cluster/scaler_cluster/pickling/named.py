"""Calls that every language can make and answer: a function's name, and values in MessagePack.

Nothing of them is a pickle, on the way there or back: who reads one can be made to run code by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack

from scaler_cluster.errors import NamedCallError, PayloadError
from scaler_cluster.ids import function_id
from scaler_cluster.pickling.named_function import NamedFunction
from scaler_cluster.texts import named, show
from scaler_cluster.wire.batch import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.core.client.requests import Function
    from scaler_cluster.wire.batch import Buffer

CARRIED = (
    "None, booleans, integers of 64 bits, floats, texts, bytes, and lists, tuples and dicts of "
    "these, with texts as keys"
)
_ARRAY, _ARRAY_MASK = 0x90, 0xF0
"""The first byte of a short array in MessagePack, but for its length; no pickle begins so."""


def packed(function: NamedFunction) -> Function:
    """Return a function as it is sent: digest, payload, no objects, and name."""
    payload = _pack([function.name])
    return function_id(payload), payload, (), function.name


def is_named(payload: Buffer) -> bool:
    """Return True if the payload of a function is a name and no pickle."""
    return len(payload) > 0 and payload[0] & _ARRAY_MASK == _ARRAY


def load_named(payload: Buffer) -> NamedFunction:
    """Return the function that a payload names; raises PayloadError."""
    match unpack(payload):
        case [str(name), *_] if name:
            return NamedFunction(name)
    raise PayloadError("the payload of a named function is a list that begins with its name")


def pack_call(function: NamedFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return the payload of a call; raises PayloadError that names the argument at fault."""
    try:
        return pack([args, kwargs])
    except PayloadError:
        keyed = ((f"argument {name!r}", one) for name, one in kwargs.items())
        for name, one in (*((f"argument {i}", one) for i, one in enumerate(args)), *keyed):
            try:
                pack(one)
            except PayloadError as error:
                raise PayloadError(f"{name} of {function.name}: {error}") from error.__cause__
        raise


def unpack_call(payload: Buffer) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call; raises PayloadError."""
    match unpack(payload):
        case [list(args), dict(kwargs)]:
            return args, kwargs
    raise PayloadError("the payload of a named call is a list of its arguments and a map")


def pack(value: object) -> bytes:
    """Return a value in MessagePack; raises PayloadError if others could not read it."""
    try:
        data = _pack(value)
        # Keys of other types are packed, but not every language has them.
        msgpack.unpackb(data, object_hook=_check_keys, strict_map_key=False)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise PayloadError(
            f"a named call cannot carry {named(value)}: {show(error, str)}. It carries {CARRIED}"
        ) from error
    if len(data) >= BATCH_BYTES_MAX:
        raise PayloadError(
            f"a value of {len(data)} bytes is larger than a message may be ({BATCH_BYTES_MAX})"
        )
    return data


def unpack(payload: Buffer) -> Any:
    """Return the value that somebody packed; raises PayloadError."""
    try:
        return msgpack.unpackb(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(f"what came is not in MessagePack: {show(error, str)}") from error


def _check_keys(value: dict[Any, Any]) -> dict[Any, Any]:
    for key in value:
        if type(key) is not str:
            raise ValueError(f"the key {named(key)} of a dict is no text")
    return value


def refuse(function: NamedFunction) -> NamedCallError:
    """Return the error of who wants a pickle of a named function to call it."""
    return NamedCallError(
        f"{function!r} can be passed to submit() and map() of a client or an executor, but not here"
    )


def _pack(value: object) -> bytes:
    data: bytes = msgpack.packb(value)
    return data

"""Any value as a text that two processes can compare: everything that a task could notice of it."""

from __future__ import annotations

import array
import enum
import functools
import hashlib
from collections import deque
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any


def show(value: Any, depth: int = 30) -> str:
    """Return a value's type and content; two are equal if and only if a task can't tell them apart.

    Whether an array may be written to is left out: that is a difference with a name.
    """
    kind = type(value).__name__
    if depth == 0:
        return "..."
    inner = functools.partial(show, depth=depth - 1)
    if kind in {"ndarray", "memmap"}:
        content = str(value.tolist()) if value.dtype.hasobject else digest(value.tobytes())
        return f"{kind} {value.dtype} {value.shape} {content}"
    if kind == "DataFrame":
        return f"{kind} { {name: show(value[name].to_numpy()) for name in value} }"
    if kind == "DoubleArray":
        return f"{kind} {show(value.to_numpy())}"
    if isinstance(value, (bytes, bytearray, array.array)) and len(value) > 100:
        return f"{kind} {len(value)} {digest(bytes(value))}"
    if isinstance(value, (list, tuple, deque)):
        return f"{kind}({', '.join(map(inner, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{kind}({', '.join(sorted(map(inner, value)))})"
    if isinstance(value, dict):
        items = (f"{inner(key)}: {inner(one)}" for key, one in value.items())
        return f"{kind}({', '.join(items)})"
    if isinstance(value, BaseException):
        return f"{kind}{tuple(map(inner, value.args))} {inner(vars(value))}"
    if isinstance(value, (FunctionType, BuiltinFunctionType, MethodType, type)):
        return f"{kind} {value.__qualname__}"
    if hasattr(value, "__dict__") and not isinstance(value, enum.Enum):
        return f"{kind} {inner(vars(value))}"
    if isinstance(value, int) and abs(value) > 10**100:
        return f"{kind} {value:x}"
    return f"{kind} {value!r}"


def digest(data: bytes) -> str:
    """Return what stands for these bytes."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()

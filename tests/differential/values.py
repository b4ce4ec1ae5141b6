"""Values of every kind that a program passes, and how each is changed in place."""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import enum
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Value:
    """A value, and what changes it."""

    def __init__(self, value: Any, change: Callable[[Any, int], object]) -> None:
        self.value = value
        self._change = change

    def change(self, n: int) -> None:
        """Change it in place, so that it differs from what it was."""
        self._change(self.value, n)


class Color(enum.Enum):
    """An enumeration of a module."""

    RED = 1


class Point(NamedTuple):
    """A named tuple of a module."""

    x: int
    y: int


def _array() -> np.ndarray:
    return np.arange(20_000.0)


def make_values(box: Callable[[], Any]) -> dict[str, Value]:
    """Return values by their names, all new; ``box`` makes an instance of a class of the script.

    Most hold 160 kB: beyond the size from which they are objects in shared memory.
    """
    made: dict[str, Value] = {}

    def add(name: str, value: Any, change: Callable[[Any, int], object]) -> None:
        made[name] = Value(value, change)

    def first(value: Any, n: int) -> None:
        value[0] += n

    add("array", _array(), first)
    add("last of an array", _array(), lambda value, n: np.add(value, [0] * 19_999 + [n], out=value))
    add("small array", np.arange(5.0), first)
    add("fortran", np.asfortranarray(np.arange(20_000.0).reshape(200, 100)), first)
    add("records", np.zeros(10_000, [("a", "f8"), ("b", "i4")]), _record)
    add("array of objects", np.array([["a"], {"b": 1}], object), lambda v, n: v[0].append(n))

    base = _array()
    add("view", base[10:-10], lambda value, n: first(base[10:], n))
    columns = np.arange(40_000.0).reshape(20_000, 2)
    add("column", columns[:, 1], lambda value, n: first(columns[:, 1], n))
    shown = _array()
    frozen = shown[:]
    frozen.flags.writeable = False
    add("frozen view", frozen, lambda value, n: first(shown, n))
    broad = np.arange(5.0)
    add("broadcast", np.broadcast_to(broad, (4_000, 5)), lambda value, n: first(broad, n))

    data = bytearray(160_000)
    add("bytearray", data, _byte)
    lent = bytearray(160_000)
    add("over a bytearray", np.frombuffer(lent, np.uint8), lambda value, n: _byte(lent, n))
    closed = bytearray(160_000)
    over = np.asarray(memoryview(closed).toreadonly())
    add("frozen over a bytearray", over, lambda value, n: _byte(closed, n))
    add("typed array", array.array("d", range(20_000)), first)
    with tempfile.NamedTemporaryFile() as file:
        mapped = np.memmap(file.name, "f8", "w+", shape=(20_000,))
    add("memory map", mapped, first)
    add("part of a memory map", np.asarray(mapped[5:]), lambda value, n: first(mapped[5:], n))

    _add_frames(add)

    add("list", [1, ["a"]], lambda value, n: value[1].append(str(n)))
    add("long list", list(range(40_000)), first)
    add("dict", {"n": 1}, lambda value, n: value.update(n=value["n"] + n))
    add("dict of arrays", {"x": _array(), "y": [_array()]}, lambda v, n: first(v["y"][0], n))
    add("set", {1}, lambda value, n: value.add(value.__len__() + 10 * n))
    add("deque", collections.deque([1]), lambda value, n: value.append(n))
    add("box", box(), _change_box)
    cyclic: list[Any] = [1]
    cyclic.append({"me": cyclic, "array": _array()})
    add("cycle", cyclic, first)
    held = _array()
    add("tuple", (held, held), lambda value, n: first(held, n))
    nested = box()
    add("list of boxes", [nested, nested], lambda value, n: _change_box(nested, n))

    for name, value in {
        "bytes": bytes(160_000),
        "text": "ä" * 100_000,
        "plain": (None, True, 10**120, 1.5, float("nan"), -0.0, 2j, "", "\ud800", b"\0"),
        "others": (Color.RED, Point(1, 2), decimal.Decimal("1.1"), pathlib.PurePosixPath("a"),
                   dt.timedelta(1), range(3), slice(1), frozenset({1}), Ellipsis, int),
    }.items():  # fmt: skip
        add(name, value, lambda value, n: None)
    return made


def _add_frames(add: Callable[..., None]) -> None:
    try:
        import pandas as pd
        import pyarrow as pa
    except ImportError:
        return
    frame = pd.DataFrame({"a": _array(), "b": np.arange(20_000)})
    add("frame", frame, lambda value, n: frame.__setitem__("a", frame["a"] + n))

    def cell(value: Any, n: int) -> None:
        value.loc[0, "a"] += n

    add("cell of a frame", pd.DataFrame({"a": _array(), "b": np.arange(20_000)}), cell)
    block = np.arange(40_000.0).reshape(20_000, 2)
    over = pd.DataFrame(block, columns=["a", "b"], copy=False)
    add("frame over an array", over, lambda value, n: block.__setitem__((0, 0), block[0, 0] + n))
    lent = _array()
    arrow = pa.array(lent)
    add("arrow over an array", arrow, lambda value, n: lent.__setitem__(3, lent[3] + n))


def _record(value: Any, n: int) -> None:
    value["b"][3] += n


def _byte(value: bytearray, n: int) -> None:
    value[1000] = (value[1000] + n) % 256


def _change_box(box: Any, n: int) -> None:
    box.size += n
    box.data[5] += n

"""The items of a map, as its user gives them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BUILTIN: tuple[Iterable[Any], ...] = (
    [], (), "", b"", {}, {}.values(), {}.items(), set(), range(0), range(1 << 64),
)  # fmt: skip
STEADY = frozenset((itertools.repeat, itertools.count, *(type(iter(one)) for one in _BUILTIN)))
"""Types of iterators that run no code of the user between two items."""


def zipped(iterables: Iterable[Iterable[Any]]) -> tuple[Iterator[Any], bool]:
    """Return what ``zip`` does, and whether no code of the user runs between two items."""
    iterators = [iter(one) for one in iterables]
    return zip(*iterators, strict=False), all(type(one) in STEADY for one in iterators)

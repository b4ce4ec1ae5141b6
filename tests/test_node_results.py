"""Which results of nodes a worker keeps, which it sends, and how large it takes them to be."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from scaler_cluster.core.worker.kept_results import KeptResults
from scaler_cluster.core.worker.reports import Kept
from scaler_cluster.runtime.node_results import (
    ITEMS_MAX,
    SENT_MAX,
    NodeResults,
    is_unchanging,
    size_of,
)

LARGE = 10 * SENT_MAX


class Sized:
    """Says how large it is."""

    def __init__(self, nbytes: Any) -> None:
        self.nbytes = nbytes


class Table:
    """Says how many cells it has, and could say more, which takes long."""

    size = 1000

    def memory_usage(self) -> int:
        raise AssertionError("takes long")


class Odd:
    """Cannot say how large it is."""

    @property
    def nbytes(self) -> int:
        raise KeyError("nbytes")


class Pair(NamedTuple):
    """Two values."""

    left: bytes
    right: bytes


def frozen(count: int = LARGE // 8) -> np.ndarray:
    array = np.frombuffer(bytes(8 * count), dtype=np.int64)
    assert not array.flags.writeable
    return array


def results(*, is_shared: bool, must_send: bool = False, node: int = 3):
    """Return what keeps results, and where it keeps them."""
    work: Any = SimpleNamespace(kept=KeptResults(), node=node, must_send=must_send, uses=2)
    return NodeResults(work, {}, is_shared=is_shared), work.kept.values


# -- what is kept ----------------------------------------------------------------------------


def test_a_large_value_is_kept_alone() -> None:
    """Of a large value that nodes share only the size is reported."""
    made, values = results(is_shared=True)
    value = [b"x" * LARGE]

    kept = made.keep(value)
    assert type(kept) is Kept
    assert kept == LARGE
    assert values[3] is value


def test_a_small_value_is_kept_and_sent() -> None:
    """A small value that nodes share is kept, and sent as well."""
    made, values = results(is_shared=True)
    value = ["x"]

    assert made.keep(value) is None
    assert values[3] is value


def test_a_value_that_must_come_is_kept_and_sent() -> None:
    """A large value whose report must bring it is kept, and sent as well."""
    made, values = results(is_shared=True, must_send=True)
    value = bytearray(LARGE)

    assert made.keep(value) is None
    assert values[3] is value


def test_what_nodes_do_not_share_is_only_sent() -> None:
    """A value that nodes could change is not kept if each is to get its own."""
    made, values = results(is_shared=False)

    assert made.keep(bytearray(LARGE)) is None
    assert values == {}


def test_what_nodes_do_not_share_takes_the_place_of_what_was_there() -> None:
    """What an earlier run of a node returned is not kept beside what it returns now."""
    made, values = results(is_shared=False)
    made.keep("x" * LARGE)
    made.keep([1])

    assert values == {}


def test_what_nobody_can_change_is_kept_in_any_case() -> None:
    """A large value that nobody can change is kept though nodes share nothing else."""
    made, values = results(is_shared=False)
    text = "x" * LARGE

    assert made.keep(text) == LARGE
    assert values[3] is text


# -- what nobody can change ------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [None, True, 1, 1.5, 1j, "text", b"bytes", (), (1, "a", None), frozenset([1, 2]), frozen()],
    ids=repr,
)
def test_what_cannot_be_changed(value) -> None:
    """Numbers, texts, bytes, tuples and sets of these, and read-only arrays do not change."""
    assert is_unchanging(value)


@pytest.mark.parametrize(
    "value",
    [
        [], {}, set(), bytearray(), ([],), (1, (2,)), tuple(range(ITEMS_MAX + 1)), np.zeros(3),
        Sized(1), Fraction(1, 2), dt.timedelta(1), np.array([None, []], dtype=object),
        np.array(["2020-01-01"], dtype="datetime64[D]"), frozenset([(1,)]), object(),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_may_be_changed(value) -> None:
    """Whatever holds something that could be changed is taken to change."""
    assert not is_unchanging(value)


def test_a_view_of_what_others_write_may_change() -> None:
    """A read-only view of an array that can be written to is taken to change."""
    view = np.zeros(10)[:]
    view.flags.writeable = False

    assert not is_unchanging(view)


def test_a_subclass_may_be_changed() -> None:
    """An instance of a class of the user's is taken to change, whatever it derives from."""

    class Text(str):
        __slots__ = ()

    class Pair(tuple):
        __slots__ = ()

    assert not is_unchanging(Text("a"))
    assert not is_unchanging(Pair((1, 2)))


# -- how large -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        (None, 0), (1, 0), (b"abc", 3), ("abcd", 4), (bytearray(5), 5), ([], 0), ({}, 0),
        ([b"abc", b"d"], 4), ((b"abc",) * 1000, 3000), ({1: b"abc", 2: "d"}, 4),
        ([[b"ab"], {1: b"c"}], 3), ([[[b"ab"]]], 0),
        (OrderedDict(a=b"abc"), 3), (Pair(b"abc", b"d"), 4), (np.zeros(10), 80), (Sized(7), 7), (Sized(None), 0),
        (Sized("many"), 0), (Sized(float("inf")), 0), (Odd(), 0), (Table(), 8000), (object(), 0),
    ],
)  # fmt: skip
def test_how_large_a_value_is(value, nbytes) -> None:
    """A value is as large as it says, or its items; what does not say counts as nothing."""
    assert size_of(value) == nbytes


def test_a_collection_of_the_users_loads_nothing() -> None:
    """A class that makes its items when they are asked for is not asked."""

    class Lazy(dict):
        def values(self) -> Any:
            raise AssertionError("loads them")

        __iter__ = __len__ = values

    assert size_of(Lazy(a=b"abc")) == 3


def test_only_the_first_items_are_looked_at() -> None:
    """Of long collections the first ITEMS_MAX items stand for all."""
    values = [b"x" * 10] * ITEMS_MAX + [b""] * ITEMS_MAX

    assert size_of(values) == 10 * len(values)
    assert size_of(dict(enumerate(values))) == 10 * len(values)


@pytest.mark.parametrize("nbytes", [-5, 10**30])
def test_a_class_may_say_what_it_likes(nbytes) -> None:
    """A size that no value can have is reported as one that fits into the report."""
    made, _ = results(is_shared=True)
    kept = made.keep(Sized(nbytes))

    assert kept is None or 0 <= kept < 1 << 64


def test_a_value_that_holds_itself() -> None:
    """A list that holds itself has some size."""
    value: list[Any] = [b"x"]
    value.append(value)

    assert size_of(value) >= 0


@pytest.mark.timeout(10)
def test_lists_of_lists_are_not_looked_through() -> None:
    """How deep lists are nested does not make it take long to see how large they are."""
    value: list[Any] = [b"x"]
    for _ in range(8):
        value = [value] * ITEMS_MAX

    assert size_of(value) >= 0

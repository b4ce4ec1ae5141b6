"""What is read from a signature: the old form of a map, and whose a keyword is."""

from __future__ import annotations

import functools
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.client.calls import rows_of, takes


def one(a):
    pass


def one_or_two(a, b=2):
    pass


def two(a, b):
    pass


def none():
    pass


def any_number(*args):
    pass


def keyword(*, profiling):
    pass


def positional(profiling, /):
    pass


class Pair:
    def __init__(self, a, b):
        pass

    def method(self, a, b):
        pass

    def __call__(self, a):
        pass


OLD = [
    (one, [(1,), (2,)]),
    (math.sqrt, [(1,)]),
    (max, [(1,)]),
    (one_or_two, [(1,), (2,)]),
    (two, [(1, 2), (3, 4)]),
    (two, [(1,), (2, 3)]),
    (two, ((1, 2),)),
    (none, [(), ()]),
    (Pair, [(1, 2)]),
    (Pair(1, 2).method, [(1, 2)]),
    (Pair(1, 2), [(1,)]),
    (functools.partial(two, 1), [(2,)]),
    (lambda a, b: a, [(1, 2)]),
]
NEW = [
    (one, []),
    (one, range(3)),
    (one, "text"),
    (one, [(1, 2), (3, 4)]),
    (one, [(1,), (2, 3)]),
    (one, [(1,), 2]),
    (one, [1, (2,)]),
    (one, [[1], [2]]),
    (two, [(1, 2), [3, 4]]),
    (two, [1, 2]),
    (one_or_two, [(1, 2), (3, 4)]),
    (any_number, [(1, 2)]),
    (max, [(1, 2), (3, 4)]),
    (dict, [((1, 2), (3, 4))]),
    (functools.partial(two, 1), [(2, 3)]),
    (two, [None]),
]


@pytest.mark.parametrize("make", [lambda items: items, iter, lambda items: (i for i in items)])
@pytest.mark.parametrize(
    ("function", "items", "expected"),
    [(*each, True) for each in OLD] + [(*each, False) for each in NEW],
)
def test_the_old_form_is_known_by_rule(function, items, expected, make):
    """The old form of map() is tuples that the function cannot take, or of one item each."""
    rows, is_old = rows_of(function, make(items))

    assert is_old is expected
    assert list(rows) == list(items)


@given(st.lists(st.one_of(st.integers(), st.tuples(st.integers()), st.lists(st.integers()))))
def test_no_item_is_lost(items):
    """No item of an iterable is lost or moved, whichever form it is taken for."""
    for function in (one, two):
        for make in (list, tuple, iter):
            assert list(rows_of(function, make(items))[0]) == items


def test_items_are_taken_one_by_one():
    """An endless iterable that is not of tuples is not run through."""
    rows, is_old = rows_of(one, itertools.count())

    assert not is_old
    assert list(itertools.islice(rows, 3)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (keyword, True),
        (lambda profiling: None, True),
        (lambda **names: None, True),
        (functools.partial(keyword, profiling=1), True),
        (positional, False),
        (one, False),
        (lambda *profiling: None, False),
        (max, False),
        (Pair, False),
    ],
)
def test_whose_a_keyword_is(function, expected):
    """A keyword is the function's if it has such a parameter, or takes any."""
    assert takes(function, "profiling") is expected

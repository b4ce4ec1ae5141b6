"""Whether a C pickle names what other processes cannot import."""

from __future__ import annotations

import copyreg
import pickle
import sys
import warnings
from collections import OrderedDict, defaultdict, deque
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.pickling.by_value import PROTOCOL, names_by_value

MAIN = "__main__"


class Local:
    """Stands for a class of the program."""


class LocalEnum(Enum):
    """Stands for one that is made by its value."""

    ONE = 1


def local():
    """Stand for a function of the program."""


@pytest.fixture(scope="module", autouse=True)
def program():
    """Let these be what the program defines."""
    for one in (Local, LocalEnum, local):
        one.__module__ = MAIN
        setattr(sys.modules[MAIN], one.__name__, one)
    yield
    for one in (Local, LocalEnum, local):
        one.__module__ = __name__
        delattr(sys.modules[MAIN], one.__name__)


def pickled(value):
    """Return it in the stream of C pickle, its large buffers kept out."""
    return pickle.dumps(value, PROTOCOL, buffer_callback=lambda _: None)


OF_PROGRAM = st.sampled_from([Local, LocalEnum, LocalEnum.ONE, local]) | st.builds(Local)
OTHERS = st.sampled_from([
    None, MAIN, f"{MAIN}.local", MAIN.encode(), 1.5, 1 << 80, warnings.filters, Fraction(1, 2), Decimal(1), complex(1, 2),
    datetime(2026, 1, 1, tzinfo=timezone.utc), OrderedDict(a=1), defaultdict(list, a=[1]), deque([1], 5),
    partial(print, 1, end=""), itemgetter(1), bytearray(b"abc"), ValueError(MAIN), Ellipsis, [].append, int, len,
    np.arange(3), np.array([None]), np.dtype([("a", int)]), np.float64(1), np.random.default_rng(1),
])  # fmt: skip


def nested(leaves):
    """Return values that hold others."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.tuples(inner, inner),
            st.dictionaries(st.text(max_size=3), inner, max_size=3),
            st.builds(partial, st.just(print), inner),
            st.builds(lambda one: np.array([one, None], object), inner),
        ),
        max_leaves=12,
    )


@given(nested(OTHERS))
def test_a_text_is_no_name(value):
    """The text ``__main__`` may be in anything, and imports nothing."""
    assert not names_by_value(pickled([MAIN, value]))


@given(nested(OTHERS), OF_PROGRAM, nested(OTHERS))
def test_what_the_program_defines_is_found(before, of_program, after):
    """Wherever it is: also if the name of its module was written before, as a text."""
    assert names_by_value(pickled([MAIN, before, of_program, after]))
    assert names_by_value(pickled((after, {"a": [of_program]}, MAIN)))


def test_what_nobody_can_look_through_may_name_anything():
    """A pickle that is damaged is not taken for one that names nothing."""
    assert names_by_value(pickled([MAIN, 1])[:-2])


def test_what_stands_for_a_number_is_not_kept():
    """Python keeps what the numbers of ``copyreg`` stand for: it would be nothing from then on."""
    copyreg.add_extension("fractions", "Fraction", 250)
    try:
        assert names_by_value(pickled([MAIN, Fraction(1, 2)]))
        assert pickle.loads(pickled(Fraction(1, 2))) == Fraction(1, 2)
    finally:
        copyreg.remove_extension("fractions", "Fraction", 250)

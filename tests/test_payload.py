"""Which argument of a call cannot be unpickled."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.pickling.payload import failing_argument


class FailsToMake:
    """Cannot be made where it is unpickled."""

    def __reduce__(self):
        return int, ("no number",)


class FailsToFill:
    """Can be made, but not filled."""

    def __getstate__(self):
        return {"a": 1}

    def __setstate__(self, state):
        raise RuntimeError(state)


SHARED = [1, 2]
GOOD = st.recursive(
    st.one_of(
        st.none(),
        st.integers(),
        st.text(max_size=300),
        st.just(SHARED),
        st.just(int),
        st.just(slice(1, 2)),
        st.just(np.arange(5)),
        st.just(np.arange(20_000)),
        st.just(b"b" * 70_000),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(inner, inner, inner, inner, inner),
        st.dictionaries(st.integers(), inner, max_size=3),
        st.just(frozenset({1, 2})),
        st.just({3}),
        st.just(()),
    ),
    max_leaves=6,
)
BAD = [FailsToMake(), FailsToFill(), [1, FailsToMake()], (1, 2, 3, 4, {"a": FailsToFill()})]


def pack(args):
    """Return the pickle of arguments, and its buffers."""
    buffers: list[pickle.PickleBuffer] = []
    return pickle.dumps(args, 5, buffer_callback=buffers.append), buffers


@given(args=st.lists(GOOD, max_size=8), at=st.integers(0, 8), bad=st.sampled_from(BAD))
def test_the_first_that_fails_is_found(args, at, bad):
    """The first argument that cannot be unpickled is found, wherever it stands."""
    at = min(at, len(args))

    assert failing_argument(*pack((*args[:at], bad, *args[at:]))) == at


@given(args=st.lists(GOOD, min_size=1, max_size=8))
def test_none_of_these_fails(args):
    """Arguments that can be unpickled are not blamed."""
    assert failing_argument(*pack(tuple(args))) is None


@pytest.mark.parametrize("count", range(1, 7))
def test_the_first_of_several_is_blamed(count):
    """Of two arguments that cannot be unpickled the first one is blamed."""
    args = (1,) * count + (FailsToMake(), FailsToFill())

    assert failing_argument(*pack(args)) == count

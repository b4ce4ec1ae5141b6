"""Which argument of a call cannot be unpickled."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.pickling.payload import OBJECT_BYTES, dumps_call, failing_argument


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


def test_a_large_array_of_pieces_is_stored_as_one_is():
    """A view that leaves columns out is copied once: it would be written into each call else."""
    view = np.arange(40_000.0).reshape(200, 200)[:, :-1]

    stream, buffers = dumps_call(print, (view, 1, view), {"more": view}, stores=True)

    assert (len(stream) < 1000, [view.nbytes]) == (True, [one.nbytes for one in buffers])
    (first, _, second), named = pickle.loads(stream, buffers=buffers)
    assert first is second is named["more"]
    assert (view == first).all()


def test_many_small_values_are_no_large_one():
    """They stay in the stream, however long it is; one that is large by itself does not."""
    small = [np.full(1000, number) for number in range(20)]
    stream, buffers = dumps_call(print, tuple(small), {}, stores=True)
    assert (len(stream) > OBJECT_BYTES, []) == (True, list(buffers))
    assert [0, 19] == [one[0] for one in pickle.loads(stream)[::19]]

    listed = list(range(OBJECT_BYTES))
    stream, buffers = dumps_call(print, (*small, listed), {"one": listed}, stores=True)
    assert len(buffers) == 1
    args, named = pickle.loads(stream, buffers=buffers)
    assert args[-1] is named["one"]
    assert args[-1] == listed

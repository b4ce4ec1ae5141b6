"""How the code that functions carry is framed."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.pickling.code_bundle import Bundle, CarriedCode, Part, split

PARTS = st.builds(Part, st.booleans(), st.text(), st.binary(), st.tuples(st.text()))
CONTENTS = st.dictionaries(PARTS, st.binary(), max_size=4)


@given(CONTENTS, st.binary(), st.lists(st.binary(), max_size=3), st.booleans())
def test_what_was_put_before_a_function_is_split_from_it(contents, payload, buffers, stores):
    """Whether the contents are stored beside the function or travel inside."""
    carried = CarriedCode(
        Bundle(b"owner", 3, tuple(contents), {"A": "b"}), tuple(map(memoryview, contents.values()))
    )
    before, beside = carried.put_before(payload, list(map(memoryview, buffers)), stores=stores)

    assert len(beside) == len(buffers) + stores * len(contents)
    found, rest, left = split(before, beside)
    assert found is not None
    assert found.bundle == carried.bundle
    assert [bytes(one) for one in found.contents] == list(contents.values())
    assert bytes(rest) == payload
    assert [bytes(one) for one in left] == buffers


@given(st.one_of(st.integers(), st.text(), st.binary()), st.integers(0, 5))
def test_a_plain_pickle_is_left_alone(value, protocol):
    """No pickle is taken for one with code before it."""
    payload, buffers = pickle.dumps(value, protocol), [b"x"]

    assert split(payload, buffers) == (None, payload, buffers)

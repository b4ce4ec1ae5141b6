"""The batch against its model, a list of payloads."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.wire.batch import Batch

payload_lists = st.lists(
    st.binary(max_size=20) | st.binary(min_size=2000, max_size=2000), min_size=1, max_size=30
)


def as_list(batch: Batch) -> list[bytes]:
    return [bytes(payload) for payload in batch]


def ends_of(*values: int) -> memoryview:
    return memoryview(array("I", values))


def assert_whole(batch: Batch) -> None:
    """What a decoder checks of a batch that arrives."""
    assert batch.ends[-1] - batch.base == len(batch.data)
    assert batch.base >= 0


@given(payload_lists)
def test_a_batch_is_its_payloads(payloads):
    """A batch iterates over what it was made of, and knows their number and total size."""
    batch = Batch.of(payloads)

    assert as_list(batch) == payloads
    assert len(batch) == len(payloads)
    assert batch.nbytes == sum(map(len, payloads))


def test_a_single_payload_is_not_copied():
    """A batch of one payload holds that very object."""
    payload = b"x" * 100

    batch = Batch.single(payload)

    assert batch.data is payload
    assert as_list(batch) == [payload]


@given(payload_lists, st.data())
def test_cuts_of_cuts_are_slices_of_slices(payloads, data):
    """A cut of a cut holds what the same slice of the list holds."""
    batch = Batch.of(payloads)
    for _ in range(data.draw(st.integers(1, 5), "cuts")):
        start = data.draw(st.integers(0, len(payloads) - 1), "start")
        stop = data.draw(st.integers(start + 1, len(payloads)), "stop")
        batch, payloads = batch.cut(start, stop), payloads[start:stop]

        assert as_list(batch) == payloads
        assert batch.nbytes == sum(map(len, payloads))
        assert_whole(batch)


@pytest.mark.parametrize(("nbytes", "kind"), [(512, bytes), (513, memoryview)])
@pytest.mark.parametrize("count", [1, 3])
def test_small_payloads_do_not_keep_the_batch(nbytes, kind, count):
    """What is kept of a batch of small results is no view of them all."""
    whole = Batch.of([b"x" * nbytes] * count)
    came = Batch(memoryview(whole.data), whole.ends)

    assert {type(one) for one in came} == {kind}
    assert as_list(came) == [b"x" * nbytes] * count


def test_a_cut_shares_memory():
    """A cut of a batch refers to the batch's own bytes."""
    batch = Batch.of([b"abc", b"defg", b"hi"])

    part = batch.cut(1, 2)

    assert isinstance(part.data, memoryview)
    assert part.data.obj is batch.data


def test_the_whole_is_cut_without_a_view():
    """Cutting everything passes the very buffer on: a bytes object stays one."""
    batch = Batch.of([b"abc", b"defg"])

    assert batch.cut(0, 2).data is batch.data


def test_an_empty_cut_has_no_payloads():
    """A cut from an index to itself is empty, at either end."""
    batch = Batch.of([b"abc", b"defg"])

    assert [len(batch.cut(0, 0)), len(batch.cut(2, 2))] == [0, 0]


@given(payload_lists, st.integers(1, 60))
def test_split_yields_all_within_the_limit(payloads, nbytes):
    """Split yields everything in order; only a payload larger than the limit exceeds it."""
    parts = list(Batch.of(payloads).split(nbytes))

    assert [payload for part in parts for payload in as_list(part)] == payloads
    assert all(part.nbytes <= nbytes or len(part) == 1 for part in parts)


@given(payload_lists, st.integers(1, 60))
def test_split_wastes_no_room(payloads, nbytes):
    """No two neighbours that split yields would have fitted into one."""
    parts = list(Batch.of(payloads).split(nbytes))

    for part, following in pairwise(parts):
        assert part.nbytes + len(next(iter(following))) > nbytes


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(0, 40), st.data())
def test_ends_that_lie_stay_in_their_buffer(ends, base, data):
    """Iterating a batch with false ends reads within its buffer, and its cuts decode."""
    ends[-1] = max(ends[-1], base)
    buffer = bytes(ends[-1] - base)
    batch = Batch(buffer, ends_of(*ends), base)
    start = data.draw(st.integers(0, len(ends) - 1))
    stop = data.draw(st.integers(start + 1, len(ends)))

    part = batch.cut(start, stop)

    assert_whole(part)
    assert len(as_list(part)) == stop - start
    assert all(len(payload) <= len(buffer) for payload in as_list(part))


def test_too_much_for_one_batch_is_an_error():
    """Payloads whose sum passes 32 bits are refused, not wrapped around."""

    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 31

    with pytest.raises(OverflowError):
        Batch.of([Huge(), Huge(), Huge()])

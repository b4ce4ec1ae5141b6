"""Which segments a peer has announced."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.records.announced import RANGES_MAX, Announced

NUMBERS = st.integers(0, 30)


@given(st.integers(0, 10), st.lists(NUMBERS))
def test_it_is_a_set(stop, numbers):
    """It has the numbers that were put in, in whatever order, and those that it began with."""
    announced = Announced(stop)
    for number in numbers:
        announced.add(number)

    assert {one for one in range(40) if one in announced} == {*range(stop), *numbers}


def test_a_name_without_a_number_is_not_in_it():
    """What cannot be told apart is never taken for announced."""
    announced = Announced(5)
    announced.add(-1)

    assert -1 not in announced


def test_it_forgets_the_lowest():
    """A peer with gaps without end does not fill the memory of the scheduler."""
    announced = Announced()
    for number in range(0, 2 * RANGES_MAX + 10, 2):
        announced.add(number)

    assert 8 not in announced
    assert 10 in announced
    assert 2 * RANGES_MAX + 8 in announced

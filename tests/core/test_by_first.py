"""What is looked through in the order of first tasks: as a sorted dict, whatever comes and goes."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from sortedcontainers import SortedDict

from scaler_cluster.core.records.by_first import ByFirst


@dataclass
class Part:
    """Contiguous tasks."""

    first: int
    stop: int


NUMBERS = st.integers(0, 30)


@given(st.lists(st.tuples(st.booleans(), NUMBERS), max_size=60), NUMBERS, st.integers(1, 10))
def test_it_is_a_sorted_dict(moves, first, count):
    """What comes and goes is found as in a sorted dict: the last, and what overlaps a range."""
    parts: ByFirst[Part] = ByFirst()
    model: SortedDict[int, Part] = SortedDict()
    for comes, at in moves:
        # Each ends before the next may begin.
        part = Part(2 * at, 2 * at + 1 + at % 2)
        if comes:
            parts[part.first] = model[part.first] = part
        elif part.first in model:
            del parts[part.first], model[part.first]

    found = [one for one in model.values() if one.first < first + count and one.stop > first]
    assert list(parts.overlapping(first, first + count)) == found
    assert sorted(parts.items()) == list(model.items())
    assert not model or parts.last is model.peekitem()[1]


def test_one_that_takes_the_place_of_another():
    """What begins at the same task takes its place, and is found there alone."""
    parts: ByFirst[Part] = ByFirst()
    parts[4] = Part(4, 9)
    parts[2] = Part(2, 4)
    parts[4] = rest = Part(4, 6)

    assert list(parts.overlapping(4, 9)) == [rest]
    assert list(parts.overlapping(6, 9)) == []

"""Callables that hold something: what a task changes in one does not reach the next task."""

from __future__ import annotations

import operator
from functools import partial

import numpy as np
import pytest

from scaler_exec import ScalerExecutor


class Counter:
    """Counts its calls."""

    def __init__(self) -> None:
        self.count = 0
        self.small = np.zeros(3)

    def grow(self, *args):
        self.count += 1
        self.small += 1
        return self.count, self.small.tolist(), *args

    def __call__(self, *args):
        return self.grow(*args)


class Once:
    """Cannot be pickled any more once it was unpickled."""

    def __init__(self) -> None:
        self.here: list[int] = []

    def __getstate__(self):
        if "lock" in self.__dict__:
            raise TypeError("once is enough")
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__ = state | {"lock": True}

    def grow(self):
        self.here.append(len(self.here))
        return self.here


def append(words, *args):
    """Change the first argument."""
    words.append(len(words))
    return words, *args


def address(array, *_):
    """Return where an array lies."""
    return array.__array_interface__["data"][0], int(array.sum())


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Counter().grow, (1, [1.0, 1.0, 1.0])),
        (Counter, (1, [1.0, 1.0, 1.0])),
        (lambda: partial(Counter()), (1, [1.0, 1.0, 1.0])),
        (lambda: partial(append, []), ([0],)),
        (lambda: partial(append, words=[]), ([0],)),
        (lambda: partial(partial(append, [5])), ([5, 1],)),
        (lambda: Once().grow, [0]),
        (lambda: [1, 2].pop, 2),
        (lambda: {"a": 1}.popitem, ("a", 1)),
    ],
    ids=["method", "instance", "partial of an instance", "partial", "keyword", "nested", "once",
         "list's method", "dictionary's method"],
)  # fmt: skip
def test_each_task_gets_it_as_it_was(single, make, expected) -> None:
    """A task's bound method, instance or partial begins with what it held at the call."""
    function = make()

    assert [single.submit(function).result() for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("chunksize", [1, 3])
def test_each_call_of_a_map_gets_it_as_it_was(single, chunksize) -> None:
    """A call of a map does not see what another call changed in their function."""
    expected = [(1, [1.0, 1.0, 1.0], n) for n in range(6)]

    assert list(single.map(Counter().grow, range(6), chunksize=chunksize)) == expected
    assert list(single.map(partial(append, []), range(6), chunksize=chunksize)) == [
        ([0], n) for n in range(6)
    ]


def test_nested_tasks_get_it_as_it_was(single) -> None:
    """A task on the stack of the one that waits for it begins with what was passed."""

    def parent():
        counter = Counter()
        with ScalerExecutor() as executor:
            return [executor.submit(counter.grow).result()[0] for _ in range(3)]

    assert single.submit(parent).result() == [1, 1, 1]


def test_what_cannot_be_changed_is_not_copied(single) -> None:
    """Tasks share the memory of a large array in a partial, which is read-only there."""
    array = np.ones(100_000)
    results = {single.submit(partial(address, array), n).result() for n in range(3)}

    assert len(results) == 1
    assert {total for _, total in results} == {100_000}


def test_a_changed_method_name_is_no_matter(single) -> None:
    """A bound method whose function has another name than the attribute is called as it is."""

    class Local:
        size = 3
        method = lambda self, n: (self.size, n)  # noqa: E731

    assert single.submit(Local().method, 5).result() == (3, 5)


def test_callables_of_libraries_work(single) -> None:
    """Callables of libraries work, pickled by their names or by what they hold."""
    assert list(single.map(np.add, [1, 2], [3, 4])) == [4, 6]
    assert list(single.map(operator.itemgetter(1), ["ab", "cd"])) == ["b", "d"]
    assert list(single.map("-".join, [["a", "b"], "cd"])) == ["a-b", "c-d"]
    assert list(single.map(partial(pow, 2), range(4))) == [1, 2, 4, 8]

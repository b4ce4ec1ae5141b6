"""A task gets what its arguments were when it was submitted, or when map took the item."""

from __future__ import annotations

import array
import functools
import itertools

import numpy as np
import pandas as pd
import pytest

from scaler_exec import ScalerExecutor
from tests.runtime.helpers import BOUND_S

COUNT = 100_000
"""Numbers of an array that is far too large for a message."""


@pytest.fixture(scope="module")
def executor(standing):
    """Return an executor that the tests of this file share."""
    with ScalerExecutor(2) as made:
        cluster = made._session.cluster
        assert cluster is not None
        standing |= {child.pid for child in cluster._children.values()}
        yield made


def total(value):
    """Return the sum of what a buffer holds."""
    return float(np.frombuffer(value).sum())


def add_to(value):
    """Add one to all that a buffer holds."""
    np.frombuffer(value)[:] += 1


def add_to_frame(frame):
    """Add one to a column."""
    frame.loc[:, "a"] += 1


def add_to_array(value):
    """Add one to all."""
    value += 1


def frame():
    return pd.DataFrame({"a": np.zeros(COUNT)})


def read_only(value):
    """Return a view that may not be written to, of what may."""
    view = value.view()
    view.flags.writeable = False
    return view


MUTABLES = {
    # What is passed, how it changes, and what tells what a task got.
    "array": (np.zeros(COUNT), add_to_array, np.sum),
    "small array": (np.zeros(10), add_to_array, np.sum),
    "view": (np.zeros(2 * COUNT)[COUNT:], add_to_array, np.sum),
    "transposed": (np.zeros((10, COUNT)).T, add_to_array, np.sum),
    "strided": (np.zeros(2 * COUNT)[::2], add_to_array, np.sum),
    "dict of arrays": (
        {"a": np.zeros(COUNT)},
        lambda value: add_to_array(value["a"]),
        lambda value: float(value["a"].sum()),
    ),
    "list of arrays": (
        [np.zeros(COUNT)],
        lambda value: add_to_array(value[0]),
        lambda value: float(value[0].sum()),
    ),
    "frame": (frame(), add_to_frame, lambda value: float(value["a"].sum())),
    "series": (frame()["a"].copy(), add_to_array, lambda value: float(value.sum())),
    "bytearray": (bytearray(8 * COUNT), add_to, total),
    "array.array": (array.array("d", [0.0] * COUNT), add_to, total),
    "list": ([0.0] * COUNT, lambda value: value.append(1.0), sum),
}


@pytest.mark.parametrize("name", MUTABLES)
def test_each_submit_passes_what_there_is(executor, name) -> None:
    """Each task gets its argument as it was at its own submit, whatever changes later."""
    value, change, look = MUTABLES[name]
    futures, expected = [], []
    for _ in range(4):
        expected.append(look(value))
        futures.append(executor.submit(look, value))
        change(value)

    assert len(set(expected)) == 4, "the test would show nothing"
    assert [future.result(BOUND_S) for future in futures] == expected


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_maps_are_looked_at(executor, tmp_path, mode) -> None:
    """A read-only memory map is looked at each time, as others may change its file."""
    path = tmp_path / "numbers"
    np.zeros(COUNT).tofile(path)
    writer = np.memmap(path, dtype=float, mode="r+", shape=(COUNT,))
    value = np.memmap(path, dtype=float, mode=mode, shape=(COUNT,))
    changed = value if mode == "c" else writer
    futures = []
    for _ in range(3):
        futures.append(executor.submit(np.sum, np.asarray(value)))
        futures.append(executor.submit(np.sum, value))
        changed += 1

    results = [float(future.result(BOUND_S)) for future in futures]
    assert results == [0, 0, COUNT, COUNT, 2 * COUNT, 2 * COUNT]


def test_a_read_only_view_of_what_changes_is_looked_at(executor) -> None:
    """A read-only view whose owner is writable is looked at each time."""
    value = np.zeros(COUNT)
    view = read_only(value)
    futures = []
    for _ in range(3):
        futures.append(executor.submit(np.sum, view))
        value += 1

    assert [float(future.result(BOUND_S)) for future in futures] == [0, COUNT, 2 * COUNT]


def reused(count, size):
    """Yield one array again and again, with other numbers each time."""
    value = np.zeros(size)
    for _ in range(count):
        yield value
        value += 1


@pytest.mark.parametrize("size", [3, COUNT])
@pytest.mark.parametrize("options", [{}, {"chunksize": 7}, {"buffersize": 5}, {"chunksize": 3, "buffersize": 7}],
                         ids=str)  # fmt: skip
def test_a_generator_may_reuse_its_buffer(executor, size, options) -> None:
    """Each call of a map gets what its item held when map took it."""
    results = executor.map(np.sum, reused(40, size), **options)

    assert [float(one) for one in results] == [size * n for n in range(40)]


def test_an_item_of_a_chunk_may_be_a_class_of_the_program(executor) -> None:
    """An item that only cloudpickle can pickle stays as it was taken."""

    class Box:
        def __init__(self) -> None:
            self.value = 0

    def boxes():
        box = Box()
        for box.value in range(20):
            yield box

    assert list(executor.map(lambda box: box.value, boxes(), chunksize=6)) == list(range(20))


def test_a_chunk_may_hold_futures_and_reused_buffers(executor) -> None:
    """One chunk may hold a future and a buffer that was changed since."""

    def items():
        value = [0]
        for n in range(6):
            yield value
            value[0] = n + 1
            if n == 3:
                yield executor.submit(list, (99,))

    assert list(executor.map(lambda one: one[0], items(), chunksize=4)) == [0, 1, 2, 3, 99, 4, 5]


def test_items_are_looked_at_again_after_the_caller_ran(executor) -> None:
    """A map with a buffer looks at a repeated item again after the caller has run."""
    value = np.zeros(COUNT)
    totals = executor.map(np.sum, itertools.repeat(value, 30), buffersize=2)
    seen = []
    for count, one in enumerate(totals):
        seen.append(float(one) / COUNT)
        value += 1
        assert seen[-1] >= count - 2

    assert seen == sorted(seen)


@pytest.mark.parametrize("shape", ["repeat", "list", "partial"])
def test_one_array_for_many_tasks_is_pickled_once(executor, shape) -> None:
    """A large array that is repeated in a map is pickled once if no user code runs between."""

    class Counting(list):
        pickled = 0

        def __reduce_ex__(self, protocol):
            Counting.pickled += 1
            return list, ([0] * COUNT,)

    value = Counting()
    if shape == "partial":
        results = executor.map(functools.partial(_length, value), range(50))
    else:
        values = itertools.repeat(value, 50) if shape == "repeat" else [value] * 50
        results = executor.map(_length, values, range(50))

    assert list(results) == [COUNT] * 50
    assert Counting.pickled <= 4


def _length(value, _):
    return len(value)


def test_an_object_sent_ahead_stays_as_it_was(executor) -> None:
    """An object that was sent ahead stays as it was, and each use costs nothing."""
    value = np.zeros(COUNT)
    reference = executor.send_object(value)
    value += 1

    assert [float(executor.submit(np.sum, reference).result(BOUND_S)) for _ in range(3)] == [0] * 3
    assert list(map(float, executor.map(np.sum, [reference] * 3))) == [0] * 3
    assert "ndarray" in repr(reference)


def test_reserialize_looks_at_what_is_read_only(executor) -> None:
    """reserialize=True looks at a read-only array, which is not looked at otherwise."""
    value = np.zeros(COUNT)
    writable = value[:]  # numpy lets it write after the next line
    value.flags.writeable = False
    looking = executor.options(reserialize=True)
    assert float(executor.submit(np.sum, value).result(BOUND_S)) == 0
    writable += 1

    assert float(looking.submit(np.sum, value).result(BOUND_S)) == COUNT
    writable += 1
    assert list(map(float, looking.map(np.sum, [value]))) == [2 * COUNT]

"""map: order, laziness, chunks, buffers."""

from __future__ import annotations

import gc
import itertools
import os
import weakref

import numpy as np
import pytest

from scaler_cluster.objects.sent import SentObjects
from scaler_exec import ScalerExecutor, StorageFullError
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_until


def test_results_are_complete_and_in_order(executor) -> None:
    """A map yields what the builtin one does, whatever the chunks and buffers."""
    expected = [n * n for n in range(500)]
    for chunksize in (1, 2, 7, 100, 5000):
        for buffersize in (None, 1, 10, 101, 5000):
            results = executor.map(
                tasks.square, range(500), chunksize=chunksize, buffersize=buffersize
            )
            assert list(results) == expected


def test_several_iterables_end_with_the_shortest(executor) -> None:
    """A map calls with one item of each iterable, as far as all of them go."""
    assert list(executor.map(pow, [2, 3, 4], itertools.count(), (100, 100))) == [1, 3]


def test_a_map_without_items_is_empty(executor) -> None:
    """No item, or no iterable, makes no call."""
    assert list(executor.map(tasks.square, [])) == []
    assert list(executor.map(tasks.square)) == []
    assert list(executor.map(tasks.square, [], chunksize=3, buffersize=2)) == []


def test_a_map_starts_before_its_results_are_asked_for(executor, tmp_path) -> None:
    """Calls are submitted by map() itself; their results may be taken later, or not at all."""
    path = tmp_path / "lines"
    path.touch()
    results = executor.map(tasks.append_line, [str(path)] * 5, "abcde")

    wait_until(lambda: len(path.read_text().split()) == 5, "the calls were not made")
    assert list(results) == [None] * 5


def test_results_come_before_the_last_call_has_run(executor, flags) -> None:
    """A result can be taken while later calls still run."""
    results = executor.map(_wait_if, ["", "", flags.path("go")])

    assert [next(results), next(results)] == ["", ""]
    flags.set("go")
    assert list(results) == [flags.path("go")]


def _wait_if(path):
    if path:
        tasks.wait_for(path)
    return path


def test_large_and_small_items_keep_their_order(executor) -> None:
    """Payloads that travel differently by size come back in order."""
    sizes = [1, 10_000, 100, 300_000, 0, 3_000_000, 5, 20_000] * 3

    assert [len(data) for data in executor.map(bytes, sizes)] == sizes
    assert list(executor.map(len, [bytes(size) for size in sizes])) == sizes


def test_two_maps_at_once_do_not_mix(executor) -> None:
    """Two maps whose results are taken in turn each yield their own."""
    squares = executor.map(tasks.square, range(500))
    negatives = executor.map(_negative, range(500))

    assert list(zip(squares, negatives, strict=True)) == [(n * n, -n) for n in range(500)]


def _negative(number):
    return -number


def test_a_map_inside_a_map_of_the_client(executor) -> None:
    """A map may be made while the results of another are taken."""
    total = 0
    for number in executor.map(tasks.square, range(20)):
        total += sum(executor.map(tasks.square, range(number % 5)))

    assert total == sum(sum(k * k for k in range(n * n % 5)) for n in range(20))


def test_a_lambda_and_a_closure_can_be_mapped(executor) -> None:
    """Functions that have no name to import are pickled by value."""
    offset = 5

    assert list(executor.map(lambda n: n + offset, range(5))) == [5, 6, 7, 8, 9]


def test_methods_and_partials_can_be_mapped(executor) -> None:
    """Bound methods and partials are called with what they hold."""
    from functools import partial

    assert list(executor.map("abc".__add__, "de")) == ["abcd", "abce"]
    assert list(executor.map(partial(pow, 2), range(4))) == [1, 2, 4, 8]


def test_a_method_is_pickled_as_it_is_now(executor) -> None:
    """A bound method whose object changed between two calls is sent anew."""
    numbers = [1, 2, 3]
    index = numbers.index
    assert executor.submit(index, 2).result(BOUND_S) == 1
    numbers.insert(0, 2)

    assert executor.submit(index, 2).result(BOUND_S) == 0


# -- buffersize ----------------------------------------------------------------------------------


def test_an_infinite_iterable_can_be_mapped(executor) -> None:
    """With buffersize, results of an endless iterable come one by one."""
    results = executor.map(tasks.square, itertools.count(), buffersize=10)

    assert list(itertools.islice(results, 300)) == [n * n for n in range(300)]


def test_an_infinite_iterable_can_be_mapped_in_chunks(executor) -> None:
    """buffersize counts calls, also where several of them make a chunk."""
    results = executor.map(tasks.square, itertools.count(), buffersize=10, chunksize=4)

    assert list(itertools.islice(results, 300)) == [n * n for n in range(300)]


@pytest.mark.parametrize("buffersize", [1, 4, 100])
def test_no_more_is_taken_than_fits_the_buffer(executor, buffersize) -> None:
    """map() takes buffersize items, then one more for each result, at most a quarter ahead."""
    taken = itertools.count()
    numbers = map(tasks.square, taken)
    results = executor.map(tasks.square, numbers, buffersize=buffersize)

    def taken_so_far() -> int:
        return int(repr(taken).removeprefix("count(").removesuffix(")"))

    assert taken_so_far() == buffersize
    for number in range(1, 200):
        next(results)
        assert taken_so_far() <= buffersize + number + buffersize // 4


def test_the_buffer_is_refilled_only_when_results_are_taken(executor) -> None:
    """A full buffer stays as it is while nobody takes results."""
    taken = itertools.count()
    results = executor.map(tasks.square, taken, buffersize=3)
    others = list(executor.map(tasks.square, range(100)))

    assert len(others) == 100
    assert next(taken) == 3
    assert list(itertools.islice(results, 3)) == [0, 1, 4]


@pytest.mark.parametrize(
    ("buffersize", "error"), [(0, ValueError), (-1, ValueError), ("3", TypeError), (2.0, TypeError)]
)
def test_buffersizes_that_make_no_sense_are_refused(executor, buffersize, error) -> None:
    """A buffersize that the standard library refuses is refused."""
    with pytest.raises(error, match="buffersize must be"):
        executor.map(tasks.square, [1], buffersize=buffersize)


@pytest.mark.parametrize("chunksize", [0, -1])
def test_chunksizes_that_make_no_sense_are_refused(executor, chunksize) -> None:
    """Chunksize < 1 is a ValueError, at once."""
    with pytest.raises(ValueError, match="chunksize must be >= 1"):
        executor.map(tasks.square, [1], chunksize=chunksize)


def test_an_error_in_the_input_reaches_the_caller(executor) -> None:
    """What the iterable raises comes out of map() or, with a buffer, out of the iterator."""
    with pytest.raises(KeyError):
        executor.map(tasks.square, _broken_input())
    results = executor.map(tasks.square, _broken_input(), buffersize=1)

    with pytest.raises(KeyError):
        list(results)

    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def _broken_input():
    yield 1
    yield 2
    raise KeyError("input")


def test_a_map_after_shutdown_is_refused() -> None:
    """map() raises RuntimeError once the executor was shut down."""
    executor = ScalerExecutor(1)
    executor.shutdown()

    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.map(tasks.square, [1])


def test_a_buffered_map_after_shutdown_ends_with_what_was_submitted(own) -> None:
    """What a map had submitted before shutdown() comes; asking for more then is refused."""
    results = own.map(tasks.square, itertools.count(), buffersize=4)
    own.shutdown(wait=False)

    with pytest.raises(RuntimeError, match="after shutdown"):
        for _ in range(100):
            next(results)


# -- maps that nobody takes anything from --------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"chunksize": 3}, {"buffersize": 20}], ids=str)
def test_a_map_that_nobody_keeps_runs(tmp_path, options) -> None:
    """The calls of a map whose iterator was never begun run, though it is dropped."""
    path = tmp_path / "lines"
    path.touch()
    with ScalerExecutor(2) as executor:
        executor.map(tasks.append_line, [str(path)] * 20, map(str, range(20)), **options)

    assert sorted(path.read_text().split(), key=int) == [str(n) for n in range(20)]


def test_a_map_whose_iterator_is_begun_and_dropped_is_cancelled(single, flags) -> None:
    """Calls that have not run when a begun iterator is dropped never run."""
    results = single.map(_touch_after, range(1000), itertools.repeat(flags.path("")))
    assert next(results) == 0
    del results
    gc.collect()
    assert single.submit(tasks.square, 3).result(BOUND_S) == 9

    assert not os.path.exists(flags.path("") + "999")


def _touch_after(number, path):
    import time

    if number:
        time.sleep(0.01)
    if number > 900:
        open(path + str(number), "w").close()
    return number


def test_a_map_that_nobody_keeps_keeps_nothing(executor, tmp_path) -> None:
    """The results of a dropped map are dropped as they come, and the map is forgotten."""
    path = tmp_path / "lines"
    path.touch()
    executor.map(tasks.append_line, [str(path)] * 5, "abcde")
    executor.map(bytes, [1_000_000] * 3)
    session = executor._session

    def is_forgotten() -> bool:
        session.wake()
        return not session.connection._core.calls

    wait_until(is_forgotten, "the maps are kept")
    assert sorted(path.read_text().split()) == list("abcde")


def test_what_was_taken_before_an_error_in_the_input_runs(tmp_path) -> None:
    """The calls that were made before the iterable raised run."""
    path = tmp_path / "lines"
    path.touch()

    def names():
        yield from "abc"
        raise KeyError("input")

    with ScalerExecutor(2) as executor, pytest.raises(KeyError):
        executor.map(tasks.append_line, itertools.repeat(str(path)), names())

    assert sorted(path.read_text().split()) == list("abc")


# -- what is kept --------------------------------------------------------------------------------


class Thing:
    """Can be referred to weakly."""


def make_thing(_) -> Thing:
    """Return a new thing."""
    return Thing()


@pytest.mark.parametrize("chunksize", [1, 10])
def test_a_map_keeps_no_result_that_was_taken(executor, chunksize) -> None:
    """A result of a map lives as long as its taker keeps it."""
    for thing in executor.map(make_thing, range(100), chunksize=chunksize):
        reference = weakref.ref(thing)
        del thing
        assert reference() is None


@pytest.mark.parametrize("chunksize", [1, 3])
def test_futures_beside_a_buffer_that_is_used_again(executor, chunksize) -> None:
    """Each call gets what a reused buffer held when it was taken, beside a future."""

    def items():
        buffer = np.zeros(20_000)
        for number in range(6):
            buffer[:] = number
            yield buffer

    futures = [executor.submit(int) for _ in range(6)]

    results = executor.map(_first, items(), futures, chunksize=chunksize)
    assert list(results) == [0, 1, 2, 3, 4, 5]


def _first(array, zero):
    return int(array[0]) + zero


@pytest.mark.parametrize("chunksize", [1, 2])
def test_an_item_that_finds_no_room_at_first(executor, monkeypatch, chunksize) -> None:
    """An item without room fails by itself, or is tried again with its chunk."""
    hold, calls = SentObjects.hold, itertools.count()

    def full_once(self, *args, **kwargs):
        if not next(calls):
            raise StorageFullError("once")
        return hold(self, *args, **kwargs)

    monkeypatch.setattr(SentObjects, "hold", full_once)
    results = executor.map(len, (bytearray(100_000 + n) for n in range(4)), chunksize=chunksize)
    if chunksize == 1:
        with pytest.raises(StorageFullError):
            next(results)
    else:
        assert list(results) == [100_000, 100_001, 100_002, 100_003]
    assert executor.submit(len, "abc").result(BOUND_S) == 3


def test_a_map_keeps_no_argument(executor) -> None:
    """A map does not keep its arguments once they were submitted."""
    things = [Thing() for _ in range(10)]
    references = [weakref.ref(thing) for thing in things]
    results = executor.map(type, things)
    del things
    gc.collect()

    assert not any(reference() for reference in references)
    assert next(results) is Thing


def test_a_worker_keeps_neither_arguments_nor_results(single) -> None:
    """What a task was given and what it returned is gone in the worker when it is over."""
    single.submit(_remember, Thing()).result(BOUND_S)

    assert single.submit(_remembered).result(BOUND_S) == [True, True]


def _remember(thing):
    result = Thing()
    tasks.remembered = [weakref.ref(thing), weakref.ref(result)]  # type: ignore[attr-defined]
    return result


def _remembered():
    return [reference() is None for reference in tasks.remembered]  # type: ignore[attr-defined]


# -- through submit ------------------------------------------------------------------------------


class Counting(ScalerExecutor):
    """An executor whose user watches each submission."""

    def submit(self, fn, /, *args, **kwargs):
        """Count, then submit."""
        self.count = getattr(self, "count", 0) + 1
        return super().submit(fn, *args, **kwargs)


def test_map_goes_through_a_submit_that_was_overridden() -> None:
    """Where a user overrode submit, each call of a map goes through it, in order, lazily."""
    with Counting(2) as executor:
        assert list(executor.map(tasks.square, range(20))) == [n * n for n in range(20)]
        assert executor.count == 20
        results = executor.map(tasks.square, itertools.count(), buffersize=3)
        assert list(itertools.islice(results, 30)) == [n * n for n in range(30)]
        assert executor.count <= 20 + 30 + 3
        results.close()  # type: ignore[attr-defined]


def test_map_goes_through_a_submit_that_was_replaced(executor) -> None:
    """Where submit was replaced on the instance, map calls it."""
    seen = []
    original = executor.submit

    def submit(fn, /, *args):
        seen.append(args)
        return original(fn, *args)

    executor.submit = submit

    assert list(executor.map(tasks.square, [1, 2, 3])) == [1, 4, 9]
    assert seen == [(1,), (2,), (3,)]


def test_both_workers_take_part_in_a_map(executor) -> None:
    """The calls of a map are spread over the workers."""
    assert len(set(executor.map(_pid, range(500)))) == 2


def _pid(_):
    import time

    time.sleep(0.0005)
    return os.getpid()

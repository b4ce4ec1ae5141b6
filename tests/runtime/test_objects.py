"""Large arguments and results, through the public API."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import resource
import signal
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from scaler_exec import DeserializeObjectError, PayloadError
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, process_of, segments, wait_gone, wait_until
from tests.runtime.machines import find_storage, wait_storage

MB = 1_000_000


def describe(value) -> tuple[str, int, bool]:
    """Return type, sum and whether it can be written to, of an array."""
    return type(value).__name__, int(value.sum()), value.flags.writeable


def test_a_large_array_is_mapped_not_copied(executor, baseline) -> None:
    """Tasks get a read-only view; many of them share one segment, which goes with the array."""
    value = np.ones(MB)
    futures = [executor.submit(describe, value) for _ in range(20)]

    assert [future.result(BOUND_S) for future in futures] == [("ndarray", MB, False)] * 20
    assert len(segments()) == 1


def test_temporary_files_may_lie_in_shared_memory(make_executor, monkeypatch) -> None:
    """Temporary files and objects may lie in one directory."""
    monkeypatch.setenv("SCALER_SHARED_MEMORY", os.environ["TMPDIR"])
    executor = make_executor(1)

    assert executor.submit(describe, np.ones(MB)).result(BOUND_S) == ("ndarray", MB, False)


def test_a_map_shares_large_arguments(executor, baseline) -> None:
    """A map stores a large argument once for all calls, also a list or a string."""
    value, numbers, text = np.ones(MB), list(range(50_000)), "x" * MB

    assert list(executor.map(_lengths, [value] * 30, [numbers] * 30, [text] * 30, range(30))) == [
        (MB, 50_000, MB, n) for n in range(30)
    ]


def test_every_call_of_a_map_may_have_its_own(executor, baseline) -> None:
    """Each call of a map gets its own argument where small and large ones mix."""
    values = [np.full(10 if n % 3 else 20_000, n) for n in range(60)]
    totals = [int(value.sum()) for value in values]

    for chunksize, buffersize in itertools.product([1, 7], [None, 10]):
        results = executor.map(describe, values, chunksize=chunksize, buffersize=buffersize)
        assert [total for _, total, _ in results] == totals
    del results


def _lengths(*values):
    return tuple(len(value) if hasattr(value, "__len__") else value for value in values)


def test_large_values_come_and_go_as_they_are(executor, baseline) -> None:
    """A large value of any type arrives as an equal one of that type, and comes back so."""
    for value in (
        bytes(MB),
        bytearray(MB),
        "x" * MB,
        list(range(50_000)),
        {"a": np.arange(50_000)},
        [np.arange(20_000), "small", bytes(100_000)],
    ):
        copy = executor.submit(_identity, value).result(BOUND_S)

        assert type(copy) is type(value)
        assert repr(copy) == repr(value)
    del value, copy


def _identity(value):
    return value


def test_keyword_arguments_are_stored_as_well(executor, baseline) -> None:
    """A large value may be given by name."""
    assert executor.submit(_lengths_of, text="x" * MB, value=np.ones(MB)).result(BOUND_S) == 2 * MB


def _lengths_of(*, text, value):
    return len(text) + len(value)


def test_results_belong_to_who_gets_them(executor, baseline) -> None:
    """A large result is writable, and what is written to it is seen by nobody else."""
    results = list(executor.map(np.ones, [MB] * 4))
    results[0][:] = 5

    assert [int(result.sum()) for result in results] == [5 * MB, MB, MB, MB]


def test_a_result_that_nobody_takes_is_freed(executor, baseline) -> None:
    """The result of a dropped future or map is freed."""
    future = executor.submit(np.ones, MB)
    results = executor.map(np.ones, [MB] * 4)
    wait_until(future.done, "the task does not end")
    next(results)
    del future, results


def test_results_outlive_their_executor(make_executor) -> None:
    """Results that came back can be asked for after their executor has ended."""
    with make_executor(2) as executor:
        future = executor.submit(np.ones, MB)
        results = executor.map(np.ones, [MB] * 3)

    assert int(future.result().sum()) == MB
    assert [int(result.sum()) for result in results] == [MB] * 3


def test_more_objects_than_a_process_may_open_files(executor, baseline) -> None:
    """Arguments and results need no file descriptor as long as they live."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        values = list(executor.map(np.full, [10_000] * 500, range(500)))
        totals = list(executor.map(_limited_sum, values))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert totals == [10_000 * n for n in range(500)]
    del values


def _limited_sum(value):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    return int(value.sum())


def test_an_endless_map_does_not_collect_what_it_passed(executor, baseline) -> None:
    """A lazy map lets go of the arguments of tasks that are done."""
    arrays = (np.full(20_000, n) for n in itertools.count())
    shared = list(range(50_000))
    results = executor.map(_first, arrays, itertools.repeat(shared), buffersize=8)

    assert list(itertools.islice(results, 200)) == list(range(200))
    wait_until(lambda: len(segments()) < 60, "arguments pile up")
    del results


def _first(value, shared):
    assert len(shared) == 50_000
    return int(value[0])


def test_large_and_unpicklable_by_c_mix(executor, baseline) -> None:
    """A lambda beside large arguments is pickled by cloudpickle, and the arguments are shared."""
    items = [(1,), (np.ones(MB),), (lambda: 1,)]

    assert list(executor.map(_kind, [item[0] for item in items])) == ["int", "ndarray", "function"]


def _kind(value):
    return type(value).__name__


def test_a_map_whose_input_fails_leaves_nothing(executor, baseline) -> None:
    """A map whose iterable raises lets go of what was passed before."""

    def items():
        yield np.ones(MB)
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        executor.map(np.sum, items())


def test_a_heavy_function_dies_during_its_map(executor, baseline) -> None:
    """A lazy map keeps the function that it was given."""
    closure = _make_closure(np.ones(MB))
    assert executor.submit(closure, 1).result(BOUND_S) == MB + 1
    results = executor.map(closure, range(100), buffersize=8)
    del closure
    gc.collect()

    assert list(results) == [MB + n for n in range(100)]


class Model:
    """What has a method over large data."""

    def __init__(self) -> None:
        self.weights = np.ones(MB)

    def total(self, n):
        return int(self.weights.sum()) + n


class TwoArguments(Exception):
    def __init__(self, first, second) -> None:
        super().__init__(first)


def _fail(value):
    raise TwoArguments(value.sum(), 2)


def test_a_failed_task_lets_go_of_its_arguments(executor, baseline) -> None:
    """A failed task lets go of its arguments, whatever its exception was."""
    assert isinstance(executor.submit(_fail, np.ones(MB)).exception(BOUND_S), TwoArguments)


def test_what_cannot_be_pickled_is_let_go_of(executor, baseline) -> None:
    """The search for an unpicklable part keeps none of the call's arguments."""
    value = np.ones(MB)
    dead = weakref.ref(value)
    gc.disable()
    try:
        failed = executor.submit(_add, value, threading.Lock())
        del value
        assert isinstance(failed.exception(BOUND_S), PayloadError)
        del failed
        wait_until(lambda: dead() is None, "an argument is kept")
    finally:
        gc.enable()


def test_a_lazy_map_that_is_never_begun_lets_go(executor, baseline) -> None:
    """A lazy map that is never begun lets go of what it stored for its first calls."""
    for value in (list(range(50_000)), b"x" * MB, "x" * MB):
        results = executor.map(len, [value] * 10, buffersize=2)
        del results
    del value


def test_methods_of_a_changing_object_do_not_pile_up(executor, baseline) -> None:
    """Each state of a method's object is stored, and is removed with the next one."""
    model = Model()
    for n in range(5):
        model.weights = model.weights + 1
        assert executor.submit(model.total, n).result(BOUND_S) == MB * (n + 2) + n

    wait_until(lambda: len(segments()) <= 1, "old states pile up")
    del model


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_what_goes_wrong_when_it_is_unpickled_kills_no_worker(single, how) -> None:
    """An argument that raises anything when it is unpickled kills no worker."""
    pid = single.submit(os.getpid).result(BOUND_S)
    error = single.submit(_lengths, np.ones(MB), tasks.FailsAtUnpickle(how)).exception(BOUND_S)

    assert isinstance(error, DeserializeObjectError)
    assert "cannot unpickle argument 1" in str(error)
    assert single.submit(os.getpid).result(BOUND_S) == pid


FORKS = """
import os, numpy
from scaler_exec import ScalerExecutor

with ScalerExecutor(1) as executor:
    value = numpy.ones(10**6)
    assert executor.submit(numpy.sum, value).result() == 10**6
    pid = os.fork()
    if not pid:
        with ScalerExecutor(1) as mine:
            print(int(mine.submit(numpy.sum, value * 2).result()), flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print("parent", flush=True)
"""


def test_a_forked_client_stores_objects_of_its_own(start_program) -> None:
    """A forked client stores objects without waiting for threads of its parent."""
    program = start_program(FORKS)

    assert program.line() == "2000000"
    assert program.line() == "parent"
    assert program.end()[0] == 0


def test_a_cancelled_task_leaves_nothing(executor, flags, baseline) -> None:
    """A cancelled task leaves neither its argument nor its result."""
    future = executor.submit(_hold_and_return, np.ones(MB), flags.path("held"), flags.path("go"))
    flags.wait("held")
    future.cancel()
    flags.set("go")

    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def _hold_and_return(value, held, go):
    tasks.hold(held, go)
    return value + 1


def test_a_heavy_function_is_stored_once(executor, baseline) -> None:
    """A closure or partial over large data is no worse than passing the data."""
    value = np.ones(MB)
    partial = functools.partial(_add, value)
    futures = [executor.submit(partial, n) for n in range(20)]

    closure = _make_closure(value)
    assert [future.result(BOUND_S) for future in futures] == [MB + n for n in range(20)]
    assert list(executor.map(closure, range(20))) == [MB + n for n in range(20)]
    assert len(segments()) == 1
    del closure, partial, value, futures


def _make_closure(value):
    return lambda n: int(value.sum()) + n


def _add(value, n):
    return int(value.sum()) + n


def test_an_argument_that_cannot_be_unpickled_fails_its_task_alone(executor, baseline) -> None:
    """Whatever is wrong with one large value hurts no other task."""
    wrong = executor.submit(_lengths, np.ones(MB), [np.ones(MB), tasks.FailsAtUnpickle("raise")])
    right = executor.submit(describe, np.ones(MB))

    error = wrong.exception(BOUND_S)
    assert isinstance(error, DeserializeObjectError)
    assert "cannot unpickle argument 1" in str(error)
    assert right.result(BOUND_S) == ("ndarray", MB, False)


@pytest.mark.system
def test_half_a_gigabyte_comes_and_goes(single, baseline) -> None:
    """A value of half a gigabyte is an argument and a result."""
    value = b"ab" * (256 << 20)

    assert single.submit(_rotate, value).result(2 * BOUND_S) == b"ba" * (256 << 20)


def _rotate(value):
    return value[1:] + value[:1]


@pytest.mark.system
def test_many_tasks_share_half_a_gigabyte_of_function(executor, baseline) -> None:
    """Many tasks share one stored copy of a function with half a gigabyte of data."""
    heavy = _make_closure(np.ones(500_000_000 // 8))

    assert sum(executor.map(_make_light(heavy), range(10_000))) == sum(range(10_000))


def _make_light(heavy):
    data = heavy.__closure__[0].cell_contents
    return lambda n: n * int(data[n])


# -- limits ----------------------------------------------------------------------------------


def test_what_finds_no_room_in_memory_goes_to_disk(make_executor, baseline) -> None:
    """Objects that exceed the memory for objects are computed with from disk."""
    executor = make_executor(2, object_memory_limit=3 * MB)
    values = [np.full(MB // 8, n) for n in range(20)]
    futures = [executor.submit(np.add, value, 1) for value in values for _ in range(3)]

    assert [int(future.result(BOUND_S)[7]) for future in futures] == [
        n + 1 for n in range(20) for _ in range(3)
    ]
    assert len(segments()) >= 20
    del values, futures


# -- faults ----------------------------------------------------------------------------------


def test_a_result_outlives_its_worker(single, flags, baseline) -> None:
    """A worker that dies after it returned loses nothing of it; its successor goes on."""
    future = single.submit(_pid_and_ones, MB)
    pid, value = future.result(BOUND_S)
    later = single.submit(_pid_and_ones, MB)
    wait_until(later.done, "the task does not end")
    os.kill(pid, signal.SIGKILL)

    assert int(single.submit(np.ones, MB).result(BOUND_S).sum()) == MB
    assert int(later.result()[1].sum()) == int(value.sum()) == MB
    del later, future


def _pid_and_ones(count):
    return os.getpid(), np.ones(count)


def test_a_worker_killed_while_it_stores_leaves_nothing(executor, flags, baseline) -> None:
    """The task of a worker killed while it stores runs again, and the draft is removed."""
    attempt = flags.path("attempt")
    future = executor.options(retries=1).submit(_die_while_storing, attempt)

    assert len(future.result(BOUND_S)) == MB


def _die_while_storing(attempt):
    if not os.path.exists(attempt):
        Path(attempt).touch()
        real = os.pwrite

        def pwrite(fd, data, offset):
            if len(data) > 8:
                real(fd, data[:1000], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(fd, data, offset)

        os.pwrite = pwrite
    return bytes(MB)


def test_the_storage_may_die(executor, baseline) -> None:
    """A storage that dies is started again with its objects, but for those released meanwhile."""

    def find():
        return find_storage(os.getpid())

    value = np.ones(MB)
    executor.submit(describe, value).result(BOUND_S)
    first = wait_storage(find)
    first.kill()
    assert executor.submit(describe, value).result(BOUND_S)[1] == MB
    wait_storage(find, other_than=first)
    del value


def test_what_a_killed_storage_was_to_remove_is_removed(executor, baseline) -> None:
    """A result that was let go just before its storage died does not stay as long as its worker."""
    executor.submit(np.ones, MB).result(BOUND_S)
    wait_until(lambda: not segments(), "no storage removes the first result")
    storage = wait_storage(lambda: find_storage(os.getpid()))
    future = executor.submit(np.ones, MB)
    wait_until(future.done, "the task does not end")
    storage.suspend()
    assert segments()
    del future
    # What was let go is said before what is asked for.
    assert executor.submit(abs, -1).result(BOUND_S) == 1
    storage.kill()
    wait_until(lambda: not segments(), "the result stays")


@pytest.mark.parametrize("name", ["scheduler", "supervisor"])
def test_a_process_that_was_killed_leaves_no_segment(own, flags, name) -> None:
    """No segment is left, whichever process of a cluster is killed while objects are in use."""
    value = np.ones(MB)
    done = own.submit(np.add, value, 1)
    held = own.submit(_hold_and_return, value, flags.path("held"), flags.path("go"))
    flags.wait("held")
    wait_until(done.done, "the task does not end")
    process_of(own, name).kill()

    flags.set("go")
    held.result(BOUND_S)
    assert own.submit(np.sum, np.ones(MB)).result(BOUND_S) == MB
    own.shutdown()
    assert not segments()


def test_what_a_crash_of_everything_left_is_removed_by_the_next(
    make_executor, start_program
) -> None:
    """The next cluster removes what a crash of everything left."""
    program = start_program(HOLDS_AN_OBJECT)
    assert program.line() == "2000000.0"
    everybody = [program.pid, *program.children()]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    for pid in everybody:
        os.kill(pid, signal.SIGKILL)
    wait_gone(*everybody)
    program.end()
    assert segments()

    executor = make_executor(1)
    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9
    wait_until(lambda: not segments(), "segments of a dead cluster were left behind")


HOLDS_AN_OBJECT = """
import numpy, time
from scaler_exec import ScalerExecutor

executor = ScalerExecutor(2)
value = numpy.ones(10**6)
future = executor.submit(numpy.add, value, 1)
print(future.result().sum(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_client_that_is_killed_leaves_no_segment(start_program, number) -> None:
    """What a killed client stored is removed by the rest of its cluster."""
    program = start_program(HOLDS_AN_OBJECT)
    assert program.line() == "2000000.0"
    assert segments()
    os.kill(program.pid, number)
    program.end()

    wait_until(lambda: not segments(), "segments were left behind")

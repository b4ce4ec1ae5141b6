"""Where a task goes wrong, times how: each ends in its own exception, and nothing else does."""

from __future__ import annotations

import os
import signal

import pytest

from scaler_exec import (
    ClusterBrokenError,
    DeserializeObjectError,
    PayloadError,
    ScalerExecutor,
    UnpicklableResultError,
    WorkerDiedError,
)
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, run_program

HOW = ["raise", "exit", "os_exit", "kill", "segfault"]
DEATHS = {
    "os_exit": (tasks.EXIT_CODE, None),
    "kill": (None, signal.SIGKILL),
    "segfault": (None, signal.SIGSEGV),
}
"""Exit code and signal of the ways that end a process."""


def submit_argument(executor, how):
    """Unpickling an argument goes wrong."""
    return executor.submit(tasks.square, tasks.FailsAtUnpickle(how))


def submit_function(executor, how):
    """Unpickling the function goes wrong."""
    return executor.submit(tasks.FailsAtUnpickle(how))


def submit_call(executor, how):
    """The call goes wrong."""
    return executor.submit(tasks.fail, how)


def submit_result(executor, how):
    """Pickling the result goes wrong."""
    return executor.submit(tasks.make_unpicklable, how)


EXPECTED = {
    (submit_argument, "raise"): DeserializeObjectError,
    (submit_argument, "exit"): DeserializeObjectError,
    (submit_function, "raise"): DeserializeObjectError,
    (submit_function, "exit"): DeserializeObjectError,
    (submit_call, "raise"): ValueError,
    (submit_call, "exit"): SystemExit,
    (submit_result, "raise"): UnpicklableResultError,
    (submit_result, "exit"): UnpicklableResultError,
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("submit", [submit_argument, submit_function, submit_call, submit_result])
def test_a_fault_fails_its_own_future_alone(executor, submit, how) -> None:
    """A fault in a worker fails that future; those before, beside and after it succeed."""
    before = [executor.submit(tasks.square, n) for n in range(20)]
    fault = submit(executor, how)
    after = [executor.submit(tasks.square, n) for n in range(20)]

    error = fault.exception(BOUND_S)

    assert type(error) is EXPECTED.get((submit, how), WorkerDiedError)
    assert [future.result(BOUND_S) for future in before + after] == [n * n for n in range(20)] * 2
    assert list(executor.map(tasks.square, range(100))) == [n * n for n in range(100)]
    if isinstance(error, WorkerDiedError):
        assert (error.death.exit_code, error.death.signal) == DEATHS[how]


@pytest.mark.parametrize("how", HOW)
def test_a_fault_in_a_map_ends_that_map_in_order(executor, how) -> None:
    """A map yields what comes before the fault, then raises it; another map goes on."""
    other = executor.map(tasks.nap, range(50))
    results = executor.map(_fail_at_30, [(n, how) for n in range(60)])
    got = []

    with pytest.raises(EXPECTED.get((submit_call, how), WorkerDiedError)):
        for result in results:
            got.append(result)

    assert got == list(range(30))
    assert list(other) == list(range(50))


def _fail_at_30(job):
    number, how = job
    if number == 30:
        tasks.fail(how)
    return number


# -- in the client -------------------------------------------------------------------------------


def test_an_argument_that_cannot_be_pickled_fails_its_own_future(executor) -> None:
    """The future of an unpicklable argument raises PayloadError, with the cause."""
    with pytest.raises(PayloadError, match="argument 1 of square.*FailsAtPickle") as caught:
        executor.submit(tasks.square, 1, tasks.FailsAtPickle("raise")).result(BOUND_S)

    assert isinstance(caught.value.__cause__, ValueError)
    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_a_keyword_that_cannot_be_pickled_is_named(executor) -> None:
    """A PayloadError names the keyword argument at fault."""
    with pytest.raises(PayloadError, match="argument 'number' of square"):
        executor.submit(tasks.square, number=tasks.FailsAtPickle("raise")).result(BOUND_S)


def test_a_function_that_cannot_be_pickled_fails_its_own_future(executor) -> None:
    """The future of an unpicklable function raises PayloadError, which names it."""
    with pytest.raises(PayloadError, match="FailsAtPickle"):
        executor.submit(tasks.FailsAtPickle("raise")).result(BOUND_S)

    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_an_item_of_a_map_that_cannot_be_pickled_fails_in_its_turn(executor) -> None:
    """A map yields what comes before an unpicklable item, then raises PayloadError."""
    results = executor.map(tasks.square, [1, 2, tasks.FailsAtPickle("raise"), 4])

    assert next(results) == 1
    assert next(results) == 4
    with pytest.raises(PayloadError, match="FailsAtPickle"):
        next(results)


class Model:
    """Holds a lock in a part of it."""

    def __init__(self) -> None:
        self.cache = Cache()


class Cache:
    """Holds a lock."""

    def __init__(self) -> None:
        self.lock = _lock()


def test_what_of_an_argument_cannot_be_pickled_is_named(executor) -> None:
    """PayloadError names the way to what cannot be pickled, its type, and a remedy."""
    named = r"^argument 1 of square: cannot pickle Model .*: its attribute cache.lock is a _thread"
    with pytest.raises(PayloadError, match=f"{named}.lock, which cannot be pickled. Each process"):
        executor.submit(tasks.square, 1, Model()).result(BOUND_S)
    with pytest.raises(
        PayloadError, match=r"^argument 'xs' of square: .*: its item \[3\] is a _th"
    ):
        executor.submit(tasks.square, xs=[1, 2, 3, _lock()]).result(BOUND_S)


def test_what_of_a_function_cannot_be_pickled_is_named(executor) -> None:
    """PayloadError names global and closure variables that cannot be pickled."""
    lock = _lock()

    def locked() -> object:
        return lock

    named = "the function .*locked: .*: its closure variable lock is a _thread.lock"
    with pytest.raises(PayloadError, match=named):
        executor.submit(locked).result(BOUND_S)
    with pytest.raises(PayloadError, match=named):
        executor.map(locked, [1])


@pytest.mark.parametrize("chunksize", [1, 3])
def test_which_item_of_a_map_cannot_be_pickled_is_named(executor, chunksize) -> None:
    """PayloadError names the item's index in the map, the argument, and the way from there."""
    items: list[object] = [*range(10), {"a": Model()}, 11]
    results = executor.map(pow, range(12), items, chunksize=chunksize)

    named = r"^item 10 of the map: argument 1 of pow: .*: its item \['a'\].cache.lock is a _thread"
    with pytest.raises(PayloadError, match=named):
        list(results)


@pytest.mark.parametrize("name", ["SystemExit", "GeneratorExit", "ValueError"])
def test_whatever_pickling_raises_fails_that_future_alone(executor, name) -> None:
    """Whatever pickling an argument raises, SystemExit too, fails its future, not submit()."""
    bad = tasks.RaisesAtPickle(name)
    futures = [
        executor.submit(tasks.square, bad),
        executor.submit(tasks.square, [bad]),
        executor.submit(tasks.square, number=bad),
        executor.submit(bad),
    ]
    results = executor.map(tasks.square, [2, bad])

    for future in futures:
        with pytest.raises(PayloadError, match=f"RaisesAtPickle, whose pickling raises {name}"):
            future.result(BOUND_S)
    assert next(results) == 4
    with pytest.raises(PayloadError, match=f"whose pickling raises {name}: on purpose"):
        next(results)
    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_whatever_pickling_a_result_raises_fails_that_future_alone(single) -> None:
    """Whatever pickling a result raises is named, and the worker lives."""
    pid = single.submit(os.getpid).result(BOUND_S)

    for name in ("SystemExit", "KeyboardInterrupt", "GeneratorExit"):
        with pytest.raises(UnpicklableResultError, match=name):
            single.submit(tasks.make, "RaisesAtPickle", name).result(BOUND_S)
    assert single.submit(os.getpid).result(BOUND_S) == pid


def test_what_of_a_result_cannot_be_pickled_is_named(executor) -> None:
    """ResultUnpicklable names the way from the result to what cannot be pickled."""
    named = r"its item \['records'\]\[1\]\['lock'\] is a _thread.lock, which cannot be pickled"
    with pytest.raises(UnpicklableResultError, match=named):
        executor.submit(tasks.make_lock_in_record, "a").result(BOUND_S)


def test_an_interrupt_while_an_argument_is_pickled_leaves_submit(executor) -> None:
    """A KeyboardInterrupt while an argument is pickled leaves submit(), as the user means it."""
    with pytest.raises(KeyboardInterrupt):
        executor.submit(tasks.square, tasks.RaisesAtPickle("KeyboardInterrupt"))

    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_an_unpicklable_argument_at_shutdown_fails_its_own_future() -> None:
    """A future that failed before it was sent does not hold a shutdown up."""
    executor = ScalerExecutor(1)
    executor.submit(tasks.square, 2).result(BOUND_S)
    future = executor.submit(tasks.square, tasks.FailsAtPickle("raise"))
    executor.shutdown(wait=False)

    with pytest.raises(PayloadError, match="argument 0 of square: cannot pickle FailsAtPickle"):
        future.result(BOUND_S)

    executor.shutdown()


@pytest.mark.parametrize("how", ["os_exit", "kill", "segfault"])
def test_a_client_that_dies_while_pickling_leaves_nothing(how) -> None:
    """A client process that dies while it pickles takes its cluster with it."""
    ended = run_program(
        "from scaler_exec import ScalerExecutor\n"
        "from tests.runtime import tasks\n"
        "executor = ScalerExecutor(2)\n"
        "executor.submit(tasks.square, 2).result()\n"
        f"executor.submit(tasks.square, tasks.FailsAtPickle({how!r}))\n"
    )

    code, number = DEATHS[how]
    assert ended.returncode == (code if code is not None else -number)


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_result_that_does_not_unpickle_here_fails_its_own_future(executor, how) -> None:
    """A result that only the client cannot unpickle raises PayloadError there."""
    import os

    future = executor.submit(tasks.FailsAtUnpickleIn, os.getpid())

    with pytest.raises(PayloadError, match="cannot be unpickled here"):
        future.result(BOUND_S)

    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_a_result_of_a_map_that_does_not_unpickle_here_fails_in_its_turn(executor) -> None:
    """A map yields what comes before a result that cannot be unpickled, then raises."""
    import os

    results = executor.map(_make, [0, 0, os.getpid(), 0])

    assert [next(results), next(results)] == [None, None]
    with pytest.raises(PayloadError, match="cannot be unpickled here"):
        next(results)


def _make(pid):
    return tasks.FailsAtUnpickleIn(pid) if pid else None


# -- the initializer -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
def test_a_fault_in_the_initializer_breaks_the_executor(how, capfd) -> None:
    """Pending futures, and submit from then on, raise ClusterBrokenError, which says what it was."""
    with ScalerExecutor(2, initializer=tasks.fail, initargs=(how,)) as executor:
        with pytest.raises(ClusterBrokenError) as caught:
            # On a busy machine it may be known before there is a future.
            executor.submit(tasks.square, 2).result(BOUND_S)

        text = str(caught.value)
        if how in DEATHS:
            code, number = DEATHS[how]
            assert (f"exit code {code}" if number is None else f"signal {number}") in text
        else:
            assert "on purpose" in text
            assert "Traceback" in text
        with pytest.raises(ClusterBrokenError, match="The initializer of the workers failed"):
            executor.submit(tasks.square, 2)
        with pytest.raises(ClusterBrokenError, match="The initializer of the workers failed"):
            next(executor.map(tasks.square, [1]))
    if how not in DEATHS:
        # The error says it, and nobody else does.
        assert capfd.readouterr().err == ""


def test_an_initializer_that_cannot_be_pickled_is_refused_at_once() -> None:
    """ScalerExecutor() itself raises PayloadError for an unpicklable initializer, and names it."""
    with pytest.raises(PayloadError, match=r"^the initializer: argument 1 of .*: cannot pickle"):
        ScalerExecutor(1, initializer=tasks.FailsAtUnpickle("raise"), initargs=(lambda: 1, _lock()))


def _lock():
    import threading

    return threading.Lock()


def test_the_initializer_runs_in_every_worker_before_its_first_task(tmp_path) -> None:
    """Each worker process, a replaced one too, has run the initializer before its first task."""
    with ScalerExecutor(2, initializer=_initialize, initargs=("done",)) as executor:
        assert executor.submit(_initialized).result(BOUND_S) == "done"
        assert isinstance(
            executor.submit(tasks.fail, "os_exit").exception(BOUND_S), WorkerDiedError
        )
        assert {executor.submit(_initialized).result(BOUND_S) for _ in range(20)} == {"done"}


def _initialize(value) -> None:
    import builtins

    builtins.scaler_test_value = value  # type: ignore[attr-defined]


def _initialized():
    import builtins

    return builtins.scaler_test_value  # type: ignore[attr-defined]

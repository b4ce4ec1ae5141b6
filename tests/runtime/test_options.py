"""Priorities, timeouts and retries."""

from __future__ import annotations

import concurrent.futures
import os

import pytest

from scaler_exec import ConfigError, ScalerExecutor, TaskTimeoutError, WorkerDiedError
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_delivered, wait_gone


@pytest.fixture
def busy(single, flags):
    """An executor whose only worker is held until the test sets the flag ``go``."""
    # Known to last, so that nothing is queued behind it on the worker.
    single.submit(tasks.hold, flags.path("first"), flags.path("first")).result(BOUND_S)
    single.submit(tasks.hold, flags.path("held"), flags.path("go"))
    flags.wait("held")
    yield single
    flags.set("go")


# -- priority ------------------------------------------------------------------------------------


def test_higher_priority_runs_first(busy, flags, tmp_path) -> None:
    """The queued task of the highest priority runs next; equal ones run in their order."""
    path = tmp_path / "order"
    path.touch()
    # What the worker was given ahead already is not overtaken.
    ahead = [busy.submit(tasks.append_line, str(path), "ahead") for _ in range(4)]
    futures = []
    for priority in (0, -5, 10, 5):
        view = busy.options(priority=priority)
        futures += [view.submit(tasks.append_line, str(path), f"{priority}.{n}") for n in (1, 2)]
    wait_delivered(busy)
    flags.set("go")

    for future in ahead + futures:
        future.result(BOUND_S)
    lines = [line for line in path.read_text().split() if line != "ahead"]

    assert lines == ["10.1", "10.2", "5.1", "5.2", "0.1", "0.2", "-5.1", "-5.2"]


def test_a_map_has_its_options_priority(busy, flags, tmp_path) -> None:
    """The calls of a map run before those of a map of lower priority."""
    path = tmp_path / "order"
    path.touch()
    ahead = [busy.submit(tasks.append_line, str(path), "ahead") for _ in range(4)]
    low = busy.options(priority=-1).map(tasks.append_line, [str(path)] * 3, ["low"] * 3)
    high = busy.options(priority=1).map(tasks.append_line, [str(path)] * 3, ["high"] * 3)
    wait_delivered(busy)
    flags.set("go")
    for future in ahead:
        future.result(BOUND_S)

    assert list(low) + list(high) == [None] * 6

    lines = [line for line in path.read_text().split() if line != "ahead"]
    assert lines == ["high"] * 3 + ["low"] * 3


# -- timeout -------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [tasks.sleep, tasks.spin, tasks.spin_in_c, tasks.refuse_to_stop])
def test_a_task_that_runs_too_long_is_stopped(single, flags, task) -> None:
    """A task beyond its timeout is stopped, whatever it does, and its worker is free."""
    future = single.options(timeout=0.2).submit(task, flags.path("started"))
    after = single.submit(tasks.square, 3)

    error = future.exception(BOUND_S)

    assert type(error) is TaskTimeoutError
    assert "0.2 s" in str(error)
    assert after.result(BOUND_S) == 9


def test_a_timeout_is_a_timeout_error(single, flags) -> None:
    """TaskTimeoutError is caught by ``except TimeoutError``."""
    with pytest.raises(TimeoutError, match=r"the task ran longer than 0.05 s"):
        single.options(timeout=0.05).submit(tasks.sleep, flags.path("started")).result(BOUND_S)


def test_a_timeout_counts_from_the_start_of_the_task(busy, flags) -> None:
    """Waiting in the queue does not count: a queued task outlives its timeout."""
    future = busy.options(timeout=10.0).submit(tasks.square, 3)
    blocked = busy.options(timeout=0.05).submit(tasks.square, 4)
    with pytest.raises(concurrent.futures.TimeoutError):
        blocked.result(0.2)
    flags.set("go")

    assert future.result(BOUND_S) == 9
    assert blocked.result(BOUND_S) == 16


def test_a_timeout_holds_for_each_call_of_a_map(executor, flags) -> None:
    """A call of a map that runs too long raises TaskTimeoutError in its turn."""
    results = executor.options(timeout=0.1).map(_sleep_if, [False, False, True, False])

    assert [next(results), next(results)] == [False, False]
    with pytest.raises(TaskTimeoutError, match="longer than 0.1 s"):
        next(results)


def _sleep_if(condition):
    import time

    if condition:
        time.sleep(tasks.FOREVER_S)
    return condition


def test_a_task_that_ends_in_time_is_left_alone(executor) -> None:
    """A timeout that is not reached changes nothing."""
    view = executor.options(timeout=BOUND_S)

    assert [view.submit(tasks.square, n).result(BOUND_S) for n in range(5)] == [0, 1, 4, 9, 16]


def test_the_children_of_a_task_that_is_killed_die(single, flags) -> None:
    """Processes started by a task that had to be killed are killed with it."""
    future = single.options(timeout=0.3).submit(
        tasks.refuse_to_stop_with_child, flags.path("started")
    )
    child = flags.wait("started")

    assert type(future.exception(BOUND_S)) is TaskTimeoutError
    wait_gone(child)


# -- retries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["raise", "exit", "os_exit", "kill", "segfault"])
def test_a_task_is_run_again_as_often_as_asked(executor, tmp_path, how) -> None:
    """With retries=2 a task that goes wrong twice succeeds the third time."""
    future = executor.options(retries=2).submit(tasks.fail_times, str(tmp_path), 2, how)

    assert future.result(BOUND_S) == 3


def test_a_task_that_fails_once_too_often_fails(executor, tmp_path) -> None:
    """After its retries a task fails with its last exception."""
    future = executor.options(retries=2).submit(tasks.fail_times, str(tmp_path), 99, "raise")

    with pytest.raises(ValueError, match="on purpose"):
        future.result(BOUND_S)

    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("how", ["raise", "os_exit"])
def test_without_retries_a_task_runs_once(executor, tmp_path, how) -> None:
    """A task that fails, or kills its worker, is not run again by default."""
    error = executor.submit(tasks.fail_times, str(tmp_path), 99, how).exception(BOUND_S)

    assert type(error) is (ValueError if how == "raise" else WorkerDiedError)
    assert len(list(tmp_path.iterdir())) == 1


def test_at_most_once_is_never_started_twice(executor, tmp_path) -> None:
    """A task with at_most_once runs once, also when its worker dies."""
    view = executor.options(at_most_once=True)
    error = view.submit(tasks.fail_times, str(tmp_path), 99, "kill").exception(BOUND_S)

    assert isinstance(error, WorkerDiedError)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_map_retries_each_call(executor, tmp_path) -> None:
    """Every call of a map has its own retries."""
    directories = [tmp_path / str(n) for n in range(4)]
    for directory in directories:
        directory.mkdir()
    names = [str(directory) for directory in directories]

    results = executor.options(retries=1).map(tasks.fail_times, names, [1] * 4, ["raise"] * 4)

    assert list(results) == [2] * 4


# -- options themselves --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"retries": -1},
        {"retries": 1, "at_most_once": True},
    ],
)
def test_options_that_cannot_work_are_refused(executor, options) -> None:
    """A ConfigError, which is a ValueError, names the option."""
    with pytest.raises(ConfigError, match=next(iter(options)) + "|at most once"):
        executor.options(**options)


def test_options_leave_the_executor_as_it_is(executor, tmp_path) -> None:
    """options() returns another view; the executor itself keeps its own options."""
    executor.options(retries=5)
    error = executor.submit(tasks.fail_times, str(tmp_path), 1, "raise").exception(BOUND_S)

    assert type(error) is ValueError


def test_a_view_shares_the_workers(executor) -> None:
    """What options() returns runs its tasks in the same worker processes."""
    pids = set(executor.map(_pid, range(200)))

    assert set(executor.options(priority=1).map(_pid, range(200))) <= pids
    assert len(pids) <= 2


def _pid(_):
    return os.getpid()


@pytest.mark.parametrize("number", [0, -1])
def test_max_workers_must_be_positive(number) -> None:
    """max_workers <= 0 is a ValueError."""
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        ScalerExecutor(number)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_tasks_per_child": 0}, ValueError),
        ({"max_tasks_per_child": "3"}, TypeError),
        ({"initializer": 3}, TypeError),
    ],
)
def test_settings_that_cannot_work_are_refused(options, error) -> None:
    """Bad settings raise what ProcessPoolExecutor raises for them."""
    with pytest.raises(error, match=next(iter(options))):
        ScalerExecutor(1, **options)

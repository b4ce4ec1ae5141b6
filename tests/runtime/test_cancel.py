"""Cancelling: queued and running tasks, willing and unwilling ones."""

from __future__ import annotations

import concurrent.futures
import gc
import importlib
import os
import signal
import sys
import time
from concurrent.futures import CancelledError, wait

import pytest

from scaler_cluster.client import worker_context
from scaler_cluster.runtime.task_interrupts import INTERRUPT_SIGNAL
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_delivered, wait_gone, wait_until


def test_a_queued_task_never_starts(single, flags, tmp_path) -> None:
    """cancel() of a queued task returns True, and the task is not run."""
    path = tmp_path / "lines"
    path.touch()
    held = single.submit(tasks.hold, flags.path("held"), flags.path("go"))
    flags.wait("held")
    futures = [single.submit(tasks.append_line, str(path), str(n)) for n in range(10)]

    cancelled = [future.cancel() for future in futures[::2]]
    # What is cancelled is stopped in that order, so the worker knows of the others by then.
    held.cancel()
    wait(futures, BOUND_S)

    assert cancelled == [True] * 5
    assert all(future.cancelled() for future in futures[::2])
    assert path.read_text().split() == ["1", "3", "5", "7", "9"]


def test_a_cancelled_future_raises_cancelled_error(single, flags) -> None:
    """result() and exception() of a cancelled future raise CancelledError."""
    future = single.submit(tasks.sleep, flags.path("started"))
    flags.wait("started")
    future.cancel()

    with pytest.raises(CancelledError):
        future.result(BOUND_S)
    with pytest.raises(CancelledError):
        future.exception(BOUND_S)


def test_a_finished_task_cannot_be_cancelled(executor) -> None:
    """cancel() returns False once the task came back, and the result stays."""
    future = executor.submit(tasks.square, 3)
    future.result(BOUND_S)

    assert not future.cancel()
    assert not future.cancelled()
    assert future.result() == 9


def test_cancelling_twice_is_harmless(single, flags) -> None:
    """A second cancel() returns True as well."""
    future = single.submit(tasks.sleep, flags.path("started"))

    assert future.cancel()
    assert future.cancel()


@pytest.mark.parametrize("task", [tasks.sleep, tasks.spin])
def test_a_running_task_is_interrupted(single, flags, task) -> None:
    """A cancelled task that runs Python is stopped by an exception; its worker lives."""
    pid = single.submit(os.getpid).result(BOUND_S)
    future = single.submit(task, flags.path("started"))
    flags.wait("started")

    assert future.cancel()
    assert single.submit(os.getpid).result(BOUND_S) == pid


@pytest.mark.parametrize("task", [tasks.spin_in_c, tasks.refuse_to_stop])
def test_a_task_that_does_not_stop_is_killed(single, flags, task) -> None:
    """A cancelled task that no exception stops is killed after a moment of grace."""
    future = single.submit(task, flags.path("started"))
    pid = flags.wait("started")

    assert future.cancel()
    assert single.submit(os.getpid).result(BOUND_S) != pid
    wait_gone(pid)


def test_a_cancelled_task_may_clean_up(single, flags) -> None:
    """The finally blocks of an interrupted task run."""
    future = single.submit(_sleep_and_clean_up, flags.path("started"), flags.path("clean"))
    flags.wait("started")
    future.cancel()

    wait_until(lambda: flags.seen("clean"), "the finally block did not run")


def _sleep_and_clean_up(started, clean) -> None:
    try:
        tasks.sleep(started)
    finally:
        tasks.announce(clean)


IMPORTED_ONCE = """
import builtins, signal, time
from scaler_cluster.client import worker_context
from scaler_cluster.runtime.task_interrupts import INTERRUPT_SIGNAL
from tests.runtime import tasks

if hasattr(builtins, "was_imported"):
    raise ImportError("cannot load module more than once per process")
builtins.was_imported = True
tasks.announce({started!r})
while worker_context.open_session.__self__._core.interrupt is None:
    time.sleep(0.001)
signal.raise_signal(INTERRUPT_SIGNAL)
"""


def test_an_import_is_let_finish(single, flags, tmp_path) -> None:
    """A task is interrupted only after the import in progress, which could not be repeated."""
    source = IMPORTED_ONCE.format(started=flags.path("started"))
    (tmp_path / "imported_once.py").write_text(source)
    future = single.submit(_import_from, str(tmp_path), tasks.FOREVER_S)
    pid = flags.wait("started")
    future.cancel()

    assert single.submit(_import_from, str(tmp_path), 0).result(BOUND_S) == pid


def _import_from(directory, duration_s) -> int:
    sys.path.insert(0, directory)
    importlib.import_module("imported_once")
    time.sleep(duration_s)
    return os.getpid()


def test_a_finalizer_is_let_finish(single, flags) -> None:
    """A task is interrupted only after a finalizer, in which the exception would be lost."""
    future = single.submit(_finalize_and_sleep, flags.path("started"))
    pid = flags.wait("started")
    future.cancel()

    assert single.submit(os.getpid).result(BOUND_S) == pid


class _Finalized:
    """Takes its time to end: until the task that it belongs to is interrupted."""

    def __init__(self, started) -> None:
        self.started = started

    def __del__(self) -> None:
        tasks.announce(self.started)
        while worker_context.open_session.__self__._core.interrupt is None:  # type: ignore[union-attr]
            time.sleep(0.001)
        signal.raise_signal(INTERRUPT_SIGNAL)


def _finalize_and_sleep(started) -> None:
    _Finalized(started)
    time.sleep(tasks.FOREVER_S)


def test_the_child_that_a_task_waits_for_dies_with_it(single, flags) -> None:
    """A task that waits for a child process is interrupted, and ends its child as it would."""
    future = single.submit(tasks.run_child, flags.path("started"))
    child = flags.wait("started")
    future.cancel()

    wait_gone(child)


def test_the_children_of_a_killed_task_die(single, flags) -> None:
    """Processes started by a task that had to be killed are killed with it."""
    future = single.submit(tasks.refuse_to_stop_with_child, flags.path("started"))
    child = flags.wait("started")
    future.cancel()

    wait_gone(child)
    assert single.submit(tasks.square, 3).result(BOUND_S) == 9


def test_cancelling_one_does_not_disturb_the_others(executor, flags) -> None:
    """Tasks queued behind a cancelled one run, wherever they were."""
    sleepers = [executor.submit(tasks.sleep, flags.path(f"s{n}")) for n in range(2)]
    others = [executor.submit(tasks.square, n) for n in range(100)]
    flags.wait("s0")
    flags.wait("s1")
    for sleeper in sleepers:
        assert sleeper.cancel()

    assert [future.result(BOUND_S) for future in others] == [n * n for n in range(100)]


def test_many_are_cancelled_at_any_stage(executor) -> None:
    """Each of many tasks that are cancelled at any time is either cancelled or done."""
    futures = [executor.submit(tasks.nap, n) for n in range(400)]
    cancelled = [n % 3 == 0 and future.cancel() for n, future in enumerate(futures)]

    wait(futures, BOUND_S)

    assert any(cancelled)
    assert [future.cancelled() for future in futures] == cancelled
    assert [future.result() for future in futures if not future.cancelled()] == [
        n for n, is_cancelled in enumerate(cancelled) if not is_cancelled
    ]


def test_a_callback_learns_of_the_cancellation(single, flags) -> None:
    """Callbacks of a cancelled future are called with it, once."""
    future = single.submit(tasks.sleep, flags.path("started"))
    seen: list[object] = []
    future.add_done_callback(seen.append)
    future.cancel()

    wait_until(lambda: bool(seen), "the callback was not called")
    assert seen == [future]


def test_dropping_a_map_cancels_the_rest(single, flags, tmp_path) -> None:
    """What has not run when a map's iterator is dropped does not run, and what runs is stopped."""
    path = tmp_path / "lines"
    path.touch()
    started = ["", flags.path("held"), *[""] * 50]
    results = single.map(_hold_or_append, started, [flags.path("go")] * 52, [str(path)] * 52)
    next(results)
    flags.wait("held")
    del results
    gc.collect()

    assert single.submit(tasks.square, 3).result(BOUND_S) == 9
    assert path.read_text().split() == ["ran"]


def _hold_or_append(started, release, path) -> None:
    if started:
        tasks.hold(started, release)
    else:
        tasks.append_line(path, "ran")


def test_a_dropped_map_stops_what_runs(single, flags) -> None:
    """The running call of a map whose iterator is dropped is interrupted."""
    results = single.map(_sleep_if, ["", flags.path("started")])
    next(results)
    flags.wait("started")
    results.close()  # type: ignore[attr-defined]

    assert single.submit(tasks.square, 3).result(BOUND_S) == 9


def _sleep_if(started) -> None:
    if started:
        tasks.sleep(started)


def test_an_exception_in_a_map_cancels_the_rest_at_once(single, flags) -> None:
    """A map that raises cancels the rest while its exception is still being handled."""
    results = single.map(_fail_or_sleep, ["", flags.path("started")])

    with pytest.raises(ValueError, match="on purpose") as caught:
        next(results)

    assert single.submit(tasks.square, 3).result(BOUND_S) == 9
    assert caught.value.__traceback__ is not None


def _fail_or_sleep(started) -> None:
    if not started:
        tasks.fail("raise")
    _sleep_if(started)


def test_a_timeout_of_a_map_cancels_the_rest(single, flags) -> None:
    """map(timeout=...) raises TimeoutError, and what has not come back is cancelled."""
    results = single.map(tasks.sleep, [flags.path("a"), flags.path("b")], timeout=0.2)

    with pytest.raises(concurrent.futures.TimeoutError):
        next(results)

    assert single.submit(tasks.square, 3).result(BOUND_S) == 9
    assert not flags.seen("b")


def test_shutdown_may_cancel_what_waits(own_single, flags) -> None:
    """shutdown(cancel_futures=True) cancels what no worker has, and waits for the rest."""
    held = own_single.submit(tasks.hold, flags.path("held"), flags.path("go"))
    futures = [own_single.submit(tasks.square, n) for n in range(100)]
    flags.wait("held")
    own_single.shutdown(wait=False, cancel_futures=True)
    wait_delivered(own_single)
    flags.set("go")
    wait([held, *futures], BOUND_S)
    own_single.shutdown()

    assert not held.cancelled()
    assert all(future.done() for future in futures)
    assert sum(future.cancelled() for future in futures) >= 90


def test_shutdown_cancels_the_waiting_calls_of_maps(own_single, flags) -> None:
    """shutdown(cancel_futures=True) reaches maps: their iterators raise CancelledError."""
    held = own_single.submit(tasks.hold, flags.path("held"), flags.path("go"))
    results = own_single.map(tasks.square, range(1000))
    flags.wait("held")
    own_single.shutdown(wait=False, cancel_futures=True)
    wait_delivered(own_single)
    flags.set("go")

    with pytest.raises(CancelledError):
        list(results)
    held.result(BOUND_S)

"""Workers go on with their tasks when the scheduler of an embedded cluster is killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from scaler_exec import Client, TaskLostError, TaskTimeoutError
from tests.runtime.helpers import BOUND_S, cluster_process, wait_gone, wait_until

WORKERS, QUEUED = 2, 20


def mark(path: str, number: int, gate: str = "") -> int:
    """Leave a mark in a file; wait until the gate is there, if there is one."""
    with Path(path).open("a") as file:
        file.write(f"{number}\n")
    while gate and not Path(gate).exists():
        time.sleep(0.01)
    return number


@pytest.fixture
def path(tmp_path) -> str:
    """Return the file in which tasks leave their marks."""
    (tmp_path / "marks").touch()
    return str(tmp_path / "marks")


def marks(path):
    return Counter(map(int, Path(path).read_text().split()))


@pytest.mark.parametrize("at_most_once", [False, True])
def test_no_task_starts_twice(make_executor, path, tmp_path, at_most_once) -> None:
    """Those that run go on, those that are queued stay; each starts once, and returns."""
    gate = tmp_path / "gate"
    executor = make_executor(WORKERS)
    view = executor.options(at_most_once=at_most_once)
    assert executor.submit(abs, -1).result(BOUND_S) == 1
    running = [view.submit(mark, path, n, str(gate)) for n in range(WORKERS)]
    queued = [view.submit(mark, path, n) for n in range(WORKERS, WORKERS + QUEUED)]
    wait_until(lambda: marks(path).keys() >= set(range(WORKERS)), "no task runs")
    results = view.map(mark, [path] * QUEUED, range(100, 100 + QUEUED))

    cluster_process("scheduler").kill()
    gate.touch()

    assert [one.result(BOUND_S) for one in running + queued] == list(range(WORKERS + QUEUED))
    assert list(results) == list(range(100, 100 + QUEUED))
    assert set(marks(path).values()) == {1}


def test_a_scheduler_may_be_killed_twice(make_executor, path, tmp_path) -> None:
    """The workers tell each scheduler that follows what they hold."""
    gate = tmp_path / "gate"
    executor = make_executor(WORKERS)
    running = executor.options(at_most_once=True).submit(mark, path, 1, str(gate))
    wait_until(lambda: marks(path)[1], "it does not run")
    for number in (2, 3):
        cluster_process("scheduler").kill()
        assert executor.submit(mark, path, number).result(BOUND_S) == number
    gate.touch()

    assert running.result(BOUND_S) == 1
    assert set(marks(path).values()) == {1}


def test_what_was_cancelled_meanwhile_is_stopped(make_executor, path, tmp_path) -> None:
    """A task that nobody asks for any more is interrupted, and its worker serves others.

    The time of a task with a timeout goes on.
    """
    never = str(tmp_path / "never")
    executor = make_executor(2)
    running = executor.submit(mark, path, 1, never)
    timed = executor.options(timeout=3).submit(mark, path, 2, never)
    wait_until(lambda: len(marks(path)) == 2, "they do not run")

    cluster_process("scheduler").kill()
    running.cancel()

    assert isinstance(timed.exception(BOUND_S), TaskTimeoutError)
    assert [executor.submit(mark, path, n).result(BOUND_S) for n in (3, 4)] == [3, 4]
    assert set(marks(path).values()) == {1}


def test_a_worker_that_dies_without_a_scheduler_loses_its_task(
    make_executor, path, tmp_path
) -> None:
    """The task runs again, unless it must not: then it is lost."""
    gate = tmp_path / "gate"
    executor = make_executor(2)
    again = executor.submit(kill_me_once, path, 1, str(gate))
    once = executor.options(at_most_once=True).submit(kill_me_once, path, 2, str(gate))
    wait_until(lambda: len(marks(path)) == 2, "they do not run")
    scheduler = cluster_process("scheduler")
    os.kill(scheduler.pid, signal.SIGSTOP)
    gate.touch()
    wait_gone(*(int(Path(f"{path}.{number}").read_text()) for number in (1, 2)))
    scheduler.kill()

    assert again.result(BOUND_S) == 1
    assert isinstance(once.exception(BOUND_S), TaskLostError)
    assert marks(path) == {1: 2, 2: 1}


def kill_me_once(path: str, number: int, gate: str) -> int:
    """Die when the gate opens, for the first time."""
    is_first = not marks(path)[number]
    Path(f"{path}.{number}").write_text(str(os.getpid()))
    mark(path, number, gate)
    if is_first:
        os.kill(os.getpid(), 9)
    return number


_client: list[Client] = []


def square(address: str, path: str, number: int, gate: str) -> int:
    """Ask for tasks in one of several ways, by a client that stays; then leave a mark, and wait."""
    if not _client:
        _client.append(Client(address))
    client = _client[0]
    found: int
    if number % 3 == 0:
        found = client.submit(pow, number, 2).result()
    elif number % 3 == 1:
        found = client.map(pow, [number], [2])[0]
    else:
        found = client.get({"a": (pow, number, 2)}, ["a"])["a"]
    mark(path, number, gate)
    return found + os.getpid()


def test_a_worker_whose_tasks_have_submitted_some_goes_on(make_executor, path, tmp_path) -> None:
    """Unless a task uses it, the session of a worker's tasks begins anew with the next one."""
    gate = tmp_path / "gate"
    executor = make_executor(1)
    gate.touch()
    pid = executor.submit(square, executor.address, path, 0, str(gate)).result(BOUND_S)
    for number in range(1, 4):
        gate.unlink()
        running = executor.submit(mark, path, -number, str(gate))
        wait_until(lambda: marks(path).total() == 2 * number, "it does not run")  # noqa: B023
        cluster_process("scheduler").kill()
        again = executor.submit(square, executor.address, path, number, str(gate))
        gate.touch()
        assert running.result(BOUND_S) == -number
        assert again.result(BOUND_S) == number**2 + pid

    assert set(marks(path).values()) == {1}

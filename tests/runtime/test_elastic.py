"""Clusters that grow and shrink: by the program's word, by what is outstanding, by command."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import psutil
import pytest

from scaler_cluster.process import embedded_cluster
from scaler_cluster.process.bounds import BoundsReader, tell_bounds
from scaler_cluster.wire.messages import Offer
from scaler_exec import Client, ScalerExecutor, SchedulerClusterCombo, SessionForkedError
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, free_port, wait_until


def spread(submit, flags, count: int, tag: str) -> set[int]:
    """Return the workers of so many tasks that all run at once."""
    names = [f"{tag}{number}" for number in range(count)]
    futures = [submit(tasks.hold, flags.path(name), flags.path(f"{tag}go")) for name in names]
    for name in names:
        flags.wait(name)
    flags.set(f"{tag}go")
    return {future.result(BOUND_S) for future in futures}


def test_an_executor_scales(make_executor, flags) -> None:
    """So many tasks run at once as it was told to have workers; fewer workers end in order."""
    executor = make_executor(1)
    executor.scale(4)
    assert "workers=4" in repr(executor)
    workers = spread(executor.submit, flags, 4, "a")
    assert len(workers) == 4

    running = executor.submit(tasks.hold, flags.path("b"), flags.path("go"))
    flags.wait("b")
    executor.options(priority=1).scale(1)
    wait_until(
        lambda: sum(map(psutil.pid_exists, workers)) == 1, "the workers that idle do not end"
    )
    flags.set("go")
    assert running.result(BOUND_S) in workers


def test_tasks_wait_while_there_is_no_worker(make_executor) -> None:
    """With none, nothing runs, and nothing is lost."""
    executor = make_executor(1)
    first = executor.submit(os.getpid).result(BOUND_S)
    executor.scale(0)
    wait_until(lambda: not psutil.pid_exists(first), "the worker does not end")
    futures = [executor.submit(pow, 2, number) for number in range(5)]

    executor.scale(2)
    assert [one.result(BOUND_S) for one in futures] == [1, 2, 4, 8, 16]


def test_a_cluster_adapts(flags, monkeypatch) -> None:
    """It has a worker for each task that runs, and none after the cooldown."""
    monkeypatch.setattr(embedded_cluster, "COOLDOWN_S", 0.2)
    with SchedulerClusterCombo(1) as cluster, Client(cluster) as client:
        cluster.adapt(0, 3)
        workers = spread(client.submit, flags, 3, "a")
        assert len(workers) == 3
        wait_until(lambda: not any(map(psutil.pid_exists, workers)), "workers that idle stay")

        assert client.submit(abs, -1).result(BOUND_S) == 1


def test_a_supervisor_that_is_killed_keeps_its_bounds(make_executor, flags) -> None:
    """The one that takes its place has as many workers."""
    executor = make_executor(1)
    executor.scale(3)
    workers = spread(executor.submit, flags, 3, "a")
    (pid,) = {psutil.Process(one).ppid() for one in workers}
    os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
    wait_until(lambda: not any(map(psutil.pid_exists, workers)), "its workers live on")

    assert len(spread(executor.submit, flags, 3, "b")) == 3


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda one: one.scale(-1), ValueError, "workers must be 0 or more"),
        (lambda one: one.scale(1.5), TypeError, "workers must be"),
        (lambda one: one.scale(1000), ValueError, "workers must be 256 or less here, not 1000"),
        (lambda one: one.adapt(3, 2), ValueError, r"minimum \(3\) is more than maximum \(2\)"),
        (lambda one: one.adapt(0, 0), ValueError, "maximum must be 1 or more"),
    ],
)
def test_numbers_that_cannot_be(executor, change, error, message) -> None:
    """A wrong number changes nothing."""
    with pytest.raises(error, match=message):
        change(executor)
    assert "workers=2" in repr(executor)


def test_a_fork_does_not_scale_the_cluster_of_its_parent(own) -> None:
    """Its supervisor is no child of the fork."""
    pid = os.fork()
    if not pid:
        try:
            own.scale(1)
        except SessionForkedError:
            os._exit(7)
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert "workers=2" in repr(own)


def test_a_wake_up_among_the_bounds_says_nothing() -> None:
    """The number of a signal may be that of a line's end: 10 is SIGUSR1."""
    child = SimpleNamespace(told=[])
    child.tell = child.told.append
    bounds = Offer("x", 1, 2, 1, 0.0, (("gpu", 1.0),))
    tell_bounds(child, bounds)
    (line,) = child.told
    reader = BoundsReader()

    assert reader.read(b"\n" + line[:5]) == []
    assert reader.read(line[5:] + b"\x0f") == [bounds]
    assert reader.read(b"\n" + line) == [bounds]


def test_only_who_started_a_cluster_scales_it(own_cluster) -> None:
    """Who has joined it does not, and nobody does after its end."""
    with ScalerExecutor(address=own_cluster) as joined, pytest.raises(RuntimeError, match="own"):
        joined.scale(1)
    own_cluster.shutdown()
    with pytest.raises(RuntimeError, match="was shut down"):
        own_cluster.scale(1)


def test_a_manager_by_command_starts_from_zero(shell, flags) -> None:
    """It has no worker before there are tasks, as many as may be while there are, and none after."""
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    shell.start(f"scaler_scheduler {address}")
    manager = shell.start(
        f"scaler_worker_manager baremetal_native {address} --max-task-concurrency 2 -sdc 0.2 "
        "--keep-units"
    )
    manager.wait_for("keep_units has no effect")
    manager.wait_for("starting 0 workers")
    with Client(address) as client:
        workers = spread(client.submit, flags, 2, "a")
        assert len(workers) == 2
        wait_until(lambda: not any(map(psutil.pid_exists, workers)), "workers that idle stay")
        assert sum(client.map(abs, range(-100, 0))) == 5050
    assert "Worker[NAT|" in manager.out
    assert manager.interrupt() == 0

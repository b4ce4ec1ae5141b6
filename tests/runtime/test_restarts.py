"""What lies in storages when the scheduler is killed, and another one takes its place."""

from __future__ import annotations

import functools
import gc

import numpy as np
import psutil
import pytest

from scaler_cluster.combo import SchedulerClusterCombo
from scaler_exec import Client, ScalerExecutor
from tests.runtime import tasks
from tests.runtime.helpers import (
    BOUND_S,
    cluster_process,
    free_port,
    segments,
    wait_gone,
    wait_until,
)

MB = 1_000_000


def total(started: str, release: str, *values) -> int:
    """Announce itself, wait, and return the sum of arrays."""
    tasks.hold(started, release)
    return sum(int(value.sum()) for value in values)


def sum_of(value) -> int:
    return int(value.sum())


def make(started: str, release: str, size: int):
    """Announce itself, wait, and return a large array."""
    tasks.hold(started, release)
    return np.ones(size)


class Scaled:
    """A function that holds a large array."""

    def __init__(self, weights) -> None:
        self.weights = weights

    def __call__(self, number: int) -> int:
        return int(self.weights.sum()) * number


def kill_scheduler() -> None:
    victim = cluster_process("scheduler")
    victim.kill()
    wait_gone(victim.pid)


@pytest.mark.parametrize("address", [None, "tcp://127.0.0.1:0"])
def test_large_data_outlives_the_scheduler(flags, address) -> None:
    """Arguments, functions with data, references, maps and results are all there afterwards."""
    with (
        SchedulerClusterCombo(2, address) as combo,
        ScalerExecutor(address=combo.get_address()) as executor,
        Client(combo.get_address()) as client,
    ):
        held, mapped = np.ones(MB), np.full(MB, 2.0)
        reference = client.send_object(mapped)
        unfetched = executor.submit(np.full, MB, 3.0)
        wait_until(unfetched.done, "the first task does not end")
        args = flags.path("started"), flags.path("go")
        running = executor.submit(total, *args, held)
        flags.wait("started")
        queued = [executor.submit(sum_of, np.full(MB, n)) for n in range(4)]
        gc.collect()
        scaled = executor.submit(Scaled(np.ones(MB)), 7)
        results = executor.map(sum_of, [np.full(MB // 10, n) for n in range(20)])
        made = executor.submit(make, flags.path("made"), flags.path("go"), MB)
        linked = executor.submit(sum_of, made)
        beside = executor.submit(sum_of, unfetched)
        referred = client.submit(sum_of, reference)

        kill_scheduler()
        late = [executor.submit(sum_of, held), executor.submit(sum_of, np.full(MB, 5.0))]
        again = client.submit(sum_of, reference)
        flags.set("go")

        assert running.result(BOUND_S) == MB
        assert [one.result(BOUND_S) for one in queued] == [n * MB for n in range(4)]
        assert scaled.result(BOUND_S) == 7 * MB
        assert list(results) == [n * MB // 10 for n in range(20)]
        assert made.result(BOUND_S).sum() == linked.result(BOUND_S) == MB
        assert beside.result(BOUND_S) == 3 * MB
        assert unfetched.result(BOUND_S).sum() == 3 * MB
        assert referred.result(BOUND_S) == again.result(BOUND_S) == 2 * MB
        assert [one.result(BOUND_S) for one in late] == [MB, 5 * MB]
        assert executor.submit(sum_of, held).result(BOUND_S) == MB


def test_a_graph_with_large_inputs_outlives_the_scheduler(flags) -> None:
    """A graph finds the arrays that it was given, though the client holds them no more."""
    with SchedulerClusterCombo(2) as combo, Client(combo.get_address()) as client:
        held = functools.partial(total, flags.path("started"), flags.path("go"))
        graph = {
            "a": (held, np.ones(MB)),
            "b": (sum_of, np.full(MB, 2.0)),
            "c": (max, "a", "b"),
        }
        futures = client.get(graph, ["a", "b", "c"], block=False)
        del graph
        gc.collect()
        flags.wait("started")

        kill_scheduler()
        flags.set("go")

        assert [futures[key].result(BOUND_S) for key in "abc"] == [MB, 2 * MB, 2 * MB]


def test_equal_content_is_still_kept_once(make_executor) -> None:
    """After a restart two clients share what was equal before, also if one lets go of it."""
    executor = make_executor(1)
    with ScalerExecutor(address=executor._session.address) as other:
        value, same = np.ones(MB), np.ones(MB)
        assert executor.submit(sum_of, value).result(BOUND_S) == MB
        assert other.submit(sum_of, same).result(BOUND_S) == MB
        wait_until(lambda: len(segments()) == 1, "the second copy stays")

        kill_scheduler()

        assert other.submit(sum_of, same).result(BOUND_S) == MB
        assert executor.submit(sum_of, value).result(BOUND_S) == MB
        assert len(segments()) == 1
        del value
        gc.collect()
        assert executor.submit(tasks.square, 2).result(BOUND_S) == 4
        assert other.submit(sum_of, same).result(BOUND_S) == MB
        assert len(segments()) == 1


def test_a_command_starts_its_scheduler_again(shell, flags) -> None:
    """``scaler_scheduler`` outlives its scheduler, with all that is stored, and ends in order."""
    address = f"tcp://127.0.0.1:{free_port(3)}"
    command = shell.start(f"scaler_scheduler {address}")
    shell.start(f"scaler_cluster -n 1 -his 0.1 {address}")
    with ScalerExecutor(address=address) as executor:
        value = np.ones(MB)
        result = executor.submit(np.full, MB, 3.0)
        running = executor.submit(total, flags.path("started"), flags.path("go"), value)
        flags.wait("started")
        (scheduler,) = psutil.Process(command.pid).children()
        scheduler.kill()
        flags.set("go")

        assert running.result(BOUND_S) == MB
        assert executor.submit(sum_of, value).result(BOUND_S) == MB
        assert result.result(BOUND_S).sum() == 3 * MB
        del result
    assert command.out.count(f"process {scheduler.pid} ended with code -9: another one") == 1
    parts = psutil.Process(command.pid).children(recursive=True)
    assert command.interrupt() == 0
    assert command.err == ""
    wait_gone(*(one.pid for one in parts))
    assert not segments()

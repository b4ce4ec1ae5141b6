"""What tasks take, as their futures tell it."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import CancelledError

import pytest

from scaler_exec import Client, SchedulerClusterCombo
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S

MB = 1_000_000
CPU_S = 0.05


@pytest.fixture(scope="module")
def cluster():
    """A cluster of one worker, which is there."""
    with SchedulerClusterCombo(1) as made:
        with Client(made.get_address()) as client:
            client.submit(abs, -1).result(BOUND_S)
        yield made


@pytest.fixture
def watching(cluster):
    """A client that has everything measured."""
    with Client(cluster.get_address(), profiling=True) as made:
        yield made


def use(nbytes: int, cpu_s: float) -> int:
    """Take memory, and let go of it; take time."""
    held = bytearray(nbytes)
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass
    return len(held)


def use_and_raise(cpu_s: float) -> None:
    use(0, cpu_s)
    raise ValueError("raised on purpose")


def use_in_child(cpu_s: float) -> None:
    """Let a child process take time."""
    code = f"import time\nwhile time.process_time() < {cpu_s}: pass"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_a_task_took(client) -> None:
    """A profile has time, CPU time and memory, also under the names of older documents."""
    future = client.submit(use, 50 * MB, CPU_S, profiling=True)
    assert future.result(BOUND_S) == 50 * MB
    info = future.profiling_info()

    assert info.cpu_time_s >= CPU_S
    assert info.duration_s >= 0.9 * CPU_S
    assert info.memory_peak >= 45 * MB
    assert info.duration_us == round(info.duration_s * 1e6)
    assert info.peak_memory == info.memory_peak


def test_memory_that_others_took_before_is_not_counted(client) -> None:
    """The peak is that of the task, not that of its worker."""
    client.submit(use, 50 * MB, 0).result(BOUND_S)
    future = client.submit(use, 0, 0, profiling=True)
    future.result(BOUND_S)

    assert future.profiling_info().memory_peak < 20 * MB


def test_children_of_a_task_count(client) -> None:
    """A task's CPU time includes processes that it started and waited for."""
    future = client.submit(use_in_child, CPU_S, profiling=True)
    future.result(BOUND_S)

    assert future.profiling_info().cpu_time_s >= CPU_S


def test_a_task_that_raises_is_measured(client) -> None:
    """A task that raises has a profile until then."""
    future = client.submit(use_and_raise, CPU_S, profiling=True)
    assert isinstance(future.exception(BOUND_S), ValueError)

    assert future.profiling_info().cpu_time_s >= CPU_S


def test_nothing_is_measured_unasked(client, watching) -> None:
    """The error of a missing profile says how to ask, and a call can leave one out."""
    for future in (client.submit(abs, -1), watching.submit(abs, -1, profiling=False)):
        assert future.result(BOUND_S) == 1
        with pytest.raises(ValueError, match="profiling=True"):
            future.profiling_info()


def test_no_profile_without_an_end(client, flags) -> None:
    """A task that is under way or was cancelled has no profile."""
    running = client.submit(tasks.sleep, flags.path("started"), profiling=True)
    with pytest.raises(ValueError, match="not come back"):
        running.profiling_info()
    flags.wait("started")
    running.cancel()
    with pytest.raises(CancelledError):
        running.profiling_info()


def test_no_profile_of_what_died() -> None:
    """A task whose worker died has no profile."""
    with SchedulerClusterCombo(1) as cluster, Client(cluster.get_address()) as client:
        dead = client.submit(tasks.fail, "os_exit", profiling=True)
        dead.exception(BOUND_S)

        with pytest.raises(ValueError, match="no profile"):
            dead.profiling_info()
        assert client.submit(abs, -1, profiling=True).result(BOUND_S) == 1


def test_a_client_may_have_everything_measured(watching) -> None:
    """profiling=True measures everything that has a future; maps work as ever."""
    first = watching.submit(use, 0, CPU_S)
    second = watching.submit(use, first, CPU_S)
    graph = {"a": (use, "n", "s"), "n": 0, "s": CPU_S}
    nodes = watching.get(graph, ["a", "n"], block=False)

    for future in (first, second, nodes["a"]):
        assert future.result(BOUND_S) == 0
        assert future.profiling_info().cpu_time_s >= CPU_S
    assert nodes["n"].result() == 0
    assert nodes["n"].profiling_info().duration_s == 0.0
    assert watching.map(abs, [-1, 2]) == [1, 2]
    assert watching.get(graph, ["a"]) == {"a": 0}


def test_a_task_that_runs_for_one_that_waits_is_measured() -> None:
    """A task on the stack of the one that waits for it is measured."""
    with SchedulerClusterCombo(1) as cluster, Client(cluster.get_address()) as client:
        assert client.submit(wait_for_use, client).result(BOUND_S) >= CPU_S


def wait_for_use(client) -> float:
    future = client.submit(use, 0, CPU_S, profiling=True)
    future.result(BOUND_S)
    return future.profiling_info().cpu_time_s


def show(value, profiling=None):
    return value, profiling


def show_all(value, **options):
    return value, options


def test_a_function_keeps_its_own_parameter(client) -> None:
    """A function that takes ``profiling`` itself, or any keyword, is given it."""
    assert client.submit(show, 1, profiling=True).result(BOUND_S) == (1, True)
    assert client.submit(show_all, 1, profiling=2).result(BOUND_S) == (1, {"profiling": 2})
    asked = client.submit_verbose(max, (1, 2), {"profiling": True})
    assert asked.result(BOUND_S) == 2
    assert asked.profiling_info().duration_s >= 0

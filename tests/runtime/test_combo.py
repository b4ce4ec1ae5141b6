"""A cluster in a program: each of its settings does what it says."""

from __future__ import annotations

import contextlib
import gc
import inspect
import logging
import math
import os
import time
from pathlib import Path

import psutil
import pytest

from scaler_cluster.config.sections import SchedulerSettings
from scaler_cluster.process.process_config import SchedulerOptions
from scaler_exec import (
    Client,
    ClusterBrokenError,
    ConfigError,
    ScalerExecutor,
    SchedulerClusterCombo,
    TaskTimeoutError,
)
from tests.runtime import tasks
from tests.runtime.helpers import (
    BOUND_S,
    cluster_process,
    wait_delivered,
    wait_gone,
    wait_until,
)

DOCUMENTED = {
    "address": None,
    "object_storage_address": None,
    "monitor_address": None,
    "per_worker_capabilities": None,
    "worker_io_threads": 1,
    "scheduler_io_threads": 1,
    "max_number_of_tasks_waiting": -1,
    "heartbeat_interval_seconds": 2,
    "client_timeout_seconds": 60,
    "worker_timeout_seconds": 60,
    "object_retention_seconds": 60,
    "task_timeout_seconds": 0,
    "death_timeout_seconds": 300,
    # Documented is 1: that would have idle workers wait for seconds.
    "load_balance_seconds": 0,
    "load_balance_trigger_times": 2,
    "garbage_collect_interval_seconds": 30,
    "trim_memory_threshold_bytes": 1 << 30,
    "per_worker_task_queue_size": 1000,
    "hard_processor_suspend": False,
    "protected": True,
    "event_loop": "builtin",
    "logging_level": "INFO",
    "logging_config_file": None,
    "worker_manager_id": "combo",
    "security_config": None,
}


@pytest.fixture
def make_client():
    """Return what makes a cluster and a client of it."""
    ends = []

    def make(workers: int = 1, **settings) -> Client:
        combo = SchedulerClusterCombo(workers, **settings)
        ends.append(combo.shutdown)
        client = Client(combo.get_address())
        ends.append(client.disconnect)
        return client

    yield make
    for end in reversed(ends):
        end()


def test_its_parameters_are_the_documented_ones() -> None:
    """The combo has the documented parameters and defaults: programs look at the signature."""
    parameters = inspect.signature(SchedulerClusterCombo).parameters

    assert {name: parameters[name].default for name in DOCUMENTED} == DOCUMENTED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_workers": -1}, "n_workers must be 0 or more"),
        ({"address": "localhost"}, "^address must begin with tcp://"),
        ({"heartbeat_interval_seconds": 0}, "heartbeat_interval_seconds must be greater than 0"),
        ({"per_worker_capabilities": {"gpu": -2}}, "per_worker_capabilities must be 0 or more"),
        ({"per_worker_task_queue_size": 0}, "per_worker_task_queue_size must be 1 or more"),
        ({"max_number_of_tasks_waiting": 0}, "must be 1 or more, or -1"),
        ({"preload": "nonsense"}, "preload names no module and function"),
        ({"event_loop": "other"}, "event_loop must be one of builtin, uvloop"),
        ({"security_config": object()}, "there is no TLS between processes"),
    ],
)
def test_a_wrong_setting_starts_nothing(settings, message) -> None:
    """A wrong setting is refused, with the reason, before any process is started."""
    with pytest.raises(ConfigError, match=message):
        SchedulerClusterCombo(**{"n_workers": 1} | settings)


def test_a_task_that_runs_longer_than_its_cluster_lets_it(make_client, flags) -> None:
    """A task is stopped after its cluster's timeout; a task behind it has its own time."""
    client = make_client(task_timeout_seconds=0.5)
    client.map(abs, range(10))
    late = client.submit(time.sleep, tasks.FOREVER_S)
    others = [client.submit(abs, n) for n in range(10)]
    graph = client.get({"a": (sleep_for_ever,)}, ["a"], block=False)["a"]

    with pytest.raises(TaskTimeoutError, match="longer than 0.5 s"):
        late.result(BOUND_S)
    assert [other.result(BOUND_S) for other in others] == list(range(10))
    with pytest.raises(TaskTimeoutError):
        graph.result(BOUND_S)
    pid = client.submit(os.getpid).result(BOUND_S)
    stuck = client.submit(tasks.refuse_to_stop_with_child, flags.path("started"))
    with pytest.raises(TaskTimeoutError):
        stuck.result(BOUND_S)
    assert client.submit(os.getpid).result(BOUND_S) != pid


def test_garbage_is_collected_between_tasks(make_client, flags) -> None:
    """Garbage is collected after the last task too, and memory goes back to the system."""
    client = make_client(garbage_collect_interval_seconds=0.1, trim_memory_threshold_bytes=1)
    before = client.submit(make_garbage, flags.path("collected")).result(BOUND_S)
    flags.wait("collected")

    wait_until(
        lambda: client.submit(own_rss_bytes).result(BOUND_S) < before - 50e6,
        "it stays",
    )


def make_garbage(path: str) -> int:
    """Leave a cycle that the collector has to find, and memory that the C library keeps."""
    gc.disable()
    cycle = Cycle(path)
    cycle.pieces = [bytes(1000) for _ in range(100_000)]
    kept.append(cycle.pieces[-1])
    return own_rss_bytes()


def own_rss_bytes() -> int:
    return psutil.Process().memory_info().rss


class Cycle:
    """Tells that it is gone."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.itself = self
        self.pieces: list[bytes] = []

    def __del__(self) -> None:
        Path(self.path).touch()


kept: list[bytes] = []


def test_workers_take_no_more_tasks_ahead_than_they_are_let(make_client, flags, tmp_path) -> None:
    """Workers take only so many tasks ahead, however short, so that later ones may overtake."""
    client = make_client(per_worker_task_queue_size=1)
    path = tmp_path / "order"
    with ScalerExecutor(address=client._address) as executor:
        list(executor.map(tasks.append_line, [str(path)] * 100, ["before"] * 100))
        path.unlink()
        executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
        flags.wait("held")
        low = [executor.submit(tasks.append_line, str(path), "low") for _ in range(4)]
        high = executor.options(priority=1).submit(tasks.append_line, str(path), "high")
        wait_delivered(executor)
        flags.set("go")
        for future in [*low, high]:
            future.result(BOUND_S)

    assert path.read_text().split() == ["high", *["low"] * 4]


def threads_of(pid: int) -> list[str]:
    """Return the names of a process's threads."""
    return [name.read_text().strip() for name in Path(f"/proc/{pid}/task").glob("*/comm")]


def test_threads_that_move_bytes_are_as_many_as_told(make_client) -> None:
    """The scheduler and each worker have as many I/O threads as they were told."""
    client = make_client(address="tcp://127.0.0.1:0", worker_io_threads=2, scheduler_io_threads=3)
    worker = client.submit(os.getpid).result(BOUND_S)
    scheduler = cluster_process("scheduler").pid

    def found() -> list[int]:
        return [sum("/IO/" in name for name in threads_of(pid)) for pid in (scheduler, worker)]

    # A thread gives itself its name.
    wait_until(lambda: found() == [3, 2], lambda: str(found()))


@pytest.mark.parametrize(
    ("seconds", "times", "idle_s"), [(0, 2, 0.0), (0.5, 3, 1.5), (-1, 2, math.inf)]
)
def test_how_long_workers_idle_before_they_get_what_others_have(seconds, times, idle_s) -> None:
    """The combo's settings of load balancing become the scheduler's idle time."""
    settings = SchedulerSettings.of(
        scheduler_address="tcp://127.0.0.1:1",
        load_balance_seconds=seconds,
        load_balance_trigger_times=times,
    )

    assert SchedulerOptions.from_settings(settings).core.idle_s == idle_s


def test_what_has_no_room_in_the_scheduler_waits_at_its_client(make_client, flags) -> None:
    """Tasks beyond the scheduler's room wait at their client, in order, and can be cancelled."""
    client = make_client(2, max_number_of_tasks_waiting=50)
    assert client.map(abs, range(20_000)) == list(range(20_000))
    with Client(client._address) as other:
        held = [client.submit(tasks.hold, flags.path(f"h{n}"), flags.path("go")) for n in (1, 2)]
        flags.wait("h1")
        flags.wait("h2")
        others = [other.submit(abs, n) for n in range(1000)]
        futures = [client.submit(abs, n) for n in range(1000)]
        assert all(future.cancel() for future in futures[::2])
        graph = client.get({"a": (abs, -5), "b": (abs, "a")}, ["b"], block=False)
        flags.set("go")
        assert [one.result(BOUND_S) for one in others] == list(range(1000))
        assert [one.result(BOUND_S) for one in futures[1::2]] == list(range(1, 1000, 2))
        assert graph["b"].result(BOUND_S) == 5
        assert [one.result(BOUND_S) for one in held]
    assert client.submit(ask_for_many, client).result(BOUND_S) == 1000


def ask_for_many(client) -> int:
    """Submit more tasks than may wait, and wait for them."""
    return len(client.map(abs, range(1000)))


def test_an_executor_takes_back_what_waits_at_the_client(make_client, flags) -> None:
    """cancel_futures cancels tasks that wait at the client as those that wait elsewhere."""
    client = make_client(max_number_of_tasks_waiting=5)
    executor = ScalerExecutor(address=client._address)
    held = executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
    flags.wait("held")
    futures = [executor.submit(abs, n) for n in range(100)]
    executor.shutdown(wait=False, cancel_futures=True)
    wait_until(lambda: all(future.cancelled() for future in futures[50:]), "they wait still")
    flags.set("go")
    executor.shutdown()

    assert held.done()
    assert all(future.done() for future in futures)


def test_a_preload_runs_before_the_first_task(make_client, monkeypatch, tmp_path) -> None:
    """The preload runs in each worker before its first task, with its arguments."""
    (tmp_path / "preloaded.py").write_text(PRELOADED)
    monkeypatch.syspath_prepend(str(tmp_path))
    client = make_client(2, preload="preloaded:prepare(1, name='x')")

    assert client.map(read_preloaded, range(20)) == [((1,), {"name": "x"})] * 20


PRELOADED = """
given = None
def prepare(*args, **kwargs):
    global given
    given = args, kwargs
def fail():
    raise LookupError("nothing is there")
"""


def read_preloaded(_):
    """Return what the module was given."""
    import preloaded  # type: ignore[import-not-found]

    return preloaded.given


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("preloaded:fail", "LookupError: nothing is there"),
        ("preloaded:nosuch", "has no attribute 'nosuch'"),
        ("nosuch.module:f", "No module named 'nosuch'"),
    ],
)
def test_a_preload_that_fails_fails_the_tasks(make_client, monkeypatch, tmp_path, spec, text):
    """A preload that raises fails the tasks, and its traceback is shown."""
    (tmp_path / "preloaded.py").write_text(PRELOADED)
    monkeypatch.syspath_prepend(str(tmp_path))
    client = make_client(2, preload=spec)

    with pytest.raises(ClusterBrokenError, match=text):
        client.submit(abs, -3).result(BOUND_S)


def test_a_client_that_joins_a_broken_cluster_hears_of_it(make_client) -> None:
    """The scheduler says with its welcome that no worker can start, and the client's tasks fail."""
    first = make_client(1, preload="nosuch.module:f")
    with pytest.raises(ClusterBrokenError):
        first.submit(abs, -3).result(BOUND_S)

    with (
        Client(first._address) as second,
        pytest.raises(ClusterBrokenError, match="No module named 'nosuch'"),
    ):
        second.submit(abs, -3).result(BOUND_S)


def test_a_cluster_logs_where_it_is_told(make_client, tmp_path, capfd) -> None:
    """A cluster logs into the files it was given, and is quiet otherwise."""
    make_client().submit(abs, -3).result(BOUND_S)
    path = tmp_path / "log" / "cluster.log"
    client = make_client(logging_paths=[str(path)], logging_level="INFO")
    pid = client.submit(log_something).result(BOUND_S)

    text = path.read_text()
    assert "listen to scheduler address" in text
    assert "Worker[0] started" in text
    assert "something" in path.with_name(f"cluster.log-{pid}").read_text()
    assert capfd.readouterr() == ("", "")


def log_something() -> int:
    """Log in a worker; return its process id."""
    logging.getLogger("scaler.mine").info("something")
    return os.getpid()


def test_a_protected_cluster_is_not_shut_down_by_a_client(make_client) -> None:
    """shutdown() of a protected cluster raises and disconnects that client alone."""
    client = make_client()
    pending = client.submit(time.sleep, tasks.FOREVER_S)
    other = Client(client._address)

    with pytest.raises(ValueError, match="protected mode"):
        client.shutdown()
    client.shutdown()
    assert pending.cancelled()
    with pytest.raises(RuntimeError, match="the client was disconnected"):
        client.submit(abs, -3)
    assert other.submit(abs, -3).result(BOUND_S) == 3
    other.disconnect()


def test_a_client_shuts_a_cluster_down(make_client) -> None:
    """shutdown() of a client ends all processes of the cluster, and tells other clients."""
    client = make_client(protected=False)
    pid = client.submit(os.getpid).result(BOUND_S)
    with Client(client._address) as other:
        pending = other.submit(time.sleep, tasks.FOREVER_S)
        client.shutdown()

        with pytest.raises(ClusterBrokenError, match="the cluster was shut down"):
            pending.result(BOUND_S)
    wait_gone(pid)
    client.shutdown()


def test_a_task_shuts_its_cluster_down(make_client) -> None:
    """A task may shut its cluster down as any client may."""
    client = make_client(protected=False)

    with contextlib.suppress(ClusterBrokenError):
        assert client.submit(shut_down, client).result(BOUND_S) is None
    with pytest.raises(ClusterBrokenError, match="the cluster was shut down"):
        client.submit(time.sleep, tasks.FOREVER_S).result(BOUND_S)


def shut_down(client) -> None:
    """End the cluster that runs this."""
    client.shutdown()


def sleep_for_ever() -> None:
    """Be late."""
    time.sleep(tasks.FOREVER_S)

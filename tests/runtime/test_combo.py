"""A cluster in a program: each of its settings does what it says."""

from __future__ import annotations

import inspect
import os
import time

import pytest

from scaler_exec import Client, ClusterBroken, ConfigError, SchedulerClusterCombo, TaskTimeout
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_gone

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
    "load_balance_seconds": 1,
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
    """With their defaults: others look at the signature."""
    parameters = inspect.signature(SchedulerClusterCombo).parameters

    assert {name: parameters[name].default for name in DOCUMENTED} == DOCUMENTED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_workers": -1}, "n_workers must be 0 or more"),
        ({"address": "localhost"}, "scheduler_address must begin with tcp://"),
        ({"heartbeat_interval_seconds": 0}, "heartbeat_interval_seconds must be greater than 0"),
        ({"per_worker_capabilities": {"gpu": -2}}, "per_worker_capabilities must be 0 or more"),
        ({"per_worker_task_queue_size": 0}, "per_worker_task_queue_size must be 1 or more"),
        ({"max_number_of_tasks_waiting": 0}, "must be 1 or more, or -1"),
        ({"preload": "nonsense"}, "preload names no module and function"),
        ({"event_loop": "other"}, "event_loop must be one of builtin, uvloop"),
        ({"security_config": object()}, "there is no encryption yet"),
    ],
)
def test_a_wrong_setting_starts_nothing(settings, message) -> None:
    """It says which, and why."""
    with pytest.raises(ConfigError, match=message):
        SchedulerClusterCombo(**{"n_workers": 1} | settings)


def test_a_task_that_runs_longer_than_its_cluster_lets_it(make_client, flags) -> None:
    """Is stopped; one that waits behind it runs on its own time."""
    client = make_client(task_timeout_seconds=0.5)
    client.map(abs, range(10))
    late = client.submit(time.sleep, tasks.FOREVER_S)
    others = [client.submit(abs, n) for n in range(10)]
    graph = client.get({"a": (sleep_for_ever,)}, ["a"], block=False)["a"]

    with pytest.raises(TaskTimeout, match="longer than 0.5 s"):
        late.result(BOUND_S)
    assert [other.result(BOUND_S) for other in others] == list(range(10))
    with pytest.raises(TaskTimeout):
        graph.result(BOUND_S)
    pid = client.submit(os.getpid).result(BOUND_S)
    stuck = client.submit(tasks.refuse_to_stop_with_child, flags.path("started"))
    with pytest.raises(TaskTimeout):
        stuck.result(BOUND_S)
    assert client.submit(os.getpid).result(BOUND_S) != pid


def test_a_protected_cluster_is_not_shut_down_by_a_client(make_client) -> None:
    """The client says so, and is disconnected; the others go on."""
    client = make_client()
    pending = client.submit(time.sleep, tasks.FOREVER_S)
    other = Client(client._address)

    with pytest.raises(ValueError, match="protected mode"):
        client.shutdown()
    client.shutdown()
    assert pending.cancelled()
    with pytest.raises(RuntimeError):
        client.submit(abs, -3)
    assert other.submit(abs, -3).result(BOUND_S) == 3
    other.disconnect()


def test_a_client_shuts_a_cluster_down(make_client) -> None:
    """All its processes end, and other clients are told."""
    client = make_client(protected=False)
    pid = client.submit(os.getpid).result(BOUND_S)
    with Client(client._address) as other:
        pending = other.submit(time.sleep, tasks.FOREVER_S)
        client.shutdown()

        with pytest.raises(ClusterBroken, match="the cluster was shut down"):
            pending.result(BOUND_S)
    wait_gone(pid)
    client.shutdown()


def test_a_task_shuts_its_cluster_down(make_client) -> None:
    """It is one of its clients."""
    client = make_client(protected=False)

    with pytest.raises(ClusterBroken, match="the cluster was shut down"):
        client.submit(shut_down, client).result(BOUND_S)


def shut_down(client) -> None:
    """End the cluster that runs this."""
    client.shutdown()


def sleep_for_ever() -> None:
    """Be late."""
    time.sleep(tasks.FOREVER_S)

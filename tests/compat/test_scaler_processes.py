"""Scheduler, storage and workers as processes of a program, in Scaler's form."""

from __future__ import annotations

import asyncio
import enum
import inspect

import numpy as np
import psutil
import pytest

from scaler import Client, Cluster, Scheduler
from scaler.cluster.object_storage_server import ObjectStorageServerProcess
from scaler.cluster.scheduler import SchedulerProcess
from scaler.config.section.cluster import ClusterConfig
from scaler.config.section.scheduler import PolicyConfig, SchedulerConfig
from scaler.worker.worker import Worker
from scaler_cluster.config.webhook_settings import NativeAdapterSettings
from scaler_cluster.process.child import ChildProcess
from scaler_exec import ConfigError
from tests.runtime.helpers import BOUND_S, free_port, wait_until

pytestmark = pytest.mark.slow
MB = 1_000_000


@pytest.fixture
def start():
    """Return what starts processes; in the end each is told to end, and does, the last one first."""
    started = []

    def start(process):
        started.append(process)
        process.start()
        return process

    yield start
    for process in reversed(started):
        process.terminate()
        process.join(BOUND_S)
        assert not process.is_alive()
        assert process.exitcode == 0


def test_a_cluster_of_processes(start) -> None:
    """Storage, scheduler and workers are started each by a class of its own."""
    at = f"tcp://127.0.0.1:{free_port()}"
    start(ObjectStorageServerProcess(at, logging_paths=())).wait_until_ready()
    policy = PolicyConfig(policy_content="allocate=capability; scaling=no")
    made = SchedulerProcess(
        bind_address="tcp://127.0.0.1:0", object_storage_address=at, policy=policy, logging_paths=()
    )
    assert made.pid is None
    scheduler = start(made)
    start(Cluster(scheduler.address, ["one", "two"], logging_paths=()))

    with Client(scheduler.address) as client:
        assert client.map(abs, range(-9, 0)) == list(range(9, 0, -1))
        assert client.submit(np.sum, np.ones(MB)).result(BOUND_S) == MB
    assert scheduler.is_alive()
    assert scheduler.exitcode is None


def test_single_workers(start) -> None:
    """A single worker has a name and capabilities, by arguments or by a configuration."""
    config = SchedulerConfig(scheduler_address="tcp://127.0.0.1:0", logging_paths=())
    scheduler = start(SchedulerProcess(config.scheduler_address, logging_paths=()))
    worker = start(
        Worker("builtin", "first", scheduler.address, capabilities={"gpu": 1}, logging_paths=())
    )
    start(
        Cluster(
            ClusterConfig(scheduler_address=scheduler.address, num_of_workers=1, logging_paths=())
        )
    )

    assert worker.identity == b"first"
    with Client(scheduler.address) as client:
        demanding = client.submit_verbose(abs, (-3,), {}, capabilities={"gpu": 1})
        assert demanding.result(BOUND_S) == 3


class Strategy(enum.Enum):
    """As Scaler 1.12 has it, where nobody documented it."""

    VANILLA = "vanilla"


@pytest.mark.parametrize("strategy", [Strategy.VANILLA, "vanilla", None])
def test_workers_of_an_adapter(start, strategy) -> None:
    """From no worker on, tasks bring some; the adapter's workers end with the scheduler."""
    pytest.importorskip("aiohttp")
    port = free_port(6)
    address, url = f"tcp://127.0.0.1:{port + 1}", f"http://127.0.0.1:{port + 4}"
    adapter = ChildProcess(
        "adapter",
        NativeAdapterSettings.of(
            scheduler_address=address,
            adapter_web_host="127.0.0.1",
            adapter_web_port=port + 4,
            max_workers=1,
            logging_paths=(),
        ),
    )
    try:
        scheduler = start(
            SchedulerProcess(
                address,
                scaling_controller_strategy=strategy,
                adapter_webhook_urls=(url,),
                logging_paths=(),
            )
        )
        with Client(address) as client:
            assert client.map(abs, range(-9, 0)) == list(range(9, 0, -1))
        scheduler.terminate()
        scheduler.join(BOUND_S)
        wait_until(lambda: not psutil.Process(adapter.pid).children(), "its workers stay")
    finally:
        adapter.stop(BOUND_S)


def test_a_scheduler_in_an_event_loop() -> None:
    """A scheduler runs as long as its coroutine does."""

    async def main() -> str:
        config = SchedulerConfig(scheduler_address="tcp://127.0.0.1:0", logging_paths=())
        scheduler = Scheduler(config)
        loops = asyncio.create_task(scheduler.get_loops())
        await asyncio.sleep(0)
        client = await asyncio.to_thread(Client, scheduler.address)
        client.disconnect()
        loops.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loops
        return scheduler.address

    assert asyncio.run(main()).startswith("tcp://127.0.0.1:")


def test_what_cannot_work_is_refused() -> None:
    """The classes refuse wrong settings with the words of the commands."""
    with pytest.raises(ConfigError, match="scheduler_address"):
        SchedulerProcess("nonsense")
    with pytest.raises(ConfigError, match="terminate"):
        SchedulerProcess("tcp://127.0.0.1:0", shutdown_event=object())
    with pytest.raises(ConfigError, match="no TLS"):
        ObjectStorageServerProcess("tcp://127.0.0.1:0", security_config=object())
    with pytest.raises(AssertionError, match="started"):
        Cluster("tcp://127.0.0.1:1", ["one"]).join()


def test_parameters_have_the_documented_names() -> None:
    """The classes have the documented parameters, in the documented order."""
    assert list(inspect.signature(SchedulerProcess).parameters) == [
        "bind_address", "object_storage_address", "advertised_object_storage_address",
        "monitor_address", "io_threads", "max_number_of_tasks_waiting", "client_timeout_seconds",
        "worker_timeout_seconds", "object_retention_seconds", "load_balance_seconds",
        "load_balance_trigger_times", "protected", "policy", "event_loop", "logging_paths",
        "logging_config_file", "logging_level", "shutdown_event", "security_config",
        # Of version 1.12, before ``policy``.
        "scaling_controller_strategy", "adapter_webhook_urls", "address", "allocate_policy",
    ]  # fmt: skip
    assert list(inspect.signature(Worker).parameters) == [
        "event_loop", "name", "address", "object_storage_address", "preload", "capabilities",
        "io_threads", "task_queue_size", "heartbeat_interval_seconds",
        "garbage_collect_interval_seconds", "trim_memory_threshold_bytes", "task_timeout_seconds",
        "death_timeout_seconds", "hard_processor_suspend", "logging_paths", "logging_level",
        "worker_manager_id", "deterministic_worker_ids", "security_config",
    ]  # fmt: skip

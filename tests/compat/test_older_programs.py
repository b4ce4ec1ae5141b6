"""What programs for older and newer versions of Scaler construct and write on command lines."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys

import psutil
import pytest

from scaler import Client
from scaler.cluster.cluster import Cluster
from scaler.cluster.combo import SchedulerClusterCombo
from scaler.cluster.object_storage_server import ObjectStorageServerProcess
from scaler.cluster.scheduler import SchedulerProcess
from scaler.config import defaults
from scaler.config.common.logging import LoggingConfig
from scaler.config.common.security import SecurityConfig
from scaler.config.common.worker import WorkerConfig
from scaler.config.common.worker_manager import WorkerManagerConfig
from scaler.config.section.cluster import ClusterConfig
from scaler.config.section.ecs_worker_adapter import ECSWorkerAdapterConfig
from scaler.config.section.native_worker_adapter import NativeWorkerAdapterConfig
from scaler.config.section.native_worker_manager import (
    NativeWorkerManagerConfig,
    NativeWorkerManagerMode,
)
from scaler.config.section.object_storage_server import ObjectStorageServerConfig
from scaler.config.section.scheduler import PolicyConfig, SchedulerConfig
from scaler.config.section.symphony_worker_manager import SymphonyWorkerManagerConfig
from scaler.config.section.webgui import WebGUIConfig
from scaler.config.types.address import AddressConfig, SocketType
from scaler.config.types.http import HTTPConfig
from scaler.config.types.object_storage_server import ObjectStorageConfig
from scaler.config.types.worker import WorkerCapabilities, WorkerNames
from scaler.config.types.zmq import ZMQConfig, ZMQType
from scaler.scheduler.allocate_policy.allocate_policy import AllocatePolicy
from scaler.scheduler.controllers.scaling_policies.types import ScalingControllerStrategy
from scaler.utility.event_loop import EventLoopType
from scaler.utility.logging.utility import LoggingLevel, get_logger_info
from scaler_exec import ConfigError
from tests.runtime.helpers import BOUND_S, environment, free_port

ADDRESS = AddressConfig.from_string("tcp://127.0.0.1:2345")


def test_addresses_in_parts_are_texts() -> None:
    """An address of either version shows itself as it is written, from a text and from parts."""
    assert str(ADDRESS) == ADDRESS.to_address() == "tcp://127.0.0.1:2345"
    assert ZMQConfig(ZMQType.ipc, "/tmp/one") == AddressConfig.from_string("ipc:///tmp/one")
    assert str(ObjectStorageConfig.from_string("tcp://127.0.0.1:2346")) == "tcp://127.0.0.1:2346"
    assert str(WorkerNames.from_string("a, b")) == "a,b"
    assert WorkerCapabilities.from_string("linux,gpu=2").capabilities == {"linux": -1, "gpu": 2}
    assert str(WorkerCapabilities({"linux": -1, "gpu": 2})) == "linux,gpu=2"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AddressConfig.from_string("tls://host:1"), "tls:// is not there: use tcp://"),
        (lambda: AddressConfig(SocketType.ws, "host", 1), "ws:// is not there"),
        (lambda: AddressConfig.from_string("host:1"), "is written as tcp://127.0.0.1:2345"),
        (lambda: AddressConfig.from_string("tcp://host"), "has no port"),
        (lambda: ObjectStorageConfig.from_string("ipc:///x"), "is at tcp://host:port"),
        (lambda: WorkerCapabilities.from_string("gpu=x"), "must be numbers"),
        (lambda: SecurityConfig("cert.pem", "key.pem"), "scaler_keys"),
        (lambda: SchedulerConfig(ADDRESS, load_balance_trigger_times=0), "load_balance_trigger"),
    ],
)
def test_what_is_wrong_says_so(make, text) -> None:
    """What no engine of ours could do is refused where it is made."""
    with pytest.raises(ConfigError, match=text):
        make()


def test_settings_of_version_1_are_ours() -> None:
    """Flat sections, with addresses and enumerations as objects."""
    scheduler = SchedulerConfig(
        scheduler_address=ADDRESS, object_storage_address=None, adapter_webhook_urls=(),
        allocate_policy=AllocatePolicy.capability, event_loop=EventLoopType.builtin,
        scaling_controller_strategy=ScalingControllerStrategy.NULL,
    )  # fmt: skip
    cluster = ClusterConfig(
        ADDRESS, worker_io_threads=2, worker_names=WorkerNames(["a", "b"]), num_of_workers=2,
        per_worker_capabilities=WorkerCapabilities({"gpu": 1}), logging_level="DEBUG",
    )  # fmt: skip
    native = NativeWorkerAdapterConfig(ADDRESS, None, adapter_web_port=8080, max_workers=3)
    ecs = ECSWorkerAdapterConfig("localhost", 8081, ADDRESS, ecs_subnets=["subnet-1"])

    assert scheduler.scheduler_address == "tcp://127.0.0.1:2345"
    assert (scheduler.allocate_policy, scheduler.object_storage_address) == ("capability", ())
    assert scheduler.scaling_controller_strategy == "NULL"
    assert (cluster.io_threads, cluster.worker_names, cluster.num_of_workers) == (2, ("a", "b"), 2)
    assert (cluster.per_worker_capabilities, cluster.logging_level) == ({"gpu": 1}, "DEBUG")
    assert (native.max_workers, ecs.ecs_subnets) == (3, ("subnet-1",))


def test_settings_of_version_2_are_ours() -> None:
    """Groups of settings inside of sections."""
    about = WorkerManagerConfig(ADDRESS, "wm-1", max_task_concurrency=-1)
    workers = WorkerConfig(WorkerCapabilities({"linux": -1}), death_timeout_seconds=7)
    native = NativeWorkerManagerConfig(
        worker_manager_config=about, worker_config=workers, security=SecurityConfig(),
        logging_config=LoggingConfig(("/dev/stderr",), level="ERROR"),
        mode=NativeWorkerManagerMode.DYNAMIC,
    )  # fmt: skip
    symphony = SymphonyWorkerManagerConfig("service", WorkerManagerConfig(ADDRESS, "wm-2"))
    scheduler = SchedulerConfig(
        bind_address=ADDRESS, object_storage_address=AddressConfig.from_string("tcp://h:1"),
        policy=PolicyConfig(policy_content="allocate=even_load; scaling=no"),
        logging_config=LoggingConfig(), security=SecurityConfig(),
    )  # fmt: skip
    page = WebGUIConfig(monitor_address=ADDRESS, gui_address=HTTPConfig("127.0.0.1", 50001))

    assert (native.scheduler_address, native.worker_manager_id) == (str(ADDRESS), "wm-1")
    assert (native.max_workers, native.mode, native.death_timeout_seconds) == (-1, "dynamic", 7)
    assert (native.per_worker_capabilities, native.logging_level) == ({"linux": -1}, "ERROR")
    assert (symphony.service_name, symphony.scheduler_address) == ("service", str(ADDRESS))
    assert scheduler.policy_content == "allocate=even_load; scaling=no"
    assert page.gui_address == "127.0.0.1:50001"
    assert ObjectStorageServerConfig(ADDRESS).object_storage_address == str(ADDRESS)


def test_misspelt_settings_are_named() -> None:
    """A setting that there is not is a TypeError with the nearest name."""
    with pytest.raises(TypeError, match="did you mean 'scheduler_address'"):
        ClusterConfig(scheduler_adress=ADDRESS)
    with pytest.raises(TypeError, match="2 settings by position"):
        ClusterConfig(ADDRESS, None, "preload")
    for make in (SchedulerProcess, Cluster, ObjectStorageServerProcess):
        with pytest.raises(TypeError, match="give one of"):
            make()


def test_a_setting_that_is_given_twice_is_refused() -> None:
    """By position and by name, or by two names of it: one of them would be lost."""
    with pytest.raises(TypeError, match="the same setting"):
        SchedulerConfig(ADDRESS, scheduler_address="tcp://127.0.0.1:1")
    option = next(one for one in SchedulerConfig.options() if len(one.names) > 1)
    twice = dict.fromkeys(list(option.names)[:2])
    with pytest.raises(TypeError, match="the same setting"):
        SchedulerConfig(ADDRESS, **twice)


def test_defaults_and_levels() -> None:
    """Names of defaults, and what a logger does."""
    assert all(getattr(defaults, name) is not None for name in defaults.__all__)
    assert LoggingLevel.INFO.value == logging.INFO
    logger = logging.getLogger("scaler.of.a.program")
    logger.setLevel(logging.WARNING)
    assert get_logger_info(logger) == ("", "WARNING", ())


@pytest.mark.slow
def test_processes_take_the_words_of_their_versions(standing) -> None:
    """A cluster of processes, by the keywords of version 1.12, runs a task."""
    port = free_port(3)
    storage = ObjectStorageConfig("127.0.0.1", port)
    address = ZMQConfig(ZMQType.tcp, "127.0.0.1", port=port + 1)
    config = ClusterConfig(address, num_of_workers=1, logging_paths=())
    processes = [
        ObjectStorageServerProcess(object_storage_address=storage, logging_paths=()),
        SchedulerProcess(
            address=address, object_storage_address=storage, logging_paths=(),
            allocate_policy=AllocatePolicy.even, adapter_webhook_urls=(),
            scaling_controller_strategy=ScalingControllerStrategy.NULL,
        ),
        Cluster(config=config),
        Cluster(address, object_storage_address=storage, worker_names=["a"], logging_paths=()),
    ]  # fmt: skip
    try:
        for one in processes:
            one.start()
        with Client(str(address), security_config=SecurityConfig()) as client:  # type: ignore[arg-type]
            assert client.submit(abs, -1).result(BOUND_S) == 1
    finally:
        for one in reversed(processes):
            if one.pid is not None:
                one.terminate()
                one.join(BOUND_S)


@pytest.mark.slow
def test_a_manager_of_version_2_runs() -> None:
    """A program makes a manager of its settings; the policy of version 1.12 is taken as well."""
    with SchedulerClusterCombo(
        0, f"tcp://127.0.0.1:{free_port(2)}", allocate_policy=AllocatePolicy.even
    ) as cluster:
        program = MANAGER.format(address=cluster.get_address())
        manager = subprocess.Popen([sys.executable, "-c", program], env=environment())
        try:
            with Client(cluster.get_address()) as client:
                assert client.submit(abs, -1).result(BOUND_S) == 1
        finally:
            manager.send_signal(signal.SIGINT)
            assert manager.wait(BOUND_S) == 0
    assert not psutil.pid_exists(manager.pid)


MANAGER = """
from scaler.config.common.logging import LoggingConfig
from scaler.config.common.worker_manager import WorkerManagerConfig
from scaler.config.section.native_worker_manager import NativeWorkerManagerConfig
from scaler.config.types.address import AddressConfig
from scaler.worker_manager_adapter.baremetal.native import NativeWorkerManager

address = AddressConfig.from_string("{address}")
about = WorkerManagerConfig(address, "wm-1", max_task_concurrency=1)
NativeWorkerManager(NativeWorkerManagerConfig(about, logging_config=LoggingConfig(()))).run()
"""

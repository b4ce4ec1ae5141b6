"""What a process is told: made of settings, carried by standard input, whole on its arrival."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest

from scaler_cluster.config.sections import SchedulerSettings
from scaler_cluster.config.worker_settings import ClusterSettings
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.process.log_config import LogConfig
from scaler_cluster.process.monitor_config import ReportProcessConfig
from scaler_cluster.process.process import usable_cpus, write_config
from scaler_cluster.process.process_config import (
    WORKERS_OWN,
    SchedulerOptions,
    SchedulerProcessConfig,
    SupervisorOptions,
    SupervisorProcessConfig,
)
from scaler_exec import Client
from tests.runtime.helpers import BOUND_S, environment

ADDRESS = "tcp://127.0.0.1:8516"
CHILD = """
import os
from scaler_cluster.process.process import read_config
from scaler_cluster.process.monitor_config import ReportProcessConfig
print(read_config(ReportProcessConfig))
print(os.read(0, 100))
"""
CONFIG = ReportProcessConfig("tcp://127.0.0.1:1", WORKERS_OWN, "/tmp/report.html", 7, False)


def child_told(data: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a child that reads its configuration, then what follows."""
    return subprocess.run(
        [sys.executable, "-c", CHILD],
        input=data,
        capture_output=True,
        timeout=BOUND_S,
        env=environment(),
        check=False,
    )


def written(config: object) -> bytes:
    """Return what a parent writes."""
    read, write = os.pipe()
    with os.fdopen(write, "wb") as stream:
        write_config(stream, config)
    with os.fdopen(read, "rb") as stream:
        return stream.read()


# -- on the way --------------------------------------------------------------------------------


def test_a_child_reads_its_configuration_and_no_byte_more():
    """A child reads its configuration as it was made, and leaves what follows in the pipe."""
    child = child_told(written(CONFIG) + b"lifeline")

    assert child.stdout.decode().splitlines() == [repr(CONFIG), "b'lifeline'"]


@pytest.mark.parametrize("length", [0, 2, 50])
def test_a_child_whose_parent_dies_meanwhile_ends_quietly(length):
    """A configuration that breaks off ends the child with status 1 and no word."""
    child = child_told(written(CONFIG)[:length])

    assert (child.returncode, child.stdout, child.stderr) == (1, b"", b"")


def test_a_configuration_of_another_process_is_refused():
    """A child that is told what another process is to do names both records."""
    child = child_told(written(SupervisorOptions()))

    assert child.returncode == 1
    assert b"needs a ReportProcessConfig, not a SupervisorOptions" in child.stderr


# -- what settings mean to a process -----------------------------------------------------------


def test_zero_means_never_to_a_scheduler():
    """Settings whose 0 switches them off become durations without an end."""
    settings = SchedulerSettings.of(
        scheduler_address=ADDRESS, object_retention_seconds=0, unplaced_timeout_seconds=0
    )

    core = SchedulerOptions.from_settings(settings).core

    assert (core.object_retention_s, core.unplaced_timeout_s) == (math.inf, math.inf)


def test_zero_means_no_timeout_to_a_supervisor():
    """A task timeout of 0 becomes a duration without an end."""
    settings = ClusterSettings.of(
        scheduler_address=ADDRESS, task_timeout_seconds=0, stopped_timeout_seconds=0,
        hang_timeout_seconds=0,
    )  # fmt: skip

    options = SupervisorOptions.from_settings(settings)
    assert options.task_timeout_s == math.inf
    assert (options.stopped_timeout_s, options.hang_timeout_s) == (math.inf, math.inf)


def test_what_is_not_set_is_alike_everywhere():
    """An embedded cluster, which has no such settings, waits for stopped workers as others do."""
    settings = SupervisorOptions.from_settings(ClusterSettings.of(scheduler_address=ADDRESS))

    assert settings.stopped_timeout_s == SupervisorOptions().stopped_timeout_s == 30
    assert settings.hang_timeout_s == SupervisorOptions().hang_timeout_s == math.inf


@pytest.mark.parametrize(
    ("given", "workers"),
    [
        ({"num_of_workers": 3, "worker_names": ("a", "b")}, 3),
        ({"worker_names": ("a", "b")}, 2),
        ({}, max(usable_cpus() - 1, 1)),
    ],
)
def test_how_many_workers_a_cluster_has(given, workers):
    """A cluster has as many workers as are set, else as are named, else as CPUs but one."""
    settings = ClusterSettings.of(scheduler_address=ADDRESS, **given)

    config = SupervisorProcessConfig.from_settings(settings)

    assert config.workers == workers
    assert [config.name_of(slot) for slot in (0, 2)] == [(*config.options.worker_names, "")[0], ""]


@pytest.mark.parametrize(
    ("address", "beside"),
    [
        (ADDRESS, "tcp://127.0.0.1:8517"),
        ("tcp://127.0.0.1:0", ""),
        ("tcp://127.0.0.1:65535", ""),
        ("ipc:///tmp/scheduler", ""),
    ],
)
def test_where_a_schedulers_own_storage_listens(address, beside):
    """A scheduler's own storage listens at the next port if there is one, else at a free one."""
    settings = SchedulerSettings.of(scheduler_address=address)

    assert SchedulerProcessConfig.from_settings(settings).beside == beside


def test_a_process_without_a_place_for_its_log_has_no_log_config():
    """Without paths and without a file a process logs its warnings to stderr."""
    quiet = SchedulerSettings.of(scheduler_address=ADDRESS, logging_paths=())
    plain = SchedulerSettings.of(scheduler_address=ADDRESS, logging_level="debug")

    assert LogConfig.from_settings(quiet) is None
    assert LogConfig.from_settings(plain) == LogConfig(("/dev/stdout",), "DEBUG", None)


# -- a switch for those who look for a bug -----------------------------------------------------


def test_a_scheduler_can_check_its_invariants_after_each_turn():
    """With ``check`` the scheduler of a real cluster works as it does without."""
    cluster = EmbeddedCluster(1, scheduling=SchedulerOptions(check=True))
    try:
        with Client(cluster.address) as client:
            assert client.map(abs, range(-100, 0)) == list(range(100, 0, -1))
    finally:
        cluster.stop()

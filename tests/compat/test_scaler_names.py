"""The names by which programs for Scaler import: where they are documented, and what they are."""

from __future__ import annotations

import importlib
import inspect
import logging
import subprocess
import sys
from concurrent.futures import CancelledError

import pytest

import scaler
from scaler.utility import exceptions
from scaler.utility.graph.optimization import cull_graph
from scaler.utility.logging.scoped_logger import ScopedLogger, TimedLogger
from scaler.utility.network_util import get_available_tcp_port
from scaler.worker.agent.processor.processor import Processor
from scaler_exec import Client, ScalerError, SchedulerClusterCombo
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, environment

PATHS = {
    "scaler": scaler.__all__,
    "scaler.about": ["__version__"],
    "scaler.client.client": ["Client"],
    "scaler.client.future": ["ScalerFuture"],
    "scaler.client.object_reference": ["ObjectReference"],
    "scaler.client.serializer.default": ["DefaultSerializer"],
    "scaler.client.serializer.mixins": ["Serializer"],
    "scaler.cluster.cluster": ["Cluster"],
    "scaler.cluster.combo": ["SchedulerClusterCombo"],
    "scaler.cluster.object_storage_server": ["ObjectStorageServerProcess"],
    "scaler.cluster.scheduler": ["Scheduler", "SchedulerProcess", "run_scheduler"],
    "scaler.config.section.cluster": ["ClusterConfig"],
    "scaler.config.section.object_storage_server": ["ObjectStorageServerConfig"],
    "scaler.config.section.scheduler": ["PolicyConfig", "SchedulerConfig"],
    "scaler.config.common.logging": ["LoggingConfig"],
    "scaler.config.common.security": ["SecurityConfig"],
    "scaler.config.common.worker": ["WorkerConfig"],
    "scaler.config.common.worker_manager": ["WorkerManagerConfig"],
    "scaler.config.section.aws_hpc_worker_manager": ["AWSBatchWorkerManagerConfig"],
    "scaler.config.section.ecs_worker_adapter": ["ECSWorkerAdapterConfig"],
    "scaler.config.section.ecs_worker_manager": ["ECSWorkerManagerConfig"],
    "scaler.config.section.native_worker_adapter": ["NativeWorkerAdapterConfig"],
    "scaler.config.section.native_worker_manager": [
        "NativeWorkerManagerConfig",
        "NativeWorkerManagerMode",
    ],
    "scaler.config.section.orb_aws_ec2_worker_manager": ["ORBAWSEC2WorkerManagerConfig"],
    "scaler.config.section.symphony_worker_adapter": ["SymphonyWorkerConfig"],
    "scaler.config.section.symphony_worker_manager": ["SymphonyWorkerManagerConfig"],
    "scaler.config.section.top": ["TopConfig"],
    "scaler.config.section.webgui": ["WebGUIConfig"],
    "scaler.config.section.webui": ["WebUIConfig"],
    "scaler.config.types.address": ["AddressConfig", "SocketType"],
    "scaler.config.types.http": ["HTTPConfig"],
    "scaler.config.types.object_storage_server": ["ObjectStorageConfig"],
    "scaler.config.types.worker": ["WorkerCapabilities", "WorkerNames"],
    "scaler.config.types.zmq": ["ZMQConfig", "ZMQType"],
    "scaler.scheduler.allocate_policy.allocate_policy": ["AllocatePolicy"],
    "scaler.scheduler.controllers.scaling_policies.types": ["ScalingControllerStrategy"],
    "scaler.scheduler.scheduler": ["Scheduler"],
    "scaler.utility.event_loop": ["EventLoopType"],
    "scaler.worker_adapter.common": [
        "CapacityExceededError",
        "WorkerGroupNotFoundError",
        "format_capabilities",
    ],
    "scaler.worker_adapter.ecs": ["ECSWorkerAdapter"],
    "scaler.worker_adapter.native": ["NativeWorkerAdapter"],
    "scaler.worker_adapter.symphony.worker_adapter": ["SymphonyWorkerAdapter"],
    "scaler.worker_manager.native.worker_manager": ["NativeWorkerManager"],
    "scaler.worker_manager_adapter.baremetal.native": ["NativeWorkerManager"],
    "scaler.utility.exceptions": exceptions.__all__,
    "scaler.utility.graph.optimization": ["cull_graph"],
    "scaler.utility.logging.scoped_logger": ["ScopedLogger", "TimedLogger"],
    "scaler.utility.logging.utility": ["LoggingLevel", "get_logger_info", "setup_logger"],
    "scaler.utility.metadata.profile_result": ["ProfileResult"],
    "scaler.utility.network_util": ["get_available_tcp_port"],
    "scaler.worker.agent.processor.processor": ["Processor"],
    "scaler.worker.preload": ["PreloadSpecError"],
    "scaler.worker.worker": ["Worker"],
}


@pytest.mark.parametrize("path", PATHS)
def test_a_documented_path_leads_to_ours(path) -> None:
    """Each documented path has its names, which are the engine's own objects."""
    module = importlib.import_module(path)

    for name in PATHS[path]:
        value = getattr(module, name)
        if name != "__version__":
            assert value.__module__.partition(".")[0] in {
                "scaler",
                "scaler_cluster",
                "scaler_compat",
            }
        assert getattr(scaler, name, value) is value


def test_what_is_not_there_is_not_there() -> None:
    """A misspelt name is an ImportError, as with any module."""
    with pytest.raises(ImportError, match="cannot import name 'Klient' from 'scaler'"):
        from scaler import Klient  # type: ignore[attr-defined]  # noqa: F401


def test_names_are_loaded_when_they_are_used() -> None:
    """Importing the package does not load the client, and none of the two the modules of sockets."""
    program = (
        "import sys, scaler; names = 'scaler_cluster.client.client', 'zmq'; scaler.__version__;"
    )
    program += "print(*(name in sys.modules for name in names), end=' '); scaler.Client;"
    program += "print(*(name in sys.modules for name in names), logging.root.handlers)"
    done = subprocess.run(
        [sys.executable, "-c", "import logging;" + program],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )

    assert done.stdout == "False False True False []\n"


def test_the_client_has_the_documented_parameters() -> None:
    """Client has the documented parameters in order; those of ours are keyword-only."""
    documented = ["address", "profiling", "timeout_seconds", "heartbeat_interval_seconds",
                  "serializer", "stream_output", "object_storage_address",
                  "security_config"]  # fmt: skip

    parameters = inspect.signature(scaler.Client).parameters.values()
    positional = [one.name for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY]

    assert positional == documented
    verbose = inspect.signature(scaler.Client.submit_verbose).parameters
    documented = ["self", "fn", "args", "kwargs", "capabilities", "reserialize"]
    assert list(verbose) == [*documented, "cores", "named"]


# -- errors ----------------------------------------------------------------------------------


def test_every_error_is_ours() -> None:
    """``except ScalerError`` catches every exception of scaler.utility.exceptions."""
    errors = [getattr(exceptions, name) for name in exceptions.__all__]

    assert all(issubclass(error, ScalerError) for error in errors)


class Unspeakable(Exception):
    """Cannot travel."""

    def __reduce__(self):
        raise TypeError("stays here")


def raise_unspeakable() -> None:
    raise Unspeakable("text")


def test_errors_are_raised_under_their_names() -> None:
    """Each documented exception is raised where the documents say."""
    with SchedulerClusterCombo(1) as cluster:
        client = Client(cluster.get_address())
        dead = client.submit(tasks.fail, "os_exit").exception(BOUND_S)
        silent = client.submit(raise_unspeakable).exception(BOUND_S)
        unread = client.submit(len, tasks.FailsAtUnpickle("raise")).exception(BOUND_S)
        reference = client.send_object([1, 2])
        client.clear()
        with pytest.raises(exceptions.MissingObjects):
            client.submit(len, reference)
        client.disconnect()
        with pytest.raises(exceptions.ClientQuitException):
            client.submit(abs, -1)
    with pytest.raises(exceptions.DisconnectedError):
        Client(f"tcp://127.0.0.1:{get_available_tcp_port()}", timeout_seconds=0.1)

    assert isinstance(dead, exceptions.ProcessorDiedError)
    assert isinstance(dead, exceptions.WorkerDiedError)
    assert isinstance(silent, exceptions.TaskExceptionNotSerializableError)
    assert isinstance(unread, exceptions.DeserializeObjectError)


# -- helpers ---------------------------------------------------------------------------------


def test_a_task_knows_that_it_is_one() -> None:
    """Processor.get_current_processor() returns a processor in tasks, and None elsewhere."""
    with SchedulerClusterCombo(1) as cluster, Client(cluster.get_address()) as client:
        assert client.submit(is_in_task).result(BOUND_S)
    assert not is_in_task()


def is_in_task() -> bool:
    return Processor.get_current_processor() is not None


def test_what_takes_time_is_logged(caplog) -> None:
    """A logger of durations logs the beginning, and the end with its time, also of a failure."""
    caplog.set_level(logging.INFO, logger="scaler")
    with pytest.raises(CancelledError), ScopedLogger("the one"):
        raise CancelledError
    timer = TimedLogger("the other", logging_level=logging.WARNING)
    timer.begin()
    timer.end()

    first, second, third, fourth = caplog.records
    assert (first.getMessage(), third.getMessage()) == ("beginning the one", "beginning the other")
    assert second.getMessage().startswith("completed the one in 0:00:0")
    assert fourth.getMessage().startswith("completed the other in 0:00:0")
    assert [record.levelname for record in caplog.records] == ["INFO"] * 2 + ["WARNING"] * 2


def test_a_graph_is_culled() -> None:
    """cull_graph() keeps what the keys need, as it was written."""
    graph = {"a": 1, "b": (abs, "a"), "c": (abs, "b"), "d": (max, "a", "b"), "e": abs, "f": "text"}

    assert cull_graph(graph, ["b"]) == {"a": 1, "b": (abs, "a")}
    assert list(cull_graph(graph, ["d", "e"])) == ["a", "b", "d", "e"]
    with pytest.raises(KeyError):
        cull_graph(graph, ["x"])

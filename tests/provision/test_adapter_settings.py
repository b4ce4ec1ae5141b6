"""Adapters have every flag, and every key of a file, that version 1.12 has for them."""

from __future__ import annotations

import json

import pytest

from scaler_cluster.config.load import load, read_file
from scaler_cluster.config.manager_types import settings_of_table

ADDRESS = "tcp://127.0.0.1:8516"
OF_WORKERS_1_12 = {
    "-pwc linux,gpu=1": ("per_worker_capabilities", {"linux": -1, "gpu": 1}),
    "-wtqs 7": ("per_worker_task_queue_size", 7),
    "--heartbeat-interval-seconds 3": ("heartbeat_interval_seconds", 3),
    "--task-timeout-seconds 4": ("task_timeout_seconds", 4),
    "--death-timeout-seconds 5": ("death_timeout_seconds", 5),
    "--garbage-collect-interval-seconds 6": ("garbage_collect_interval_seconds", 6),
    "--trim-memory-threshold-bytes 8": ("trim_memory_threshold_bytes", 8),
    "--hard-processor-suspend": ("hard_processor_suspend", True),
    "--event-loop uvloop": ("event_loop", "uvloop"),
    "--io-threads 2": ("io_threads", 2),
    "--object-storage-address tcp://127.0.0.1:1": (
        "object_storage_address",
        ("tcp://127.0.0.1:1",),
    ),
    "-ll DEBUG": ("logging_level", "DEBUG"),
    "-lp /dev/stderr": ("logging_paths", ("/dev/stderr",)),
    "-lc x.conf": ("logging_config_file", "x.conf"),
}
"""What adapters of version 1.12 have in common, as a command line and as a file have it."""
ADAPTERS_1_12 = {
    "native": {
        "--adapter-web-host 127.0.0.1": ("adapter_web_host", "127.0.0.1"),
        "--adapter-web-port 9": ("adapter_web_port", 9),
        "--max-workers -1": ("max_workers", -1),
        "--worker-task-queue-size 7": ("worker_task_queue_size", 7),
        "--heartbeat-interval 3": ("heartbeat_interval_seconds", 3),
        "-tt 4": ("task_timeout_seconds", 4),
        "-dt 5": ("death_timeout_seconds", 5),
    },
    "ecs": {
        "--adapter-web-host 127.0.0.1": ("adapter_web_host", "127.0.0.1"),
        "-p 9": ("adapter_web_port", 9),
        "--max-instances 3": ("max_instances", 3),
        "-mi -1": ("max_instances", -1),
        "--max-workers 3": ("max_workers", 3),
        "--per-worker-task-queue-size 7": ("per_worker_task_queue_size", 7),
        "--aws-access-key-id a --aws-secret-access-key b": ("aws_access_key_id", "a"),
        "--aws-region eu-central-1": ("aws_region", "eu-central-1"),
        "--ecs-cluster c": ("ecs_cluster", "c"),
        "--ecs-task-image i": ("ecs_task_image", "i"),
        "--ecs-python-requirements tomli;pandas": ("ecs_python_requirements", "tomli;pandas"),
        "--ecs-python-version 3.12.11": ("ecs_python_version", "3.12.11"),
        "--ecs-task-definition d": ("ecs_task_definition", "d"),
        "--ecs-task-cpu 2": ("ecs_task_cpu", 2),
        "--ecs-task-memory 8": ("ecs_task_memory", 8),
        "--ecs-subnets s,t": ("ecs_subnets", ("s", "t")),
    },
}
EACH = [
    (name, words, *of)
    for name, own in ADAPTERS_1_12.items()
    for words, of in (own | OF_WORKERS_1_12).items()
]


@pytest.mark.parametrize(("name", "words", "key", "value"), EACH)
def test_flags_and_keys_of_the_documents(tmp_path, name, words, key, value) -> None:
    """Both mean the same."""
    table = f"{name}_worker_adapter"
    kind = settings_of_table(table, {})
    assert kind is not None
    (option,) = [one for one in kind.options() if key in one.names]
    needed = {"ecs_subnets": "x"} if name == "ecs" else {}
    flags = [f"--ecs-subnets={one}" for one in needed.values()]
    by_flag = load(kind, table, "", [ADDRESS, *flags, *words.split()])
    assert getattr(by_flag, option.name) == value

    if "-secret-" in words:
        needed |= {"aws_secret_access_key": "b"}
    shown = "linux,gpu=1" if isinstance(value, dict) else value
    lines = {"scheduler_address": ADDRESS} | needed | {key: shown}
    file = tmp_path / "stack.toml"
    file.write_text(f"[{table}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in lines.items()))
    (read,) = read_file(str(file))
    assert read.make(kind) == by_flag

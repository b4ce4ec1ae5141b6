"""Worker adapters as programs for the Scaler system make them."""

from __future__ import annotations

import asyncio

import pytest

from scaler import Client, SchedulerClusterCombo
from scaler.worker_adapter.common import (
    CapacityExceededError,
    WorkerGroupNotFoundError,
    format_capabilities,
)
from scaler.worker_adapter.native import NativeWorkerAdapter


def test_groups_by_method() -> None:
    """A group is a worker of the cluster, from its start to its shutdown."""
    with SchedulerClusterCombo(n_workers=0, address="tcp://127.0.0.1:0") as cluster:
        adapter = NativeWorkerAdapter(
            cluster.get_address(), capabilities={"gpu": 1}, max_workers=1, logging_paths=()
        )
        group = asyncio.run(adapter.start_worker_group())
        try:
            with pytest.raises(CapacityExceededError):
                asyncio.run(adapter.start_worker_group())
            with Client(cluster.get_address()) as client:
                future = client.submit_verbose(round, (3.15,), {}, capabilities={"gpu": 1})
                assert future.result(30) == 3
        finally:
            asyncio.run(adapter.shutdown_worker_group(group))
        with pytest.raises(WorkerGroupNotFoundError):
            asyncio.run(adapter.shutdown_worker_group(group))


def test_capabilities_as_text() -> None:
    """As a command line has them."""
    assert format_capabilities({"linux": -1, "gpu": 2}) == "linux,gpu=2"

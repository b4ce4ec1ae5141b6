"""A worker that was written from the protocol's page alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scaler_exec import Client, SchedulerClusterCombo
from tests.runtime.helpers import BOUND_S

WORKER = Path(__file__).parents[2] / "examples" / "worker_from_scratch.py"


@pytest.mark.slow
def test_a_worker_from_scratch_runs_tasks() -> None:
    """A worker written from the protocol's page runs tasks, maps and large payloads."""
    with SchedulerClusterCombo(0, "tcp://127.0.0.1:0") as cluster:
        worker = subprocess.Popen([sys.executable, str(WORKER), cluster.get_address()])
        with worker, Client(cluster.get_address()) as client:
            assert client.submit(pow, 2, exp=10).result(BOUND_S) == 1024
            assert client.map(pow, range(1000), [2] * 1000) == [n * n for n in range(1000)]
            assert client.submit(len, b"x" * 50_000).result(BOUND_S) == 50_000
            assert len(client.submit(bytes, 50_000).result(BOUND_S)) == 50_000
            with pytest.raises(ZeroDivisionError):
                client.submit(divmod, 1, 0).result(BOUND_S)
            worker.terminate()

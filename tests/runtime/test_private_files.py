"""What a cluster makes is for its user alone, and what is not to unpickle cannot."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from scaler_exec import Client, SchedulerClusterCombo
from tests.runtime.helpers import BOUND_S, environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")


@pytest.fixture
def open_umask():
    """Let everything be for everybody that is not made otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others() -> list[str]:
    """Return what other users can reach of all that this test's processes have made."""
    found = []
    for place in (tempfile.gettempdir(), os.environ["SCALER_SHARED_MEMORY"]):
        for top in Path(place).glob("scaler-*"):
            inside = top.rglob("*") if stat.S_IMODE(top.stat().st_mode) & 0o077 else ()
            for path in (top, *inside, *(one for one in top.rglob("*") if one.is_socket())):
                if stat.S_IMODE(path.lstat().st_mode) & 0o077:
                    found.append(f"{path} {stat.filemode(path.lstat().st_mode)}")
    return found


@pytest.mark.parametrize("address", [None, "tcp://127.0.0.1:0"])
def test_other_users_reach_nothing(open_umask, address) -> None:
    """Sockets, objects and locks are their user's alone, whatever the umask is."""
    data = np.ones(1_000_000)
    with SchedulerClusterCombo(1, address) as cluster, Client(cluster) as client:
        assert client.submit(np.sum, data).result(BOUND_S) == data.sum()
        assert list(Path(tempfile.gettempdir()).glob("scaler-*"))
        assert open_to_others() == []


def test_a_socket_at_a_path_is_its_users_alone(open_umask, tmp_path) -> None:
    """Also one in a directory that others can enter."""
    path = tmp_path / "scheduler"
    with SchedulerClusterCombo(1, f"ipc://{path}") as cluster, Client(cluster) as client:
        assert client.submit(abs, -1).result(BOUND_S) == 1
        assert path.is_socket()
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077


@pytest.mark.parametrize(
    "module",
    [
        "scaler_cluster.runtime.scheduler",
        "scaler_cluster.runtime.storage",
        "scaler_cluster.runtime.storage_server",
        "scaler_monitoring.feed",
        "scaler_monitoring.model",
    ],
)
def test_what_must_not_unpickle_has_nothing_to_do_it_with(module) -> None:
    """Who forwards pickles imports neither cloudpickle nor what reads payloads."""
    program = (
        f"import sys, {module}; print([one for one in sys.modules if one.startswith("
        "('cloudpickle', 'scaler_cluster.pickling', 'scaler_cluster.client'))])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout == "[]\n"

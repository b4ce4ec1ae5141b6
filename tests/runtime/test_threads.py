"""How many threads numeric libraries start in workers."""

from __future__ import annotations

import os
import sys

import pytest

from scaler_cluster.runtime.thread_limits import AFTER_OPENMP, OPENMP, OTHERS, thread_limits
from scaler_exec import Client, ConfigError, ScalerExecutor, SchedulerClusterCombo
from tests.runtime.helpers import BOUND_S, free_port
from tests.runtime.shell import Shell

ALL = (OPENMP, *AFTER_OPENMP, *OTHERS)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    """Let this process have none of the variables."""
    for name in ALL:
        monkeypatch.delenv(name, raising=False)


def variables(*_: object) -> dict[str, str]:
    """Return those variables that this process has."""
    return {name: os.environ[name] for name in ALL if name in os.environ}


SEEN: dict[str, str] = {}


def look() -> None:
    """Remember what an initializer finds."""
    SEEN.update(variables(), numpy=str("numpy" in sys.modules))


def what_was_seen() -> dict[str, str]:
    """Return what the initializer found."""
    return SEEN


def test_workers_have_one_thread_each() -> None:
    """Workers, replaced ones too, limit numerical libraries to one thread before any import."""
    with ScalerExecutor(2, initializer=look, max_tasks_per_child=1) as executor:
        for _ in range(3):
            assert executor.submit(what_was_seen).result(BOUND_S) == dict.fromkeys(ALL, "1") | {
                "numpy": "False"
            }
    assert variables() == {}


def test_there_may_be_more() -> None:
    """An argument of the executor or the combo allows more threads."""
    with ScalerExecutor(1, threads_per_worker=3) as executor:
        assert executor.submit(variables).result(BOUND_S) == dict.fromkeys(ALL, "3")
    with (
        SchedulerClusterCombo(1, threads_per_worker=4) as combo,
        Client(combo.get_address()) as client,
    ):
        assert client.submit(variables).result(BOUND_S) == dict.fromkeys(ALL, "4")


def test_a_command_takes_it_too(tmp_path) -> None:
    """A flag of the cluster's command allows more threads."""
    shell = Shell(tmp_path)
    address = f"tcp://127.0.0.1:{free_port(3)}"
    shell.start(f"scaler_scheduler {address}")
    shell.start(f"scaler_cluster -n 1 --threads-per-worker 2 {address}")
    with Client(address) as client:
        assert client.submit(variables).result(BOUND_S) == dict.fromkeys(ALL, "2")
    shell.close()


def test_what_the_user_has_set_wins(monkeypatch) -> None:
    """A variable that the user has set wins, and so does OMP_NUM_THREADS for the others."""
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.setenv("NUMBA_NUM_THREADS", "6")
    with ScalerExecutor(1, threads_per_worker=2) as executor:
        assert executor.submit(variables).result(BOUND_S) == {
            "OMP_NUM_THREADS": "5",
            "NUMBA_NUM_THREADS": "6",
            "VECLIB_MAXIMUM_THREADS": "2",
            "POLARS_MAX_THREADS": "2",
        }


def test_one_variable_alone_is_left() -> None:
    """A single variable that the user has set is left, and the others are set."""
    limits = thread_limits({"MKL_NUM_THREADS": "7"}, 1)

    assert limits == {name: "1" for name in ALL if name != "MKL_NUM_THREADS"}


def test_it_belongs_to_an_embedded_cluster(executor) -> None:
    """The option of threads is refused for a cluster that is running already."""
    with pytest.raises(ConfigError, match="threads_per_worker"):
        ScalerExecutor(address=executor.address, threads_per_worker=2)
    with pytest.raises(ValueError, match="threads_per_worker"):
        ScalerExecutor(1, threads_per_worker=0)
    with pytest.raises(TypeError, match="threads_per_worker"):
        ScalerExecutor(1, threads_per_worker="all")  # type: ignore[arg-type]

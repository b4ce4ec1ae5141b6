"""A real Slurm: jobs come for tasks, are killed under load, and go when there is nothing to do."""

from __future__ import annotations

import signal

import psutil
import pytest

from scaler_exec import Client
from tests.provision.slurm import SlurmCluster
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, free_port, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Return a Slurm whose commands are those of this process."""
    (tmp_path / "slurm").mkdir()
    made = SlurmCluster(tmp_path / "slurm")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


def jobs(slurm) -> list[str]:
    """Return the numbers of the jobs that run."""
    return slurm.run("squeue", "-h", "-t", "R", "-o", "%i").split()


def test_jobs_are_units(slurm, shell, flags, tmp_path) -> None:
    """From no job to two, one of which is cancelled under load, and back to none.

    A manager that is killed finds its jobs again.
    """
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    shell.start(f"scaler_scheduler {address}")
    line = (
        f"scaler_worker_manager slurm {address} -wmi mine --max-workers 2 -his 0.2 -sdc 0.5 "
        f"--walltime 10 --log-directory {tmp_path}"
    )
    manager = shell.start(line)
    with Client(address) as client:
        futures = [client.submit(tasks.hold, flags.path(name), flags.path("go")) for name in "ab"]
        flags.wait("a")
        flags.wait("b")
        first, _ = jobs(slurm)
        assert "mine-" in slurm.run("squeue", "-h", "-o", "%j")

        slurm.run("scancel", first)
        wait_until(lambda: len({*jobs(slurm)} - {first}) == 2, "no job takes its place")
        manager.process.send_signal(signal.SIGKILL)
        assert manager.end() == -signal.SIGKILL
        manager = shell.start(line)
        manager.wait_for("manages up to 2 workers")
        flags.set("go")
        assert all(one.result(BOUND_S) for one in futures)
        wait_until(lambda: not jobs(slurm), "jobs that have nothing to do do not end")
        assert sum(client.map(abs, range(-100, 0))) == 5050
    assert manager.interrupt() == 0
    wait_until(lambda: not jobs(slurm), "jobs are left")
    left = [one.info for one in psutil.process_iter(["cmdline"])]
    assert "--unit=mine-" not in str(left)

"""Jobs of a real Grid Engine as units."""

from __future__ import annotations

import signal
import subprocess
from xml.etree import ElementTree as ET

import pytest

from scaler_cluster.config.job_queue_settings import SGESettings
from scaler_cluster.provision.backend import BackendError
from scaler_cluster.provision.job_queues import JobQueueBackend
from scaler_cluster.provision.unit_command import UnitCommand
from scaler_exec import Client
from tests.provision.grid_engine import GridEngine
from tests.provision.sshd import make_python
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, free_port, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Return a Grid Engine whose commands are those of this process."""
    (tmp_path / "engine").mkdir()
    made = GridEngine(tmp_path / "engine")
    monkeypatch.setenv("PATH", str(made.path), prepend=":")
    yield made
    made.close()


def jobs(*states: str) -> list[str]:
    """Return the numbers of the jobs that run, or are in one of these states."""
    # The second one is that of jobs whose machine has not said yet that they run.
    wanted = states or ("r", "t")
    listed = subprocess.run(["qstat", "-xml"], capture_output=True, check=True).stdout
    found = ET.fromstring(listed).iter("job_list")
    return [str(one.findtext("JB_job_number")) for one in found if one.findtext("state") in wanted]


def test_jobs_are_units(engine, shell, flags, tmp_path) -> None:
    """From no job to two, one of which is deleted under load, and back to none.

    The one that is deleted ends in order, before it is killed. A manager that is killed finds its
    jobs again.
    """
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    scheduler = shell.start(f"scaler_scheduler {address}")
    line = (
        f"scaler_worker_manager sge {address} -wmi mine --max-workers 4 --workers-per-unit 2 "
        f"-his 0.2 -sdc 0.5 --walltime 10 --log-directory {tmp_path} "
        f"--python {make_python(tmp_path)}"
    )
    manager = shell.start(line)
    with Client(address) as client:
        names = "abcd"
        futures = [client.submit(tasks.hold, flags.path(one), flags.path("go")) for one in names]
        for one in names:
            flags.wait(one)
        first, _ = jobs()

        engine.run("qdel", first)
        wait_until(lambda: len({*jobs()} - {first}) == 2, "no job takes its place")
        assert "lost cluster" not in scheduler.out
        manager.process.send_signal(signal.SIGKILL)
        assert manager.end() == -signal.SIGKILL
        manager = shell.start(line)
        manager.wait_for("manages up to 4 workers")
        flags.set("go")
        assert all(one.result(BOUND_S) for one in futures)
        wait_until(lambda: not jobs(), "jobs that have nothing to do do not end")
        assert sum(client.map(abs, range(-100, 0))) == 5050
    assert manager.interrupt() == 0
    wait_until(lambda: not engine.run("qstat"), lambda: engine.run("qstat"))


def test_a_job_that_cannot_run_is_deleted(engine, tmp_path) -> None:
    """Grid Engine would keep it in its list for ever; one that it refuses says why."""
    made = SGESettings.of(scheduler_address="tcp://127.0.0.1:1", log_directory=str(tmp_path / "a"))
    queue = JobQueueBackend(made, UnitCommand(made, "mine"))
    (tmp_path / "a").rmdir()
    queue.start(["mine-1"])
    wait_until(lambda: jobs("Eqw"), "the job does not fail")
    assert queue.look()["mine-1"].is_over
    wait_until(lambda: not queue.look(), "the job is left")
    with pytest.raises(BackendError, match="cannot start with a digit"):
        queue.start(["1"])

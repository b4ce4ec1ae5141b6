"""A minute of the soak: everything at once, and each answer is checked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.soak.allowed import AT_MOST_ONCE, LARGE, Failure, excuse
from benchmarks.soak.faults import KILL_SCHEDULER, KILL_WORKER, STOP_WORKER, Injected
from benchmarks.soak.vitals import MEMORY, Trend
from tests.conftest import ROOT
from tests.runtime.helpers import environment
from tests.runtime.machines import can_make_machines


@pytest.mark.system
@pytest.mark.skipif(not can_make_machines(), reason="making network namespaces needs root")
@pytest.mark.timeout(400)
def test_a_minute_of_everything() -> None:
    """Each future resolves once, as it should, while parts of three machines are killed and cut."""
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "1", "--seed", "1", "--calm"]

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=390,
        env=environment(),
        cwd=ROOT,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: each future resolved once" in done.stdout


def failure(error: str, *traits: str, pid: int = 0) -> Failure:
    """Return a failure between second 10 and 20."""
    return Failure(error, "", "tasks", list(traits), 10.0, 20.0, pid)


def test_the_death_of_a_worker_is_allowed_to_its_task_alone() -> None:
    """A killed worker excuses WorkerDiedError of that process, at that time, and nothing else."""
    injected = [Injected(KILL_WORKER, "pid 7", 15.0, 15.0)]

    assert excuse(failure("WorkerDiedError", pid=7), injected) == KILL_WORKER
    assert not excuse(failure("WorkerDiedError", pid=8), injected)
    assert not excuse(failure("MissingObjectsError", LARGE), injected)
    assert not excuse(failure("WorkerDiedError", pid=7), [Injected(KILL_WORKER, "pid 7", 1.0, 1.0)])
    assert not excuse(failure("WorkerDiedError", pid=7), [Injected(STOP_WORKER, "pid 7", 15.0)])


def test_an_error_is_allowed_to_tasks_of_its_traits_alone() -> None:
    """Only what may not run again is lost with its scheduler."""
    injected = [Injected(KILL_SCHEDULER, "scheduler", 15.0, 16.0)]

    assert excuse(failure("TaskLostError", AT_MOST_ONCE), injected) == KILL_SCHEDULER
    assert not excuse(failure("TaskLostError", LARGE), injected)


def test_what_grows_is_not_flat() -> None:
    """A quarter more, and some room, is flat; more than that is not."""
    assert Trend("worker", MEMORY, 100.0, 150.0, 150.0).is_flat
    assert not Trend("worker", MEMORY, 100.0, 160.0, 160.0).is_flat

"""Workers that are really stopped, or hang: they are replaced, and what they had goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scaler_cluster.runtime.stuck import is_stopped
from scaler_exec import Client, SchedulerClusterCombo, WorkerDiedError
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_gone, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who is stopped")


@pytest.fixture
def make_cluster(tmp_path):
    """Return what makes a cluster of so many workers, with its log in a file."""
    ends = []

    def make(workers, **settings):
        log = tmp_path / "log"
        cluster = SchedulerClusterCombo(workers, logging_paths=[str(log)], **settings)
        ends.append(cluster.shutdown)
        client = Client(cluster)
        ends.append(client.disconnect)
        return client, log

    yield make
    for end in reversed(ends):
        end()


def test_a_stopped_worker_is_replaced(make_cluster, flags) -> None:
    """A stopped worker's task fails with the cause; what was queued behind it runs elsewhere."""
    client, log = make_cluster(2, stopped_timeout_seconds=1)
    held = client.submit(tasks.hold, flags.path("held"), flags.path("go"))
    pid = flags.wait("held")
    os.kill(pid, signal.SIGSTOP)
    futures = [client.submit(tasks.square, n) for n in range(200)]

    assert [future.result(BOUND_S) for future in futures] == [n * n for n in range(200)]
    error = held.exception(BOUND_S)
    assert isinstance(error, WorkerDiedError)
    assert "its process was stopped (SIGSTOP) for " in str(error)
    assert error.death.pid == pid
    wait_gone(pid)
    lines = log.read_text().splitlines()
    assert sum(f"Worker (pid {pid}) has been stopped (SIGSTOP) for" in one for one in lines) == 1
    assert sum(f"worker (pid {pid} on " in one and "is stopped" in one for one in lines) == 1


def test_a_stopped_worker_may_go_on(make_cluster, flags) -> None:
    """Where nobody is to be replaced, a stopped worker's task comes back once it goes on."""
    client, log = make_cluster(1, stopped_timeout_seconds=0)
    held = client.submit(tasks.hold, flags.path("held"), flags.path("go"))
    pid = flags.wait("held")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: "nothing ends it" in log.read_text(), "it is not reported")
        flags.set("go")
    finally:
        os.kill(pid, signal.SIGCONT)

    assert held.result(BOUND_S) == pid


def run_child(path: str) -> int:
    """Do nothing but wait for a process that works."""
    work = f"import time, pathlib; p = pathlib.Path({path!r})\nwhile not p.exists(): time.time()"
    return subprocess.run([sys.executable, "-c", work], check=False).returncode


def wait_for_ever() -> None:
    while True:
        signal.pause()


def spin(path: str) -> bool:
    while not Path(path).exists():
        time.time()
    return True


@pytest.mark.slow
def test_a_task_that_hangs_is_ended(make_cluster, flags) -> None:
    """A task that uses no CPU time is ended with its worker; one whose child works goes on."""
    client, log = make_cluster(2, hang_timeout_seconds=3)
    works = client.submit(run_child, flags.path("go"))
    hangs = client.submit(wait_for_ever)

    error = hangs.exception(BOUND_S)
    assert isinstance(error, WorkerDiedError)
    assert "its task used no CPU time for " in str(error)
    assert "has a task that does nothing for" in log.read_text()
    # The other worker was looked at as often.
    assert client.submit(spin, __file__).result(BOUND_S)
    assert not works.done()
    flags.set("go")
    assert works.result(BOUND_S) == 0


def test_what_stopped_means(tmp_path) -> None:
    """A process is stopped between SIGSTOP and SIGCONT, whatever it is called; not one that is gone."""
    program = tmp_path / "a) T b"
    program.symlink_to(shutil.which("sleep") or "/bin/sleep")
    process = subprocess.Popen([str(program), "60"])
    try:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(process.pid), "it is not seen")
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: not is_stopped(process.pid), "it is not seen to go on")
    finally:
        process.kill()
        process.wait()
    assert not is_stopped(process.pid)

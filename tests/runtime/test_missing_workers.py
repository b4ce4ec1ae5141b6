"""When there is no worker, or none any more: who notices, how soon, and who is told."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import psutil
import pytest

from scaler_exec import Client, ScalerExecutor
from tests.runtime.helpers import BOUND_S, free_port, wait_gone, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

OF_ANOTHER_PYTHON = (
    'python3 -c \'import scaler_cluster.runtime.machine as s; s.PYTHON_VERSION = "2.7";'
    "from scaler_cluster.cli.cluster import main;"
    'raise SystemExit(main(["-n", "1", "{address}"]))\''
)


@pytest.fixture
def address():
    """Return an address at which nobody listens, nor at those around it."""
    return f"tcp://127.0.0.1:{free_port(4) + 1}"


@pytest.fixture
def scheduler(shell, address):
    """Return a scheduler without workers."""
    command = shell.start(f"scaler_scheduler {address}")
    command.wait_for("monitor address")
    return command


# -- clusters that die ---------------------------------------------------------------------------


def held_by(directory: str) -> int:
    """Return this process's id, unless that is the one in the file ``hold``: then never."""
    import time
    from pathlib import Path

    Path(directory, "begun").touch()
    while Path(directory, "hold").read_text() == str(os.getpid()):
        time.sleep(0.01)
    return os.getpid()


@pytest.mark.parametrize("is_all", [False, True])
def test_a_cluster_that_is_killed_is_noticed_at_once(shell, address, scheduler, is_all) -> None:
    """Tasks of a killed cluster run elsewhere at once, whichever of its processes died."""
    first = shell.start(f"scaler_cluster -n 1 {address}")
    with Client(address) as client:
        pid = client.submit(os.getpid).result(BOUND_S)
        shell.write("hold", str(pid))
        future = client.submit(held_by, str(shell.directory))
        wait_until((shell.directory / "begun").exists, "the task does not start")
        second = shell.start(f"scaler_cluster -n 1 {address}")
        scheduler.wait_for(f"pid {second.pid} ")
        below = psutil.Process(first.pid).children(recursive=True) if is_all else []
        # The first one first: it would say how the others died.
        for process in (psutil.Process(first.pid), *below):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

        assert future.result(BOUND_S) != pid
        wait_gone(pid)
    line = f"lost cluster of 1 worker (pid {first.pid} on "
    assert line in scheduler.out
    assert "): its process has ended" in scheduler.out


# -- what the scheduler logs -----------------------------------------------------------------------


def test_a_scheduler_says_who_comes_and_goes(shell, address, scheduler) -> None:
    """A scheduler logs one line for each client and cluster that comes or goes."""
    cluster = shell.start(f"scaler_cluster -n 2 {address}")
    scheduler.wait_for(f"cluster of 2 workers (pid {cluster.pid} on ")
    with Client(address) as client:
        assert sum(client.map(abs, range(1000))) == 499_500
    scheduler.wait_for(f"client 1 (pid {os.getpid()} on ")
    assert cluster.interrupt() == 0
    refused = shell.run(OF_ANOTHER_PYTHON.format(address=address))
    assert refused.process.returncode == 1
    assert "supervisor" not in refused.err.lower()
    scheduler.wait_for("refused a cluster")

    told = [line for line in scheduler.out.splitlines() if "pid" in line]
    ends = ["came", "came", "left", "left", "same Python on both sides."]
    assert [line.endswith(end) for line, end in zip(told, ends, strict=True)] == [True] * 5


# -- who waits is told -----------------------------------------------------------------------------


def test_who_waits_is_told_that_there_is_no_worker(shell, address, scheduler, caplog) -> None:
    """A waiting client is warned that no worker is there, and of a refused cluster."""
    with Client(address) as client:
        future = client.submit(os.getpid)
        wait_until(lambda: "Tasks wait for a worker: there is none." in caplog.text, "no warning")
        shell.run(OF_ANOTHER_PYTHON.format(address=address))
        wait_until(lambda: "was refused: The cluster runs Python 2.7" in caplog.text, "no reason")
        assert not future.done()
        assert len(caplog.records) == 2

        monitor = scheduler.address("monitor address ")
        shown = shell.run(f"scaler_top --once {monitor}").out
        assert "1 task is ready and no worker is connected" in shown
        assert "was refused: The cluster runs Python 2.7" in shown

        shell.start(f"scaler_cluster -n 1 {address}")
        assert future.result(BOUND_S)
    assert len(caplog.records) == 2


class Bar:
    """A bar that can say something, as those of tqdm."""

    def __init__(self) -> None:
        self.total = None
        self.said: list[str] = []
        self.count = 0

    def update(self, n: float = 1) -> None:
        self.count += int(n)

    def refresh(self) -> None:
        """Nobody sees it."""

    def close(self) -> None:
        """Nobody sees it."""

    def set_postfix_str(self, text: str) -> None:
        self.said.append(text)
        if text:
            self.on_reason()
        else:
            self.on_none()

    on_reason: Callable[[], object]
    on_none: Callable[[], object]


@pytest.mark.parametrize("kind", ["progress", "map"])
def test_a_bar_says_why_nothing_comes_back(shell, address, scheduler, flags, kind) -> None:
    """A progress bar says that there is no worker, as long as there is none."""
    bar = Bar()
    bar.on_reason = lambda: shell.start(f"scaler_cluster -n 1 {address}")
    bar.on_none = lambda: flags.set("said")
    said = flags.path("said")
    if kind == "progress":
        with Client(address) as client:
            client.progress([client.submit(held_until, said) for _ in range(30)], bar)
    else:
        with ScalerExecutor(address=address) as executor:
            assert len(list(executor.map(held_until, [said] * 30, progress=bar))) == 30

    assert bar.count == 30
    assert bar.said[0] == "Tasks wait for a worker: there is none."
    assert bar.said[1:] == [""]


def held_until(path: str) -> None:
    """Wait until the bar has said that tasks run, which is this one."""
    import time

    while not os.path.exists(path):
        time.sleep(0.01)

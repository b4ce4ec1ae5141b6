"""What the tests of units at the end of a channel share: who runs, and a day of a cluster."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from scaler_cluster.provision.guest_unit import ATTACHED
from scaler_exec import Client
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

PROVISION = "scaler_cluster.provision"
MARK = "SCALER_TEST_SESSION"


def running(module: str) -> list[psutil.Process]:
    """Return the processes that run a module: those of this session, not of others here."""
    found = []
    for one in psutil.process_iter():
        # It may have ended meanwhile.
        with contextlib.suppress(psutil.Error):
            if module not in one.cmdline() or one.environ().get(MARK) != os.environ[MARK]:
                continue
            above = one.parent()
            # Its fork server and its workers have its command line.
            if above is None or module not in above.cmdline():
                found.append(one)
    return found


def supervisors() -> list[psutil.Process]:
    """Return the units that run."""
    return running(ATTACHED)


def host_of(worker: int) -> psutil.Process:
    """Return the process of the other cluster whose child the unit of a worker is."""
    (supervisor,) = [one for one in supervisors() if one in psutil.Process(worker).parents()]
    host = supervisor.parent()
    assert host is not None
    return host


def play(shell, flags, line: str, grow: Callable[[], object]) -> None:
    """Let a manager work in a cluster that has room for two workers, and for a third by ``grow``.

    Units come from none; one that has no room waits for it; the process that has a unit is killed
    under load; the manager is killed, and its successor has its units; nothing is lost or left.
    """
    keys = os.environ["SCALER_KEYS"]
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    shell.start(f"scaler_scheduler --keys {keys} {address}")
    line = (
        f"scaler_worker_manager {line} {address} -wmi mine --keys {keys} --max-workers 3 "
        "-his 0.2 -sdc 0.5"
    )
    manager = shell.start(line)
    with Client(address, keys=f"{keys}/client.key") as client:
        futures = [client.submit(tasks.hold, flags.path(name), flags.path("go")) for name in "ab"]
        pid = flags.wait("a")
        flags.wait("b")
        secret = Path(f"{keys}/worker.key").read_text().split()[3]
        assert secret not in str([one.info for one in psutil.process_iter(["cmdline"])])

        futures.append(client.submit(tasks.hold, flags.path("c"), flags.path("go")))
        grow()
        flags.wait("c")
        host = host_of(pid)
        lost = [one for one in supervisors() if one.ppid() == host.pid]
        host.kill()
        wait_until(lambda: not {*lost} & {*supervisors()}, "units outlive what they ran in")
        flags.set("go")
        assert all(one.result(BOUND_S) for one in futures)
        wait_until(lambda: not supervisors(), "units that have nothing to do do not end")
        assert sum(client.map(abs, range(-200, 0))) == 20100

        future = client.submit(tasks.hold, flags.path("d"), flags.path("on"))
        pid = flags.wait("d")
        manager.process.send_signal(signal.SIGKILL)
        assert manager.end() == -signal.SIGKILL
        manager = shell.start(line)
        manager.wait_for("manages up to 3 workers")
        flags.set("on")
        assert future.result(BOUND_S) == pid, "it runs where it ran"
        wait_until(lambda: not supervisors(), "the next manager does not have its units")
        client.submit(abs, 1).result(BOUND_S)
    assert manager.interrupt() == 0
    assert not supervisors(), "units are left"
    children = [one for name in ("dask", "ray") for one in running(f"{PROVISION}.{name}_cluster")]
    assert not children, "children of managers are left"

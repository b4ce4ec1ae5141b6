"""However many workers are on their way: nobody outlives whoever started it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.runtime.helpers import find_process, run_program, wait_gone, wait_until

if TYPE_CHECKING:
    import psutil

MANY = 1500
"""Workers whose start takes far longer than a test waits, and whose orders would fill a socket."""
START_MANY = f"""
import os, time
from scaler_exec import ScalerExecutor

ex = ScalerExecutor({MANY})
"""


def supervisor_of(program) -> psutil.Process | None:
    """Return the supervisor of a program's only cluster; None: there is none yet."""
    return find_process("supervisor", program.pid)


def started(program, count):
    """Wait until so many workers were started; return supervisor, fork server and workers."""

    def look():
        supervisor = supervisor_of(program)
        servers = supervisor.children() if supervisor is not None else []
        workers = servers[0].children() if servers else []
        return (supervisor, servers[0], workers) if len(workers) >= count else None

    wait_until(lambda: look() is not None, "no workers are started")
    return look()


def test_a_client_that_ends_at_once_leaves_nothing() -> None:
    """A client that ends while most workers are not even ordered leaves nothing."""
    # What is left behind, the fixture of all tests finds.
    done = run_program(START_MANY + "os._exit(0)")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_client_that_is_killed_amid_the_start_of_many(start_program, count) -> None:
    """Supervisor, fork server and workers end with a client that is killed amid their start."""
    program = start_program(START_MANY + "time.sleep(1000)")
    supervisor, server, workers = started(program, count)

    os.kill(program.pid, signal.SIGKILL)

    assert program.end() == (-signal.SIGKILL, "", "")
    wait_gone(supervisor.pid, server.pid, *(worker.pid for worker in workers))


@pytest.mark.parametrize("victim", [0, 1])
def test_who_is_killed_amid_the_start_of_many_takes_the_others_along(start_program, victim) -> None:
    """No worker outlives a supervisor or fork server that is killed amid their start.

    Another supervisor takes the place of a killed one.
    """
    program = start_program(
        START_MANY + "print('waits', flush=True)\n"
        "try:\n    ex.submit(time.sleep, 1000).result()\n"
        "except Exception as error:\n    print(type(error).__name__)"
    )
    assert program.line() == "waits"
    *others, workers = started(program, 3)

    others[victim].kill()

    wait_gone(*(one.pid for one in others), *(worker.pid for worker in workers))
    if victim:
        assert program.end()[:2] == (0, "ClusterBrokenError\n")
    else:
        started(program, 3)
        os.kill(program.pid, signal.SIGKILL)
        program.end()


def test_a_supervisor_ends_though_its_fork_server_is_stopped(start_program) -> None:
    """A supervisor kills a stopped fork server after a while, and ends."""
    program = start_program(
        "import time\nfrom scaler_exec import ScalerExecutor\n"
        "ex = ScalerExecutor(1)\ntime.sleep(1000)"
    )
    supervisor, server, (worker,) = started(program, 1)
    server.suspend()

    os.kill(program.pid, signal.SIGKILL)

    program.end()
    wait_gone(supervisor.pid, server.pid, worker.pid)

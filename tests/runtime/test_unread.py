"""A program that is stopped amid large results: the scheduler's memory stays bounded."""

from __future__ import annotations

import os
import shlex
import signal
import sys

import psutil
import pytest

from scaler_exec import ScalerExecutor
from tests.runtime.helpers import free_port, plant, wait_until

pytestmark = pytest.mark.slow

UNREAD = 16 << 20
TASKS, BYTES = 2000, 60_000
CUSTOMIZE = f"""
import sys
if "scaler_cluster.runtime.scheduler" in sys.orig_argv:
    from scaler_cluster.runtime import scheduler_shell
    scheduler_shell.UNREAD_BYTES_MAX = {UNREAD}
"""
"""In ``sitecustomize.py``: the scheduler is a process that the command starts."""
PROGRAM = f"""
import sys
from scaler_exec import ScalerExecutor

def large(number):
    return number.to_bytes(4, "big") * {BYTES // 4}

with ScalerExecutor(address=sys.argv[1]) as executor:
    futures = [executor.submit(large, number) for number in range({TASKS})]
    for number, future in enumerate(futures):
        assert future.result() == large(number), number
        if not number:
            print("begun", flush=True)
print("right", flush=True)
"""


def test_a_stopped_program_gets_all_its_results_later(shell, tmp_path, monkeypatch) -> None:
    """While a program is stopped, its results do not fill the scheduler, and others go on."""
    plant(tmp_path, CUSTOMIZE)
    monkeypatch.syspath_prepend(tmp_path)
    address = f"tcp://127.0.0.1:{free_port(3)}"
    scheduler = shell.start(f"scaler_scheduler {address}")
    shell.start(f"scaler_cluster -n 1 {address}")
    with ScalerExecutor(address=address) as other:
        assert other.submit(pow, 2, 3).result() == 8
        (process,) = psutil.Process(scheduler.pid).children()
        before = process.memory_info().rss
        program = shell.start(f"{sys.executable} -c {shlex.quote(PROGRAM)} {address}")
        program.wait_for("begun")
        os.kill(program.pid, signal.SIGSTOP)
        try:
            text = "does not read its results, its tasks wait until it does"
            wait_until(lambda: text in scheduler.out, lambda: f"no such line: {scheduler.out}")
            # Tasks of others find a free worker: what it had of the stopped program has ended.
            assert other.submit(pow, 2, 5).result() == 32
            assert process.memory_info().rss - before < TASKS * BYTES / 2
        finally:
            os.kill(program.pid, signal.SIGCONT)
        program.wait_for("right")
        assert program.end() == 0
    assert "reads its results again" in scheduler.out

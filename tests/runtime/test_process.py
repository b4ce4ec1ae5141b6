"""Signals end a process that nobody else started."""

from __future__ import annotations

import signal
import subprocess
import sys

from scaler_cluster.process import child
from tests.runtime.helpers import BOUND_S, environment

STUCK = """
import ctypes, os, select, signal, threading, time
import psutil
from scaler_cluster.process.process import lifeline_of_signals

lifeline = lifeline_of_signals()

def watch():
    while not psutil.Process().children():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGTERM)
    print(bool(select.select([lifeline], [], [], 20)[0]), flush=True)
    os._exit(0)

threading.Thread(target=watch).start()
# Not interrupted by signals, and no place for their handlers to run.
ctypes.CDLL(None).system(b"read line")
"""


def test_a_signal_is_seen_before_its_handler_runs() -> None:
    """A signal wakes a wait that begins before the signal's handler could run."""
    with subprocess.Popen(
        [sys.executable, "-c", STUCK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"


def test_a_child_that_is_killed_at_once_is_a_dead_child(monkeypatch) -> None:
    """It may die before it has read what it is told: whoever looks after it sees how."""

    def write_too_late(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(child, "write_config", write_too_late)
    one = child.ChildProcess("supervisor", None)
    one.process.kill()

    assert one.process.wait(BOUND_S) == -signal.SIGKILL
    one.stop(0.0)

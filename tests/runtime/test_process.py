"""Signals end a process that nobody else started."""

from __future__ import annotations

import subprocess
import sys

from tests.runtime.helpers import environment

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

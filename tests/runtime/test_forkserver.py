"""The process that forks workers."""

from __future__ import annotations

import subprocess
import sys

from tests.runtime.helpers import BOUND_S, environment

LAST_WORDS = """
import os, pickle, sys
from scaler_cluster.runtime import forkserver

has_written, wrote = os.pipe()

def work(order):
    os.write(2, b"last words of %d" % order.slot)
    os.write(wrote, b"x")
    return 0

pid, channel = forkserver.start(work, {}, [wrote])
for slot in range(2):
    channel.send(pickle.dumps(forkserver.WorkerOrder(slot, b"W", None, 2)))
    os.read(has_written, 1)
for fd in forkserver.end(pid, channel):
    print(os.read(fd, 100).decode())
"""


def test_a_supervisor_that_ends_has_the_stderr_of_workers_it_knows_nothing_of() -> None:
    """A busy supervisor may be told to end before it reads that workers run, which ran tasks."""
    done = subprocess.run(
        [sys.executable, "-c", LAST_WORDS],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        env=environment(),
        check=False,
    )

    assert (done.stdout, done.stderr) == ("last words of 0\nlast words of 1\n", "")

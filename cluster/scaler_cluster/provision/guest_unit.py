"""A unit that is the guest of another cluster: a child of a process there.

This part runs there: in a worker of Dask, or in an actor of Ray. The child has a pipe of that
process as its standard input, and ends when that does. So nothing outlives the worker or the actor.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

ATTACHED = "scaler_cluster.cli.attached"
"""What runs: ``scaler_cluster`` with its standard input as its lifeline, and with keys from it."""
END_S = 10.0
"""A unit that has not ended this long after it was let go is killed."""
KEPT_S = 20.0
"""So long after its end it is still told how a unit has ended, if a manager asks for it."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that Dask and Ray set for what runs in their own processes."""


@dataclass(frozen=True)
class Order:
    """What a unit is told. Its repr, which another system may log, has no keys."""

    manager_id: str
    workers: int
    arguments: tuple[str, ...]
    keys: str = field(repr=False)


def brief(process: subprocess.Popen[bytes], keys: str, tunnel: str = "") -> None:
    """Tell ATTACHED its keys and its way to the scheduler; it may have ended already."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        for text in keys.encode(), tunnel.encode():
            process.stdin.write(b"%d\n" % len(text) + text)
        process.stdin.flush()


class GuestUnit:
    """A unit, as a child of this process. Its methods may be called from several threads."""

    def __init__(self, order: Order) -> None:
        self.order = order
        # It has --threads-per-worker.
        kept = {name: value for name, value in os.environ.items() if name not in THREADS}
        self._process = subprocess.Popen(
            [sys.executable, "-m", ATTACHED, *order.arguments],
            stdin=subprocess.PIPE,
            env=kept,
            start_new_session=True,
        )
        brief(self._process, order.keys)

    def status(self) -> int | None:
        """Return the status with which it has ended; None: it has not."""
        return self._process.poll()

    def let_go(self) -> None:
        """Let it end: its tasks are told, and its workers."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """Let it end, and wait for that; kill it if it does not."""
        self.let_go()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait()


class UnitActor:
    """A unit as an actor of Ray, which ends soon after the unit, also if nobody asks for that."""

    def __init__(self, order: Order) -> None:
        self._unit = GuestUnit(order)
        threading.Thread(target=self._follow, daemon=True).start()

    def status(self) -> int | None:
        """Return the status with which the unit has ended; None: it has not."""
        return self._unit.status()

    def end(self) -> None:
        """End the unit."""
        self._unit.end()

    def _follow(self) -> None:
        self._unit.wait()
        time.sleep(KEPT_S)
        os._exit(0)

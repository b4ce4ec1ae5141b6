"""A scheduler that a command keeps: it runs as a child, and is started again if it is killed."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.errors import ClusterUnreachableError, ScalerError
from scaler_cluster.process.child import ChildProcess
from scaler_cluster.process.keeper import LOOK_S, START_TIMEOUT_S, Restarts

if TYPE_CHECKING:
    from scaler_cluster.process.process import Ready
    from scaler_cluster.process.process_config import SchedulerProcessConfig

GRACE_S = 10.0
"""A scheduler that has not ended by itself after this is killed."""


class KeptScheduler:
    """Looks after a scheduler, whose directories outlive it, from :meth:`start` to :meth:`stop`.

    If this process is killed, so is the scheduler: clients then wait for another one.
    """

    name = "scheduler"
    ready: Ready
    """What the last one said that started."""

    def __init__(self, config: SchedulerProcessConfig) -> None:
        self._config = replace(config, is_kept=True)
        self._child: ChildProcess | None = None
        self._restarts = Restarts()
        self._death = ""
        """How one ended whose successor has not started; empty: none."""
        self._died_at = 0.0

    def start(self) -> None:
        """Start it; :meth:`stop` is needed whether that succeeds or not.

        Raises ConfigError if it cannot start, ClusterUnreachableError if it ends without a reason.
        """
        self._start(self._config)
        self._config = replace(self._config.of_next(self.ready), is_kept=True)
        self._config.dirs.hold()

    @property
    def look_after_s(self) -> float | None:
        """In how many seconds :meth:`poll` is due at the latest; None: when a child ends."""
        return LOOK_S if self._death else None

    def poll(self) -> int | None:
        """Start it again if it was killed; return how it ended, if it is to stay dead.

        Raises ClusterUnreachableError if no other one could be started for too long.
        """
        assert self._child is not None
        code = self._child.poll()
        if code is None:
            return None
        now = time.monotonic()
        if not self._death:
            if code >= 0 or not self._restarts.may_start(now):
                return code
            self._death = f"the scheduler's process {self._child.pid} ended with code {code}"
            self._died_at = now
        try:
            self._start(replace(self._config, follows=self._death))
        except (ScalerError, OSError) as error:
            # Its sockets, or a storage server, may not be free yet.
            if now > self._died_at + START_TIMEOUT_S:
                reason = f"{self._death}, and no other one can be started: {error}"
                raise ClusterUnreachableError(reason) from error
        else:
            self._death = ""
        return None

    def stop(self, timeout_s: float = GRACE_S) -> None:
        """End it in order and wait for its end; idempotent."""
        self._config.dirs.release()
        if self._child is not None:
            process = self._child.process
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
            self._child.stop(0.0)
        self._config.dirs.remove()

    def _start(self, config: SchedulerProcessConfig) -> None:
        self._child = ChildProcess("scheduler", config, reports=True)
        try:
            self.ready = self._child.await_ready()
        except BaseException:
            # It may have listened already, so its successor could not.
            self._child.stop(GRACE_S)
            raise

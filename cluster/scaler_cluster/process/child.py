"""A process of the engine, as the child of this one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.process.process import READY_FD_VARIABLE, Ready, need_linux, write_config

if TYPE_CHECKING:
    from collections.abc import Sequence

START_TIMEOUT_S = 30.0
"""A process that is not ready after this never will be, even on a loaded machine."""
STOP_TIMEOUT_S = 5.0
"""A child that has not ended by itself after this is killed."""
ELSEWHERE = MappingProxyType(
    {
        "dashboard": "scaler_monitoring.dashboard.process",
        "dask": "scaler_cluster.provision.dask_cluster",
        "ray": "scaler_cluster.provision.ray_cluster",
        "report": "scaler_monitoring.report_process",
    }
)
"""Modules of the processes that are not in ``scaler_cluster.runtime``, by their names."""


class ChildProcess:
    """A process of the engine; it ends when this process does, which holds its standard input.

    ``config`` is the record of ``process_config.py`` for a process of this ``name``. If the child
    ``reports``, :meth:`await_ready` returns what it says; if it ``answers``, its standard output is
    a pipe to here. It inherits the descriptors ``pass_fds``, by the same numbers.
    """

    def __init__(
        self,
        name: str,
        config: object,
        *,
        reports: bool = False,
        answers: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> None:
        need_linux()
        self.name = name
        environment = dict(os.environ)
        package_root = str(Path(__file__).parents[2])
        paths = [package_root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self._ready = -1
        fds: tuple[int, ...] = ()
        if reports:
            self._ready, ready_write = os.pipe()
            fds = (ready_write,)
            environment[READY_FD_VARIABLE] = str(ready_write)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", ELSEWHERE.get(name, f"scaler_cluster.runtime.{name}")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if answers else None,
                env=environment,
                pass_fds=[*fds, *pass_fds],
                start_new_session=True,
            )
        finally:
            for fd in fds:
                os.close(fd)
        self.pid = self.process.pid
        assert self.process.stdin is not None
        # One that is killed before it has read this has died as any other.
        with contextlib.suppress(BrokenPipeError):
            write_config(self.process.stdin, config)

    def await_ready(self) -> Ready:
        """Return what the child says once it is ready.

        Raises ConfigError if it says why it cannot work, ClusterUnreachableError if it ends or
        says nothing.
        """
        line = b""
        deadline = time.monotonic() + START_TIMEOUT_S
        with os.fdopen(self._ready, "rb", buffering=0) as stream:
            while not line.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([stream], [], [], left)[0]:
                    raise ClusterUnreachableError(f"the {self.name} process did not start in time")
                part = stream.read(4096)
                if not part:
                    raise ClusterUnreachableError(f"the {self.name} process ended while it started")
                line += part
        news: dict[str, str] = json.loads(line)
        if "error" in news:
            raise ConfigError(news["error"])
        return Ready(**news)

    def poll(self) -> int | None:
        """Return how it ended; None: it has not."""
        return self.process.poll()

    def tell(self, data: bytes) -> None:
        """Write to the child, if it reads more than its record.

        One that has ended, or is being stopped, hears nothing: whoever starts it again tells it.
        """
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def let_go(self) -> None:
        """Close the child's standard input; it ends then."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def stop(self, timeout_s: float) -> None:
        """End the child and wait for its end; kill it after the timeout. Idempotent."""
        self.let_go()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

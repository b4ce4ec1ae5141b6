"""Starts processes of the engine as children, and an embedded cluster of them."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import select
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.links.link import as_reached
from scaler_cluster.process.dashboard_link import DashboardLink
from scaler_cluster.process.directories import ClusterDirs
from scaler_cluster.process.process import READY_FD_VARIABLE, Ready, write_config
from scaler_cluster.process.process_config import (
    DashboardProcessConfig,
    SchedulerOptions,
    SchedulerProcessConfig,
    SupervisorOptions,
    SupervisorProcessConfig,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.process.dashboard_listener import DashboardListener

START_TIMEOUT_S = 30.0
"""A process that is not ready after this never will be, even on a loaded machine."""
STOP_TIMEOUT_S = 5.0
"""A child that has not ended by itself after this is killed."""
ELSEWHERE = MappingProxyType(
    {
        "dashboard": "scaler_monitoring.dashboard.process",
        "report": "scaler_monitoring.report_process",
    }
)
"""Modules of the processes that are not in ``scaler_cluster.runtime``, by their names."""
SOCKET_PATH_MAX = 100
"""Unix socket paths hold 107 bytes; in place of a longer path, a cluster listens at loopback."""


class ChildProcess:
    """A process of the engine; it ends when this process does, which holds its standard input.

    ``config`` is the record of ``process_config.py`` for a process of this ``name``. If the child
    ``reports``, :meth:`await_ready` returns what it says. It inherits the descriptors ``pass_fds``,
    by the same numbers.
    """

    def __init__(
        self,
        name: str,
        config: object,
        *,
        reports: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> None:
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
                env=environment,
                pass_fds=[*fds, *pass_fds],
                start_new_session=True,
            )
        finally:
            for fd in fds:
                os.close(fd)
        self.pid = self.process.pid
        assert self.process.stdin is not None
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


class EmbeddedCluster:
    """A scheduler and a supervisor with its workers, which end when this process does.

    ``address=None`` binds a Unix socket in a private directory, and so does a scheduler whose
    options do not say where monitors connect. With a ``dashboard`` there is one process more, and
    :attr:`dashboard_link`. Raises ConfigError if an address cannot be bound, or what the dashboard
    needs is not installed.
    """

    def __init__(
        self,
        workers: int,
        address: str | None = None,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        object_memory_bytes: int | None = None,
        scheduling: SchedulerOptions | None = None,
        supervising: SupervisorOptions | None = None,
        dashboard: bool = False,
    ) -> None:
        self.workers = workers
        self.pid = os.getpid()
        self._initargs = initargs
        """Kept: named semaphores are removed with the objects of this process that made them."""
        packed, inherited = _packed(initializer, initargs)
        self._children: list[ChildProcess] = []
        # The scheduler makes the directories: a client that is killed while it starts leaves none.
        self._dirs = ClusterDirs.named(object_memory_bytes)
        options = scheduling or SchedulerOptions()
        # With storages of their own, the workers learn from the scheduler where objects lie.
        is_home = not options.storages
        door = _open_door() if dashboard else None
        self.dashboard_link = DashboardLink(door.link) if door is not None else None
        try:
            scheduler = SchedulerProcessConfig(
                address=address if address is not None else self._private_address("scheduler"),
                dirs=self._dirs,
                dashboard=door.link_to_tell if door is not None else "",
                options=replace(
                    options,
                    monitor_address=options.monitor_address or self._private_address("monitor"),
                    core=replace(options.core, workers_expected=workers),
                ),
            )
            supervisor = SupervisorProcessConfig(
                address=scheduler.address,
                workers=workers,
                dirs=self._dirs if is_home else ClusterDirs.named(object_memory_bytes),
                is_home=is_home,
                sys_path=tuple(path or str(Path.cwd()) for path in sys.path),
                # Tasks can then use the proxies of a manager of this process as arguments.
                authkey=bytes(multiprocessing.current_process().authkey),
                initializer=packed,
                inherited=inherited,
                options=supervising or SupervisorOptions(),
            )
            self.address, self.monitor_address = self._start_engine(scheduler, supervisor)
            if door is not None:
                # Last: the dashboard takes a second to start, and the others start meanwhile.
                self._start_dashboard(door)
        except BaseException:
            self.stop()
            raise
        finally:
            if door is not None:
                door.close()

    def _start_engine(
        self, scheduler: SchedulerProcessConfig, supervisor: SupervisorProcessConfig
    ) -> tuple[str, str]:
        """Start both; return the addresses of the scheduler, for clients and for monitors."""
        child = self._start("scheduler", scheduler, reports=True)
        if scheduler.address.startswith("ipc://"):
            # The address is known already: both start at the same time.
            self._start("supervisor", supervisor, pass_fds=supervisor.inherited)
            ready = child.await_ready()
        else:
            ready = child.await_ready()
            told = replace(supervisor, address=ready.address)
            self._start("supervisor", told, pass_fds=supervisor.inherited)
        return ready.address, ready.monitor_address

    def _private_address(self, name: str) -> str:
        path = Path(self._dirs.directory) / name
        if sys.platform == "win32" or len(bytes(path)) > SOCKET_PATH_MAX:
            return "tcp://127.0.0.1:0"
        return f"ipc://{path}"

    def _start(
        self,
        name: str,
        config: object,
        *,
        reports: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> ChildProcess:
        child = ChildProcess(name, config, reports=reports, pass_fds=pass_fds)
        self._children.append(child)
        return child

    def _start_dashboard(self, door: DashboardListener) -> None:
        from scaler_cluster.config.sections import WebSettings

        watched = as_reached(self.monitor_address, "")
        settings = WebSettings(monitor_address=watched, logging_paths=())
        config = DashboardProcessConfig.from_settings(settings, door)
        self._start("dashboard", config, reports=True, pass_fds=(config.fd,)).await_ready()

    def dead_child(self) -> str:
        """Return which child process ended by itself, and how; empty if none did.

        A dashboard that ends is no reason for tasks to fail.
        """
        for child in self._children:
            code = child.process.poll()
            if code is not None and child.name != "dashboard":
                return f"the cluster's {child.name} process {child.pid} ended with code {code}"
        return ""

    def signal_workers(self, number: int) -> None:
        """End the supervisor by a signal; every worker ends with it."""
        if len(self._children) > 1:
            self._children[1].process.send_signal(number)

    def close_lifelines(self) -> None:
        """Close the children's standard input; they end then."""
        for child in self._children:
            child.let_go()

    def stop(self) -> None:
        """End all children and wait for them; idempotent."""
        if os.getpid() != self.pid:
            return
        # The supervisor first: so the last messages of its workers still find a scheduler.
        for child in reversed(self._children):
            child.stop(STOP_TIMEOUT_S)
        self._dirs.remove()


def _packed(
    initializer: Callable[..., object] | None, initargs: tuple[Any, ...]
) -> tuple[bytes, tuple[int, ...]]:
    """Return the pickled call of an initializer, and the descriptors that it needs."""
    if initializer is None:
        return b"", ()
    from scaler_cluster.process.inheritance import dumps_initializer

    packed, inherited = dumps_initializer(initializer, initargs)
    return packed, tuple(inherited)


def _open_door() -> DashboardListener:
    # Most clusters have no dashboard, and need not wait for this import.
    from scaler_cluster.process.dashboard_listener import DashboardListener

    return DashboardListener()

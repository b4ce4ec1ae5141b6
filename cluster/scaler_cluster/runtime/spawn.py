"""Starts processes of the engine as children, and an embedded cluster of them."""

from __future__ import annotations

import base64
import contextlib
import json
import multiprocessing
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import ClusterUnreachable, ConfigError
from scaler_cluster.links.link import as_reached
from scaler_cluster.runtime.dashboard_link import DashboardLink
from scaler_cluster.runtime.directories import name_directories, remove_directories
from scaler_cluster.runtime.process import READY_FD_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scaler_cluster.runtime.dashboard_listener import DashboardListener

START_TIMEOUT_S = 30.0
"""An interpreter that has not come up after this never will, even on a loaded machine."""
STOP_TIMEOUT_S = 5.0
"""A child that has not ended by itself after this is killed."""
ELSEWHERE = MappingProxyType(
    {
        "dashboard": "scaler_monitoring.dashboard.process",
        "report": "scaler_monitoring.report_process",
    }
)
"""Modules of the processes that are none of the engine's, by their names."""
SOCKET_PATH_MAX = 100
"""Unix socket paths hold 107 bytes; an ``ipc://`` address beyond falls back to loopback."""


class ChildProcess:
    """A process of the engine; it ends when this one does, which holds its standard input.

    If it ``reports``, it is to be heard with :meth:`await_ready`. It inherits the descriptors
    ``pass_fds``, by the same numbers.
    """

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        *,
        reports: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.settings = settings
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
        self.process.stdin.write(json.dumps(settings).encode() + b"\n")
        self.process.stdin.flush()

    def await_ready(self) -> dict[str, Any]:
        """Return what it says once it is ready.

        Raises ConfigError if it cannot be, ClusterUnreachable if it ends or says nothing.
        """
        line = b""
        deadline = time.monotonic() + START_TIMEOUT_S
        with os.fdopen(self._ready, "rb", buffering=0) as stream:
            while not line.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([stream], [], [], left)[0]:
                    raise ClusterUnreachable(f"the {self.name} process did not start in time")
                part = stream.read(4096)
                if not part:
                    raise ClusterUnreachable(f"the {self.name} process ended while it started")
                line += part
        news: dict[str, Any] = json.loads(line)
        if "error" in news:
            raise ConfigError(news["error"])
        return news

    def let_go(self) -> None:
        """Let go of its standard input; it ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def stop(self, timeout_s: float) -> None:
        """End it and wait for that, at most so long: then it is killed. Idempotent."""
        self.let_go()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class EmbeddedCluster:
    """A scheduler and a supervisor with its workers, which end when this process does.

    ``address=None`` binds a Unix socket in a private directory, and so does a scheduler that is not
    told where monitors connect; ``scheduling`` and ``supervising`` are further settings of the two.
    With a ``dashboard`` there is a process more, and :attr:`dashboard_link`. Raises ConfigError if
    an address cannot be bound, or what the dashboard needs is not installed.
    """

    def __init__(
        self,
        workers: int,
        address: str | None = None,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
        threads_per_worker: int | None = None,
        memory_limit_bytes: int | None = None,
        object_memory_bytes: int | None = None,
        scheduling: Mapping[str, Any] = MappingProxyType({}),
        supervising: Mapping[str, Any] = MappingProxyType({}),
        dashboard: bool = False,
    ) -> None:
        self.workers = workers
        self.pid = os.getpid()
        settings: dict[str, Any] = {
            **supervising,
            "workers": workers,
            "sys_path": [path or str(Path.cwd()) for path in sys.path],
            # What a manager of this process makes may be an argument of tasks.
            "authkey": multiprocessing.current_process().authkey.hex(),
        }
        inherited: list[int] = []
        if initializer is not None:
            from scaler_cluster.runtime.inheritance import dumps_initializer

            packed, inherited = dumps_initializer(initializer, initargs)
            settings["initializer"] = base64.b64encode(packed).decode()
            settings["inherited"] = inherited
        self._initargs = initargs
        """Kept: semaphores go with the objects of this process that have them."""
        if max_tasks_per_child is not None:
            settings["max_tasks_per_child"] = max_tasks_per_child
        if threads_per_worker is not None:
            settings["threads_per_worker"] = threads_per_worker
        if memory_limit_bytes is not None:
            settings["memory_limit_bytes"] = memory_limit_bytes
        self._children: list[ChildProcess] = []
        door = _open_door() if dashboard else None
        self.dashboard_link = DashboardLink(door.link) if door is not None else None
        # The scheduler makes it: a client that is killed while it starts leaves nothing then.
        self._places = name_directories(object_memory_bytes)
        settings |= self._places | {"home": True}
        if scheduling.get("storages"):
            # Whose objects are here, the workers will learn from the scheduler.
            settings |= name_directories(object_memory_bytes) | {"home": False}
        try:
            chosen = address if address is not None else self._private_address("scheduler")
            core = {"workers_expected": workers} | scheduling.get("scheduler", {})
            told = {**scheduling, "address": chosen, "scheduler": core} | self._places
            if not told.get("monitor", {}).get("address"):
                told["monitor"] = {"address": self._private_address("monitor")}
            if door is not None:
                told["dashboard"] = door.link_to_tell
            scheduler = self._start("scheduler", told, reports=True)
            if chosen.startswith("ipc://"):
                # The address is known already: both start at the same time.
                self._start("supervisor", settings | {"address": chosen}, pass_fds=inherited)
                news = scheduler.await_ready()
            else:
                news = scheduler.await_ready()
                settings["address"] = news["address"]
                self._start("supervisor", settings, pass_fds=inherited)
            self.address: str = news["address"]
            self.monitor_address: str = news["monitor"]
            if door is not None:
                # Last: what shows it takes a second to come, and the others start meanwhile.
                self._start_dashboard(door)
        except BaseException:
            self.stop()
            raise
        finally:
            if door is not None:
                door.close()

    def _private_address(self, name: str) -> str:
        path = Path(self._places["directory"]) / name
        if sys.platform == "win32" or len(bytes(path)) > SOCKET_PATH_MAX:
            return "tcp://127.0.0.1:0"
        return f"ipc://{path}"

    def _start(
        self,
        name: str,
        settings: dict[str, Any],
        *,
        reports: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> ChildProcess:
        child = ChildProcess(name, settings, reports=reports, pass_fds=pass_fds)
        self._children.append(child)
        return child

    def _start_dashboard(self, door: DashboardListener) -> None:
        from scaler_cluster.config.sections import WebSettings
        from scaler_cluster.runtime.process_config import dashboard_process_config

        watched = as_reached(self.monitor_address, "")
        settings = WebSettings(monitor_address=watched, logging_paths=())
        told, fd = dashboard_process_config(settings, door), door.listener.fileno()
        self._start("dashboard", told, reports=True, pass_fds=(fd,)).await_ready()

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
        """End the supervisor by a signal, and with it every worker."""
        if len(self._children) > 1:
            self._children[1].process.send_signal(number)

    def close_lifelines(self) -> None:
        """Let go of the children's standard input; they end."""
        for child in self._children:
            child.let_go()

    def stop(self) -> None:
        """End all children and wait for them; idempotent."""
        if os.getpid() != self.pid:
            return
        # The supervisor first: its workers' last words still find a scheduler.
        for child in reversed(self._children):
            child.stop(STOP_TIMEOUT_S)
        remove_directories(self._places)


def _open_door() -> DashboardListener:
    # Most clusters have no dashboard: this is no part of their start.
    from scaler_cluster.runtime.dashboard_listener import DashboardListener

    return DashboardListener()

"""Starts an embedded cluster: a scheduler and a supervisor, children of this process."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaler_cluster import payload as payloads
from scaler_cluster.errors import ClusterUnreachable, ConfigError
from scaler_cluster.objects.place import Place
from scaler_cluster.runtime.directories import PREFIX, remove_directories
from scaler_cluster.runtime.process import READY_FD_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

START_TIMEOUT_S = 30.0
"""An interpreter that has not come up after this never will, even on a loaded machine."""
STOP_TIMEOUT_S = 5.0
"""A child that has not ended by itself after this is killed."""
SOCKET_PATH_MAX = 100
"""Unix socket paths hold 107 bytes; an ``ipc://`` address beyond falls back to loopback."""


class EmbeddedCluster:
    """A scheduler and a supervisor with its workers, which end when this process does.

    ``address=None`` binds a Unix socket in a private directory. Raises ConfigError if the address
    cannot be bound.
    """

    def __init__(
        self,
        workers: int,
        address: str | None = None,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
        memory_limit_bytes: int | None = None,
        object_memory_bytes: int | None = None,
        storages: Sequence[str] = (),
        capabilities: Mapping[str, float] | None = None,
        scheduler: Mapping[str, float] | None = None,
        event_loop: str = "builtin",
    ) -> None:
        self.workers = workers
        self.pid = os.getpid()
        settings: dict[str, Any] = {
            "workers": workers,
            "sys_path": [path or str(Path.cwd()) for path in sys.path],
        }
        if initializer is not None:
            packed = payloads.dumps((initializer, initargs))
            settings["initializer"] = base64.b64encode(packed).decode()
        if max_tasks_per_child is not None:
            settings["max_tasks_per_child"] = max_tasks_per_child
        if memory_limit_bytes is not None:
            settings["memory_limit_bytes"] = memory_limit_bytes
        if capabilities:
            settings["capabilities"] = dict(capabilities)
        self._children: list[subprocess.Popen[bytes]] = []
        # The scheduler makes it: a client that is killed while it starts leaves nothing then.
        self._directory = Path(tempfile.gettempdir()) / f"{PREFIX}{secrets.token_hex(8)}"
        place = asdict(Place.in_directory(str(self._directory), object_memory_bytes))
        self._places = {"directory": str(self._directory), "place": place}
        supervising = settings | self._places | {"home": True}
        if storages:
            # Whose objects are here, the workers will learn from the scheduler.
            apart = str(self._directory.with_name(f"{PREFIX}{secrets.token_hex(8)}"))
            kept = asdict(Place.in_directory(apart, object_memory_bytes))
            supervising = settings | {"directory": apart, "place": kept}
        try:
            chosen = address if address is not None else self._private_address()
            scheduling = {
                "address": chosen,
                "event_loop": event_loop,
                "scheduler": {"workers_expected": workers} | dict(scheduler or {}),
                "storages": list(storages),
            } | self._places
            ready = self._start("scheduler", scheduling, True)
            if chosen.startswith("ipc://"):
                # The address is known already: both start at the same time.
                self._start("supervisor", supervising | {"address": chosen})
                self.address = self._await_ready(ready)
            else:
                self.address = self._await_ready(ready)
                self._start("supervisor", supervising | {"address": self.address})
        except BaseException:
            self.stop()
            raise

    def _private_address(self) -> str:
        path = self._directory / "scheduler"
        if sys.platform == "win32" or len(bytes(path)) > SOCKET_PATH_MAX:
            return "tcp://127.0.0.1:0"
        return f"ipc://{path}"

    def _start(self, name: str, settings: dict[str, Any], reports: bool = False) -> int:
        """Start a child; return the pipe on which it will say that it is ready, or -1."""
        environment = dict(os.environ)
        package_root = str(Path(__file__).parents[2])
        paths = [package_root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        ready_read = -1
        fds: tuple[int, ...] = ()
        if reports:
            ready_read, ready_write = os.pipe()
            fds = (ready_write,)
            environment[READY_FD_VARIABLE] = str(ready_write)
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", f"scaler_cluster.runtime.{name}"],
                stdin=subprocess.PIPE,
                env=environment,
                pass_fds=fds,
                start_new_session=True,
            )
        finally:
            for fd in fds:
                os.close(fd)
        self._children.append(child)
        assert child.stdin is not None
        child.stdin.write(json.dumps(settings).encode() + b"\n")
        child.stdin.flush()
        return ready_read

    def _await_ready(self, pipe: int) -> str:
        """Return the address that the scheduler bound."""
        line = b""
        deadline = time.monotonic() + START_TIMEOUT_S
        with os.fdopen(pipe, "rb", buffering=0) as stream:
            while not line.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([stream], [], [], left)[0]:
                    raise ClusterUnreachable("the scheduler process did not start in time")
                part = stream.read(4096)
                if not part:
                    raise ClusterUnreachable("the scheduler process ended while it started")
                line += part
        news: dict[str, str] = json.loads(line)
        if "error" in news:
            raise ConfigError(news["error"])
        return news["address"]

    def dead_child(self) -> str:
        """Return which child process ended by itself, and how; empty if none did."""
        for name, child in zip(("scheduler", "supervisor"), self._children, strict=False):
            code = child.poll()
            if code is not None:
                return f"the cluster's {name} process {child.pid} ended with code {code}"
        return ""

    def signal_workers(self, number: int) -> None:
        """End the supervisor by a signal, and with it every worker."""
        if len(self._children) > 1:
            self._children[1].send_signal(number)

    def close_lifelines(self) -> None:
        """Let go of the children's standard input; they end."""
        for child in self._children:
            if child.stdin is not None:
                with contextlib.suppress(OSError):
                    child.stdin.close()

    def stop(self) -> None:
        """End all children and wait for them; idempotent."""
        if os.getpid() != self.pid:
            return
        # The supervisor first: its workers' last words still find a scheduler.
        for child in reversed(self._children):
            if child.stdin is not None:
                with contextlib.suppress(OSError):
                    child.stdin.close()
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                child.wait()
        remove_directories(self._places)

"""An embedded cluster: processes of the engine that are children of a program."""

from __future__ import annotations

import multiprocessing
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaler_cluster import arguments
from scaler_cluster.errors import ConfigError, SessionForkedError
from scaler_cluster.links.link import as_reached
from scaler_cluster.process.bounds import tell_bounds
from scaler_cluster.process.child import STOP_TIMEOUT_S, ChildProcess
from scaler_cluster.process.dashboard_link import DashboardLink
from scaler_cluster.process.directories import ClusterDirs
from scaler_cluster.process.keeper import Keeper
from scaler_cluster.process.monitor_config import DashboardProcessConfig
from scaler_cluster.process.process import usable_cpus
from scaler_cluster.process.process_config import (
    WORKERS_MAX,
    SchedulerOptions,
    SchedulerProcessConfig,
    SupervisorOptions,
    SupervisorProcessConfig,
)
from scaler_cluster.users import MONITOR, WORKER
from scaler_cluster.wire.messages import Offer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.process.dashboard_listener import DashboardListener

COOLDOWN_S = 5.0
"""How long fewer workers must be enough before some end. To start one takes some 20 ms."""
SOCKET_PATH_MAX = 100
"""Unix socket paths hold 107 bytes; in place of a longer path, a cluster listens at loopback."""


class EmbeddedCluster:
    """A scheduler and a supervisor with its workers, which end when this process does.

    If one of the two is killed, another one takes its place. The workers go on with their tasks
    under a new scheduler, and what lies in the object storage stays.

    ``address=None`` binds a Unix socket in a private directory, and so does a scheduler whose
    options do not say where monitors connect. With a ``dashboard`` there is one process more, and
    :attr:`dashboard_link`. Raises ConfigError if an address cannot be bound, what the dashboard
    needs is not installed, or this is not Linux.
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
        self._children: dict[str, ChildProcess] = {}
        """By their names, in the order in which they were started."""
        self._lives = 0
        self._keeper = Keeper(("scheduler", "supervisor"), self._children, self._start_again)
        # The scheduler makes the directories: a client that is killed while it starts leaves none.
        self._dirs = ClusterDirs.named(object_memory_bytes)
        options = scheduling or SchedulerOptions()
        supervising = supervising or SupervisorOptions()
        keys, workers_keys = options.credentials.resolved(address or "").for_child(WORKER)
        keys, self._monitor_keys = keys.for_child(MONITOR)
        options = replace(options, credentials=keys)
        # With storages of their own, the workers learn from the scheduler where objects lie.
        is_home = not options.storages
        door = _open_door() if dashboard else None
        self.dashboard_link = DashboardLink(door.link) if door is not None else None
        try:
            self._scheduler = SchedulerProcessConfig(
                address=address if address is not None else self._private_address("scheduler"),
                dirs=self._dirs,
                dashboard=door.link_to_tell if door is not None else "",
                epoch=0,
                options=replace(
                    options,
                    monitor_address=options.monitor_address or self._private_address("monitor"),
                    core=replace(options.core, workers_expected=workers),
                ),
            )
            self._supervisor = SupervisorProcessConfig(
                address=self._scheduler.address,
                workers=workers,
                capacity=max(workers, WORKERS_MAX),
                dirs=self._dirs if is_home else ClusterDirs.named(object_memory_bytes),
                is_home=is_home,
                sys_path=tuple(path or str(Path.cwd()) for path in sys.path),
                # Tasks can then use the proxies of a manager of this process as arguments.
                authkey=bytes(multiprocessing.current_process().authkey),
                initializer=packed,
                inherited=inherited,
                options=replace(supervising, credentials=workers_keys),
            )
            self._start_engine()
            # Not even the storage of a scheduler that was killed removes the sockets' directory.
            self._dirs.hold()
            if door is not None:
                # Last: the dashboard takes a second to start, and the others start meanwhile.
                self._start_dashboard(door)
            self._keeper.begin(self.stop)
        except BaseException:
            self.stop()
            raise
        finally:
            if door is not None:
                door.close()

    @property
    def address(self) -> str:
        """Where clients reach the scheduler."""
        return self._scheduler.address

    @property
    def monitor_address(self) -> str:
        """Where monitors reach the scheduler."""
        return self._scheduler.options.monitor_address or ""

    def scale(self, workers: int) -> None:
        """Have so many workers from now on; raises TypeError, ConfigError, SessionForkedError."""
        count = arguments.whole("workers", workers, 0)
        self._resize("workers", count, count)

    def adapt(self, minimum: int, maximum: int | None) -> None:
        """Have as many workers as there is work for; raises TypeError or ConfigError."""
        least = arguments.whole("minimum", minimum, 0)
        most = max(usable_cpus(), least)
        if maximum is not None:
            most = arguments.whole("maximum", maximum, 1)
        if least > most:
            raise ConfigError(f"minimum ({least}) is more than maximum ({most})")
        self._resize("maximum", least, most)

    def _resize(self, name: str, least: int, most: int) -> None:
        if os.getpid() != self.pid:
            raise SessionForkedError("only the process that started a cluster can resize it")
        if most > self._supervisor.places:
            raise ConfigError(f"{name} must be {self._supervisor.places} or less here, not {most}")
        with self._keeper.changing():
            options = self._supervisor.options
            capabilities = tuple(sorted(options.capabilities + options.shared))
            cooldown_s = 0.0 if least == most else COOLDOWN_S
            offer = Offer("embedded", least, most, 1, cooldown_s, capabilities)
            self.workers = min(max(self.workers, least), most)
            # Also for a supervisor that takes the place of this one.
            self._supervisor = replace(self._supervisor, workers=self.workers, offer=offer)
            if "supervisor" in self._children:
                tell_bounds(self._children["supervisor"], offer)

    def _start_engine(self) -> None:
        """Start both; the scheduler says where it is reached, for now and for its successors."""
        child = self._start("scheduler", self._scheduler, reports=True)
        is_known = self.address.startswith("ipc://")
        if is_known:
            # Both start at the same time.
            self._start_supervisor()
        ready = child.await_ready()
        self._scheduler = self._scheduler.of_next(ready)
        if not is_known:
            self._supervisor = replace(self._supervisor, address=ready.address)
            self._start_supervisor()

    def _start_supervisor(self) -> None:
        self._start("supervisor", self._supervisor, pass_fds=self._supervisor.inherited)

    def _private_address(self, name: str) -> str:
        path = Path(self._dirs.directory) / name
        if len(bytes(path)) > SOCKET_PATH_MAX:
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
        if name in self._children:
            self._children[name].stop(STOP_TIMEOUT_S)
        child = ChildProcess(name, config, reports=reports, pass_fds=pass_fds)
        self._children[name] = child
        return child

    def _start_dashboard(self, door: DashboardListener) -> None:
        from scaler_cluster.config.sections import WebSettings

        watched = as_reached(self.monitor_address, "")
        settings = WebSettings(monitor_address=watched, logging_paths=())
        config = DashboardProcessConfig.from_settings(settings, door)
        config = replace(config, credentials=self._monitor_keys)
        self._start("dashboard", config, reports=True, pass_fds=(config.fd,)).await_ready()

    def _start_again(self, name: str) -> None:
        if name == "supervisor":
            self._start_supervisor()
            return
        # The workers go on, and tell the next scheduler what they hold.
        options = self._scheduler.options
        core = replace(options.core, workers_expected=0)
        self._lives += 1
        self._scheduler = replace(
            self._scheduler, epoch=self._lives, options=replace(options, core=core)
        )
        self._start("scheduler", self._scheduler, reports=True).await_ready()

    def dead_child(self) -> str:
        """Return which child process ended, and how, if that cannot be mended; else empty."""
        return self._keeper.broken

    def signal_workers(self, number: int) -> None:
        """End the supervisor by a signal; every worker ends with it."""
        with self._keeper.ending():
            if "supervisor" in self._children:
                self._children["supervisor"].process.send_signal(number)

    def close_lifelines(self) -> None:
        """Close the children's standard input; they end then."""
        self._keeper.over.set()
        for child in list(self._children.values()):
            child.let_go()

    def stop(self) -> None:
        """End all children and wait for them; idempotent."""
        if os.getpid() != self.pid:
            return
        with self._keeper.ending():
            self._dirs.release()
            # The supervisor first: so the last messages of its workers still find a scheduler.
            for child in reversed(list(self._children.values())):
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

# PYTHON_ARGCOMPLETE_OK
"""``scaler``: object storages, a scheduler, clusters and a dashboard, all from one file."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.cli.adapter import fixed_cluster
from scaler_cluster.cli.scheduler import webhook_managers
from scaler_cluster.cli.shared import guard, wait_for
from scaler_cluster.config.load import Parser, complete, read_file
from scaler_cluster.config.manager_settings import UnitSettings
from scaler_cluster.config.native_settings import NativeSettings
from scaler_cluster.config.proxy_settings import ProxySettings
from scaler_cluster.config.sections import SchedulerSettings, StorageSettings, WebSettings
from scaler_cluster.config.webhook_settings import AdapterSettings, FixedNativeSettings
from scaler_cluster.config.worker_settings import ClusterSettings, WorkerSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.links.link import as_reached
from scaler_cluster.process.child import ChildProcess
from scaler_cluster.process.dashboard_listener import DashboardListener
from scaler_cluster.process.kept_scheduler import KeptScheduler
from scaler_cluster.process.monitor_config import DashboardProcessConfig
from scaler_cluster.process.process_config import (
    SchedulerProcessConfig,
    StorageServerConfig,
    SupervisorProcessConfig,
)
from scaler_cluster.provision.runners import ProxyProcessConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.config.load import Table
    from scaler_cluster.config.option import Section
    from scaler_cluster.process.directories import ClusterDirs
    from scaler_cluster.process.process import Ready

ABOUT = "Run everything that one file describes, until Ctrl-C or until a part of it ends."
GRACE_S = 10.0
"""A process that has not ended by itself after this is killed."""
OWN = "ipc://own"
"""Stands for the monitor address of the file's own scheduler, until that has said it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what a file says until SIGINT or SIGTERM; return the exit status."""
    return guard("scaler", lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    parser = Parser("scaler", description=ABOUT, allow_abbrev=False)
    parser.add_argument("file", nargs="?", metavar="config.toml", help="TOML file")
    parser.add_argument("-c", "--config", metavar="FILE", help="the same file, as an option")
    complete(parser)
    given = parser.parse_args(arguments)
    if (given.file is None) == (given.config is None):
        parser.error("name one file, such as: scaler config.toml")
    stack = StackFile(read_file(given.file or given.config))
    try:
        stack.start()
        return stack.wait()
    finally:
        stack.stop()


class StackFile:
    """The processes that a file asks for. Raises ConfigError before any of them is started."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._children: list[ChildProcess | KeptScheduler] = []
        self._dirs: list[ClusterDirs] = []
        """Directories of the children, which a child that is killed does not remove."""
        self._storages = [one.make(StorageSettings) for one in _of(tables, StorageSettings)]
        scheduler = _only(_of(tables, SchedulerSettings), "scheduler")
        self._scheduler = scheduler.make(SchedulerSettings) if scheduler is not None else None
        own: dict[str, str] = {}
        if self._scheduler is not None:
            own = {"scheduler_address": self._scheduler.scheduler_address}
        self._clusters = [one.make(ClusterSettings, own) for one in _of(tables, ClusterSettings)]
        self._managers = [one.make(UnitSettings, own) for one in _of(tables, UnitSettings)]
        web = _only(_of(tables, WebSettings), "dashboard")
        self._web: WebSettings | None = None
        if web is not None:
            watches = self._scheduler is not None and "replay" not in web.values
            self._web = web.make(WebSettings, {"monitor_address": OWN} if watches else {})
        parts = self._storages, self._scheduler, self._clusters, self._managers, self._web
        if not any(parts):
            raise ConfigError("the file has no [scheduler], no [cluster], and nothing else to run")

    def start(self) -> None:
        """Start object storages, then the scheduler, then clusters, then the dashboard.

        Raises ConfigError before all of them if the dashboard's port is taken.
        """
        if self._web is None:
            self._start_engine()
            return
        web = self._web
        door = DashboardListener.of(web)
        try:
            monitor = self._start_engine("" if web.replay else door.link_to_tell)
            if web.monitor_address == OWN:
                web = replace(web, monitor_address=as_reached(monitor, ""))
            config = DashboardProcessConfig.from_settings(web, door)
            self._start("dashboard", config, pass_fds=(config.fd,))
        finally:
            door.close()
        sys.stdout.write(door.said)
        sys.stdout.flush()

    def _start_engine(self, dashboard: str = "") -> str:
        """Start all but the dashboard; return the scheduler's monitor address, if there is one."""
        storages = tuple(
            self._start("storage_server", StorageServerConfig.from_settings(one)).address
            for one in self._storages
        )
        bound: dict[str, str] = {}
        monitor = ""
        if self._scheduler is not None:
            settings = self._scheduler
            if not settings.object_storage_address:
                settings = replace(settings, object_storage_address=storages)
            config = SchedulerProcessConfig.from_settings(settings, dashboard)
            kept = KeptScheduler(config)
            self._children.append(kept)
            kept.start()
            bound[settings.scheduler_address] = kept.ready.address
            monitor = kept.ready.monitor_address
            for manager in webhook_managers(settings, kept.ready.address):
                self._start_workers(manager)
        for one in (*self._clusters, *self._managers):
            # If the file says port 0, the scheduler has chosen another port by now.
            address = bound.get(one.scheduler_address, one.scheduler_address)
            self._start_workers(replace(one, scheduler_address=address))
        return monitor

    def _start_workers(self, settings: WorkerSettings) -> None:
        """Start a cluster, or what has workers started as they are wanted."""
        if isinstance(settings, ClusterSettings):
            workers = SupervisorProcessConfig.from_settings(settings)
        elif isinstance(settings, NativeSettings):
            workers = SupervisorProcessConfig.from_native_settings(settings)
        elif isinstance(settings, FixedNativeSettings):
            workers = fixed_cluster(settings)
        elif isinstance(settings, ProxySettings) and not isinstance(settings, AdapterSettings):
            proxy = ProxyProcessConfig.of(settings)
            self._dirs.append(proxy.machine.dirs)
            self._children.append(ChildProcess("proxy", proxy))
            return
        else:
            name = "adapter" if isinstance(settings, AdapterSettings) else "manager"
            self._children.append(ChildProcess(name, settings))
            return
        self._dirs.append(workers.dirs)
        self._children.append(ChildProcess("supervisor", workers))

    def _start(self, name: str, config: object, pass_fds: Sequence[int] = ()) -> Ready:
        """Start a process; return what it says once it is ready."""
        child = ChildProcess(name, config, reports=True, pass_fds=pass_fds)
        self._children.append(child)
        return child.await_ready()

    def wait(self) -> int:
        """Wait until a process ends, and return its status, or until a signal comes.

        A dashboard ends alone, unless there is nothing else; a scheduler that is killed is started
        again.
        """
        parts = [one for one in self._children if one.name != "dashboard"]
        return wait_for(parts or self._children)

    def stop(self) -> None:
        """End the processes: the one that was started last ends first."""
        for child in reversed(self._children):
            child.stop(GRACE_S)
        for one in self._dirs:
            one.remove()


def _of(tables: Sequence[Table], kind: type[Section]) -> list[Table]:
    """Return the tables whose settings are of a kind."""
    return [one for one in tables if issubclass(one.kind, kind)]


def _only(tables: Sequence[Table], name: str) -> Table | None:
    """Return the one table there may be; raises ConfigError if there are more."""
    if len(tables) > 1:
        raise ConfigError(f"{tables[1].where()}: there may be only one {name}")
    return tables[0] if tables else None

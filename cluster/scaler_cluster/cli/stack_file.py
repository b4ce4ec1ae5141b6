# PYTHON_ARGCOMPLETE_OK
"""``scaler``: object storages, a scheduler, clusters and a dashboard, all from one file."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaler_cluster.cli.shared import ENDED, guard
from scaler_cluster.config.load import Parser, complete, read_file, require
from scaler_cluster.config.sections import (
    SECTION,
    ClusterSettings,
    SchedulerSettings,
    StorageSettings,
    WebSettings,
)
from scaler_cluster.errors import ConfigError
from scaler_cluster.links.link import as_reached
from scaler_cluster.runtime.dashboard_listener import DashboardListener
from scaler_cluster.runtime.directories import remove_directories
from scaler_cluster.runtime.process import lifeline_of_signals
from scaler_cluster.runtime.process_config import (
    dashboard_process_config,
    scheduler_process_config,
    storage_process_config,
    supervisor_process_config,
)
from scaler_cluster.runtime.spawn import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.config.load import Table

ABOUT = "Run a whole stack from one file, until Ctrl-C or until a part of it ends."
GRACE_S = 10.0
"""A part that has not ended by itself after this is killed."""
OWN = "ipc://own"
"""Stands for the monitor address of the file's own scheduler, until that has said it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what a file says until SIGINT or SIGTERM; return the exit status."""
    return guard("scaler", lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    parser = Parser("scaler", description=ABOUT, allow_abbrev=False)
    parser.add_argument("file", nargs="?", metavar="config.toml", help="TOML file")
    parser.add_argument("-c", "--config", metavar="FILE", help="the same")
    complete(parser)
    given = parser.parse_args(arguments)
    if (given.file is None) == (given.config is None):
        parser.error("name one file, as scaler config.toml")
    stack = StackFile(read_file(given.file or given.config))
    try:
        stack.start()
        return stack.wait()
    finally:
        stack.stop()


class StackFile:
    """The processes that a file asks for. Raises ConfigError before any of them is started."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._children: list[ChildProcess] = []
        self._storages = _read(tables, StorageSettings)
        self._schedulers = _read(tables, SchedulerSettings)
        self._clusters = _read(tables, ClusterSettings)
        dashboards = _read(tables, WebSettings)
        for found, name in (self._schedulers, "scheduler"), (dashboards, "dashboard"):
            if len(found) > 1:
                raise ConfigError(f"{found[1][0].where()}: one {name} is enough")
        if not self._storages + self._schedulers + self._clusters + dashboards:
            raise ConfigError("the file has no [scheduler], no [cluster], and nothing else to run")
        schedulers = [values["scheduler_address"] for _, values in self._schedulers]
        for table, values in self._clusters:
            if schedulers:
                values.setdefault("scheduler_address", schedulers[0])
            _require(table, values)
        self._web: WebSettings | None = None
        for table, values in dashboards:
            if schedulers and "replay" not in values:
                values.setdefault("monitor_address", OWN)
            try:
                self._web = WebSettings(**values)
            except ConfigError as error:
                raise ConfigError(f"{table.where()}: {error}") from None

    def start(self) -> None:
        """Start object storages, then the scheduler, then clusters, then the dashboard.

        Raises ConfigError before all of them if the dashboard's port is taken.
        """
        if self._web is None:
            self._start_engine()
            return
        web = self._web
        door = DashboardListener(*web.host_and_port, token=web.token, prefix=web.prefix)
        try:
            monitor = self._start_engine("" if web.replay else door.link_to_tell)
            if web.monitor_address == OWN:
                web = replace(web, monitor_address=as_reached(monitor, ""))
            told, fd = dashboard_process_config(web, door), door.listener.fileno()
            self._start("dashboard", told, pass_fds=(fd,))
        finally:
            door.close()
        sys.stdout.write(f"dashboard at {door.link}\n")
        sys.stdout.flush()

    def _start_engine(self, dashboard: str = "") -> str:
        """Start all but the dashboard; return the scheduler's monitor address, if there is one."""
        monitor = ""
        storages = tuple(
            self._start("storage", storage_process_config(StorageSettings(**values)))["address"]
            for _, values in self._storages
        )
        bound: dict[str, str] = {}
        for _, values in self._schedulers:
            if storages:
                values.setdefault("object_storage_address", storages)
            told = scheduler_process_config(SchedulerSettings(**values))
            news = self._start("scheduler", told | {"dashboard": dashboard})
            bound[values["scheduler_address"]], monitor = news["address"], news["monitor"]
        for table, values in self._clusters:
            # Port 0 is another one by now.
            address = values["scheduler_address"]
            settings = SECTION[table.name](
                **values | {"scheduler_address": bound.get(address, address)}
            )
            assert isinstance(settings, ClusterSettings)
            self._children.append(ChildProcess("supervisor", supervisor_process_config(settings)))
        return monitor

    def _start(
        self, name: str, told: dict[str, Any], pass_fds: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Start a process; return what it says once it is ready."""
        child = ChildProcess(name, told, reports=True, pass_fds=pass_fds)
        self._children.append(child)
        return child.await_ready()

    def wait(self) -> int:
        """Wait until one of them ends, and return its status, or until a signal comes.

        A dashboard ends alone, unless there is nothing else.
        """
        parts = [one for one in self._children if one.name != "dashboard"] or self._children
        lifeline = lifeline_of_signals()
        # Read from the lifeline as well, like any signal that has a handler.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            for child in parts:
                status = child.process.poll()
                if status is not None:
                    return 128 - status if status < ENDED else status
            if not os.read(lifeline, 4096):
                return ENDED

    def stop(self) -> None:
        """End them, those that were started last first."""
        for child in reversed(self._children):
            child.stop(GRACE_S)
        for child in self._children:
            if "directory" in child.settings:
                # It may have been killed.
                remove_directories(child.settings)


def _read(tables: Sequence[Table], kind: type[Any]) -> list[tuple[Table, dict[str, Any]]]:
    """Return the tables of a kind, each with its settings."""
    found = []
    for table in tables:
        if issubclass(SECTION[table.name], kind):
            values = table.read(SECTION[table.name])
            if not issubclass(kind, ClusterSettings):
                _require(table, values)
            found.append((table, values))
    return found


def _require(table: Table, values: dict[str, Any]) -> None:
    try:
        require(SECTION[table.name], values)
    except ConfigError as error:
        raise ConfigError(f"{table.where()} {error}") from None

"""Units on the adapter's own machine: each is a process with a supervisor and its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.process.child import STOP_TIMEOUT_S, ChildProcess
from scaler_cluster.provision.backend import UnitStatus
from scaler_cluster.provision.runners import ProxyProcessConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scaler_cluster.process.directories import ClusterDirs
    from scaler_cluster.process.process_config import SupervisorProcessConfig
    from scaler_cluster.provision.unit_command import UnitCommand


class LocalBackend:
    """Starts units as children of this process, which end with it.

    ``make`` returns what the process of a unit is told, given the ids of manager and unit and what
    the workers are called.
    """

    def __init__(
        self,
        make: Callable[[str, str, tuple[str, ...]], SupervisorProcessConfig | ProxyProcessConfig],
        command: UnitCommand,
    ) -> None:
        self._make = make
        self._command = command
        self._units: dict[str, tuple[ChildProcess, ClusterDirs]] = {}

    def start(self, units: Sequence[str]) -> None:
        """Start these units."""
        for unit in units:
            config = self._make(self._command.manager_id, unit, self._command.names[unit])
            if isinstance(config, ProxyProcessConfig):
                self._units[unit] = ChildProcess("proxy", config), config.machine.dirs
            else:
                self._units[unit] = ChildProcess("supervisor", config), config.dirs

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the units that run, and those that have ended since they were asked for last."""
        found: dict[str, UnitStatus] = {}
        for unit, (child, dirs) in list(self._units.items()):
            status = child.poll()
            found[unit] = UnitStatus()
            if status is not None:
                how = f"exit code {status}" if status >= 0 else f"signal {-status}"
                found[unit] = UnitStatus(is_over=True, reason=f"{unit} ended by {how}")
                del self._units[unit]
                # It may have been killed.
                dirs.remove()
        return found

    def stop(self, units: Sequence[str]) -> None:
        """End these units, by force if they do not end by themselves."""
        children = [self._units[unit][0] for unit in units if unit in self._units]
        for child in children:
            child.let_go()
        for child in children:
            child.stop(STOP_TIMEOUT_S)

    def close(self) -> None:
        """End all units: they are children of this process."""
        self.stop(list(self._units))
        self.look()

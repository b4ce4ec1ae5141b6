"""Units on the adapter's own machine: each is a process with a supervisor and its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.process.child import STOP_TIMEOUT_S, ChildProcess
from scaler_cluster.process.process_config import SupervisorProcessConfig
from scaler_cluster.provision.backend import UnitStatus
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import WORKER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.config.manager_settings import UnitSettings
    from scaler_cluster.provision.unit_command import UnitCommand


class LocalBackend:
    """Starts units as children of this process, which end with it."""

    def __init__(self, settings: UnitSettings, command: UnitCommand) -> None:
        # If the workers need keys that are not there, nothing is to be started.
        Credentials.of(WORKER, settings.given_keys).passport(settings.workers_address)
        self._settings = settings
        self._command = command
        self._units: dict[str, tuple[ChildProcess, SupervisorProcessConfig]] = {}

    def start(self, units: Sequence[str]) -> None:
        """Start these units."""
        for unit in units:
            config = SupervisorProcessConfig.of_unit(
                self._settings, self._command.manager_id, unit, self._command.names[unit]
            )
            self._units[unit] = ChildProcess("supervisor", config), config

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the units that run, and those that have ended since they were asked for last."""
        found: dict[str, UnitStatus] = {}
        for unit, (child, config) in list(self._units.items()):
            status = child.poll()
            found[unit] = UnitStatus()
            if status is not None:
                how = f"exit code {status}" if status >= 0 else f"signal {-status}"
                found[unit] = UnitStatus(is_over=True, reason=f"{unit} ended by {how}")
                del self._units[unit]
                # It may have been killed.
                config.dirs.remove()
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

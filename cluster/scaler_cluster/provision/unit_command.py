"""The command that every unit runs: ``scaler_cluster``, with what the manager was told."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from scaler_cluster.config.shared_settings import Secured
from scaler_cluster.config.worker_settings import WorkerSettings
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import WORKER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_cluster.config.manager_settings import UnitSettings
    from scaler_cluster.config.option import Option

MODULE = "scaler_cluster.cli.cluster"
"""What ``python -m`` runs; it has the same flags as ``scaler_cluster``."""


LOG_PLACES = "logging_paths", "logging_config_file"


@dataclass(frozen=True)
class UnitCommand:
    """What the workers of a manager's units are told."""

    settings: UnitSettings
    manager_id: str
    """Empty: the units have no manager."""
    workers: int | None = None
    """How many workers a unit has, if its system knows better than the settings."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the workers of a unit are called, if they have names."""

    def arguments(self, unit: str, keys: str | None = None) -> list[str]:
        """Return the arguments of ``scaler_cluster`` for a unit.

        ``keys`` is the path of a file there with :attr:`keys_text`; None: the environment has that
        text, or no keys are needed.
        """
        settings = self.settings
        arguments = [
            settings.workers_address,
            f"--num-of-workers={self.workers or settings.workers_in_unit}",
        ]
        if self.manager_id:
            arguments += [f"--worker-manager-id={self.manager_id}", f"--unit={unit}"]
        if unit in self.names:
            arguments.append(f"--worker-names={','.join(self.names[unit])}")
        if keys is not None:
            arguments.append(f"--keys={keys}")
        elif settings.insecure:
            arguments.append("--insecure")
        # Keys travel by the means of each system; where this machine logs is no place elsewhere.
        own = {one.name for one in fields(Secured)} | {"scheduler_address", *LOG_PLACES}
        known = {one.name for one in fields(WorkerSettings)} - own
        for one in settings.options():
            value = getattr(settings, one.name)
            if one.name in known and value != one.default:
                arguments.append(_flag(one, value))
        return arguments

    def program_line(self, unit: str) -> str:
        """Return the command as a line for a shell that finds ``scaler_cluster`` by its name."""
        return shlex.join(["scaler_cluster", *self.arguments(unit)])

    def line(self, unit: str, python: str, keys: str | None = None) -> str:
        """Return the command as a line for a shell, to be run by this Python."""
        return shlex.join([python, "-m", MODULE, *self.arguments(unit, keys)])

    @property
    def keys_text(self) -> str:
        """What a file of keys for the workers has; empty: they need none, or find their own.

        At a loopback address they find those of their user. Raises ConfigError if keys are needed
        and there are none.
        """
        address = self.settings.workers_address
        given = Credentials.of(WORKER, self.settings.given_keys).resolved(address)
        if given.keys is None or given.is_insecure or not address.startswith("tcp://"):
            return ""
        return given.keys.file_text()


def _flag(one: Option, value: Any) -> str:
    """Return a setting as it is written on a command line."""
    flag = "--" + one.name.replace("_", "-")
    if isinstance(value, bool):
        return flag if value else "--no-" + flag.removeprefix("--")
    if isinstance(value, dict):
        pairs = (name if amount == -1 else f"{name}={amount}" for name, amount in value.items())
        return f"{flag}={','.join(pairs)}"
    if isinstance(value, tuple):
        return f"{flag}={','.join(value)}"
    return f"{flag}={value}"

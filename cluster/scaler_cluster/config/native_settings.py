"""The settings of a manager of workers on its own machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scaler_cluster.config.manager_settings import ManagerSettings
from scaler_cluster.config.option import option
from scaler_cluster.config.values import TEXT, choice
from scaler_cluster.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class NativeSettings(ManagerSettings):
    """Of a cluster that has as many workers as its scheduler wants at the time."""

    types: ClassVar[tuple[str, ...]] = ("baremetal_native",)

    mode: str = option(
        "dynamic: as many workers as are wanted; fixed: always max_workers",
        choice("dynamic", "fixed"),
        default="dynamic",
    )
    worker_type: str | None = option(
        "what the names of the workers begin with (default: NAT, or FIX if there are always as "
        "many)",
        TEXT,
        default=None,
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if the settings contradict each other."""
        super().__post_init__()
        if self.mode == "fixed" and self.max_workers == -1:
            raise ConfigError("mode fixed needs a number of workers: max_workers must not be -1")
        if self.dry_run:
            raise ConfigError("dry_run prints what is started for a unit, and this type has none")

    @property
    def without_effect(self) -> list[str]:
        """The names of settings that differ from their defaults, and mean nothing here."""
        given = {one.name: getattr(self, one.name) != one.default for one in self.options()}
        return [name for name in OF_UNITS if given[name]]


OF_UNITS = (
    "workers_per_unit",
    "drain_timeout_seconds",
    "start_timeout_seconds",
    "keep_units",
)
"""Settings for units, of which a cluster that grows and shrinks has none."""

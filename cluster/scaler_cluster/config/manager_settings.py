"""What every manager is told: something that has workers started as they are needed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from scaler_cluster.config.option import option
from scaler_cluster.config.values import CONNECT, FLAG, TEXT, seconds, whole
from scaler_cluster.config.worker_settings import WorkerSettings
from scaler_cluster.errors import ConfigError

ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
"""Units are named after their manager, and each system takes such a name."""


@dataclass(frozen=True, kw_only=True)
class UnitSettings(WorkerSettings):
    """Of whatever has workers started elsewhere, several at once: a *unit*."""

    worker_scheduler_address: str | None = option(
        "how the workers reach the scheduler, if it is another way than from here",
        CONNECT,
        "-wsa",
        default=None,
    )

    @property
    def workers_address(self) -> str:
        """How the workers reach the scheduler."""
        return self.worker_scheduler_address or self.scheduler_address

    @property
    def workers_in_unit(self) -> int:
        """How many workers a unit has."""
        return 1


@dataclass(frozen=True, kw_only=True)
class ManagerSettings(UnitSettings):
    """Of any manager. A *unit* is what its system starts and ends as one: a job, a pod, a machine.

    A subclass adds the settings of a system, and says by which ``types`` users name it.
    """

    names: ClassVar[tuple[str, ...]] = ("worker_manager",)
    types: ClassVar[tuple[str, ...]]
    """The words for it on a command line and in TOML, the usual one first."""

    type: str | None = option("which system starts the workers", TEXT, default=None)
    worker_manager_id: str | None = option(
        "how the manager is called, by which it finds its units again when it is started anew: "
        "small letters, digits and -, 40 at most (default: the type and the name of this machine)",
        TEXT,
        "-wmi",
        default=None,
    )
    max_workers: int | None = option(
        "the most workers at once; -1: no limit (default: one for each CPU of this machine)",
        whole(1, unset=-1),
        "-mw",
        "-mtc",
        default=None,
        also=("max_task_concurrency",),
    )
    min_workers: int = option("the fewest workers, also if there are no tasks", whole(0), default=0)
    workers_per_unit: int = option(
        "how many workers a unit has, such as a job, a pod or a machine", whole(1), default=1
    )
    scale_down_cooldown_seconds: float = option(
        "how long fewer workers must be enough before some end", seconds(zero=True), "-sdc",
        default=30,
    )  # fmt: skip
    drain_timeout_seconds: float = option(
        "how long a unit that is to end may go on with the tasks that it runs; then it is ended, "
        "and they run elsewhere",
        seconds(),
        default=300,
    )
    start_timeout_seconds: float = option(
        "a unit is given up if its workers have not come after this time", seconds(), default=300
    )
    keep_units: bool = option(
        "leave the units alone when the manager ends, for the next one with its id", FLAG,
        default=False,
    )  # fmt: skip
    dry_run: bool = option("print what would be started for one unit, and end", FLAG, default=False)

    def __post_init__(self) -> None:
        """Raise ConfigError if the settings contradict each other."""
        super().__post_init__()
        if self.type is not None and self.type not in self.types:
            raise ConfigError(f"type must be {' or '.join(self.types)} here, not {self.type!r}")
        given = self.worker_manager_id
        if given is not None and not ID.fullmatch(given):
            raise ConfigError(
                "worker_manager_id must consist of small letters, digits and '-', 40 at most, and "
                f"begin and end with a letter or digit, not {given!r}"
            )
        if self.max_workers not in (None, -1) and self.min_workers > (self.max_workers or 0):
            raise ConfigError(
                f"min_workers ({self.min_workers}) is more than max_workers ({self.max_workers})"
            )

    @property
    def workers_in_unit(self) -> int:
        """How many workers a unit has."""
        return self.workers_per_unit

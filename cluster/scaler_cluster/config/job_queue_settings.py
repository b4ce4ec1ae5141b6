"""The settings of managers whose units are jobs of a batch system.

Their names are those of dask-jobqueue, which users of these systems know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from scaler_cluster.config.manager_settings import ManagerSettings
from scaler_cluster.config.option import option
from scaler_cluster.config.values import FILE, Kind, whole
from scaler_cluster.errors import ConfigError

TIME = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d\d)")


def read_walltime(value: str) -> int:
    """Return the seconds of ``D-HH:MM:SS``, ``HH:MM:SS``, ``MM:SS`` or a number of minutes."""
    text = value.strip()
    if text.isdecimal() and int(text):
        return int(text) * 60
    match = TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"must be a time such as 01:30:00 or 1-00:00:00, not {value!r}")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if not total:
        raise ValueError("must be longer than no time at all")
    return total


def _read_walltime(value: str) -> str:
    read_walltime(value)
    return value.strip()


def _read_lines(value: Any) -> tuple[str, ...]:
    lines = tuple(value.splitlines()) if isinstance(value, str) else tuple(value)
    if not all(isinstance(line, str) and "\n" not in line for line in lines):
        raise ValueError("must be a list of lines")
    return lines


def _read_word(value: str) -> str:
    if not re.fullmatch(r"[^\s\"'`$\\]+", value):
        raise ValueError(f"must be one word without quotes, not {value!r}")
    return value


WALLTIME = Kind("TIME", "a text such as 01:30:00", (str,), _read_walltime)
LINES = Kind("LINES", "a list of lines", (str, list, tuple), _read_lines)
WORD = Kind("WORD", "a word", (str,), _read_word)


@dataclass(frozen=True, kw_only=True)
class JobQueueSettings(ManagerSettings):
    """Of a manager whose units are jobs; those of each system differ in their defaults alone."""

    queue: str | None = option(
        "the queue, or partition, of the jobs (default: the system's)",
        WORD,
        default=None,
        also=("partition",),
    )
    account: str | None = option(
        "the account, or project, that pays for the jobs", WORD, default=None, also=("project",)
    )
    cores: int | None = option(
        "how many CPUs each job asks for (default: one for each of its workers)",
        whole(1),
        default=None,
    )
    workers_per_unit: int = option(
        "how many workers each job runs", whole(1), default=1, also=("processes",)
    )
    memory: str | None = option(
        "how much memory each job asks for, as the system writes it, such as 8G",
        WORD,
        default=None,
    )
    walltime: str | None = option(
        "how long each job may take, such as 01:30:00; its workers finish before (default: the "
        "system's limit, which nobody here knows)",
        WALLTIME,
        default=None,
    )
    job_extra_directives: tuple[str, ...] = option(
        "further lines of each job's head, without the mark that begins them, such as "
        "--constraint=haswell",
        LINES,
        default=(),
    )
    job_script_prologue: tuple[str, ...] = option(
        "lines of shell that each job runs before its workers, such as module load python",
        LINES,
        default=(),
    )
    python: str | None = option(
        "the interpreter on the machines of the jobs (default: this one)", FILE, default=None
    )
    log_directory: str | None = option(
        "where the jobs' output goes, and a file with keys that nobody else can read: a directory "
        "that all machines have (default: the current one)",
        FILE,
        default=None,
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if the settings contradict each other."""
        super().__post_init__()
        if self.cores is not None and self.cores < self.workers_per_unit:
            raise ConfigError(
                f"cores ({self.cores}) must be at least as many as the workers of a job "
                f"({self.workers_per_unit})"
            )

    @property
    def cpus(self) -> int:
        """How many CPUs each job asks for."""
        return self.cores or self.workers_per_unit

    @property
    def walltime_s(self) -> int | None:
        """How long each job may take, in seconds; None: nobody knows."""
        return None if self.walltime is None else read_walltime(self.walltime)


@dataclass(frozen=True, kw_only=True)
class SlurmSettings(JobQueueSettings):
    """Of a manager whose units are jobs of Slurm."""

    types: ClassVar[tuple[str, ...]] = ("slurm",)


@dataclass(frozen=True, kw_only=True)
class PBSSettings(JobQueueSettings):
    """Of a manager whose units are jobs of PBS, Torque or OpenPBS."""

    types: ClassVar[tuple[str, ...]] = ("pbs",)


@dataclass(frozen=True, kw_only=True)
class LSFSettings(JobQueueSettings):
    """Of a manager whose units are jobs of IBM LSF."""

    types: ClassVar[tuple[str, ...]] = ("lsf",)


@dataclass(frozen=True, kw_only=True)
class SGESettings(JobQueueSettings):
    """Of a manager whose units are jobs of Grid Engine."""

    types: ClassVar[tuple[str, ...]] = ("sge",)

    parallel_environment: str = option(
        "the parallel environment of jobs with several CPUs", WORD, default="smp"
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if the system would not take the jobs' names."""
        super().__post_init__()
        if self.worker_manager_id is not None and self.worker_manager_id[0].isdigit():
            raise ConfigError(
                "worker_manager_id must begin with a letter, as Grid Engine's jobs do, which are "
                f"named after it, not {self.worker_manager_id!r}"
            )

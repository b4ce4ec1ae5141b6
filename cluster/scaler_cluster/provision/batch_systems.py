"""What batch systems differ in: the head of a job, and the commands for submitting and listing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol
from xml.etree import ElementTree as ET

from scaler_cluster.provision.backend import UnitStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scaler_cluster.config.job_queue_settings import JobQueueSettings, SGESettings


class Job(NamedTuple):
    """A job that a system lists."""

    number: str
    status: UnitStatus
    is_stuck: bool = False
    """It has failed, and stays listed until somebody deletes it."""


class BatchSystem(Protocol):
    """A batch system, by its commands."""

    mark: ClassVar[str]
    """What a line of a job's head begins with."""
    submit: ClassVar[tuple[str, ...]]
    """Takes the script of a job from its standard input, and prints its number."""
    cancel: ClassVar[tuple[str, ...]]
    """Ends the jobs whose numbers follow."""
    listing: ClassVar[tuple[str, ...]]
    """Lists the jobs of this user."""
    warning: ClassVar[str] = ""
    """The signal that all processes of a job get before it is killed; empty: SIGTERM."""

    def head(self, unit: str, log: Path) -> list[str]:
        """Return the lines of a job's head, without the mark."""

    def jobs(self, text: str) -> Mapping[str, Job]:
        """Return the jobs that :attr:`listing` printed, by their names."""

    def number(self, text: str) -> str:
        """Return the number of the job that :attr:`submit` has printed; empty: there is none."""


class Slurm(BatchSystem):
    """Slurm: sbatch, squeue, scancel."""

    mark: ClassVar[str] = "#SBATCH"
    submit: ClassVar[tuple[str, ...]] = ("sbatch", "--parsable")
    cancel: ClassVar[tuple[str, ...]] = ("scancel",)
    listing: ClassVar[tuple[str, ...]] = ("squeue", "--me", "-h", "-o", "%i|%t|%j|%r")

    def __init__(self, settings: JobQueueSettings) -> None:
        self._settings = settings

    def head(self, unit: str, log: Path) -> list[str]:
        """Return the lines of a job's head."""
        settings = self._settings
        lines = [
            f"--job-name={unit}",
            f"--output={log}",
            "--ntasks=1",
            f"--cpus-per-task={settings.cpus}",
            # To the script itself, which is the workers' supervisor by then.
            "--signal=B:TERM@10",
        ]
        return lines + _given(
            ("--partition=", settings.queue),
            ("--account=", settings.account),
            ("--mem=", settings.memory),
            ("--time=", settings.walltime),
        )

    def jobs(self, text: str) -> Mapping[str, Job]:
        """Return the jobs of squeue's lines: number, state, name, reason."""
        found = {}
        for line in text.splitlines():
            number, _, rest = line.partition("|")
            state, _, rest = rest.partition("|")
            name, _, reason = rest.rpartition("|")
            if state in ("PD", "CF"):
                status = UnitStatus(reason=f"{number} waits: {reason}")
            elif state in ("R", "CG", "S", "ST", "SO"):
                status = UnitStatus()
            else:
                status = UnitStatus(is_over=True, reason=f"{number} is {state}: {reason}")
            found[name] = Job(number, status)
        return found

    def number(self, text: str) -> str:
        """Return the number that sbatch prints, before the name of its cluster."""
        return text.strip().partition(";")[0]


class PBS(BatchSystem):
    """PBS and its kin: qsub, qstat, qdel."""

    mark: ClassVar[str] = "#PBS"
    submit: ClassVar[tuple[str, ...]] = ("qsub",)
    cancel: ClassVar[tuple[str, ...]] = ("qdel",)
    listing: ClassVar[tuple[str, ...]] = ("qstat", "-f")

    def __init__(self, settings: JobQueueSettings) -> None:
        self._settings = settings

    def head(self, unit: str, log: Path) -> list[str]:
        """Return the lines of a job's head."""
        settings = self._settings
        chosen = f"select=1:ncpus={settings.cpus}"
        if settings.memory is not None:
            chosen += f":mem={settings.memory}"
        lines = [f"-N {unit}", "-j oe", f"-o {log}", f"-l {chosen}"]
        return lines + _given(
            ("-q ", settings.queue),
            ("-A ", settings.account),
            ("-l walltime=", _clock(settings.walltime_s)),
        )

    def jobs(self, text: str) -> Mapping[str, Job]:
        """Return the jobs of qstat's records, whose long lines go on after a tab."""
        found = {}
        for record in re.split(r"(?m)^Job Id: ", text)[1:]:
            number = record.partition("\n")[0].strip()
            lines = record.replace("\n\t", "").splitlines()
            pairs = (line.partition(" = ")[::2] for line in lines if " = " in line)
            fields = {name.strip(): value for name, value in pairs}
            state, why = fields.get("job_state", ""), fields.get("comment", "")
            reason = "" if state in ("R", "E") else f"{number} is {state}: {why}".rstrip(": ")
            status = UnitStatus(state in ("C", "F", "X"), reason)
            found[fields.get("Job_Name", "")] = Job(number, status)
        return found

    def number(self, text: str) -> str:
        """Return the number that qsub prints."""
        return text.strip()


class LSF(BatchSystem):
    """IBM LSF: bsub, bjobs, bkill."""

    mark: ClassVar[str] = "#BSUB"
    submit: ClassVar[tuple[str, ...]] = ("bsub",)
    cancel: ClassVar[tuple[str, ...]] = ("bkill",)
    listing: ClassVar[tuple[str, ...]] = (
        "bjobs", "-a", "-noheader", "-o", "jobid stat job_name pend_reason delimiter='|'",
    )  # fmt: skip

    def __init__(self, settings: JobQueueSettings) -> None:
        self._settings = settings

    def head(self, unit: str, log: Path) -> list[str]:
        """Return the lines of a job's head."""
        settings = self._settings
        # It counts in minutes.
        minutes = None if settings.walltime_s is None else -(-settings.walltime_s // 60)
        lines = [f"-J {unit}", f"-o {log}", f"-n {settings.cpus}", '-R "span[hosts=1]"']
        return lines + _given(
            ("-q ", settings.queue),
            ("-P ", settings.account),
            ("-M ", settings.memory),
            ("-W ", None if minutes is None else f"{minutes // 60:02}:{minutes % 60:02}"),
        )

    def jobs(self, text: str) -> Mapping[str, Job]:
        """Return the jobs of bjobs' lines."""
        found = {}
        for line in text.splitlines():
            number, state, name, why = (line.split("|", 3) + [""] * 4)[:4]
            reason = "" if state == "RUN" else f"{number} is {state}: {why}".rstrip(": -")
            found[name] = Job(number, UnitStatus(state in ("DONE", "EXIT", "ZOMBI"), reason))
        return found

    def number(self, text: str) -> str:
        """Return the number in "Job <123> is submitted to queue <normal>."."""
        match = re.search(r"Job <(\d+)>", text)
        return match[1] if match else ""


class SGE(BatchSystem):
    """Grid Engine: qsub, qstat, qdel."""

    mark: ClassVar[str] = "#$"
    submit: ClassVar[tuple[str, ...]] = ("qsub", "-terse")
    cancel: ClassVar[tuple[str, ...]] = ("qdel",)
    listing: ClassVar[tuple[str, ...]] = ("qstat", "-xml")
    warning: ClassVar[str] = "USR2"

    def __init__(self, settings: SGESettings) -> None:
        self._settings = settings

    def head(self, unit: str, log: Path) -> list[str]:
        """Return the lines of a job's head."""
        settings = self._settings
        lines = [f"-N {unit}", "-j y", f"-o {log}", "-S /bin/sh", "-cwd", "-notify"]
        if settings.cpus > 1:
            lines.append(f"-pe {settings.parallel_environment} {settings.cpus}")
        return lines + _given(
            ("-q ", settings.queue),
            ("-P ", settings.account),
            ("-l h_vmem=", settings.memory),
            ("-l h_rt=", _clock(settings.walltime_s)),
        )

    def jobs(self, text: str) -> Mapping[str, Job]:
        """Return the jobs of qstat's XML."""
        found = {}
        for one in ET.fromstring(text).iter("job_list"):  # noqa: S314 - from qstat itself
            number, state = one.findtext("JB_job_number", ""), one.findtext("state", "")
            is_running = "r" in state or "t" in state
            reason = "" if is_running else f"{number} is {state}"
            is_stuck = "E" in state
            status = UnitStatus(is_stuck, reason)
            found[one.findtext("JB_name", "")] = Job(number, status, is_stuck)
        return found

    def number(self, text: str) -> str:
        """Return the number that qsub prints."""
        return text.strip().partition(".")[0]


def _given(*directives: tuple[str, str | None]) -> list[str]:
    """Return the directives that have a value, each followed by it."""
    return [f"{name}{value}" for name, value in directives if value is not None]


def _clock(seconds: int | None) -> str | None:
    """Return a time as HH:MM:SS."""
    if seconds is None:
        return None
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


SYSTEMS: Mapping[str, type[Slurm | PBS | LSF | SGE]] = {
    "slurm": Slurm,
    "pbs": PBS,
    "lsf": LSF,
    "sge": SGE,
}


def commands_of(system: BatchSystem) -> Sequence[str]:
    """Return the programs that a system must have."""
    return [system.submit[0], system.listing[0], system.cancel[0]]

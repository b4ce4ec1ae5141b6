"""Units that are jobs of a batch system: Slurm, PBS, LSF, Grid Engine."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.batch_systems import SYSTEMS, commands_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.config.job_queue_settings import JobQueueSettings
    from scaler_cluster.provision.batch_systems import BatchSystem, Job
    from scaler_cluster.provision.unit_command import UnitCommand
    from scaler_cluster.wire.messages import Offer

WARNED = (
    "trap 'kill -TERM $workers' {signal}",
    "(trap '' {signal}; exec {line}) &",
    "workers=$!",
    "while true; do",
    "    wait $workers",
    "    status=$?",
    "    kill -0 $workers 2>/dev/null || exit $status",
    "done",
)
"""Lines of shell that run workers, and end them in order when a signal comes."""
TIMEOUT_S = 60.0
"""A command of a batch system that has not ended after this is given up."""


class JobQueueBackend:
    """Submits, lists and ends jobs; each is a unit, and has its name."""

    def __init__(self, settings: JobQueueSettings, command: UnitCommand) -> None:
        self._settings = settings
        self._command = command
        made = SYSTEMS[settings.types[0]]
        self._system: BatchSystem = made(settings)  # type: ignore[arg-type]
        self._directory = Path(settings.log_directory or ".").absolute()
        self._python = settings.python or sys.executable
        self._jobs: Mapping[str, Job] = {}
        """The jobs of this manager, as they were listed last."""
        walltime_s = settings.walltime_s
        self.lifetime_s = None if walltime_s is None else float(walltime_s)
        """How long the system lets a job live."""
        if settings.dry_run:
            return
        missing = [one for one in commands_of(self._system) if shutil.which(one) is None]
        if missing:
            raise ConfigError(
                f"{', '.join(missing)} cannot be found: is this a machine of the cluster?"
            )
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make {self._directory}: {error.strerror}") from None

    def offered(self, offer: Offer) -> Offer:
        """Return what the settings offer."""
        return offer

    def start(self, units: Sequence[str]) -> None:
        """Submit a job for each unit."""
        self._write_keys()
        for unit in units:
            printed = self._run(self._system.submit, self.job_script(unit))
            if not self._system.number(printed):
                raise BackendError(f"{self._system.submit[0]} names no job: {printed.strip()}")

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the jobs whose names begin with the manager's id."""
        found = self._system.jobs(self._run(self._system.listing))
        prefix = f"{self._command.manager_id}-"
        self._jobs = {name: job for name, job in found.items() if name.startswith(prefix)}
        stuck = [job.number for job in self._jobs.values() if job.is_stuck]
        if stuck:
            self._run((*self._system.cancel, *stuck))
        return {name: job.status for name, job in self._jobs.items()}

    def stop(self, units: Sequence[str]) -> None:
        """End these jobs."""
        if any(unit not in self._jobs for unit in units):
            self.look()
        there = [self._jobs[unit] for unit in units if unit in self._jobs]
        numbers = [job.number for job in there if not job.status.is_over]
        if numbers:
            self._run((*self._system.cancel, *numbers))

    def dry_run(self, unit: str) -> str:
        """Return the script of a unit's job."""
        return self.job_script(unit)

    def close(self) -> None:
        """Leave the jobs alone; the file of keys goes with the last of them."""
        if self._settings.dry_run:
            return
        # If the system does not answer, a job may still need it.
        with contextlib.suppress(BackendError, OSError):
            if not self.look():
                self._key_file.unlink()

    @property
    def _key_file(self) -> Path:
        return self._directory / f".{self._command.manager_id}.key"

    def _write_keys(self) -> None:
        """Let the jobs have the workers' keys: in a file that nobody else can read."""
        text = self._command.keys_text
        if not text:
            return
        draft = self._key_file.with_suffix(".draft")
        try:
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(text)
            draft.replace(self._key_file)
        except OSError as error:
            raise BackendError(f"cannot write {self._key_file}: {error.strerror}") from None

    def job_script(self, unit: str) -> str:
        """Return the script of a unit's job."""
        settings, system = self._settings, self._system
        head = system.head(unit, self._directory / f"{unit}.log")
        head += settings.job_extra_directives
        keys = str(self._key_file) if self._command.keys_text else None
        lines = ["#!/bin/sh", *(f"{system.mark} {line}" for line in head), ""]
        lines += settings.job_script_prologue
        line = self._command.line(unit, self._python, keys)
        if system.warning:
            # The workers' supervisor is told by another signal, and passes over that one.
            lines += [part.format(line=line, signal=system.warning) for part in WARNED]
        else:
            # In place of the shell, so that the system's signals reach it.
            lines.append(f"exec {line}")
        return "\n".join(lines) + "\n"

    def _run(self, command: Sequence[str], text: str = "") -> str:
        """Run a command of the system; return what it prints."""
        try:
            done = subprocess.run(
                command,
                input=text.encode(),
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BackendError(f"{command[0]} does not end") from None
        except OSError as error:
            raise BackendError(f"{command[0]} cannot be run: {error.strerror}") from None
        if done.returncode:
            words = (done.stderr or done.stdout).decode(errors="replace").split()
            raise BackendError(f"{command[0]}: {' '.join(words) or f'status {done.returncode}'}")
        return done.stdout.decode(errors="replace")

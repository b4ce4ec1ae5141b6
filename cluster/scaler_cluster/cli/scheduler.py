# PYTHON_ARGCOMPLETE_OK
"""``scaler_scheduler``: the scheduler of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.sections import SchedulerSettings
from scaler_cluster.runtime.told import told_scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = "Schedule tasks: clients and clusters connect to it."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a scheduler until SIGINT or SIGTERM; return the exit status."""
    return run_command(SchedulerSettings, "scaler_scheduler", ABOUT, _run, arguments)


def _run(settings: SchedulerSettings) -> None:
    from scaler_cluster.runtime.scheduler import run

    run(told_scheduler(settings), None, lambda **_: None)

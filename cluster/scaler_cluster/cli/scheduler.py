# PYTHON_ARGCOMPLETE_OK
"""``scaler_scheduler``: the scheduler of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.sections import SchedulerSettings
from scaler_cluster.runtime.process_config import scheduler_process_config

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = "Schedule tasks: clients and clusters connect to it."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a scheduler until SIGINT or SIGTERM; return the exit status."""
    return run_command(SchedulerSettings, "scaler_scheduler", ABOUT, _run, arguments)


def _run(settings: SchedulerSettings) -> None:
    from scaler_cluster.runtime.scheduler import run

    run(scheduler_process_config(settings), None, lambda **_: None)

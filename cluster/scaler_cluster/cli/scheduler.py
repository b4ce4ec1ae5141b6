# PYTHON_ARGCOMPLETE_OK
"""``scaler_scheduler``: the scheduler of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command, wait_for
from scaler_cluster.config.sections import SchedulerSettings
from scaler_cluster.process.kept_scheduler import KeptScheduler
from scaler_cluster.process.process_config import SchedulerProcessConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = "Run a scheduler, to which clients and clusters connect."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a scheduler until SIGINT or SIGTERM; return the exit status."""
    return run_command(SchedulerSettings, "scaler_scheduler", ABOUT, run, arguments)


def run(settings: SchedulerSettings) -> int:
    """Run a scheduler in a child process, and start it again if it is killed."""
    kept = KeptScheduler(SchedulerProcessConfig.from_settings(settings))
    try:
        kept.start()
        return wait_for([kept])
    finally:
        kept.stop()

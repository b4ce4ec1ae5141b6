"""``scaler_cluster``: the workers of a machine; ``scaler_worker`` is another name of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.sections import ClusterSettings
from scaler_cluster.errors import ClusterUnreachable
from scaler_cluster.runtime.process import lifeline_of_signals
from scaler_cluster.runtime.told import told_supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = "Run tasks on this machine: start workers that connect to a scheduler."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run workers until SIGINT or SIGTERM, or until the scheduler is gone; return the status."""
    return run_command(ClusterSettings, "scaler_cluster", ABOUT, _run, arguments)


def worker(arguments: Sequence[str] | None = None) -> int:
    """Do the same, under the other name."""
    return run_command(ClusterSettings, "scaler_worker", ABOUT, _run, arguments)


def _run(settings: ClusterSettings) -> None:
    from scaler_cluster.runtime.supervisor import run

    reason = run(told_supervisor(settings), lifeline_of_signals())
    if reason:
        raise ClusterUnreachable(reason)
